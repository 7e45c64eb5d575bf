"""The demo's tables, what goes into each, and what each must hold in the end."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.model.tables import TablePath
from lakeward_demo.feed import (
    CHANGE,
    EVENT_COLUMNS,
    EVENTS,
    FLIGHT_COLUMNS,
    FLIGHTS,
    changes_of,
    event_rows,
    flight_changes,
    settled,
)
from lakeward_demo.store import DemoTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from lakeward_demo.store import DemoStore

BOARD = TablePath("nyc", "board")
BOARD_COLUMNS = pa.schema(
    [FLIGHT_COLUMNS.field(name) for name in ("flight_id", "origin", "dest", "status", "scheduled")]
)
FLIGHTS_TABLE = DemoTable(FLIGHTS, FLIGHT_COLUMNS, primary_key=("flight_id",), buckets=4)
EVENTS_TABLE = DemoTable(EVENTS, EVENT_COLUMNS, partition_keys=("month",), tiered=False)
BOARD_TABLE = DemoTable(BOARD, BOARD_COLUMNS, primary_key=("flight_id",), buckets=2, tiered=False)
"""What the boards at the airports show."""
LAKE_PARTITIONS = {
    EVENTS: ("month(at)", "bucket(4, flight_id)"),
    BOARD: ("month(scheduled)", "origin"),
}
"""Partitions of lake tables that the source does not have; so these tables are not lake-enabled, and mirrored alone.

Events are exchanged between subtasks. Boards are not: their partition columns are outside the primary key.
"""
DEAD_LETTERS = {EVENTS: 'on_bad_row = "dead_letter"  # what fits no lake table is kept beside it\n'}
"""How the tables are configured whose rows may not fit."""
ALL_TABLES = (FLIGHTS_TABLE, EVENTS_TABLE, BOARD_TABLE)


def load_changes(store: DemoStore, tables: Sequence[DemoTable], changes: pa.Table) -> None:
    """Load changes, as `feed.changes_of` gives them, into each of these tables that keeps them."""
    for table in tables:
        if table.path == EVENTS:
            store.load(table, event_rows(changes))
        elif table.path == FLIGHTS:
            store.load(table, flight_changes(changes), CHANGE)
        else:
            store.load(table, changes.select([*table.columns.names, CHANGE]), CHANGE)


def unfit_events(day: date) -> pa.Table:
    """Return an event of a day that fits no lake table: its text is Latin-1, as somebody's old terminal writes it."""
    noon = datetime(day.year, day.month, day.day, 12)  # noqa: DTZ001 - local time, as all of the demo
    row = {"month": f"{day:%Y-%m}", "flight_id": f"{day}-AF11-JFK-1200", "event": "", "at": noon, "delay": None}
    rows = pa.Table.from_pylist([row], schema=EVENT_COLUMNS)
    text = pa.array(["atterri à Orly".encode("latin-1")], pa.binary()).view(pa.string())
    return rows.set_column(rows.schema.get_field_index("event"), EVENT_COLUMNS.field("event"), text)


def expected(table: DemoTable, fed: pa.Table) -> pa.Table:
    """Return what a table must hold when all changes of these flights are in."""
    if table.path == EVENTS:
        return event_rows(changes_of(fed))
    return settled(fed).select(table.columns.names)


def row_key(table: DemoTable) -> tuple[str, ...]:
    """Return columns that no two rows of a table have in common."""
    return table.primary_key or ("flight_id", "event")
