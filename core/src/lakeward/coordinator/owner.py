"""What a round's job tells its service, as long as that round is the one in work on its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.rounds import Drained, RoundFailed
from lakeward.model.leases import Failover, FailoverKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.coordinator.books import RoundBooks
    from lakeward.coordinator.checkpointing import CheckpointDone
    from lakeward.coordinator.contents import Contents
    from lakeward.coordinator.desk import RoundDesk
    from lakeward.coordinator.run import RoundRun
    from lakeward.coordinator.service import Service
    from lakeward.machines.rounds import RoundsEvent
    from lakeward.model.checkpoints import LeaseCopy, RoundSnapshot
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import KvSnapshot


class RunOwner:
    """Hands what happens to one round's job to the service, as long as that round is the one in work."""

    def __init__(self, desk: RoundDesk, service: Service, run: RoundRun) -> None:
        """Keep the round."""
        self._desk = desk
        self._service = service
        self._run = run
        self._table_id = run.offer.table_id

    def job_drained(self, *, cut: bool) -> None:
        """See `JobOwner`."""
        self._post(Drained(now=self._service.now(), table_id=self._table_id, cut=cut))

    def job_failed(self, reason: str, *, permanent: bool) -> None:
        """See `JobOwner`."""
        event = RoundFailed(now=self._service.now(), table_id=self._table_id, reason=reason, permanent=permanent)
        self._post(event)

    def job_lost_snapshot(self, lost: frozenset[KvSnapshot], reason: str) -> None:
        """See `JobOwner`."""
        if self._desk.current(self._run):
            self._service.snapshots_gone(self._table_id, lost, reason)

    def job_lost_table(self) -> None:
        """See `JobOwner`."""
        if self._desk.current(self._run):
            self._desk.lose_table(self._run, f"table {self._run.offer.path}: a subtask says that it is gone")

    def splits_returned(self, kind: FailoverKind, attempt: int, splits: tuple[Split, ...]) -> None:
        """See `JobOwner`."""
        failover = Failover(kind=kind, attempt=attempt, returned=splits)
        self._service.spawn(lambda: self._service.failover(failover))

    def files_rejected(self, files: Collection[LakeFile]) -> None:
        """See `JobOwner`."""
        paths = [file.path for file in files]
        if paths:
            self._service.spawn(lambda: self._desk.discard(self._run, paths))

    def job_over(self) -> None:
        """See `JobOwner`."""
        self._desk.ended(self._run)

    def snapshot(self, books: RoundBooks) -> RoundSnapshot:
        """See `JobOwner`."""
        return self._run.snapshot(books)

    def lease_copy(self) -> LeaseCopy | None:
        """See `JobOwner`."""
        return self._service.lease_copy()

    def checkpoint_storing(self, contents: Contents) -> None:
        """See `JobOwner`."""
        if self._desk.current(self._run):
            self._desk.checkpoint_storing(self._run, contents)

    def checkpoint_done(self, done: CheckpointDone) -> None:
        """See `JobOwner`."""
        if self._desk.current(self._run):
            self._desk.checkpoint_done(self._run, done)

    def checkpoint_aborted(self, number: int, reason: str) -> None:
        """See `JobOwner`."""
        self._run.checkpoint_aborted(number, reason)

    def _post(self, event: RoundsEvent) -> None:
        if self._desk.current(self._run):
            self._service.post(event)
