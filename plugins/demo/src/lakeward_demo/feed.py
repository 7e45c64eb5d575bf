"""What happens to flights, as changes: schedule = insert, departure and arrival = update, cancelled = delete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.tables import TablePath
from lakeward_source_embedded.columns import parse_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

FLIGHTS = TablePath("nyc", "flights")
EVENTS = TablePath("nyc", "events")
FLIGHT_COLUMNS = parse_columns(
    "flight_id string not null, flight_date date, carrier string, flight int, tailnum string, origin string, "
    "dest string, distance int, status string, scheduled timestamp(6), departed timestamp(6), dep_delay int, "
    "arrived timestamp(6), arr_delay int, air_time int"
)
EVENT_COLUMNS = parse_columns(
    "month string not null, flight_id string not null, event string, at timestamp(6), delay int"
)
FIRST_LIVE_DAY = date(2013, 3, 1)
"""The days before it are history: there, with snapshots, before the service starts."""
CHANGE = "change"
_AT_ARRIVAL = ("arrived", "arr_delay", "air_time")
_AT_DEPARTURE = ("departed", "dep_delay")


@dataclass(frozen=True, slots=True)
class Fed:
    """How many changes went into `nyc.flights`; each is also a row of `nyc.events`."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    @property
    def events(self) -> int:
        """Changes in all."""
        return self.inserts + self.updates + self.deletes

    def __add__(self, other: Fed) -> Fed:
        """Add up two feeds."""
        return Fed(self.inserts + other.inserts, self.updates + other.updates, self.deletes + other.deletes)


def days_between(flights: pa.Table, first: date | None, stop: date) -> pa.Table:
    """Return the flights of the days from `first` (None = the first of all) until before `stop`."""
    chosen = pc.less(flights["flight_date"], pa.scalar(stop))
    if first is not None:
        chosen = pc.and_(chosen, pc.greater_equal(flights["flight_date"], pa.scalar(first)))
    return flights.filter(chosen)


def live_end(days: int) -> date:
    """Return the first day that is not fed any more."""
    return FIRST_LIVE_DAY + timedelta(days=days)


def changes_of(flights: pa.Table) -> pa.Table:
    """Turn flights (as `read_flights` gives them) into changes, in the order in which they happened.

    Columns are `FLIGHT_COLUMNS`, and `change` (insert, update, delete), `event` (scheduled, departed, landed,
    cancelled), `at` (local time; schedules come out at midnight) and `delay` (minutes). Day after day: schedules first.
    """
    flown, landed = pc.is_valid(flights["departed"]), pc.is_valid(flights["arrived"])
    midnight = pc.cast(pc.cast(flights["flight_date"], pa.timestamp("us")), pa.timestamp("us"))
    all_rows = flights.append_column("at", midnight)
    steps = [
        _step(all_rows, 0, "insert", "scheduled", blank=(*_AT_DEPARTURE, *_AT_ARRIVAL), delay=None),
        _step(_at(flights, flown, "departed"), 1, "update", "departed", blank=_AT_ARRIVAL, delay="dep_delay"),
        _step(_at(flights, landed, "arrived"), 2, "update", "landed", blank=(), delay="arr_delay"),
        _step(_at(flights, pc.invert(flown), "scheduled"), 3, "delete", "cancelled", blank=(), delay=None),
    ]
    happened = pa.concat_tables(steps)
    later = pc.cast(pc.greater(happened["step"], 0), pa.int8())
    keys = [(name, "ascending") for name in ("flight_date", "later", "at", "flight_id", "step")]
    return happened.append_column("later", later).sort_by(keys).drop_columns(["later", "step"])


def flight_changes(changes: pa.Table) -> pa.Table:
    """Return what is loaded into `nyc.flights`: its columns, and `change`."""
    return changes.select([*FLIGHT_COLUMNS.names, CHANGE])


def event_rows(changes: pa.Table) -> pa.Table:
    """Return what is appended to `nyc.events`."""
    month = pc.strftime(changes["flight_date"], format="%Y-%m")
    return changes.append_column("month", month).select(EVENT_COLUMNS.names).cast(EVENT_COLUMNS)


def settled(flights: pa.Table) -> pa.Table:
    """Return `nyc.flights` as it must be when all changes of these flights are in: cancelled ones are gone."""
    flown = flights.filter(pc.is_valid(flights["departed"]))
    status = pc.if_else(pc.is_valid(flown["arrived"]), "landed", "departed")
    return flown.append_column("status", status).select(FLIGHT_COLUMNS.names).cast(FLIGHT_COLUMNS)


def count(changes: pa.Table) -> Fed:
    """Count inserts, updates and deletes."""
    words = {entry["values"]: entry["counts"] for entry in pc.value_counts(changes[CHANGE]).to_pylist()}
    return Fed(words.get("insert", 0), words.get("update", 0), words.get("delete", 0))


def slices(changes: pa.Table, parts: int) -> Iterator[pa.Table]:
    """Cut changes into parts of about the same length, in order; empty ones are left out."""
    length = -(-len(changes) // parts)
    for start in range(0, len(changes), max(1, length)):
        yield changes.slice(start, length)


def _at(flights: pa.Table, chosen: pa.ChunkedArray, moment: str) -> pa.Table:
    rows = flights.filter(chosen)
    return rows.append_column("at", rows[moment])


def _step(rows: pa.Table, step: int, change: str, event: str, *, blank: tuple[str, ...], delay: str | None) -> pa.Table:
    length = len(rows)
    late = pa.nulls(length, pa.int32()) if delay is None else rows[delay]
    for name in blank:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), pa.nulls(length, rows.schema.field(name).type))
    values = {CHANGE: change, "event": event, "status": event}
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(value, length))
    return rows.append_column("delay", late).append_column("step", pa.repeat(pa.scalar(step, pa.int8()), length))
