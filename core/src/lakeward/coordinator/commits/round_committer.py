"""Checks what a round, or a step of it, commits, keeps its journal, and has `committer` send it. Blocking.

A step is a commit of a round that goes on after it (`commit_every`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from msgspec import structs

from lakeward.coordinator.commits.committer import TRIES, CommitWork
from lakeward.coordinator.commits.letter_committer import pending
from lakeward.errors import LakewardError
from lakeward.model.backoff import RetryPauses
from lakeward.model.dead_letters import path_of, split_files
from lakeward.storage.commit_records import CommitRecord, stored_offsets
from lakeward.storage.round_journal import RoundJournal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.coordinator.commits.commit_account import CommitAccount
    from lakeward.coordinator.commits.committer import Committer
    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.coordinator.commits.letter_committer import LetterCommitter
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitIds, LakeFile, LakeHead
    from lakeward.model.settings import LakeSettings, ServiceSettings
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.ports import Clock, Lake
    from lakeward.storage.commit_records import CommitRecords
    from lakeward.storage.round_journal import JournalStore

_log = structlog.get_logger("lakeward.committer")


@dataclass(frozen=True, slots=True)
class RoundCommit:
    """One commit of a round: built on the event loop, executed by a worker."""

    round_id: RoundId
    journal: RoundJournal | None
    """As it is on disk, with the ids of the round's earlier commits; None if it has none yet."""
    head: LakeHead
    """The lake's head that the round started from."""
    step: int
    """1 for the first commit of a round; above 1 only with `commit_every`."""
    base_commit: int | None
    """The newest commit with offsets that this one is based on."""
    table: TableSpec
    offsets: Mapping[TableBucket, int]
    """Of all buckets, at the progress of the round or of its checkpoint."""
    files: tuple[LakeFile, ...]
    """Those of the round that are not in the lake yet."""
    account: CommitAccount
    """The expected rows, files and offsets."""
    complete_ms: int | None
    """As of `CommitRequest`."""


@dataclass(frozen=True, slots=True)
class CommittedRound:
    """A commit that landed. `journal` has its ids; seconds by phase; start and end of each part, see `CommitResult`."""

    snapshot_id: int
    journal: RoundJournal
    timings_s: Mapping[str, float]
    parts_s: Mapping[str, tuple[float, float]]


def commit_pauses(service: ServiceSettings, lake: LakeSettings) -> RetryPauses:
    """Return the pauses before a lake that did not answer a commit is called again.

    All pauses of one commit are together shorter than its time limit.
    """
    return RetryPauses(service.backoff_first_s, service.backoff_most_s).at_most(lake.commit_timeout_s / TRIES)


class RoundCommitter:
    """Commits rounds: several tables at once, one commit of a table at a time, its ids in the journal first."""

    def __init__(
        self,
        *,
        incarnation: Incarnation,
        clock: Clock,
        lake: Lake,
        journals: JournalStore,
        committed: CommitRecords,
        fence: CommitFence,
        committer: Committer,
        letters: LetterCommitter,
    ) -> None:
        self._incarnation = incarnation
        self._clock = clock
        self._lake = lake
        self._journals = journals
        self._committed = committed
        self._fence = fence
        self._committer = committer
        self.letters = letters

    def write_journal(self, round_id: RoundId, table: TableSpec, head: LakeHead, *, letters: bool) -> RoundJournal:
        """Write the journal, which lists what must be deleted if the round fails; `letters`: dead letters as well."""
        journal = self._journal(round_id, table, head)
        if letters:
            prefix = self._lake.file_prefix(path_of(table.in_lake.path), round_id)
            journal = structs.replace(journal, letters_prefix=prefix)
        self._journals.write(journal)
        return journal

    def commit(self, commit: RoundCommit) -> CommittedRound:
        """Commit a round, or a step of a round that continues.

        Raises:
            RowCountError: rows, files or offsets differ from those of the splits; nothing was sent.
            LakewardError: as `Committer.commit`.
        """
        commit.account.check(commit.offsets, commit.files)
        round_id, table = commit.round_id, commit.table
        journal = commit.journal or self._journal(round_id, table, commit.head)

        files, letters = split_files(commit.files)
        journal = structs.replace(journal, letters=pending(commit.step, commit.offsets, letters))
        if letters:
            self.letters.expect(table.path)

        def add_ids(ids: CommitIds) -> None:
            nonlocal journal
            journal = self._add_ids(journal, ids)

        def may_commit() -> None:
            self._fence.check(round_id, table.path)

        def landed() -> None:
            nonlocal journal
            journal = self.letters.commit(table, journal, may_commit)

        done = self._committer.commit(
            CommitWork(
                round_id=round_id,
                step=commit.step,
                base_commit=commit.base_commit,
                incarnation=self._incarnation,
                table=table,
                files=files,
                offsets=commit.offsets,
                journal=add_ids,
                registered=table.union_read,
                complete_ms=commit.complete_ms,
                may_commit=may_commit,
                landed=landed,
                hurry=lambda: self._fence.stopping,
            )
        )
        self._remember(table, done.snapshot_id, commit.offsets)
        return CommittedRound(done.snapshot_id, journal, done.timings_s, done.parts_s)

    def _journal(self, round_id: RoundId, table: TableSpec, head: LakeHead) -> RoundJournal:
        base_commit = head.commit.snapshot_id if head.commit is not None else None
        prefix = self._lake.file_prefix(table.in_lake.path, round_id)
        begun = RoundJournal.begun(round_id, table.path, head.snapshot_id, base_commit, prefix)
        return structs.replace(begun, lake_path=table.lake_path)

    def _add_ids(self, journal: RoundJournal, ids: CommitIds) -> RoundJournal:
        longer = structs.replace(journal, commits=(*journal.commits, (ids.uuid, ids.snapshot_id)))
        self._journals.write(longer)
        return longer

    def _remember(self, table: TableSpec, snapshot_id: int, offsets: Mapping[TableBucket, int]) -> None:
        """Record the commit as the lake table's newest; if that fails, the start of the next round does it."""
        record = CommitRecord(table.path, table.table_id, snapshot_id, stored_offsets(offsets), self._clock.wall_ms())
        try:
            self._committed.write(record)
        except LakewardError as error:
            _log.warning("the record of the newest commit was not written", table=str(table.path), reason=str(error))
