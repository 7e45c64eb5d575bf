"""Finds the checkpoint that a round may resume from, and deletes those that are no longer valid. Blocking.

A checkpoint is valid if the lake's newest commit with offsets is the one that the checkpoint was based on (or a step
of the same round that was committed from the checkpoint), and the stamp belongs to its service. Stamps and compactions
carry no offsets and do not count (checkpoints.md). A checkpoint that is not valid is deleted, and the reason is logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.checkpoints.choose import why_not, why_not_of_layout
from lakeward.coordinator.checkpoints.contents import CheckpointContents, RestoredRound
from lakeward.errors import CorruptFileError, LakewardError, SourceError, TableGoneError
from lakeward.model.checkpoints import CheckpointState
from lakeward.model.dead_letters import path_of
from lakeward.model.identity import Incarnation

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakeward.coordinator.checkpoints.known import KnownCheckpoints
    from lakeward.model.checkpoints import Checkpoint, CheckpointInfo, CheckpointRef, LeaseCopy
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import CheckpointStore, Lake, Source

_log = structlog.get_logger("lakeward.restoring")


class Restorer:
    """Finds the checkpoint that a table's next round resumes from, and deletes the others.

    Thread-safe: what it finds out, it keeps in `KnownCheckpoints`.
    """

    def __init__(self, store: CheckpointStore, lake: Lake, incarnation: Incarnation, known: KnownCheckpoints) -> None:
        self._store = store
        self._lake = lake
        self._incarnation = incarnation
        self.known = known

    # --- what checkpoints need --------------------------------------------------------------------------------

    def check_again(self, source: Source, table_ids: Collection[int]) -> None:
        """Check that checkpoints of tables without a round still exist and are valid; else they need no snapshots.

        Raises:
            StorageError: the store cannot be read; no snapshot is released.
        """
        known = {table_id: self.known.of(table_id) for table_id in table_ids}
        changes = {table_id: one.changes for table_id, one in known.items()}
        found = self._by_table()
        for table_id, one in known.items():
            infos: list[CheckpointInfo] = []
            state = None
            while state is None and not one.invalidated and infos != found.get(table_id, []):
                infos = found.get(table_id, [])
                state = self._newest_valid(source, infos)
                if state is None and infos:
                    # Since the list was read, an earlier start of this service may have completed another checkpoint
                    # and committed a step from it. Then none of these is valid, but that one may be: list again.
                    found = self._by_table()
            needed = state.enumeration().snapshots if state is not None else ()
            # Unless a round has started meanwhile and set this.
            self.known.need(table_id, needed, unless_changed=changes[table_id])

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
        table_id = checkpoint.ref.table_id
        try:
            head = self._lake.head(checkpoint.coordinator.in_lake)
            wrong = why_not(state, checkpoint.coordinator.path, head)
        except LakewardError as error:
            _log.warning(
                "it is unknown whether a checkpoint is valid", checkpoint=str(checkpoint.ref), reason=str(error)
            )
            return False
        known = self.known.of(table_id)
        was_missing, known.is_missing = known.is_missing, head is None
        if head is None and not was_missing:
            # A catalog, or a proxy in front of it, may answer so in error for a moment: wait for a second answer.
            _log.warning(
                "the lake table is missing; the checkpoint's snapshots stay leased", checkpoint=str(checkpoint.ref)
            )
            return False
        return bool(wrong)

    # --- which checkpoint ---------------------------------------------------------------------------------------

    def start(self, source: Source) -> None:
        """Find the tables that have checkpoints; delete incomplete ones, and those of tables that were dropped.

        Raises:
            StorageError: the store cannot be read.
        """
        self._store.sweep(self._incarnation, ())
        found = self._store.list(self._incarnation.service)
        self.known.listed({info.ref.table_id for info in found})
        self.check_again(source, self.known.table_ids)
        self.known.was_read = True
        for info in found:
            if info.path is not None and is_gone(source, info.path, info.ref.table_id):
                self._drop(info.ref, f"its table {info.path} was dropped")

    def find(self, table: TableSpec, head: LakeHead | None, *, exchange: bool = False) -> RestoredRound | None:
        """Return the newest valid checkpoint of a table, and delete those that are not valid.

        `head` is the lake's head BEFORE this start stamped the table, None where there is no lake table. `exchange`:
        whether the round will exchange rows; a checkpoint of the other way cannot be gone on from.

        Raises:
            StorageError: the store cannot be read, or a checkpoint that is not valid cannot be deleted.
        """
        known = self.known.of(table.table_id)
        if known.invalidated:
            self.drop_all(table.table_id, known.invalidated)
        for info in reversed(self._droppable(table.table_id)):
            if info.state is CheckpointState.UNFINISHED:
                continue  # only `start` deletes these: it knows which ones may still be in progress
            found = known.rejected.get(info.ref) or self._look(info, table, head, exchange=exchange)
            found = known.invalidated or found  # it may have been invalidated meanwhile
            if isinstance(found, RestoredRound):
                known.gone_on_from |= found.state.paths()
                self.known.need(table.table_id, found.state.enumeration().snapshots)
                return found
            self._drop(info.ref, found)
        self.known.need(table.table_id, ())
        return None

    def drop_all(self, table_id: int, reason: str) -> None:
        """Delete every checkpoint of a table.

        Raises:
            StorageError: the store refused.
        """
        for info in self._droppable(table_id):
            _log.info("checkpoint no longer needed", checkpoint=str(info.ref), reason=reason)
            self._store.delete(info.ref)
        self.known.dropped_all(table_id)

    def forget(self, table_id: int) -> None:
        """Forget a table that the source has dropped, and delete its checkpoints; raises as `drop_all`."""
        self.drop_all(table_id, "its table was dropped")
        self.known.forget(table_id)

    def named(self, table_id: int) -> frozenset[str]:
        """Return the paths of files that completed checkpoints of a table reference, or its rounds went on with.

        Raises:
            StorageError: the store cannot be read: nothing may be deleted.
        """
        names = set(self.known.carried_on(table_id))
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
        if not self.known.has(table_id):
            return []
        return [info for info in self._store.list(self._incarnation.service) if info.ref.table_id == table_id]

    def _droppable(self, table_id: int) -> list[CheckpointInfo]:
        """Leave out checkpoints that a later start of the service has taken: it may resume from them."""
        found = self._of(table_id)
        return [info for info in found if not Incarnation.parse(info.ref.incarnation).succeeds(self._incarnation)]

    def _drop(self, ref: CheckpointRef, reason: str) -> None:
        _log.warning("checkpoint dropped", checkpoint=str(ref), reason=reason)
        self._store.delete(ref)
        self.known.dropped(ref)

    def _check_rows(self, checkpoint: Checkpoint) -> None:
        """Look at the sizes of all files of rows; read them where a job has failed that went on from it."""
        self._store.check_segments(checkpoint)
        to_verify = self.known.of(checkpoint.ref.table_id).to_verify
        if checkpoint.ref not in to_verify:
            return
        for state in CheckpointContents.of(checkpoint.coordinator, checkpoint.subtasks).exchange:
            for segment in state.segments():
                for _ in self._store.read_segment(segment):
                    pass
        to_verify.discard(checkpoint.ref)

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
        in_lake = table.in_lake.path
        wrong = why_not_of_layout(state, table, exchange=exchange) or why_not(state, table.path, head)
        if wrong:
            return wrong
        commit = head.commit if head is not None else None
        done, step = frozenset(state.round.committed), state.round.step
        if commit is not None and commit.snapshot_id != state.round.base_commit:
            # A step was committed from this checkpoint or an earlier one, and the service died before it recorded that.
            done, step = done | self._in_lake(in_lake, state), (commit.step or 0) + 1
        lost = self._deleted(in_lake, state.paths() - done)
        return (
            f"{len(lost)} of its files were deleted, {lost[0]} first"
            if lost
            else RestoredRound(info.ref, state, done, step)
        )

    def _in_lake(self, path: TablePath, state: CheckpointContents) -> frozenset[str]:
        """Return the paths of the checkpoint's files that its table or that of its dead letters names."""
        found, letters = self._lake.referenced(path, state.paths()), state.letters()
        return found | self._lake.referenced(path_of(path), letters) if letters else found

    def _deleted(self, path: TablePath, files: frozenset[str]) -> list[str]:
        """Return the missing files: a later start may have deleted them before the checkpoint completed."""
        folders = {file.rpartition("/")[0] for file in files}
        found = {file for folder in folders for file in self._lake.list_prefix(path, f"{folder}/")}
        return sorted(files - found)


def is_gone(source: Source, path: TablePath, table_id: int) -> bool:
    """Return whether a source no longer has a table of this name and id; False if the source cannot be asked."""
    try:
        return source.table(path).table_id != table_id
    except TableGoneError:
        return True
    except SourceError:
        return False  # asked again at the next start
