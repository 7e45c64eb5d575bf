"""The tiering queue of a store, shared by all its processes, for any service (fluss.md, "The tiering queue").

There is no background thread: each call first applies what has become due since the last one. States:
`scheduled` (`due_ms`: when it becomes pending), `pending` (`place`: first in, first out), `tiering` (`due_ms`: when
it becomes pending unless it is renewed). Each step to `pending` raises the epoch. The coordinator epoch is the constant
0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatResponse, Refusal, TableAssignment
from lakeward_source_embedded.options import STORE_SETTINGS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from lakeward.model.tiering import HeartbeatRequest, TableEpoch
    from lakeward.ports import Clock
    from lakeward_source_embedded.database import Database

COORDINATOR_EPOCH = 0
_PENDING = """
UPDATE tiering SET state = 'pending', epoch = epoch + 1,
  place = (SELECT COALESCE(MAX(place), 0) + 1 FROM tiering) WHERE table_id = ?"""
_FIRST = """
SELECT q.table_id, q.epoch, t.database, t.name, t.freshness_s FROM tiering q JOIN tables t ON t.table_id = q.table_id
WHERE q.state = 'pending' ORDER BY q.place LIMIT 1"""


class TieringQueue:
    """Assigns tables to tiering services and takes them back."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Work on an open store; the clock's wall clock is the queue's, as several processes share it."""
        self._database = database
        self._clock = clock

    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        """Handle one heartbeat. See `lakeward.ports.Source.heartbeat`."""
        with self._database.write() as sql:
            view = _View(sql, self._clock.wall_ms(), _timeout_ms(sql))
            view.advance()
            for table in heartbeat.failed:
                view.fail(table)
            for table in heartbeat.renewed:
                view.renew(table)
            for table in heartbeat.finished:
                view.finish(table, again=table.table_id in heartbeat.forced)
            view.advance()
            assignment = view.assign_next() if heartbeat.request else None
        return HeartbeatResponse(COORDINATOR_EPOCH, assignment, view.refused)

    def make_due(self, paths: Collection[TablePath]) -> None:
        """Make scheduled tables pending at once; others are unchanged."""
        with self._database.write() as sql:
            for path in sorted(paths):
                row = sql.execute(
                    "SELECT q.table_id FROM tiering q JOIN tables t ON t.table_id = q.table_id"
                    " WHERE t.database = ? AND t.name = ? AND q.state = 'scheduled'",
                    (path.database, path.table),
                ).fetchone()
                if row is not None:
                    sql.execute(_PENDING, row)


class _View:
    """One transaction's view of the queue."""

    def __init__(self, sql: sqlite3.Connection, now_ms: int, timeout_ms: int) -> None:
        self._sql = sql
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms
        self.refused: dict[int, Refusal] = {}

    def advance(self) -> None:
        """Apply what has become due, in order of time: passed freshness, and missing heartbeats."""
        query = "SELECT table_id FROM tiering WHERE state <> 'pending' AND due_ms <= ? ORDER BY due_ms, table_id"
        for row in self._sql.execute(query, (self._now_ms,)).fetchall():
            self._sql.execute(_PENDING, row)

    def fail(self, table: TableEpoch) -> None:
        """Handle a failure: the table is pending at once, without a pause."""
        state = self._state(table)
        if state in {"tiering", "scheduled"}:
            self._sql.execute(_PENDING, (table.table_id,))

    def renew(self, table: TableEpoch) -> None:
        """Renew a table that is being tiered."""
        state = self._state(table)
        if state == "tiering":
            self._set(table.table_id, "tiering", self._now_ms + self._timeout_ms)
        elif state is not None:
            self.refused[table.table_id] = Refusal.NOT_TIERING

    def finish(self, table: TableEpoch, *, again: bool) -> None:
        """Handle a success; a repeated report is accepted."""
        state = self._state(table)
        if state is None or state == "pending":
            return
        if again:
            self._sql.execute(_PENDING, (table.table_id,))
            return
        query = "SELECT freshness_s FROM tables WHERE table_id = ?"
        freshness_s = float(self._sql.execute(query, (table.table_id,)).fetchone()[0])
        self._set(table.table_id, "scheduled", self._now_ms + round(freshness_s * 1000))

    def assign_next(self) -> TableAssignment | None:
        """Assign the table at the head of the queue."""
        row = self._sql.execute(_FIRST).fetchone()
        if row is None:
            return None
        table_id, epoch, database, name, freshness_s = row
        self._set(table_id, "tiering", self._now_ms + self._timeout_ms)
        return TableAssignment(TablePath(database, name), table_id, epoch, COORDINATOR_EPOCH, freshness_s)

    def _state(self, table: TableEpoch) -> str | None:
        """Return the table's state, or None if it is refused."""
        query = "SELECT state, epoch FROM tiering WHERE table_id = ?"
        row = self._sql.execute(query, (table.table_id,)).fetchone()
        if table.coordinator_epoch != COORDINATOR_EPOCH:
            self.refused[table.table_id] = Refusal.COORDINATOR_CHANGED
        elif row is None:
            self.refused[table.table_id] = Refusal.GONE
        elif row[1] != table.epoch:
            self.refused[table.table_id] = Refusal.FENCED
        else:
            return str(row[0])
        return None

    def _set(self, table_id: int, state: str, due_ms: int) -> None:
        self._sql.execute("UPDATE tiering SET state = ?, due_ms = ? WHERE table_id = ?", (state, due_ms, table_id))


def _timeout_ms(sql: sqlite3.Connection) -> int:
    row = sql.execute("SELECT value FROM meta WHERE key = 'option.tiering-timeout-s'").fetchone()
    text = STORE_SETTINGS["tiering-timeout-s"].default if row is None else row[0]
    return round(float(text) * 1000)
