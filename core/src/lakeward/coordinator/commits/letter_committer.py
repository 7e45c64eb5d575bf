"""Commits dead letters to their own lake table, after the commit of their table that they belong to. Blocking.

The table's commit decides: its offsets say that a row was read. From before it is sent until the letters have landed,
the round's journal names them. So a start that finds such a journal makes the commit, if the table's own has landed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from msgspec import structs

from lakeward.coordinator.commits.committer import CommitWork
from lakeward.coordinator.commits.letter_rewriter import LetterChange
from lakeward.errors import SchemaMismatchError, TableGoneError
from lakeward.model import dead_letters
from lakeward.model.dead_letters import DIGEST_BYTES
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import CommitIds
from lakeward.model.tables import TableBucket
from lakeward.storage.commit_records import stored_offsets
from lakeward.storage.round_journal import PendingLetters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakeward.coordinator.commits.committer import Committer
    from lakeward.coordinator.commits.letter_rewriter import LetterRewriter
    from lakeward.model.dead_letters import Reason
    from lakeward.model.results import LakeFile, LakeHead
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake, Source
    from lakeward.storage.round_journal import JournalStore, RoundJournal

REPLAY_STEP = 1
"""The step of the one commit of a replay."""
_RECOVERED = 0
"""The step of a commit that a later start makes; those of rounds begin at 1."""
_log = structlog.get_logger("lakeward.committer")
_Commit = tuple[Incarnation, str, int | None]
"""Whose it is: start, name of the round, step."""


def pending(step: int, offsets: Mapping[TableBucket, int], files: Iterable[LakeFile]) -> PendingLetters | None:
    """Return what a journal says of the letters of a commit that is about to be sent; None: it has none."""
    data = tuple(structs.replace(file, kind="data") for file in files)
    return PendingLetters(step, data, stored_offsets(offsets)) if data else None


class LetterCommitter:
    """The tables of dead letters of one start."""

    def __init__(  # noqa: PLR0917 - whose start it is, then what it works with
        self,
        incarnation: Incarnation,
        source: Source,
        lake: Lake,
        journals: JournalStore,
        committer: Committer,
        rewriter: LetterRewriter,
    ) -> None:
        self._incarnation = incarnation
        self._source = source
        self._lake = lake
        self._journals = journals
        self._committer = committer
        self._rewriter = rewriter
        self._expected: set[TablePath] = set()
        """Tables of which this start has sent a commit with letters."""
        self._settled: dict[TablePath, _Commit] = {}
        """The newest commit of a table of which no letters wait: one that was sent before may still land above it.

        It is known by who made it: a lake table that was made anew may count its snapshots from the start again.
        """

    def expect(self, path: TablePath) -> None:
        """Note that a commit of a table is about to be sent whose journal names letters."""
        self._expected.add(path)

    def open(self, table: TableSpec) -> LakeHead:
        """Create the table of a table's dead letters if there is none, and stamp it.

        Raises:
            FencedError: a later start of this service has it.
            SchemaMismatchError: the source has a table of that name.
        """
        letters = dead_letters.table_of(table).in_lake
        self._check_free(table.path, letters.path)
        self._lake.open_table(letters, self._incarnation)
        return self._lake.stamp(letters.path, self._incarnation)

    def commit(self, table: TableSpec, journal: RoundJournal, may_commit: Callable[[], None]) -> RoundJournal:
        """Commit the letters that a journal names, whose table's own commit has landed; return it without them.

        Raises as `Committer.commit`, and as `open`.
        """
        letters = journal.letters
        if letters is None:
            return journal
        head = self.open(table)
        if self._found(journal, letters, head):
            return self._landed(journal, letters, head)
        us, theirs = self._incarnation, journal.round_id
        ours, tried = us == theirs.incarnation, letters

        def add_ids(ids: CommitIds) -> None:
            nonlocal tried
            tried = tried.with_try(ids)
            self._journals.write(structs.replace(journal, letters=tried))

        self._committer.commit(
            CommitWork(
                round_id=RoundId(us, theirs.table_id, theirs.epoch, theirs.number),
                step=letters.step if ours else _RECOVERED,
                base_commit=None if head.commit is None else head.commit.snapshot_id,
                incarnation=us,
                table=dead_letters.table_of(table),
                files=letters.files,
                offsets=_offsets(theirs.table_id, letters),
                journal=add_ids,
                may_commit=may_commit,
                registered=False,
            )
        )
        return self._landed(journal, tried, head)

    def take_out(self, table: TableSpec, journal: RoundJournal, reasons: Mapping[bytes, Reason]) -> RoundJournal:
        """Take out the letters that a journal names as replayed, and give others a new reason; return it without them.

        The commit that has their rows has landed. Raises as `LetterRewriter.rewrite`, and as `open`.
        """
        path = self.open(table).path
        data = journal.replayed
        gone = frozenset(data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES))
        self._rewriter.rewrite(path, journal.round_id, LetterChange(gone, reasons), self._incarnation)
        done = structs.replace(journal, replayed=b"")
        self._journals.write(done)
        return done

    def finish(self, table: TableSpec, head: LakeHead) -> None:
        """Do what the newest round or replay of a table has left undone, whose own commit has landed.

        Letters of a round are committed, those that were replayed are taken out. `head` is the table's, with this
        start's stamp. Only the newest commit that is a service's of ours can have letters that wait: none is sent
        before those of the one below have landed, be they another service's of this state root. What other journals say
        is out of date, as a slow write of an earlier start may be, or is of a commit that has not landed: those letters
        go with the round's other files. Raises as `commit` and `take_out`.
        """
        newest, us = head.own or head.commit, self._incarnation
        if newest is None or newest.incarnation is None or newest.round_name is None:
            return
        if newest.incarnation == us and table.path not in self._expected:
            return
        found: _Commit = (newest.incarnation, newest.round_name, newest.step)
        if self._settled.get(table.path) == found:
            return
        journal = self._journals.read_named(newest.incarnation, newest.round_name)
        if journal is not None and (journal.in_lake, journal.table_id) == (table.in_lake.path, table.table_id):
            self._finish(table, journal, newest.step)
        self._settled[table.path] = found

    def _finish(self, table: TableSpec, journal: RoundJournal, step: int | None) -> None:
        if journal.letters is not None and journal.letters.step == step:
            _log.info("commits the dead letters of an earlier round", round=str(journal.round_id))
            self._journals.write(self.commit(table, journal, lambda: None))
        elif journal.letters is None and journal.replayed:
            _log.info("takes out the dead letters of an earlier replay", round=str(journal.round_id))
            self.take_out(table, journal, {})

    def _landed(self, journal: RoundJournal, letters: PendingLetters, head: LakeHead) -> RoundJournal:
        """Delete what tries have left of which another one has landed; return the journal without the letters."""
        if len(letters.commits) > 1:
            tries = (CommitIds(*one) for one in letters.commits)
            files = [file for ids in tries for file in self._lake.commit_leftovers(head.path, ids)]
            self._lake.delete(frozenset(files) - self._lake.referenced(head.path, files))
        return structs.replace(journal, letters=None)

    def _found(self, journal: RoundJournal, letters: PendingLetters, head: LakeHead) -> bool:
        """Return whether they have landed. The stamp is this start's, so that no earlier try of another one can.

        No commit of letters came after them, so one by which another start has recovered them is the newest, and has
        their offsets. What a journal says of that, a slow write of an earlier start may have replaced.
        """
        theirs = journal.round_id
        if self._lake.find(head.path, theirs, letters.step) is not None:
            return True
        newest = head.commit
        return (
            newest is not None
            and (newest.round_name, newest.step) == (theirs.name, _RECOVERED)
            and (newest.offsets is None or dict(newest.offsets) == _offsets(theirs.table_id, letters))
        )

    def _check_free(self, table: TablePath, path: TablePath) -> None:
        try:
            self._source.table(path)
        except TableGoneError:
            return
        message = (
            f"{table}: its dead letters would go to {path}, and the source has a table of that name: "
            "rename that one, or set another on_bad_row"
        )
        raise SchemaMismatchError(message)


def _offsets(table_id: int, letters: PendingLetters) -> dict[TableBucket, int]:
    return {TableBucket(table_id, partition, bucket): offset for partition, bucket, offset in letters.offsets}
