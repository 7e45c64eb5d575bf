"""Bringing a round, or a step of it, into the lake: journal, fence, commit. Blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.checkpoint.commit_records import CommitRecord
from lakeward.checkpoint.journal import RoundJournal
from lakeward.coordinator.committer import Committer, CommitWork
from lakeward.errors import FencedError, LakewardError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.coordinator.commit_account import CommitAccount
    from lakeward.coordinator.committer import Committed
    from lakeward.coordinator.opening import Opening
    from lakeward.coordinator.run import RoundRun
    from lakeward.coordinator.service import Service
    from lakeward.model.results import CommitIds, LakeFile
    from lakeward.model.tables import TableBucket, TableSpec

_log = structlog.get_logger("lakeward.landing")


class Lander:
    """Commits what rounds have; several tables at once, each table once at a time."""

    def __init__(self, service: Service) -> None:
        """Keep the parts.

        Args:
            service: for its parts and options, and for what is in hand.
        """
        self._service = service
        self._parts = service.parts
        self._options = service.options
        self._committer = Committer(self._parts.source, self._parts.lake, self._parts.clock)

    def land(
        self,
        run: RoundRun,
        opening: Opening,
        offsets: Mapping[TableBucket, int],
        files: tuple[LakeFile, ...],
        account: CommitAccount,
    ) -> Committed:
        """Commit a round, or a step of one that goes on.

        Args:
            run: the round.
            opening: what it started from.
            offsets: all buckets, as far as the round or its checkpoint is.
            files: those of them that are not in the lake yet.
            account: what the splits came to.

        Returns:
            The commit.

        Raises:
            RowCountError: rows, files or offsets are not what the splits came to; nothing was sent.
            LakewardError: as `Committer.commit`.
        """
        account.check(offsets, files)
        done = self._committer.commit(
            CommitWork(
                round_id=run.round_id,
                step=run.step,
                base_commit=run.base_commit,
                incarnation=self._parts.incarnation,
                opening=opening,
                files=files,
                offsets=offsets,
                journal=lambda ids: self._add_commit(run, ids),
                may_commit=lambda: self._may_commit(run),
            )
        )
        self._remember(opening.table, done.snapshot_id, offsets)
        return done

    def write_journal(self, run: RoundRun, opening: Opening, commits: tuple[tuple[str, int], ...] = ()) -> None:
        """Write down what has to be swept should the round not end well.

        Args:
            run: the round.
            opening: what it starts from.
            commits: uuid and snapshot id of each commit that is about to be tried or was.
        """
        path = opening.table.path
        prefix = self._parts.lake.file_prefix(path, run.round_id)
        run.journal = RoundJournal(run.round_id, path, opening.head.snapshot_id, opening.base_commit, prefix, commits)
        self._parts.journals.write(run.journal)

    def _remember(self, table: TableSpec, snapshot_id: int, offsets: Mapping[TableBucket, int]) -> None:
        """Write down that the lake table holds this commit; where that fails, the next opening does it."""
        record = CommitRecord(table.path, table.table_id, snapshot_id, offsets, self._parts.clock.wall_ms())
        try:
            self._parts.committed.write(record)
        except LakewardError as error:
            _log.warning("the record of the newest commit was not written", table=str(table.path), reason=str(error))

    def _add_commit(self, run: RoundRun, ids: CommitIds) -> None:
        commits = run.journal.commits if run.journal is not None else ()
        if run.opening is not None:
            self.write_journal(run, run.opening, (*commits, (ids.uuid, ids.snapshot_id)))

    def _may_commit(self, run: RoundRun) -> None:
        renewed = next((s.renewed_at for s in self._service.rounds.in_hand if s.offer == run.offer), None)
        if renewed is None or not self._service.desk.current(run):
            message = f"table {run.offer.path} is no longer in hand"
            raise FencedError(message)
        silent = self._service.now() - renewed
        if silent >= self._options.rounds.fence_s:
            message = f"table {run.offer.path}: last renewal {silent:.0f} s ago, fence time is over"
            raise FencedError(message)
