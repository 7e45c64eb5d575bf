"""The tiering queue of mirrored tables, and an estimate of what is due in the source's own queue. Pure.

The service keeps this queue itself: the source does not know of mirrored tables.

It answers heartbeats as a source's queue does (fluss.md, "The tiering queue"), so that the machine `rounds` sees no
difference: a table is due when its freshness has passed, failed ones are due at once, a dropped table is refused. It
checks the table's epoch alone: the queue lives as long as the service, so its coordinator epoch never changes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakeward.model.tables import TablePath


SILENT_S = 60.0
"""A table that was in no heartbeat for this many seconds is due again: its round was given up."""


class _Entry(Struct, frozen=True):
    assignment: TableAssignment
    due: float
    taken: bool = False
    named_at: float = 0.0
    """When it was last in a heartbeat, or assigned."""
    withdrawn: Refusal | None = None
    """Why it is not ours any more, though a round of it is open."""


class MirrorQueue:
    """The queue of one service. It counts its own epochs, which have no meaning elsewhere."""

    def __init__(self, coordinator_epoch: int = 0) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._entries: dict[int, _Entry] = {}

    def oldest_due(self, now: float) -> float | None:
        """Return since when the most overdue table has been due, None if none is."""
        return min(
            (entry.due for entry in self._entries.values() if not entry.taken and entry.due <= now), default=None
        )

    @property
    def table_ids(self) -> frozenset[int]:
        """The tables that this queue knows."""
        return frozenset(self._entries)

    def update(
        self, now: float, tables: Mapping[int, tuple[TablePath, float]], elsewhere: Collection[int] = ()
    ) -> None:
        """Update the set of tables: new ones are due at once, missing ones are forgotten.

        A missing one that has a round is refused until no heartbeat names it any more: its epoch is this queue's, and
        would mean another service's round at the source. `now`: seconds on the holder's clock. `tables`: by id, path
        and promised freshness in seconds. `elsewhere`: ids of tables that exist, and are not ours.
        """
        known = self._entries
        self._entries = {
            table_id: replace(entry, withdrawn=Refusal.NOT_TIERING if table_id in elsewhere else Refusal.GONE)
            for table_id, entry in known.items()
            if entry.taken and now - entry.named_at <= SILENT_S and table_id not in tables
        }
        for table_id, (path, freshness_s) in tables.items():
            entry = known.get(table_id) or _Entry(
                TableAssignment(path, table_id, 0, self._coordinator_epoch, freshness_s), now
            )
            if entry.withdrawn is not None:
                entry = replace(entry, withdrawn=None, taken=False, due=now)
            self._entries[table_id] = replace(
                entry, assignment=dataclasses.replace(entry.assignment, freshness_s=freshness_s)
            )

    def make_due(self, now: float, paths: Collection[TablePath]) -> None:
        """Assign these at the next request; tables that are assigned stay so."""
        for table_id, entry in self._entries.items():
            if entry.assignment.path in paths and not entry.taken:
                self._entries[table_id] = replace(entry, due=min(entry.due, now))

    def heartbeat(self, now: float, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answer a heartbeat as a source would: failed, renewed, finished, request, in this order.

        `now`: seconds on the holder's clock. `request` contains only tables of this queue.
        """
        refused: dict[int, Refusal] = {}
        for epoch in request.failed:
            self._return(epoch, now, refused)
        for epoch in request.renewed:
            if self._check(epoch, refused) or self._is_withdrawn(epoch):
                self._entries[epoch.table_id] = replace(self._entries[epoch.table_id], named_at=now)
        for epoch in request.finished:
            forced = epoch.table_id in request.forced
            self._return(epoch, now if forced else None, refused, now)
        self._take_back(now)
        return HeartbeatResponse(self._coordinator_epoch, self._next(now) if request.request else None, refused)

    def _take_back(self, now: float) -> None:
        for table_id, entry in self._entries.items():
            if entry.taken and entry.withdrawn is None and now - entry.named_at > SILENT_S:
                self._entries[table_id] = replace(entry, taken=False, due=now)

    def _return(self, epoch: TableEpoch, due: float | None, refused: dict[int, Refusal], now: float = 0.0) -> None:
        if self._check(epoch, refused):
            entry = self._entries[epoch.table_id]
            later = now + entry.assignment.freshness_s if due is None else due
            self._entries[epoch.table_id] = replace(entry, due=later, taken=False)

    def _check(self, epoch: TableEpoch, refused: dict[int, Refusal]) -> bool:
        entry = self._entries.get(epoch.table_id)
        if entry is None:
            refused[epoch.table_id] = Refusal.GONE
        elif entry.withdrawn is not None:
            refused[epoch.table_id] = entry.withdrawn
        elif not entry.taken:
            refused[epoch.table_id] = Refusal.NOT_TIERING
        elif entry.assignment.epoch != epoch.epoch:
            refused[epoch.table_id] = Refusal.FENCED
        else:
            return True
        return False

    def _is_withdrawn(self, epoch: TableEpoch) -> bool:
        entry = self._entries.get(epoch.table_id)
        return entry is not None and entry.withdrawn is not None

    def _next(self, now: float) -> TableAssignment | None:
        due = [entry for entry in self._entries.values() if not entry.taken and entry.due <= now]
        if not due:
            return None
        first = min(due, key=lambda entry: (entry.due, entry.assignment.table_id))
        assignment = dataclasses.replace(first.assignment, epoch=first.assignment.epoch + 1, waited_s=now - first.due)
        self._entries[assignment.table_id] = replace(first, assignment=assignment, taken=True, named_at=now)
        return assignment


