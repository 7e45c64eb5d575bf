"""Puts rows of dead letters into their table, once, before a round of it begins. Blocking.

Two commits: one to the table, by the committer of rounds and with the offsets that are there, and then one to the table
of the letters without those. Between them the journal names these letters: whoever opens the table next finds the first
commit and makes the second one, or finds none, and then the letters are still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog
from msgspec import structs

from lakeward.coordinator.commits.committer import CommitWork
from lakeward.coordinator.commits.letter_committer import REPLAY_STEP
from lakeward.errors import LakeError
from lakeward.model.dead_letters import path_of, read_back
from lakeward.model.events import Deploy
from lakeward.model.replays import ReplayWork, keys_alone
from lakeward.model.wire import pack_table
from lakeward.ports import RewritableLake
from lakeward.storage.round_journal import RoundJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from lakeward.coordinator.commits.committer import Committer
    from lakeward.coordinator.commits.fence import CommitFence
    from lakeward.coordinator.commits.letter_committer import LetterCommitter
    from lakeward.coordinator.rounds.context import RoundContext
    from lakeward.model.dead_letters import LetterFilter
    from lakeward.model.identity import RoundId
    from lakeward.model.replays import Replayed
    from lakeward.model.results import CommitIds, LakeHead
    from lakeward.model.settings import Settings
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake, Source
    from lakeward.storage.round_journal import JournalStore

    Letters = Callable[[], Iterator[pa.RecordBatch]]

_log = structlog.get_logger("lakeward.deadletters")


class WrittenReplay(NamedTuple):
    """A replay whose files are written, and in no commit yet."""

    context: RoundContext
    journal: RoundJournal
    found: Replayed


class LetterReplayer:
    """Replays dead letters; what is asked for waits until the table's next round."""

    def __init__(
        self,
        *,
        source: Source,
        lake: Lake,
        journals: JournalStore,
        committer: Committer,
        letters: LetterCommitter,
        fence: CommitFence,
        settings: Settings,
        write: Callable[[ReplayWork, Letters], Replayed],
    ) -> None:
        """Keep the parts; `write` writes rows that fit by now to files of their table."""
        self._source = source
        self._lake = lake
        self._journals = journals
        self._committer = committer
        self._letters = letters
        self._fence = fence
        self._settings = settings
        self._write = write
        self._asked: dict[TablePath, LetterFilter] = {}

    def ask(self, wanted: Mapping[TablePath, LetterFilter]) -> None:
        """Have letters replayed; the newest request of a table counts. Does not block."""
        self._asked.update(wanted)

    def take(self, path: TablePath) -> LetterFilter | None:
        """Return which letters of a table are to be replayed, and forget it; None: nobody asks."""
        return self._asked.pop(path, None)

    def finish(self, table: TableSpec, head: LakeHead) -> None:
        """See `LetterCommitter.finish`."""
        self._letters.finish(table, head)

    def write(self, replay_id: RoundId, context: RoundContext, wanted: LetterFilter) -> WrittenReplay | None:
        """Write the rows that fit before a round of their table, which is opened; None where there are no letters.

        Raises:
            LakewardError: letters or source cannot be read, or the lake cannot be written; nothing was committed.
        """
        table, head, path = context.table, context.head, path_of(context.table.in_lake.path)
        letters_head = self._lake.head(path)
        if head.commit is None or letters_head is None or letters_head.snapshot_id is None:
            _log.info("there are no dead letters to replay", table=str(table.path))
            return None
        lake, snapshot_id = self._lake, letters_head.snapshot_id
        if not isinstance(lake, RewritableLake):
            message = f"{table.path}: lake {lake.name!r} cannot take dead letters out: it offers no `rewrite`"
            raise LakeError(message)
        prefix = self._lake.file_prefix(table.in_lake.path, replay_id)
        journal = RoundJournal.begun(replay_id, table.path, head.snapshot_id, context.base_commit, prefix)
        prefix = self._lake.file_prefix(path, replay_id)
        journal = structs.replace(journal, letters_prefix=prefix, lake_path=table.lake_path)
        self._journals.write(journal)

        def chosen() -> Iterator[pa.RecordBatch]:
            return (wanted.of(read_back(rows)) for rows in lake.read_rows(path, snapshot_id))

        found = self._write(self._work(replay_id, context), chosen)
        return WrittenReplay(context, structs.replace(journal, replayed=b"".join(found.applied)), found)

    def commit(self, written: WrittenReplay, round_id: RoundId) -> RoundJournal:
        """Commit the rows, as long as a round may commit, and take their letters out; return the journal.

        Once the rows have landed, `finish` takes the letters out if that fails here: no round may begin before.

        Raises:
            FencedError: a later start has taken over, or the round is over.
            OutcomeUnknownError: the rows may have landed, or may yet.
            LakewardError: the lake refused one of the two, or the source the first.
        """
        table, found = written.context.table, written.found
        if found.files:
            journal = self._commit_rows(written, round_id)
        else:
            journal = self._letters.take_out(table, written.journal, found.stay)
        _log.info("replayed dead letters", table=str(table.path), put_in=len(found.applied), stay=len(found.stay))
        return journal

    def _commit_rows(self, written: WrittenReplay, round_id: RoundId) -> RoundJournal:
        context, journal, found = written
        table, commit = context.table, context.head.commit
        self._letters.expect(table.path)

        def add_ids(ids: CommitIds) -> None:
            nonlocal journal
            journal = structs.replace(journal, commits=(*journal.commits, (ids.uuid, ids.snapshot_id)))
            self._journals.write(journal)

        def landed() -> None:
            nonlocal journal
            journal = self._letters.take_out(table, journal, found.stay)

        self._committer.commit(
            CommitWork(
                round_id=journal.round_id,
                step=REPLAY_STEP,
                base_commit=context.base_commit,
                incarnation=journal.round_id.incarnation,
                table=table,
                files=found.files,
                offsets=context.tiered,
                journal=add_ids,
                may_commit=lambda: self._fence.check(round_id, table.path),
                hurry=lambda: self._fence.stopping,
                registered=table.union_read,
                complete_ms=None if commit is None else commit.complete_ms,
                landed=landed,
            )
        )
        return journal

    def _work(self, replay_id: RoundId, context: RoundContext) -> ReplayWork:
        settings, table, keys = self._settings, context.table, keys_alone(context.table)
        deploy = Deploy(
            attempt=0,
            table=pack_table(table),
            source=settings.source.type,
            source_task=self._source.reader_task(keys),
            lake=settings.lake.type,
            lake_task=self._lake.writer_task(table.in_lake, context.head, replay_id),
            fence_s=settings.service.fence_s,
            progress_s=settings.observe.progress_s,
            open_files=settings.lake.open_files,
            open_rows_bytes=settings.checkpoint.open_rows,
            write_memory_bytes=settings.lake.write_memory,
        )
        return ReplayWork(table, deploy, context.tiered, {state.bucket: state for state in context.buckets})
