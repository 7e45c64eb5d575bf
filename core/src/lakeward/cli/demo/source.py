"""The demo's tables in the embedded store, and what happens to their KV snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.cli.demo.feed import CHANGE, EVENT_COLUMNS, EVENTS, FLIGHT_COLUMNS, FLIGHTS, event_rows, flight_changes

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.embedded.store import EmbeddedStore

BUCKETS = 4
FRESHNESS_S = 2.0
_FLIGHT_PROPERTIES = {
    # More than one snapshot of each bucket for each day that is fed, and only the newest one is kept: clean-up
    # races against whoever reads an older one.
    "table.kv.snapshot.interval-s": "0",
    "table.kv.snapshot.rows": "600",
    "table.kv.snapshot.num-retained": "1",
}
_TAKEN = "SELECT SUM(next_snapshot) FROM buckets WHERE table_id = ?"
_THERE = "SELECT COUNT(*) FROM snapshots WHERE table_id = ?"
_SUPERSEDED = """
SELECT s.partition_id, s.bucket, s.snapshot_id
FROM snapshots s JOIN buckets b USING (table_id, partition_id, bucket)
WHERE s.table_id = ? AND s.snapshot_id < b.snapshot_id"""

SnapshotKey = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SnapshotCount:
    """KV snapshots of `nyc.flights` so far: how many were taken, and how many the clean-up has deleted."""

    taken: int
    deleted: int


def create_tables(store: EmbeddedStore) -> None:
    """Create `nyc.flights` (primary key, KV snapshots) and `nyc.events` (a log by month).

    Args:
        store: an empty store.
    """
    store.create_table(
        FLIGHTS,
        FLIGHT_COLUMNS,
        primary_key=("flight_id",),
        buckets=BUCKETS,
        freshness_s=FRESHNESS_S,
        properties=_FLIGHT_PROPERTIES,
    )
    store.create_table(EVENTS, EVENT_COLUMNS, partition_keys=("month",), freshness_s=FRESHNESS_S)


def load_changes(store: EmbeddedStore, changes: pa.Table) -> None:
    """Load changes into `nyc.flights`, and what happened into `nyc.events`; due snapshots and clean-up follow.

    Args:
        store: the store.
        changes: as `feed.changes_of` gives them.
    """
    store.load(FLIGHTS, flight_changes(changes), change=CHANGE)
    store.load(EVENTS, event_rows(changes))


def count_snapshots(store: EmbeddedStore) -> SnapshotCount:
    """Count the KV snapshots of `nyc.flights`."""
    table_id = store.table(FLIGHTS).table_id
    with store.database.read() as sql:
        taken = int(sql.execute(_TAKEN, (table_id,)).fetchone()[0] or 0)
        there = int(sql.execute(_THERE, (table_id,)).fetchone()[0])
    return SnapshotCount(taken, taken - there)


def superseded(store: EmbeddedStore) -> frozenset[SnapshotKey]:
    """Return the snapshots of `nyc.flights` that are there although a newer one is.

    Only the newest is retained, so right after a clean-up these are the ones that a lease has saved.
    """
    table_id = store.table(FLIGHTS).table_id
    with store.database.read() as sql:
        return frozenset(sql.execute(_SUPERSEDED, (table_id,)).fetchall())


def all_tiered(store: EmbeddedStore) -> bool:
    """Say whether the store has a lake commit on record up to the end of every bucket."""
    for spec in store.tables():
        record = store.offsets.record(spec)
        tiered = {} if record is None else record.offsets
        if any(tiered.get(state.bucket, 0) < state.end for state in store.buckets(spec.path)):
            return False
    return True
