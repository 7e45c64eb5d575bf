"""Deletes files of rounds that did not commit: the most dangerous thing the service does (exactly-once.md).

A journal has a round's file prefix and the ids of every commit that was tried. A delete cannot be made conditional, as
a commit is by its compare-and-swap. Hence these rules:

* No file is deleted that a retained snapshot of the table or a live checkpoint references.
* The files of a commit of unknown outcome are deleted only after a later commit with offsets has landed, of this start
  or of one before it, or if the source has dropped their table and this start's stamp fences that commit.
* The prefix of a round is listed once more after the fence time if a task of it may still be alive: its process was
  killed, or its tasks were, for Spark says that a job has ended while some of its Python workers still run a moment.
* The journals of a later start are ignored: its rounds are still writing.
* A journal is of one lake table, and that one is asked what it references, whatever name the configuration gives the
  lake table now. No commit to another lake table decides what becomes of a commit to this one: the files of one of
  unknown outcome stay, with the journal, as long as the table's rows go elsewhere.
* The files of a job of upkeep are deleted by the same rules, but for two. Its commit can land no more once the head is
  another one than it was built on. And its tasks, which hold no connection, may write for the time in its journal.

If the lake reports that the table does not exist, that may be an outage, or a proxy's wrong answer. The journal stays,
and its files are deleted when the table is back. If the source has dropped the table as well, no commit can reference
the files any more: they are deleted once the lake table has been missing for longer than any outage.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import structlog
from msgspec import structs

from lakeward.errors import FencedError, LakewardError, TableGoneError
from lakeward.model.identity import RoundId
from lakeward.model.results import CommitIds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.model.identity import Incarnation
    from lakeward.model.settings import ServiceSettings
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock, Lake
    from lakeward.storage.round_journal import JournalStore, RoundJournal

_MISSING_MS = 24 * 60 * 60 * 1000
"""A lake table that was missing at two starts this far apart counts as dropped, if the source dropped it too."""
_LONGEST_PAUSE_MS = 60 * 60 * 1000
"""Longest pause between two sweeps of one prefix, of which something has to stay each time."""
_log = structlog.get_logger("lakeward.cleaner")


class LakeTableState(Enum):
    """What the lake has under the name of the table in a journal."""

    SAME = "same"
    ANOTHER = "another"
    """A table of another id: the journal's table was renamed, and its references can no longer be read."""
    MISSING = "missing"
    """No table: it was dropped, or the lake is not reachable."""


@dataclass(slots=True)
class _NextSweep:
    """When the prefix of an ended round is listed again, on the wall clock."""

    path: TablePath
    at_ms: int
    pause_ms: int


def _still_there(_path: TablePath, _table_id: int) -> bool:
    return False


