"""Deleting what rounds that did not commit left behind: the dangerous part (exactly-once.md).

A journal names a round's file prefix and the ids of every commit that was tried. Deleting cannot be compared and
swapped, so: nothing that any retained snapshot of the table or a live checkpoint names is touched; files that a
commit of unknown outcome names are deleted only after a later offset-carrying commit of ours has landed, or where the
source has dropped their table and our stamp keeps that commit out; and the prefix of a round whose process may still be
alive is listed once more after the fence time. A later start's journals are not even looked at: whoever was overtaken
in the middle of its own sweep would delete what its successor writes.

Where the lake says that it has no such table, nothing can be asked: the warehouse may be away, or a gateway answers in
its place. The journal stays, and what it names is swept when the table can be asked again. Only where the source has
dropped the table as well is there nobody who could adopt the files: they go once the lake table has been missing for
so long that no outage explains it.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import FencedError, LakewardError, TableGoneError
from lakeward.model.identity import RoundId
from lakeward.model.results import CommitIds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.model.identity import Incarnation
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock, Lake
    from lakeward.storage.round_journal import JournalStore, RoundJournal

_MISSING_MS = 24 * 60 * 60 * 1000
"""A lake table that two starts so far apart have found missing is taken for dropped where the source dropped it too."""
_log = structlog.get_logger("lakeward.cleaner")


class LakeTableState(Enum):
    """What the lake has under the name of a journal's table."""

    SAME = "same"
    ANOTHER = "another"
    """Of another table id: the journal's own was set aside, and what that one names cannot be asked any more."""
    MISSING = "missing"
    """None now: dropped, or the lake cannot be asked."""


def _still_there(_path: TablePath, _table_id: int) -> bool:
    return False


