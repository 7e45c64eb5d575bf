"""Finds the checkpoint that a round may resume from, and deletes those that are no longer valid. Blocking.

A checkpoint is valid if the lake's newest commit with offsets is the one that the checkpoint was based on (or a step
of the same round that was committed from the checkpoint), and the stamp belongs to its service. Stamps and compactions
carry no offsets and do not count (checkpoints.md). A checkpoint that is not valid is deleted, and the reason is logged.

The KV snapshots that a valid checkpoint still has to read must stay leased. This module keeps the list of them: it
reads it from the store at start, and updates it when a checkpoint completes, is resumed from, deleted or invalidated.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.checkpoints.choose import why_not, why_not_of_layout
from lakeward.coordinator.checkpoints.contents import CheckpointContents, RestoredRound
from lakeward.errors import CorruptFileError, LakewardError, SourceError, TableGoneError
from lakeward.model.checkpoints import CheckpointState
from lakeward.model.identity import Incarnation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakeward.model.checkpoints import Checkpoint, CheckpointInfo, CheckpointRef, LeaseCopy
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import KvSnapshot, TableBucket, TablePath, TableSpec
    from lakeward.ports import CheckpointStore, Lake, Source

_log = structlog.get_logger("lakeward.restoring")


class Restorer:
    """Finds the checkpoint that a table's next round resumes from, and deletes the others.

    Thread-safe: what is known of tables changes on the event loop and on workers, under one lock.
    """

    def __init__(self, store: CheckpointStore, lake: Lake, incarnation: Incarnation) -> None:
        self._store = store
        self._lake = lake
        self._incarnation = incarnation
        self._tables: set[int] = set()
        """Tables that may have checkpoints: the store is not asked about others."""
        self._listed = False
        self.known = False
        """True once the store was read. Before that, any table may have a checkpoint that needs any snapshot."""
        self._invalidated: dict[int, str] = {}
        """Tables whose checkpoints must not be used, and why; persisted in the service's state for the next start."""
        self._rejected: dict[CheckpointRef, str] = {}
        """Checkpoints that a round could not go on from, and why: its subtasks found rows of it damaged."""
        self._doubted: set[CheckpointRef] = set()
        """Checkpoints whose rows are read before a round goes on from them."""
        self._needs: dict[int, tuple[KvSnapshot, ...]] = {}
        """By table: the snapshots that the checkpoint which its next round would resume from still has to read."""
        self._missing: set[int] = set()
        """Tables that were missing from the lake at the last check; missing at two checks in a row means gone."""
        self._changed_needs: deque[tuple[int, tuple[KvSnapshot, ...]]] = deque()
        self._versions: Counter[int] = Counter()
        self._lock = threading.Lock()

    # --- what checkpoints need --------------------------------------------------------------------------------

    def changed_needs(self) -> Iterator[tuple[int, tuple[KvSnapshot, ...]]]:
        """Yield each change of the snapshots that a table's checkpoint needs; the newest change of a table counts."""
        while self._changed_needs:
            yield self._changed_needs.popleft()

    def needed(self, table_id: int) -> tuple[KvSnapshot, ...]:
        """Return the snapshots that a table's checkpoint still has to read."""
        return self._needs.get(table_id, ())

    @property
    def holding(self) -> frozenset[int]:
        """The tables whose checkpoints need snapshots."""
        with self._lock:
            return frozenset(self._needs)

    def check_again(self, source: Source, table_ids: Collection[int]) -> None:
        """Check that checkpoints of tables without a round still exist and are valid; else they need no snapshots.

        Raises:
            StorageError: the store cannot be read; no snapshot is released.
        """
        versions = {table_id: self._versions[table_id] for table_id in table_ids}
        found = self._by_table()
        for table_id in table_ids:
            infos: list[CheckpointInfo] = []
            state = None
            while state is None and table_id not in self._invalidated and infos != found.get(table_id, []):
                infos = found.get(table_id, [])
                state = self._newest_valid(source, infos)
                if state is None and infos:
                    # Since the list was read, an earlier start of this service may have completed another checkpoint
                    # and committed a step from it. Then none of these is valid, but that one may be: list again.
                    found = self._by_table()
            needed = state.enumeration().snapshots if state is not None else ()
            # Unless a round has started meanwhile and set this.
            self._need(table_id, needed, at_version=versions[table_id])

    def _by_table(self) -> dict[int, list[CheckpointInfo]]:
        found: dict[int, list[CheckpointInfo]] = {}
        for info in self._store.list(self._incarnation.service):
            found.setdefault(info.ref.table_id, []).append(info)
        return found

    def _newest_valid(self, source: Source, infos: Sequence[CheckpointInfo]) -> CheckpointContents | None:
        """Return the newest valid checkpoint of a table, None if there is none."""
        for info in reversed(infos):
            if info.path is None or info.state is not CheckpointState.COMPLETE:
                continue
            try:
                checkpoint = self._store.load(info.ref)
            except CorruptFileError:
                continue  # the table's next round deletes it and logs that
            state = CheckpointContents.of(checkpoint.coordinator, checkpoint.subtasks)
            if not is_gone(source, info.path, info.ref.table_id) and not self._superseded(checkpoint, state):
                return state
        return None

    def _superseded(self, checkpoint: Checkpoint, state: CheckpointContents) -> bool:
        """Return whether the lake has a newer commit that makes the checkpoint invalid; False if that is unknown."""
        path, table_id = checkpoint.coordinator.path, checkpoint.ref.table_id
        try:
            head = self._lake.head(path)
            wrong = why_not(state, path, head)
        except LakewardError as error:
            _log.warning(
                "it is unknown whether a checkpoint is valid", checkpoint=str(checkpoint.ref), reason=str(error)
            )
            return False
        if head is None and table_id not in self._missing:
            # A catalog, or a proxy in front of it, may answer so in error for a moment: wait for a second answer.
            self._missing.add(table_id)
            _log.warning(
                "the lake table is missing; the checkpoint's snapshots stay leased", checkpoint=str(checkpoint.ref)
            )
            return False
        if head is not None:
            self._missing.discard(table_id)
        return bool(wrong)

    def _need(self, table_id: int, snapshots: tuple[KvSnapshot, ...], *, at_version: int | None = None) -> None:
        with self._lock:
            if at_version is not None and self._versions[table_id] != at_version:
                return
            self._versions[table_id] += 1
            if self._needs.get(table_id, ()) == snapshots:
                return
            if snapshots:
                self._needs[table_id] = snapshots
            else:
                self._needs.pop(table_id, None)
            self._changed_needs.append((table_id, snapshots))

    # --- which checkpoint ---------------------------------------------------------------------------------------

    def start(self, source: Source) -> None:
        """Find the tables that have checkpoints; delete incomplete ones, and those of tables that were dropped.

        Raises:
            StorageError: the store cannot be read.
        """
        self._store.sweep(self._incarnation, ())
        found = self._store.list(self._incarnation.service)
        with self._lock:
            self._tables |= {info.ref.table_id for info in found}
            self._listed = True
            for table_id in self._invalidated.keys() - self._tables:
                del self._invalidated[table_id]
        self.check_again(source, frozenset(self._tables))
        self.known = True
        for info in found:
            if info.path is not None and is_gone(source, info.path, info.ref.table_id):
                self._drop(info.ref, f"its table {info.path} was dropped")

    def expect(self, table_id: int, state: CheckpointContents) -> None:
        """Note that a checkpoint is being written: it may complete even if its round ends before the store answers."""
        self._tables.add(table_id)
        if table_id not in self._needs:  # else the previous checkpoint needs at least the same snapshots
            self._need(table_id, state.enumeration().snapshots)

    def note(self, table_id: int, needed: tuple[KvSnapshot, ...]) -> None:
        """Note that a checkpoint has completed, which needs these snapshots: it replaces the table's previous one."""
        self._tables.add(table_id)
        self._need(table_id, needed)

    def invalidate(self, table_id: int, reason: str) -> None:
        """Make the table's next round start without its checkpoint, valid or not; if it has one, `reason` is logged."""
        self._need(table_id, ())
        with self._lock:
            if self.has(table_id):
                self._invalidated.setdefault(table_id, reason)

    def reject(self, ref: CheckpointRef, reason: str) -> None:
        """Make the table's next round leave one checkpoint out, and go on from an older one if there is one."""
        self._rejected[ref] = reason

    def verify_rows(self, ref: CheckpointRef) -> None:
        """Make the table's next round read all rows of one checkpoint before it goes on from it.

        A job that went on from it has failed. A subtask that finds a damaged file says so, but it may die, or its
        connection break, before that is heard. Without this the rounds of the table would go on from the same damaged
        file for ever.
        """
        self._doubted.add(ref)

    @property
    def invalidated(self) -> Mapping[int, str]:
        """The tables whose checkpoints must not be used, and why."""
        with self._lock:
            return dict(self._invalidated)

    def invalidate_tables_that_need(self, buckets: Collection[TableBucket], reason: str) -> None:
        """Invalidate the checkpoints that still have to read a snapshot of a bucket which is no longer protected."""
        with self._lock:
            needs = list(self._needs.items())
        for table_id, snapshots in needs:
            if any(snapshot.bucket in buckets for snapshot in snapshots):
                self.invalidate(table_id, reason)

    def has(self, table_id: int) -> bool:
        """Return whether a table may have checkpoints."""
        return table_id in self._tables or not self._listed

    def find(self, table: TableSpec, head: LakeHead | None, *, exchange: bool = False) -> RestoredRound | None:
        """Return the newest valid checkpoint of a table, and delete those that are not valid.

        `head` is the lake's head BEFORE this start stamped the table, None where there is no lake table. `exchange`:
        whether the round will exchange rows; a checkpoint of the other way cannot be gone on from.

        Raises:
            StorageError: the store cannot be read, or a checkpoint that is not valid cannot be deleted.
        """
        if table.table_id in self._invalidated:
            self.drop_all(table.table_id, self._invalidated[table.table_id])
        for info in reversed(self._droppable(table.table_id)):
            if info.state is CheckpointState.UNFINISHED:
                continue  # only `start` deletes these: it knows which ones may still be in progress
            found = self._rejected.get(info.ref) or self._look(info, table, head, exchange=exchange)
            found = self._invalidated.get(table.table_id, found)  # it may have been invalidated meanwhile
            if isinstance(found, RestoredRound):
                self._need(table.table_id, found.state.enumeration().snapshots)
                return found
            self._drop(info.ref, found)
        self._need(table.table_id, ())
        return None

    def drop_all(self, table_id: int, reason: str) -> None:
        """Delete every checkpoint of a table.

        Raises:
            StorageError: the store refused.
        """
        for info in self._droppable(table_id):
            _log.info("checkpoint no longer needed", checkpoint=str(info.ref), reason=reason)
            self._store.delete(info.ref)
        with self._lock:
            self._tables.discard(table_id)
            self._invalidated.pop(table_id, None)
        self._need(table_id, ())

    def forget(self, table_id: int) -> None:
        """Forget a table that the source has dropped, and delete its checkpoints; raises as `drop_all`."""
        self.drop_all(table_id, "its table was dropped")
        self._versions.pop(table_id, None)

    def named(self, table_id: int) -> frozenset[str]:
        """Return the paths of all data files that completed checkpoints of a table reference.

        Raises:
            StorageError: the store cannot be read: nothing may be deleted.
        """
        names: set[str] = set()
        for info in self._of(table_id):
            if info.state is CheckpointState.COMPLETE:
                try:
                    checkpoint = self._store.load(info.ref)
                except CorruptFileError as error:
                    # No round can resume from it; the table's next round deletes it.
                    _log.warning("checkpoint is damaged", checkpoint=str(info.ref), reason=str(error))
                else:
                    names |= CheckpointContents.of(checkpoint.coordinator, checkpoint.subtasks).paths()
        return frozenset(names)

    def lease(self) -> LeaseCopy | None:
        """Return the lease as the newest checkpoint of this service has it, None if there is none."""
        found = [info for info in self._store.list(self._incarnation.service) if info.state is CheckpointState.COMPLETE]
        if not found:
            return None
        try:
            return self._store.load(max(found, key=lambda info: info.completed_ms or 0).ref).lease
        except CorruptFileError as error:
            _log.warning("the lease in the newest checkpoint cannot be read", reason=str(error))
            return None

    def _of(self, table_id: int) -> list[CheckpointInfo]:
        if not self.has(table_id):
            return []
        return [info for info in self._store.list(self._incarnation.service) if info.ref.table_id == table_id]

    def _droppable(self, table_id: int) -> list[CheckpointInfo]:
        """Leave out checkpoints that a later start of the service has taken: it may resume from them."""
        found = self._of(table_id)
        return [info for info in found if not Incarnation.parse(info.ref.incarnation).succeeds(self._incarnation)]

    def _drop(self, ref: CheckpointRef, reason: str) -> None:
        _log.warning("checkpoint dropped", checkpoint=str(ref), reason=reason)
        self._store.delete(ref)
        self._rejected.pop(ref, None)
        self._doubted.discard(ref)

    def _check_rows(self, checkpoint: Checkpoint) -> None:
        """Look at the sizes of all files of rows; read them where the checkpoint is doubted."""
        self._store.check_segments(checkpoint)
        if checkpoint.ref not in self._doubted:
            return
        for state in CheckpointContents.of(checkpoint.coordinator, checkpoint.subtasks).exchange:
            for segment in state.segments():
                for _ in self._store.read_segment(segment):
                    pass
        self._doubted.discard(checkpoint.ref)

    def _look(
        self, info: CheckpointInfo, table: TableSpec, head: LakeHead | None, *, exchange: bool
    ) -> RestoredRound | str:
        """Return what to resume from, or why this checkpoint cannot be used."""
        if info.state is CheckpointState.DAMAGED:
            return info.message
        try:
            checkpoint = self._store.load(info.ref)
            self._check_rows(checkpoint)
        except CorruptFileError as error:
            return str(error)
        state = CheckpointContents.of(checkpoint.coordinator, checkpoint.subtasks)
        wrong = why_not_of_layout(state, table, exchange=exchange) or why_not(state, table.path, head)
        if wrong:
            return wrong
        commit = head.commit if head is not None else None
        done, step = frozenset(state.round.committed), state.round.step
        if commit is not None and commit.snapshot_id != state.round.base_commit:
            # A step was committed from this checkpoint or an earlier one, and the service died before it recorded that.
            done, step = done | self._lake.referenced(table.path, state.paths()), (commit.step or 0) + 1
        lost = self._deleted(table.path, state.paths() - done)
        return (
            f"{len(lost)} of its files were deleted, {lost[0]} first"
            if lost
            else RestoredRound(info.ref, state, done, step)
        )

    def _deleted(self, path: TablePath, files: frozenset[str]) -> list[str]:
        """Return the missing files: a later start may have deleted them before the checkpoint completed."""
        folders = {file.rpartition("/")[0] for file in files}
        there = {file for folder in folders for file in self._lake.list_prefix(path, f"{folder}/")}
        return sorted(files - there)


def is_gone(source: Source, path: TablePath, table_id: int) -> bool:
    """Return whether a source no longer has a table of this name and id; False if the source cannot be asked."""
    try:
        return source.table(path).table_id != table_id
    except TableGoneError:
        return True
    except SourceError:
        return False  # asked again at the next start