class Cleaner:
    """Deletes the files in one service's journals. Blocking; one call per table at a time."""

    def __init__(
        self,
        lake: Lake,
        journals: JournalStore,
        clock: Clock,
        incarnation: Incarnation,
        *,
        settings: ServiceSettings,
        checkpointed: Callable[[int], frozenset[str]],
    ) -> None:
        """Keep the parts; `clock` is the wall clock, for journals outlive processes.

        After the fence time of `settings` a subtask without connection has stopped writing. `checkpointed` returns the
        files that live checkpoints of a table id reference.
        """
        self._lake = lake
        self._journals = journals
        self._clock = clock
        self._incarnation = incarnation
        self._fence_ms = int(settings.fence_s * 1000)
        self._checkpointed = checkpointed
        self._live: set[RoundId] = set()
        self._may_write: set[RoundId] = set()
        """Rounds of this start that have ended, of which a task may write for the fence time."""
        self._next_sweeps: dict[RoundId, _NextSweep] = {}
        """By round whose journal this start has seen, and which has ended."""
        self._lock = threading.Lock()

    def begin(self, round_id: RoundId) -> None:
        """Keep a round's files from now on: its tasks run."""
        self._live.add(round_id)

    def end(self, round_id: RoundId, *, may_write: bool) -> None:
        """Note that no job of a round runs any more.

        `may_write`: a task may write for the fence time, for it has not said that it writes nothing more. The journal
        stays for as long, whoever sweeps it: also that of a fenced round, whose table may come back to this service.
        """
        if may_write:
            self._may_write.add(round_id)
        self._live.discard(round_id)

    def watch(self, round_id: RoundId, path: TablePath) -> None:
        """Have what is left of an ended round after the fence time deleted then."""
        self._sweep_at(round_id, path, self._clock.wall_ms() + self._fence_ms)

    def before_round(self, path: TablePath, newest: int | None, lake_path: TablePath | None = None) -> None:
        """Delete the files of this table's earlier rounds that no commit can reference any more.

        This start's stamp is on the table. Those rounds never tried to commit, or a later commit has landed since. A
        prefix whose files were deleted once is listed again after the fence time. `newest` is the snapshot id of the
        newest commit with offsets, read with the stamp; None where there is none. `lake_path` is the name of the lake
        table, where it is another one.
        """
        for journal in self._rounds_of(path):
            decided = journal.lake_path == lake_path and self._is_decided(journal, newest)
            if not journal.commits or journal.swept_ms is not None or decided:
                self._sweep(journal)

    def _is_decided(self, journal: RoundJournal, newest: int | None) -> bool:
        """Return whether no commit of an earlier start's round can land any more.

        A commit has landed since the round began: one of its own, whose start was killed before it could note that, or
        of a later start that was killed before it could clean up. What that start had sent besides is fenced by this
        start's stamp. Without new rows no round of this start commits, so nothing later would decide it.
        """
        return journal.round_id.incarnation != self._incarnation and newest not in {None, journal.base_commit}

    def due(self) -> frozenset[TablePath]:
        """Return the tables that have an ended round whose prefix is to be listed again now."""
        now = self._clock.wall_ms()
        with self._lock:
            return frozenset(one.path for one in self._next_sweeps.values() if one.at_ms <= now)

    def sweep_due(self, path: TablePath) -> None:
        """List the prefixes of this table again that are due. No round of the table is in progress.

        What has to stay is looked at again, after a pause twice as long each time.

        Raises:
            FencedError: a later start has stamped the table and does this itself.
            LakewardError: the lake or the store did not answer; tried again after the pause.
        """
        now = self._clock.wall_ms()
        with self._lock:
            due = [(name, one) for name, one in self._next_sweeps.items() if one.path == path and one.at_ms <= now]
            for _, one in due:
                one.pause_ms = min(one.pause_ms * 2, _LONGEST_PAUSE_MS)
                one.at_ms = now + one.pause_ms
        taken: set[tuple[TablePath, int]] = set()
        for round_id, _ in due:
            journal = self._journals.read(round_id)
            is_round = not round_id.is_upkeep
            if journal is None or (is_round and journal.commits and journal.swept_ms is None):
                self._forget(round_id)  # the table's next commit deletes files of a commit of unknown outcome
            elif journal.swept_ms is None:
                self._sweep(journal)
            else:
                self._sweep_again(journal, _still_there, taken)

    def again(self, is_gone: Callable[[TablePath, int], bool] = _still_there) -> None:
        """List the prefix of each journal again whose files were deleted once, the fence time ago or longer.

        Called at each start, for a table may never have another round. If the source has dropped a table, the time of
        its journals begins now, and the next start deletes their files. A failure with one journal is logged; the
        others are handled all the same.

        Raises:
            FencedError: a later start has stamped the table and does this itself.
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
        """Stamp a table that the source has dropped, so that commits of earlier starts fail.

        No round stamps such a table any more, and a commit can land much later than the fence time. A table with
        another service's stamp stays as it is: the commit fails there too.
        """
        head = self._lake.head(path)
        stamp = head.stamp if head is not None and head.table_id == table_id else None
        if stamp is not None and stamp.service == self._incarnation.service:
            self._lake.stamp(path, self._incarnation)

    def after_commit(self, path: TablePath, round_id: RoundId, lake_path: TablePath | None = None) -> None:
        """Delete the files of every earlier round of this table, now that a later commit with offsets has landed.

        Rounds that started after that commit are left alone: they may have a commit of unknown outcome. `round_id` is
        the round that landed; `sweep_prefix` deletes its own journal. `lake_path` as of `before_round`.
        """
        for journal in self._rounds_of(path):
            if journal.lake_path != lake_path:
                continue
            if journal.round_id == round_id:
                self._delete_tries(journal)
                self._write_swept(structs.replace(journal, swept_ms=self._clock.wall_ms()))
            elif not self._was_begun_after(journal, round_id):
                self._sweep(journal)

    def end_round(self, round_id: RoundId) -> None:
        """Delete the files of a round that failed and whose tasks have all ended.

        The journal is read again: a commit that is no longer waited for may have added ids.
        """
        journal = self._journals.read(round_id)
        if journal is None or journal.commits:
            return
        found = self._look(journal)
        all_deleted = found is LakeTableState.ANOTHER or (found is LakeTableState.SAME and self._delete_files(journal))
        if all_deleted and round_id not in self._may_write:
            self._delete(journal)
        else:  # a task may write, a checkpoint references some, or the lake is not reachable: they are swept again
            self._write_swept(structs.replace(journal, swept_ms=self._clock.wall_ms()))

    def before_upkeep(self, path: TablePath) -> None:
        """Delete the files of this table's earlier jobs of upkeep, but for those that were deleted and may come again.

        Those are looked for once their time has come.
        """
        now = self._clock.wall_ms()
        for journal in self._of(path):
            if journal.round_id.is_upkeep and (journal.swept_ms is None or now >= self._ends_ms(journal)):
                self._sweep(journal)

    def end_upkeep(self, upkeep_id: RoundId, path: TablePath) -> None:
        """Note that no job of this id runs any more; what a task of it may still write is deleted later."""
        self.end(upkeep_id, may_write=True)
        self.watch(upkeep_id, path)

    def discard_upkeep(self, upkeep_id: RoundId) -> None:
        """Delete the files of a job of upkeep that has ended, unless its commit may still land."""
        journal = self._journals.read(upkeep_id)
        if journal is not None:
            self._sweep(journal)

    def sweep_prefix(self, journal: RoundJournal, *, may_have_orphans: bool) -> None:
        """Clean up a round that has committed.

        Its journal is deleted unless a task may still write, or a checkpoint references some of the files: the table's
        next round may have resumed from the checkpoint before that was deleted. `may_have_orphans`: its prefix may
        contain files that are not part of the table; they are deleted.

        Raises:
            TableGoneError: the lake does not know what the table references; the journal stays.
        """
        table_id = journal.round_id.table_id
        found = self._look(journal)
        if found is LakeTableState.MISSING:
            raise _missing(journal.in_lake)
        if found is LakeTableState.SAME:
            self._delete_tries(journal)
            files = self._lake.list_prefix(journal.in_lake, journal.file_prefix) if may_have_orphans else ()
            kept = self._checkpointed(table_id)
            self._delete_unreferenced(journal.in_lake, table_id, files, kept)
            letters_gone = not may_have_orphans or self._delete_letters(journal)
            if not kept.isdisjoint(files) or not letters_gone or journal.round_id in self._may_write:
                self._write_swept(structs.replace(journal, swept_ms=self._clock.wall_ms()))
                return
        self._delete(journal)

    def _was_begun_after(self, journal: RoundJournal, round_id: RoundId) -> bool:
        other = journal.round_id
        return other.incarnation == round_id.incarnation and other.number > round_id.number

    def _of(self, path: TablePath) -> list[RoundJournal]:
        return [journal for journal in self._known() if journal.path == path]

    def _rounds_of(self, path: TablePath) -> list[RoundJournal]:
        return [journal for journal in self._of(path) if not journal.round_id.is_upkeep]

    def _known(self) -> list[RoundJournal]:
        """Return the journals of this start and earlier ones; a later start's tasks still run."""
        found = self._journals.list()
        return [journal for journal in found if not journal.round_id.incarnation.succeeds(self._incarnation)]

    def _sweep_again(
        self,
        journal: RoundJournal,
        is_gone: Callable[[TablePath, int], bool],
        taken: set[tuple[TablePath, int]],
    ) -> None:
        """Delete one journal's files if its time has come, or start its time. `taken`: tables stamped in this call."""
        now, swept, table_id = self._clock.wall_ms(), journal.swept_ms, journal.round_id.table_id
        table = journal.in_lake, table_id
        gone = swept is None and not self._letters_wait(journal) and is_gone(journal.path, table_id)
        if gone or (swept is not None and swept > now):  # the clock was set back: start its time again
            missing = now if gone and self._look(journal) is LakeTableState.MISSING else None
            self._write_swept(structs.replace(journal, swept_ms=now, missing_ms=missing))
        elif swept is not None and now < self._ends_ms(journal):
            self._sweep_later(journal)
        elif swept is not None:
            if table not in taken:
                self._take_over(*table)
                taken.add(table)
            self._sweep(journal, is_gone)

    def _letters_wait(self, journal: RoundJournal) -> bool:
        """Return whether dead letters may wait for their commit: nobody has looked whether that of their table landed.

        Where another table has taken the name of theirs, nobody can look any more.
        """
        return journal.letters is not None and self._look(journal) is not LakeTableState.ANOTHER

    def _sweep(self, journal: RoundJournal, is_gone: Callable[[TablePath, int], bool] = _still_there) -> None:
        now = self._clock.wall_ms()
        ended = journal.round_id.incarnation == self._incarnation and journal.round_id not in self._may_write
        if journal.round_id in self._live:
            return
        # Even a round that never tried to commit may have files in the lake: a later round may have resumed from its
        # checkpoint and committed them.
        found = self._look(journal)
        if found is LakeTableState.MISSING:
            self._sweep_missing(journal, is_gone)
            return
        if found is LakeTableState.SAME and self._may_land(journal):
            return
        all_deleted = found is LakeTableState.ANOTHER or self._delete_files(journal)
        if journal.swept_ms is None or journal.missing_ms is not None:
            journal = structs.replace(journal, swept_ms=journal.swept_ms or now, missing_ms=None)
            self._write_swept(journal)
        if all_deleted and (ended or now >= self._ends_ms(journal)):
            self._delete(journal)

    def _may_land(self, journal: RoundJournal) -> bool:
        """Return whether a commit of upkeep may still land: the head is the one that it was built on."""
        if not journal.round_id.is_upkeep or journal.base_snapshot is None:
            return False
        head = self._lake.head(journal.in_lake)
        return head is not None and head.snapshot_id == journal.base_snapshot

    def _ends_ms(self, journal: RoundJournal) -> int:
        """Return when no task of a round or job writes any more, whose files were deleted once."""
        swept_ms = self._clock.wall_ms() if journal.swept_ms is None else journal.swept_ms
        return swept_ms + max(self._fence_ms, journal.writes_for_ms or 0)

    def _sweep_missing(self, journal: RoundJournal, is_gone: Callable[[TablePath, int], bool]) -> None:
        """Keep the journal of a table that is missing from the lake, until it is certain that the table is dropped."""
        path, table_id, now = journal.path, journal.round_id.table_id, self._clock.wall_ms()
        if not is_gone(path, table_id):
            _log.info("the lake cannot be asked what a table names; its journal stays", round=str(journal.round_id))
            return
        if journal.missing_ms is None or journal.missing_ms > now:
            self._journals.write(structs.replace(journal, missing_ms=now))
            return
        if now - journal.missing_ms < max(_MISSING_MS, self._fence_ms):
            return
        kept = self._checkpointed(table_id)
        files = self._lake.list_prefix(journal.in_lake, journal.file_prefix)
        letters = journal.of_letters
        if letters is not None and self._look(letters) is LakeTableState.MISSING:
            files += self._lake.list_prefix(letters.path, letters.file_prefix)
        # Ask the lake last: if the table is back meanwhile, the next start handles the journal.
        if self._look(journal) is LakeTableState.MISSING:
            self._lake.delete([file for file in files if file not in kept])
            _log.info("deleted files of a round whose table is gone", round=str(journal.round_id), files=len(files))
            if kept.isdisjoint(files):
                self._delete(journal)

    def _write_swept(self, journal: RoundJournal) -> None:
        """Note when the files of a round were deleted first, and list its prefix again after the fence time.

        No dead letters wait for their commit any more: it has landed, or that of their table never can.
        """
        self._journals.write(structs.replace(journal, letters=None, replayed=b""))
        self._sweep_later(journal)

    def _sweep_later(self, journal: RoundJournal) -> None:
        self._sweep_at(journal.round_id, journal.path, self._ends_ms(journal))

    def _sweep_at(self, round_id: RoundId, path: TablePath, at_ms: int) -> None:
        with self._lock:
            self._next_sweeps[round_id] = _NextSweep(path, at_ms, max(1000, self._fence_ms))

    def _delete(self, journal: RoundJournal) -> None:
        self._journals.delete(journal)
        self._forget(journal.round_id)

    def _forget(self, round_id: RoundId) -> None:
        self._may_write.discard(round_id)
        with self._lock:
            self._next_sweeps.pop(round_id, None)

    def _delete_tries(self, journal: RoundJournal) -> None:
        """Delete files of a commit's earlier tries of unknown outcome: none of them can land after the last try."""
        if len(journal.commits) > 1:
            self._delete_unreferenced(journal.in_lake, journal.round_id.table_id, self._leftovers(journal))

    def _leftovers(self, journal: RoundJournal) -> tuple[str, ...]:
        tries = [CommitIds(uuid, snapshot_id) for uuid, snapshot_id in journal.commits]
        return tuple(file for ids in tries for file in self._lake.commit_leftovers(journal.in_lake, ids))

    def _delete_files(self, journal: RoundJournal) -> bool:
        """Delete a round's files; return False if a checkpoint references some, so that the journal is still needed."""
        kept = self._checkpointed(journal.round_id.table_id)
        found = (*self._lake.list_prefix(journal.in_lake, journal.file_prefix), *self._leftovers(journal))
        deleted = self._delete_unreferenced(journal.in_lake, journal.round_id.table_id, found, kept)
        if deleted:
            _log.info("deleted files of a round that did not commit", round=str(journal.round_id), files=deleted)
        return self._delete_letters(journal) and kept.isdisjoint(found)

    def _delete_letters(self, journal: RoundJournal) -> bool:
        """Delete a round's dead letters that no commit of them names; return False if some have to stay for now."""
        letters = journal.of_letters
        found = LakeTableState.ANOTHER if letters is None else self._look(letters)
        return found is LakeTableState.ANOTHER or (
            letters is not None and found is LakeTableState.SAME and self._delete_files(letters)
        )

    def _look(self, journal: RoundJournal) -> LakeTableState:
        return self._look_at(journal.in_lake, journal.round_id.table_id)

    def _look_at(self, path: TablePath, table_id: int) -> LakeTableState:
        """Return what the lake has under a name now; only a table of the journal's id knows what it references."""
        head = self._lake.head(path)
        if head is None:
            return LakeTableState.MISSING
        return LakeTableState.SAME if head.table_id == table_id else LakeTableState.ANOTHER

    def discard(self, path: TablePath, table_id: int, files: Collection[str]) -> None:
        """Delete files that no round counts, except those that the lake table or a checkpoint references.

        The table's next round may resume from that checkpoint.
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
        # Checked last: if the table is the same one now, it also was when its references were read.
        now = self._look_at(path, table_id)
        if now is LakeTableState.MISSING:
            raise _missing(path)
        if now is LakeTableState.ANOTHER:
            return 0
        self._lake.delete(to_delete)
        return len(to_delete)


def _missing(path: TablePath) -> TableGoneError:
    return TableGoneError(f"{path}: the lake says that it has no such table")