class SourceQueueEstimate:
    """Estimates since when a table has been due in the source's own queue: the source does not report it.

    A table is due again one freshness after it was reported as finished, and at once after a failure. The queue is
    first in, first out: no table in it has been due for longer than the one it assigned last, and if it assigns none on
    a request, it is empty. So the estimate never waits for a table that is assigned to another service.
    """

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._freshness: dict[int, float] = {}
        self._taken: set[int] = set()
        self._last_due = float("-inf")
        """When the table that the source assigned last had become due."""

    def update(self, now: float, tables: Mapping[int, float]) -> None:
        """Update the set of tables: new ones count as due at once, missing ones are forgotten.

        `now`: seconds on the holder's clock. `tables`: promised freshness in seconds, by table id.
        """
        self._due = {table_id: self._due.get(table_id, now) for table_id in tables}
        self._freshness = dict(tables)
        self._taken &= tables.keys()

    def oldest_due(self, now: float) -> float | None:
        """Return since when the head of the source's queue has been due, None if nothing seems to be in it."""
        waiting = [due for table_id, due in self._due.items() if table_id not in self._taken]
        oldest = max(min(waiting, default=now + 1.0), self._last_due)
        return oldest if oldest <= now else None

    def assigned(self, now: float, table_id: int) -> float:
        """Note a table that the source assigned; return for how many seconds it has been due.

        `now`: seconds on the holder's clock.
        """
        self._last_due = min(now, max(self._last_due, self._due.get(table_id, now)))
        self._taken.add(table_id)
        return now - self._last_due

    def empty(self, now: float) -> None:
        """Note that the source assigned no table: none is due there."""
        self._last_due = now
        for table_id in self._due.keys() - self._taken:
            self._due[table_id] = max(self._due[table_id], now)

    def reported(self, now: float, request: HeartbeatRequest) -> None:
        """Note a heartbeat that was sent: finished tables are due one freshness later, failed ones at once.

        A table that is no longer renewed was given up without a report; the source queues it again as before.
        """
        self._taken &= {epoch.table_id for epoch in (*request.renewed, *request.finished, *request.failed)}
        for epoch in request.failed:
            self._returned(epoch.table_id, now)
        for epoch in request.finished:
            fresh = 0.0 if epoch.table_id in request.forced else self._freshness.get(epoch.table_id, 0.0)
            self._returned(epoch.table_id, now + fresh)

    def _returned(self, table_id: int, due: float) -> None:
        self._taken.discard(table_id)
        if table_id in self._due:
            self._due[table_id] = due