class Cleaner:
    """Sweeps journals of one service. Blocking; one call per table at a time."""

    def __init__(
        self,
        lake: Lake,
        journals: JournalStore,
        clock: Clock,
        incarnation: Incarnation,
        *,
        fence_s: float,
        checkpointed: Callable[[int], frozenset[str]],
    ) -> None:
        """Keep the parts.

        Args:
            lake: where files lie.
            journals: this service's journals.
            clock: for the fence time (wall clock: journals outlive processes).
            incarnation: ours.
            fence_s: seconds after which a process that lost us has stopped writing.
            checkpointed: gives the files that live checkpoints of a table, by its id, name.
        """
        self._lake = lake
        self._journals = journals
        self._clock = clock
        self._incarnation = incarnation
        self._fence_ms = int(fence_s * 1000)
        self._checkpointed = checkpointed
        self._live: set[RoundId] = set()

    def begin(self, round_id: RoundId) -> None:
        """Spare a round of ours from now on: its tasks run."""
        self._live.add(round_id)

    def end(self, round_id: RoundId) -> None:
        """Say that no task of a round of ours runs any more."""
        self._live.discard(round_id)

    def before_round(self, path: TablePath) -> None:
        """Sweep rounds of this table that nobody can adopt any more; our stamp is on the table.

        Those were never about to commit, or a later commit has landed since (they were swept once, and are swept
        again after the fence time: the table may never have another commit).

        Args:
            path: the table.
        """
        for journal in self._of(path):
            if not journal.commits or journal.swept_ms is not None:
                self._sweep(journal)

    def again(self, is_gone: Callable[[TablePath, int], bool] = _still_there) -> None:
        """Sweep every journal that was swept once, the fence time ago or longer: nobody can adopt its files any more.

        Asked at each start, for a table may never have another round. Where the source says that a table is gone
        for good, its journals' time begins now, and the next start sweeps them. Trouble with one journal is logged
        and keeps no other one.

        Args:
            is_gone: says whether the source no longer has the table of this name and id.

        Raises:
            FencedError: a later start has stamped the table; it sweeps.
        """
        taken: set[tuple[TablePath, int]] = set()
        for journal in self._known():
            try:
                self._sweep_again(journal, is_gone, taken)
            except FencedError:
                raise
            except LakewardError as error:
                _log.warning("left-over files stay for now", round=str(journal.round_id), reason=str(error))

    def _take_over(self, path: TablePath, table_id: int) -> None:
        """Keep out what our earlier starts may still commit: where the table is gone, no round has stamped it since.

        A commit may hang for much longer than the fence time, and land then. Under another service's stamp it cannot;
        that service is left in peace.
        """
        head = self._lake.head(path)
        stamp = head.stamp if head is not None and head.table_id == table_id else None
        if stamp is not None and stamp.service == self._incarnation.service:
            self._lake.stamp(path, self._incarnation)

    def after_commit(self, path: TablePath, round_id: RoundId) -> None:
        """Sweep every earlier round of this table: a later offset-carrying commit of ours has landed.

        A round that was begun after that commit may have a commit of unknown outcome: it is not even looked at.

        Args:
            path: the table.
            round_id: the round that landed; its own journal goes with the sweep of its files (`sweep_prefix`).
        """
        for journal in self._of(path):
            if journal.round_id == round_id:
                self._delete_tries(journal)
                self._journals.write(replace(journal, swept_ms=self._clock.wall_ms()))
            elif not self._was_begun_after(journal, round_id):
                self._sweep(journal)

    def end_round(self, round_id: RoundId) -> None:
        """Sweep a round of ours that failed and whose tasks are known to have ended.

        A commit that was given up may have written to its journal until now, so the journal is read again.

        Args:
            round_id: the round.
        """
        journal = self._journals.read(round_id)
        if journal is None or journal.commits:
            return
        found = self._look(journal)
        if found is LakeTableState.ANOTHER or (found is LakeTableState.SAME and self._delete_files(journal)):
            self._journals.delete(journal)
        else:  # a checkpoint names some, or nobody can be asked: a later round or the next start sweeps (`again`)
            self._journals.write(replace(journal, swept_ms=self._clock.wall_ms()))

    def sweep_prefix(self, journal: RoundJournal, *, may_have_orphans: bool) -> None:
        """End a round of ours that has committed and whose tasks are known to have ended.

        Its journal is needed no longer, unless a checkpoint names some of the files: the table's next round may have
        begun before the checkpoint was dropped.

        Args:
            journal: its journal.
            may_have_orphans: files may lie under its prefix that are not part of the table: they are deleted.

        Raises:
            TableGoneError: the lake cannot be asked what the table names; the journal stays.
        """
        table_id = journal.round_id.table_id
        found = self._look(journal)
        if found is LakeTableState.MISSING:
            raise _missing(journal.path)
        if found is LakeTableState.SAME:
            self._delete_tries(journal)
            files = self._lake.list_prefix(journal.path, journal.file_prefix) if may_have_orphans else ()
            kept = self._checkpointed(table_id)
            self._delete_unreferenced(journal.path, table_id, files, kept)
            if not kept.isdisjoint(files):  # a later round or the next start sweeps these (`again`)
                self._journals.write(replace(journal, swept_ms=self._clock.wall_ms()))
                return
        self._journals.delete(journal)

    def _was_begun_after(self, journal: RoundJournal, round_id: RoundId) -> bool:
        other = journal.round_id
        return other.incarnation == round_id.incarnation and other.number > round_id.number

    def _of(self, path: TablePath) -> list[RoundJournal]:
        return [journal for journal in self._known() if journal.path == path]

    def _known(self) -> list[RoundJournal]:
        """Return our journals and those of earlier starts: a later start's are its own, its tasks run."""
        found = self._journals.list()
        return [journal for journal in found if not journal.round_id.incarnation.succeeds(self._incarnation)]

    def _sweep_again(
        self,
        journal: RoundJournal,
        is_gone: Callable[[TablePath, int], bool],
        taken: set[tuple[TablePath, int]],
    ) -> None:
        """Sweep one journal whose time has come, or let its time begin. `taken`: tables that were stamped for it."""
        now, swept, table = self._clock.wall_ms(), journal.swept_ms, (journal.path, journal.round_id.table_id)
        gone = swept is None and is_gone(*table)
        if gone or (swept is not None and swept > now):  # the clock was set back: its time begins anew
            missing = now if gone and self._look(journal) is LakeTableState.MISSING else None
            self._journals.write(replace(journal, swept_ms=now, missing_ms=missing))
        elif swept is not None and now - swept >= self._fence_ms:
            if table not in taken:
                self._take_over(*table)
                taken.add(table)
            self._sweep(journal, is_gone)

    def _sweep(self, journal: RoundJournal, is_gone: Callable[[TablePath, int], bool] = _still_there) -> None:
        now = self._clock.wall_ms()
        ours = journal.round_id.incarnation == self._incarnation
        if journal.round_id in self._live:
            return
        # One that was never about to commit may have files in the lake as well: those of a checkpoint of it that a
        # later round went on from.
        found = self._look(journal)
        if found is LakeTableState.MISSING:
            self._sweep_missing(journal, is_gone)
            return
        all_deleted = found is LakeTableState.ANOTHER or self._delete_files(journal)
        if journal.swept_ms is None or journal.missing_ms is not None:
            journal = replace(journal, swept_ms=journal.swept_ms or now, missing_ms=None)
            self._journals.write(journal)
        if all_deleted and (ours or now - (journal.swept_ms or now) >= self._fence_ms):
            self._journals.delete(journal)

    def _sweep_missing(self, journal: RoundJournal, is_gone: Callable[[TablePath, int], bool]) -> None:
        """Keep the journal of a table that the lake says it does not have, until that is certain and for good."""
        path, table_id, now = journal.path, journal.round_id.table_id, self._clock.wall_ms()
        if not is_gone(path, table_id):
            _log.info("the lake cannot be asked what a table names; its journal stays", round=str(journal.round_id))
            return
        if journal.missing_ms is None or journal.missing_ms > now:
            self._journals.write(replace(journal, missing_ms=now))
            return
        if now - journal.missing_ms < max(_MISSING_MS, self._fence_ms):
            return
        kept = self._checkpointed(table_id)
        files = self._lake.list_prefix(path, journal.file_prefix)
        # Asked afterwards: what has come back meanwhile is asked at the next start.
        if self._look(journal) is LakeTableState.MISSING:
            self._lake.delete([file for file in files if file not in kept])
            _log.info("deleted files of a round whose table is gone", round=str(journal.round_id), files=len(files))
            if kept.isdisjoint(files):
                self._journals.delete(journal)

    def _delete_tries(self, journal: RoundJournal) -> None:
        """Delete what earlier tries of a commit wrote whose outcome was unknown: none can land after the last one."""
        if len(journal.commits) > 1:
            self._delete_unreferenced(journal.path, journal.round_id.table_id, self._leftovers(journal))

    def _leftovers(self, journal: RoundJournal) -> tuple[str, ...]:
        tries = [CommitIds(uuid, snapshot_id) for uuid, snapshot_id in journal.commits]
        return tuple(file for ids in tries for file in self._lake.commit_leftovers(journal.path, ids))

    def _delete_files(self, journal: RoundJournal) -> bool:
        """Return whether nothing is left that the journal is needed for: no checkpoint names a file of its round."""
        kept = self._checkpointed(journal.round_id.table_id)
        found = (*self._lake.list_prefix(journal.path, journal.file_prefix), *self._leftovers(journal))
        deleted = self._delete_unreferenced(journal.path, journal.round_id.table_id, found, kept)
        if deleted:
            _log.info("deleted files of a round that did not commit", round=str(journal.round_id), files=deleted)
        return kept.isdisjoint(found)

    def _look(self, journal: RoundJournal) -> LakeTableState:
        return self._look_at(journal.path, journal.round_id.table_id)

    def _look_at(self, path: TablePath, table_id: int) -> LakeTableState:
        """Say what the lake has under a name now: only the table of that id can be asked what it names."""
        head = self._lake.head(path)
        if head is None:
            return LakeTableState.MISSING
        return LakeTableState.SAME if head.table_id == table_id else LakeTableState.ANOTHER

    def discard(self, path: TablePath, table_id: int, files: Collection[str]) -> None:
        """Delete files that no round counts, but for those that the lake has, or a checkpoint names.

        The table's next round may go on from that checkpoint.
        """
        self._delete_unreferenced(path, table_id, tuple(files), self._checkpointed(table_id))

    def _delete_unreferenced(
        self, path: TablePath, table_id: int, files: tuple[str, ...], kept: frozenset[str] = frozenset()
    ) -> int:
        if not files:
            return 0
        spare = self._lake.referenced(path, files) | kept
        to_delete = [file for file in files if file not in spare]
        if not to_delete:
            return 0
        # Asked afterwards: a table that is still the same now was the same when it was asked what it names.
        now = self._look_at(path, table_id)
        if now is LakeTableState.MISSING:
            raise _missing(path)
        if now is LakeTableState.ANOTHER:
            return 0
        self._lake.delete(to_delete)
        return len(to_delete)


def _missing(path: TablePath) -> TableGoneError:
    return TableGoneError(f"{path}: the lake says that it has no such table")
