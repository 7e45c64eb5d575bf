"""What a round's job is made of, and who is told how it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.coordinator.books import RoundBooks
    from lakeward.coordinator.checkpointing import CheckpointDone, CheckpointPlan
    from lakeward.coordinator.contents import Contents
    from lakeward.machines.splits import Enumeration
    from lakeward.model.checkpoints import LeaseCopy, RoundSnapshot
    from lakeward.model.events import Deploy
    from lakeward.model.jobs import JobSpec
    from lakeward.model.leases import FailoverKind
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import KvSnapshot


class JobOwner(Protocol):
    """Who is told how a job goes: its round."""

    def job_drained(self, *, cut: bool) -> None:
        """Every split is finished or left out."""
        ...

    def job_failed(self, reason: str, *, permanent: bool) -> None:
        """The job cannot go on."""
        ...

    def job_lost_snapshot(self, lost: frozenset[KvSnapshot], reason: str) -> None:
        """A snapshot vanished under a reader; `lost` are those that it was reading."""
        ...

    def job_lost_table(self) -> None:
        """The table is gone."""
        ...

    def splits_returned(self, kind: FailoverKind, attempt: int, splits: tuple[Split, ...]) -> None:
        """Splits came back after a failure and will be read again."""
        ...

    def files_rejected(self, files: Collection[LakeFile]) -> None:
        """These were closed by an attempt that no longer counts, and nothing needs them."""
        ...

    def job_over(self) -> None:
        """The last launch is over: no task of it runs any more."""
        ...

    def snapshot(self, books: RoundBooks) -> RoundSnapshot:
        """Return the coordinator's part of a checkpoint, calling nothing outside."""
        ...

    def lease_copy(self) -> LeaseCopy | None:
        """Return the lease, for the checkpoint."""
        ...

    def checkpoint_storing(self, contents: Contents) -> None:
        """A checkpoint is about to be written: from now on it may be whole, whoever hears of it."""
        ...

    def checkpoint_done(self, done: CheckpointDone) -> None:
        """A checkpoint is whole."""
        ...

    def checkpoint_aborted(self, number: int, reason: str) -> None:
        """A checkpoint never happened."""
        ...


@dataclass(slots=True)
class JobPlan:
    """What a job is made of. `deploy` makes the Deploy event for an attempt number; `limit` is launches at most."""

    round_name: str
    enumeration: Enumeration
    deploy: Callable[[int], Deploy]
    spec: Callable[[int, int], JobSpec]
    """Launch number and subtasks to the launch."""
    slots: int
    limit: int
    silence_s: float
    checkpoints: CheckpointPlan
    restored: Contents | None = None
