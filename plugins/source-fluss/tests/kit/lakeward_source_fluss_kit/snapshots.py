"""Waits for the snapshots that a server takes by itself, each second."""

from __future__ import annotations

from lakeward.model.tables import BucketState, KvSnapshot, TableSpec
from lakeward_source_fluss.source.source import FlussSource
from lakeward_testing.waiting import wait_until


def with_snapshot(source: FlussSource, table: TableSpec) -> BucketState:
    """Return the state of a table's only bucket, once a snapshot has all of its log."""
    found: list[BucketState] = []

    def is_whole() -> bool:
        found[:] = source.buckets(table)
        (state,) = found
        return state.snapshot is not None and state.snapshot.log_offset == state.end > 0

    wait_until(is_whole, f"a snapshot of all rows of {table.path}")
    return found[0]


def newest_snapshot(source: FlussSource, table: TableSpec) -> KvSnapshot:
    """Return that snapshot."""
    snapshot = with_snapshot(source, table).snapshot
    assert snapshot is not None
    return snapshot
