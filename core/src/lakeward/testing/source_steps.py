"""Steps that the tests of `source_conformance` share."""

# ruff: noqa: S101 - a step of a test asserts what it builds on
from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import (
    CHANGE_COLUMN,
    BucketState,
    Change,
    KvSnapshot,
    TableBucket,
    TablePath,
    TableSpec,
)
from lakeward.model.tiering import HeartbeatRequest, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from lakeward.ports import SourceBatch
    from lakeward.testing.source_world import SourceWorld

PATH = TablePath("shop", "orders")
OTHER = TablePath("shop", "returns")
UPSERT, DELETE = "upsert", "delete"


def only_bucket(world: SourceWorld, spec: TableSpec) -> BucketState:
    """Return the table's one bucket as it is now."""
    (state,) = world.source.buckets(spec)
    return state


def logged(world: SourceWorld) -> tuple[TableSpec, TableBucket]:
    """Make a log table with two records."""
    spec = world.create(PATH, primary_key=False)
    world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 2, "b")])
    return spec, only_bucket(world, spec).bucket


def snapshotted(world: SourceWorld) -> tuple[TableSpec, KvSnapshot]:
    """A primary-key table of two rows, with one snapshot of them."""
    spec = world.create(PATH, primary_key=True)
    world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 2, "b")])
    world.snapshot(PATH)
    snapshot = only_bucket(world, spec).snapshot
    assert snapshot is not None
    return spec, snapshot


def supersede(world: SourceWorld) -> None:
    """Write and snapshot until clean-up has had its way with older snapshots."""
    for number in range(4):
        world.write(PATH, [(UPSERT, 50 + number, "later")])
        world.snapshot(PATH)


def read_log(world: SourceWorld, spec: TableSpec, start: int, stop: int) -> list[SourceBatch]:
    """Read a range of the first bucket's log."""
    bucket = TableBucket(spec.table_id, None, 0)
    return list(world.reader(spec).read_log(LogSplit("split", bucket, (), start, stop)))


def read_snapshot(world: SourceWorld, spec: TableSpec, snapshot: KvSnapshot, skip_rows: int = 0) -> list[SourceBatch]:
    """Read a KV snapshot, without its first rows."""
    split = SnapshotSplit("split", snapshot.bucket, (), snapshot.snapshot_id, snapshot.log_offset)
    return list(world.reader(spec).read_snapshot(split, skip_rows))


def joined(batches: list[SourceBatch]) -> pa.Table:
    """Join batches to one table."""
    return pa.Table.from_batches([batch.records for batch in batches])


def table_of(batches: list[SourceBatch], base: dict[int, str] | None = None) -> dict[int, str]:
    """Apply records to rows by id: what a reader of the changelog ends up with."""
    rows = dict(base or {})
    for row in joined(batches).to_pylist():
        if row[CHANGE_COLUMN] in {Change.DELETE, Change.UPDATE_BEFORE}:
            assert rows.pop(row["id"]) == row["name"]
        else:
            assert row["id"] not in rows
            rows[row["id"]] = row["name"]
    return rows


def request_table(world: SourceWorld) -> TableAssignment:
    """Ask the queue for a table; it must have one."""
    assignment = world.source.heartbeat(HeartbeatRequest(request=True)).assignment
    assert assignment is not None
    return assignment


def epoch_of(assignment: TableAssignment) -> TableEpoch:
    """Return the epoch under which a table was assigned."""
    return TableEpoch(assignment.table_id, assignment.epoch, assignment.coordinator_epoch)
