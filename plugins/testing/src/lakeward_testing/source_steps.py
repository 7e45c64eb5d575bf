"""Steps that the tests of `source_conformance` share."""

# ruff: noqa: S101 - a step of a test asserts what it builds on
from __future__ import annotations

from dataclasses import replace
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
from lakeward_testing.expectations import mismatch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakeward.model.tiering import HeartbeatResponse, LakeRecord
    from lakeward.ports import SourceBatch
    from lakeward_testing.source_world import SourceWorld

PATH = TablePath("shop", "orders")
OTHER = TablePath("shop", "returns")
UPSERT, DELETE = "upsert", "delete"


def only_bucket(world: SourceWorld, spec: TableSpec) -> BucketState:
    """Return the table's one bucket as it is now."""
    states = world.source.buckets(spec)
    assert len(states) == 1, f"buckets of a table of one bucket: expected one, found {states}"
    return states[0]


def newest_snapshot(world: SourceWorld, spec: TableSpec) -> KvSnapshot:
    """Return the newest snapshot of the table's one bucket."""
    snapshot = only_bucket(world, spec).snapshot
    assert snapshot is not None, "buckets after a KV snapshot: expected the bucket's newest snapshot, found None"
    return snapshot


def check_missing(
    world: SourceWorld, snapshots: Collection[KvSnapshot], expected: Collection[KvSnapshot], where: str
) -> None:
    """Assert which snapshots the source says are missing."""
    __tracebackhide__ = True
    found = world.source.missing_snapshots(snapshots)
    assert found == expected, mismatch(f"missing_snapshots {where}", expected, found)


def check_values(batches: list[SourceBatch], column: str, expected: list[object], where: str) -> None:
    """Assert what a column of records holds."""
    __tracebackhide__ = True
    found = joined(batches).column(column).to_pylist()
    assert found == expected, mismatch(f"{where}: column {column!r}", expected, found)


def record_of(world: SourceWorld, spec: TableSpec) -> LakeRecord:
    """Return the lake record of a table for which a lake snapshot was committed."""
    record = world.source.lake_record(spec)
    assert record is not None, "lake_record after a commit: expected the committed lake snapshot, found None"
    return record


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
    return spec, newest_snapshot(world, spec)


def supersede(world: SourceWorld, keys: int = 1) -> None:
    """Write so many new keys and snapshot, until clean-up has had its way with older snapshots of the keys' buckets."""
    for number in range(4):
        world.write(PATH, [(UPSERT, 50 + keys * number + key, "later") for key in range(keys)])
        world.snapshot(PATH)


def read_log(world: SourceWorld, spec: TableSpec, start: int, stop: int) -> list[SourceBatch]:
    """Read a range of the first bucket's log; at least one batch says how far it was read."""
    bucket = TableBucket(spec.table_id, None, 0)
    batches = list(world.reader(spec).read_log(LogSplit("split", bucket, (), start, stop)))
    assert batches, (
        f"read_log from {start} to {stop}: expected a batch with the next offset {stop}, be it one without records, "
        "found no batch"
    )
    return batches


def read_snapshot(world: SourceWorld, spec: TableSpec, snapshot: KvSnapshot, skip_rows: int = 0) -> list[SourceBatch]:
    """Read a KV snapshot, without its first rows."""
    split = SnapshotSplit("split", snapshot.bucket, (), snapshot.snapshot_id, snapshot.log_offset)
    return list(world.reader(spec).read_snapshot(split, skip_rows))


def joined(batches: list[SourceBatch]) -> pa.Table:
    """Join batches to one table."""
    assert batches, "records: expected at least one batch, found none"
    return pa.Table.from_batches([batch.records for batch in batches])


def table_of(batches: list[SourceBatch], base: dict[int, str] | None = None) -> dict[int, str]:
    """Apply records to rows by id: what a reader of the changelog ends up with."""
    rows = dict(base or {})
    for row in joined(batches).to_pylist():
        if row[CHANGE_COLUMN] in {Change.DELETE, Change.UPDATE_BEFORE}:
            assert row["id"] in rows, f"records: expected a change of a row that is there, found {row} of {rows}"
            before, where = rows.pop(row["id"]), "records: name in a DELETE or UPDATE_BEFORE, that of the row before"
            assert before == row["name"], mismatch(where, before, row["name"])
        else:
            assert row["id"] not in rows, (
                f"records: expected an UPDATE_BEFORE or DELETE before another row of {row['id']!r}, found {row}"
            )
            rows[row["id"]] = row["name"]
    return rows


def request_table(world: SourceWorld) -> TableAssignment:
    """Ask the queue for a table; it must have one."""
    assignment = world.source.heartbeat(HeartbeatRequest(request=True)).assignment
    assert assignment is not None, "heartbeat that asks for a table, where one is due: expected it, found None"
    return assignment


def check_nothing_due(world: SourceWorld, where: str) -> None:
    """Assert that the queue has no table to give."""
    __tracebackhide__ = True
    found = world.source.heartbeat(HeartbeatRequest(request=True)).assignment
    assert found is None, mismatch(f"heartbeat that asks for a table, where {where}: assignment", None, found)


def check_refused(response: HeartbeatResponse, expected: Mapping[int, object], where: str) -> None:
    """Assert which tables a heartbeat refused, and why."""
    __tracebackhide__ = True
    found = response.refused
    assert found == expected, mismatch(f"heartbeat {where}: refused tables, by id", expected, found)


def epoch_of(assignment: TableAssignment) -> TableEpoch:
    """Return the epoch under which a table was assigned."""
    return TableEpoch(assignment.table_id, assignment.epoch, assignment.coordinator_epoch)


def without_name(spec: TableSpec) -> TableSpec:
    """Return a table as it is where the configuration does not want its column `name` in the lake."""
    schema = spec.schema
    return replace(spec, schema=schema.remove(schema.get_field_index("name")), left_out=("name",))
