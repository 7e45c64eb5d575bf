"""Deleting what rounds that did not commit left behind: the dangerous part (design section 4, step 10).

A journal names a round's file prefix and the ids of every commit that was tried. Deleting cannot be compared and
swapped, so: nothing that any retained snapshot of the table or a live checkpoint names is touched; files that a
commit of unknown outcome names are deleted only after a later offset-carrying commit of ours has landed, or where the
source has dropped their table and our stamp keeps that commit out; and the prefix of a round whose process may still be
alive is listed once more after the fence time. A later start's journals are not even looked at: whoever was overtaken
in the middle of its own sweep would delete what its successor writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakeward.model.identity import RoundId
from lakeward.model.results import CommitIds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.checkpoint.journal import JournalStore, RoundJournal
    from lakeward.model.identity import Incarnation
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock, Lake

_log = structlog.get_logger("lakeward.cleaner")


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

    def again(self, is_gone: Callable[[TablePath, int], bool] = lambda _path, _table_id: False) -> None:
        """Sweep every journal that was swept once, the fence time ago or longer: nobody can adopt its files any more.

        Asked at each start, for a table may never have another round. Where the source says that a table is gone
        for good, its journals' time begins now, and the next start sweeps them.

        Args:
            is_gone: says whether the source no longer has the table of this name and id.

        Raises:
            FencedError: a later start has stamped the table; it sweeps.
        """
        now = self._clock.wall_ms()
        ours: set[tuple[TablePath, int]] = set()
        for journal in self._known():
            swept = journal.swept_ms
            gone = swept is None and is_gone(journal.path, journal.round_id.table_id)
            if gone or (swept is not None and swept > now):  # the clock was set back: its time begins anew
                self._journals.write(replace(journal, swept_ms=now))
            elif swept is not None and now - swept >= self._fence_ms:
                table = (journal.path, journal.round_id.table_id)
                if table not in ours:
                    self._take_over(*table)
                    ours.add(table)
                self._sweep(journal)

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

    def end_round(self, journal: RoundJournal) -> None:
        """Sweep a round of ours that failed and whose tasks are known to have ended.

        Args:
            journal: its journal.
        """
        if journal.commits:
            return
        if self._delete_files(journal):
            self._journals.delete(journal)
        else:  # a checkpoint names some; should its table be gone by then, the next start sweeps (`again`)
            self._journals.write(replace(journal, swept_ms=self._clock.wall_ms()))

    def sweep_prefix(self, journal: RoundJournal, *, irregular: bool) -> None:
        """End a round of ours that has committed and whose tasks are known to have ended: nobody needs its journal.

        Args:
            journal: its journal.
            irregular: files may lie under its prefix that are not part of the table: they are deleted.
        """
        table_id = journal.round_id.table_id
        if not self._is_set_aside(journal.path, table_id):
            self._delete_tries(journal)
            found = self._lake.list_prefix(journal.path, journal.file_prefix) if irregular else ()
            self._delete_unreferenced(journal.path, table_id, found, self._checkpointed(table_id))
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

    def _sweep(self, journal: RoundJournal) -> None:
        now = self._clock.wall_ms()
        ours = journal.round_id.incarnation == self._incarnation
        if journal.round_id in self._live:
            return
        # One that was never about to commit may have files in the lake as well: those of a checkpoint of it that a
        # later round went on from.
        set_aside = self._is_set_aside(journal.path, journal.round_id.table_id)
        whole = set_aside or self._delete_files(journal)
        if journal.swept_ms is None:
            journal = replace(journal, swept_ms=now)
            self._journals.write(journal)
        if whole and (ours or now - (journal.swept_ms or now) >= self._fence_ms):
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

    def _is_set_aside(self, path: TablePath, table_id: int) -> bool:
        """Say whether the lake has another table of that name now: what the old one names cannot be asked any more."""
        head = self._lake.head(path)
        return head is None or head.table_id != table_id

    def discard(self, path: TablePath, table_id: int, files: Collection[str]) -> None:
        """Delete files that no round counts, but for those that the lake has."""
        self._delete_unreferenced(path, table_id, tuple(files))

    def _delete_unreferenced(
        self, path: TablePath, table_id: int, files: tuple[str, ...], kept: frozenset[str] = frozenset()
    ) -> int:
        if not files:
            return 0
        spare = self._lake.referenced(path, files) | kept
        doomed = [file for file in files if file not in spare]
        # Asked afterwards: a table that is still the same now was the same when it was asked what it names.
        if not doomed or self._is_set_aside(path, table_id):
            return 0
        self._lake.delete(doomed)
        return len(doomed)
