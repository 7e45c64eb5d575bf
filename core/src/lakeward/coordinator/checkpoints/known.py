"""What this start knows of the checkpoints of each table: which must not be used, and which snapshots they need.

A KV snapshot that a valid checkpoint still has to read must stay leased. The list of them is read from the store at the
start, and changes when a checkpoint completes, is gone on from, deleted or invalidated.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.tables import KvSnapshot, TableBucket


@dataclass(slots=True)
class TableCheckpoints:
    """What is known of the checkpoints of one table."""

    may_exist: bool = False
    """Whether the table may have any: else the store is not asked."""
    invalidated: str = ""
    """Why none of them may be used; persisted in the service's state for the next start. Empty: they may."""
    needed: tuple[KvSnapshot, ...] = ()
    """What the checkpoint which the next round would go on from still has to read."""
    changes: int = 0
    """So often `needed` was said."""
    gone_on_from: frozenset[str] = frozenset()
    """Paths of the files of checkpoints that rounds went on from, until a commit lands. They may commit them whatever
    becomes of the checkpoint: a delete of it that got no answer may take effect at any time."""
    is_missing: bool = False
    """Whether the lake had no such table at the last check; missing at two checks in a row means gone."""
    rejected: dict[CheckpointRef, str] = field(default_factory=dict)
    """Those that a round could not go on from, and why: its subtasks found rows of it damaged."""
    to_verify: set[CheckpointRef] = field(default_factory=set)
    """Those whose rows are all read before a round goes on from them."""


class KnownCheckpoints:
    """Thread-safe: what is known changes on the event loop and on workers, under one lock. Nothing blocks."""

    def __init__(self) -> None:
        self.was_read = False
        """True once the store was read. Before that, any table may have a checkpoint that needs any snapshot."""
        self._tables: dict[int, TableCheckpoints] = {}
        self._listed = False
        self._changed_needs: deque[tuple[int, tuple[KvSnapshot, ...]]] = deque()
        self._lock = threading.RLock()

    def of(self, table_id: int) -> TableCheckpoints:
        """Return what is known of a table's checkpoints; it is kept from now on."""
        with self._lock:
            return self._tables.setdefault(table_id, TableCheckpoints())

    def has(self, table_id: int) -> bool:
        """Return whether a table may have checkpoints."""
        found = self._tables.get(table_id)
        return not self._listed or (found is not None and found.may_exist)

    @property
    def table_ids(self) -> frozenset[int]:
        """The tables that may have checkpoints, as far as is known."""
        with self._lock:
            return frozenset(table_id for table_id, one in self._tables.items() if one.may_exist)

    # --- what checkpoints need --------------------------------------------------------------------------------

    def changed_needs(self) -> Iterator[tuple[int, tuple[KvSnapshot, ...]]]:
        """Yield each change of the snapshots that a table's checkpoint needs; the newest change of a table counts."""
        while self._changed_needs:
            yield self._changed_needs.popleft()

    def needed(self, table_id: int) -> tuple[KvSnapshot, ...]:
        """Return the snapshots that a table's checkpoint still has to read."""
        found = self._tables.get(table_id)
        return () if found is None else found.needed

    @property
    def holding(self) -> frozenset[int]:
        """The tables whose checkpoints need snapshots."""
        with self._lock:
            return frozenset(table_id for table_id, one in self._tables.items() if one.needed)

    def need(self, table_id: int, snapshots: tuple[KvSnapshot, ...], *, unless_changed: int | None = None) -> None:
        """Set what a table's checkpoint needs, unless that was said again since `changes` was so."""
        with self._lock:
            one = self.of(table_id)
            if unless_changed is not None and one.changes != unless_changed:
                return
            one.changes += 1
            if one.needed != snapshots:
                one.needed = snapshots
                self._changed_needs.append((table_id, snapshots))

    def expect(self, table_id: int, state: CheckpointContents) -> None:
        """Note that a checkpoint is being written: it may complete even if its round ends before the store answers."""
        self.of(table_id).may_exist = True
        if not self.needed(table_id):  # else the previous checkpoint needs at least the same snapshots
            self.need(table_id, state.enumeration().snapshots)

    def completed(self, table_id: int, needed: tuple[KvSnapshot, ...]) -> None:
        """Note that a checkpoint has completed, which needs these snapshots: it replaces the table's previous one."""
        self.of(table_id).may_exist = True
        self.need(table_id, needed)

    # --- which ones must not be used --------------------------------------------------------------------------

    def invalidate(self, table_id: int, reason: str) -> None:
        """Make the table's next round start without its checkpoint, valid or not; if it has one, `reason` is logged."""
        self.need(table_id, ())
        with self._lock:
            one = self.of(table_id)
            if self.has(table_id) and not one.invalidated:
                one.invalidated = reason

    def invalidate_tables_that_need(self, buckets: Collection[TableBucket], reason: str) -> None:
        """Invalidate the checkpoints that still have to read a snapshot of a bucket which is no longer protected."""
        for table_id in self.holding:
            if any(snapshot.bucket in buckets for snapshot in self.needed(table_id)):
                self.invalidate(table_id, reason)

    @property
    def invalidated(self) -> Mapping[int, str]:
        """The tables whose checkpoints must not be used, and why."""
        with self._lock:
            return {table_id: one.invalidated for table_id, one in self._tables.items() if one.invalidated}

    def reject(self, ref: CheckpointRef, reason: str) -> None:
        """Make the table's next round leave one checkpoint out, and go on from an older one if there is one."""
        self.of(ref.table_id).rejected[ref] = reason

    def verify_rows(self, ref: CheckpointRef) -> None:
        """Make the table's next round read all rows of one checkpoint before it goes on from it.

        A job that went on from it has failed. A subtask that finds a damaged file says so, but it may die, or its
        connection break, before that is heard. Without this the rounds of the table would go on from the same damaged
        file for ever.
        """
        self.of(ref.table_id).to_verify.add(ref)

    # --- what the store has -----------------------------------------------------------------------------------

    def listed(self, table_ids: Collection[int]) -> None:
        """Note that the store has checkpoints of these tables; of others that were not noted before, it has none."""
        with self._lock:
            for table_id in table_ids:
                self.of(table_id).may_exist = True
            self._listed = True
            for one in self._tables.values():
                if not one.may_exist:
                    one.invalidated = ""

    def dropped(self, ref: CheckpointRef) -> None:
        """Note that a checkpoint was deleted."""
        one = self._tables.get(ref.table_id)
        if one is not None:
            one.rejected.pop(ref, None)
            one.to_verify.discard(ref)

    def dropped_all(self, table_id: int) -> None:
        """Note that all checkpoints of a table were deleted."""
        with self._lock:
            one = self.of(table_id)
            one.may_exist, one.invalidated = False, ""
        self.need(table_id, ())

    def landed(self, table_id: int) -> None:
        """Note that a table's newest round has committed: no round before it may commit any more."""
        one = self._tables.get(table_id)
        if one is not None:
            one.gone_on_from = frozenset()

    def carried_on(self, table_id: int) -> frozenset[str]:
        """Return the files that rounds of a table have gone on with, of whom one may still commit them."""
        one = self._tables.get(table_id)
        return frozenset() if one is None else one.gone_on_from

    def forget(self, table_id: int) -> None:
        """Forget a table that the source has dropped, and whose checkpoints were deleted."""
        with self._lock:
            self._tables.pop(table_id, None)
