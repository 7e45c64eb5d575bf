"""What a real server does that nobody would expect; the numbers are those of the list that it was found in."""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import SourceError, TableGoneError, UsageError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import CHANGE_COLUMN, Change, TableBucket, TablePath, TableSpec
from lakeward_source_fluss_kit.snapshots import newest_snapshot, with_snapshot
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.model.tables import BucketState, KvSnapshot
    from lakeward.ports import SourceReader
    from lakeward_source_fluss.rpc.client import FlussClient
    from lakeward_source_fluss.source.source import FlussSource
    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.slow]
SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("name", pa.string())])
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}
PATH = TablePath("odd", "t")
NAME = str(PATH)


@pytest.fixture
def source(lake_cluster: LakeCluster) -> Iterator[FlussSource]:
    """The source; the test's one table is dropped afterwards."""
    source = lake_cluster.source()
    yield source
    lake_cluster.drop(NAME)
    source.close()


@pytest.fixture
def client(lake_cluster: LakeCluster) -> Iterator[FlussClient]:
    """A client that can say what ours would not."""
    from lakeward_source_fluss.source.connect import connect  # noqa: PLC0415 - without a cluster nothing of it is needed

    with connect(lake_cluster.options) as client:
        yield client


def test_surprise_1_rows_are_read_from_the_bucket_they_lie_in(lake_cluster: LakeCluster, source: FlussSource) -> None:
    lake_cluster.writer.create(NAME, SCHEMA, key=["id"], buckets=2)  # no lake: there the writers' hashes differ
    lake_cluster.writer.upsert(NAME, _rows(0, 1000))

    table = source.table(PATH)
    read = [_ids(source, table, state) for state in source.buckets(table)]

    assert all(read)
    assert sorted(read[0] + read[1]) == list(range(1000))


def test_surprise_2_remote_segments_under_a_file_uri_are_read(lake_cluster: LakeCluster, source: FlussSource) -> None:
    lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED)
    for start in range(0, 240_000, 30_000):
        lake_cluster.writer.append(NAME, _rows(start, 30_000))
    table = source.table(PATH)
    (state,) = source.buckets(table)
    wait_until(lambda: _is_remote(source, table, state), "the log to be remote")

    assert _ids(source, table, state) == list(range(240_000))


def test_surprise_3_malformed_requests_are_never_answered(lake_cluster: LakeCluster) -> None:
    from lakeward_source_fluss.wire.messages import GetTableInfoRequest  # noqa: PLC0415
    from lakeward_source_fluss.wire.protobuf import encode  # noqa: PLC0415

    host, _, port = lake_cluster.cluster.bootstrap.partition(",")[0].partition(":")
    garbage = struct.pack(">ihhi", 8 + 2, 1007, 0, 1) + b"\xff\xff"
    versions = struct.pack(">ihhi", 8 + 6, 1000, 0, 2) + b"\x0a\x01a\x12\x01b"
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(garbage + versions)
        answered = struct.unpack(">ibi", connection.recv(9))[2]

    assert answered == 2
    with pytest.raises(UsageError):
        encode(GetTableInfoRequest(table_path=None))  # type: ignore[arg-type]  # that is the point


def test_surprise_4_unclean_leases_are_refused_before_they_are_sent(source: FlussSource) -> None:
    mixed = {TableBucket(1, None, 0): 1, TableBucket(1, 7, 0): 1}
    one = {TableBucket(1, None, 0): 1}

    for lease_id, duration_s, snapshots in (
        ("lease", 60.0, mixed),
        ("a/b", 60.0, one),
        ("..", 60.0, one),
        ("l" * 200, 60.0, one),
        ("lease", 2.0**53, one),
        ("lease", 0.0, one),
        ("lease", 60.0, {TableBucket(1, None, -1): 1}),
    ):
        with pytest.raises(UsageError):
            source.leases.acquire(lease_id, duration_s, snapshots)


def test_surprise_5_a_lease_on_what_is_gone_is_granted_and_verified_away(
    lake_cluster: LakeCluster, source: FlussSource
) -> None:
    snapshot = _snapshotted(lake_cluster, source)
    source.leases.acquire("late", 1.0, {snapshot.bucket: snapshot.snapshot_id})
    _supersede(lake_cluster, source, rounds=4)

    nothing = source.leases.acquire("late", 600.0, {})
    again = source.leases.acquire("late", 600.0, {snapshot.bucket: snapshot.snapshot_id})

    assert not nothing.unavailable
    assert not again.unavailable
    assert source.missing_snapshots([snapshot]) == {snapshot}
    source.leases.drop("late")


def test_surprise_6_the_same_commit_twice_keeps_the_offsets_file(
    lake_cluster: LakeCluster, source: FlussSource
) -> None:
    table, offsets = _logged(lake_cluster, source)
    prepared = source.prepare(table, offsets)
    for _ in range(2):
        source.commit(table, 900, prepared, offsets)

    assert dict(source.read_offsets(table, prepared)) == offsets
    assert source.lake_record(table) is not None


def test_surprise_6_offsets_file_that_a_repeat_destroyed_is_repaired(
    lake_cluster: LakeCluster, source: FlussSource, client: FlussClient
) -> None:
    table, offsets = _logged(lake_cluster, source)
    prepared = source.prepare(table, offsets)
    for _ in range(2):
        _raw_commit(client, table, 900, prepared)
    with pytest.raises(SourceError):
        source.lake_record(table)

    source.commit(table, 900, source.prepare(table, offsets), offsets)

    record = source.lake_record(table)
    assert record is not None
    assert (record.snapshot_id, dict(record.offsets)) == (900, offsets)


def test_surprise_7_a_record_that_a_zombie_rewound_is_put_right(
    lake_cluster: LakeCluster, source: FlussSource, client: FlussClient
) -> None:
    table, offsets = _logged(lake_cluster, source)
    old = source.prepare(table, dict.fromkeys(offsets, 0))
    prepared = source.prepare(table, offsets)
    source.commit(table, 900, prepared, offsets)
    _raw_commit(client, table, 17, old)
    rewound = source.lake_record(table)
    assert rewound is not None
    assert rewound.snapshot_id == 17

    source.commit(table, 900, source.prepare(table, offsets), offsets)

    record = source.lake_record(table)
    assert record is not None
    assert (record.snapshot_id, dict(record.offsets)) == (900, offsets)


def test_surprise_7_nothing_is_committed_to_a_dropped_table(lake_cluster: LakeCluster, source: FlussSource) -> None:
    table, offsets = _logged(lake_cluster, source)
    prepared = source.prepare(table, offsets)
    lake_cluster.drop(NAME)

    with pytest.raises(TableGoneError):
        source.commit(table, 900, prepared, offsets)


def test_surprise_8_a_table_cannot_be_made_anew_while_its_lake_table_stands(
    lake_cluster: LakeCluster, source: FlussSource
) -> None:
    first = lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED)
    lake_cluster.writer.drop(NAME)
    with pytest.raises(RuntimeError, match="already exists"):
        lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED)
    lake_cluster.catalog.drop_table(NAME)

    assert lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED) > first
    assert source.table(PATH).table_id > first


def test_surprise_9_settings_of_the_lake_come_with_a_table_and_stay_out_of_sight(
    lake_cluster: LakeCluster, source: FlussSource
) -> None:
    lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED)

    table = source.catalog.table(PATH)

    assert table.lake_format == "iceberg"
    assert table.lake_settings["uri"] == lake_cluster.catalog_uri
    assert lake_cluster.catalog_uri not in repr(table)
    assert not [key for key in table.spec.properties if key.startswith("table.datalake.iceberg.")]


def test_surprise_10_coordinator_and_service_share_a_catalog_over_rest(
    lake_cluster: LakeCluster, source: FlussSource
) -> None:
    lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED)
    table = lake_cluster.catalog.load_table(NAME)
    table.append(pa.Table.from_batches([], schema=table.schema().as_arrow()))
    lake_cluster.drop(NAME)

    # In SQLite the coordinator's lock would have refused the append, or the append the next table.
    lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED)
    assert lake_cluster.catalog.load_table(NAME).current_snapshot() is None
    assert source.table(PATH).path == PATH


def test_surprise_11_rows_of_an_older_schema_are_read_in_one_go_with_newer_ones(
    lake_cluster: LakeCluster, source: FlussSource, client: FlussClient
) -> None:
    lake_cluster.writer.create(NAME, SCHEMA, key=["id"])
    lake_cluster.writer.upsert(NAME, _rows(0, 10))
    _add_column(client)
    more = _rows(10, 10).append_column("extra", pa.array([7] * 10, pa.int64()))
    table = source.table(PATH)
    _write_until(lambda: lake_cluster.writer.upsert(NAME, more), lambda: source.buckets(table)[0].end == 20)
    (state,) = source.buckets(table)

    rows = pa.Table.from_batches(_read(source, table, state))

    assert sorted(rows.column("id").to_pylist()) == list(range(20))
    assert sorted(map(str, rows.column("extra").to_pylist())) == ["7"] * 10 + ["None"] * 10
    assert "34" in _projected(client, table)


def test_surprise_12_snapshots_are_decoded_by_columns(lake_cluster: LakeCluster, source: FlussSource) -> None:
    lake_cluster.writer.create(NAME, SCHEMA, key=["id"])
    lake_cluster.writer.upsert(NAME, _rows(0, 50_000))
    table = source.table(PATH)
    state = with_snapshot(source, table)
    assert state.snapshot is not None
    split = SnapshotSplit("s", state.bucket, (), state.snapshot.snapshot_id, state.snapshot.log_offset)

    rows = pa.Table.from_batches([batch.records for batch in _reader(source, table).read_snapshot(split)])

    assert sorted(rows.column("id").to_pylist()) == list(range(50_000))
    assert {name for name in rows.column("name").to_pylist() if not name.startswith("n")} == set()


def test_empty_batches_of_a_primary_key_table_are_read_to_their_end(
    lake_cluster: LakeCluster, source: FlussSource
) -> None:
    lake_cluster.writer.create(NAME, SCHEMA, key=["id"])
    lake_cluster.writer.change(NAME, [("upsert", {"id": 1, "name": "a"})])
    for _ in range(3):
        lake_cluster.writer.change(NAME, [("delete", {"id": 5})])
    table = source.table(PATH)
    (state,) = source.buckets(table)

    batches = list(_reader(source, table).read_log(LogSplit("s", state.bucket, (), 0, state.end)))
    tail = list(_reader(source, table).read_log(LogSplit("s", state.bucket, (), 2, state.end)))

    assert state.end == 4
    assert batches[-1].next_offset == 4
    assert [value for batch in batches for value in batch.records.column(CHANGE_COLUMN).to_pylist()] == [Change.INSERT]
    assert [(len(batch.records), batch.next_offset) for batch in tail] == [(0, 4)]


def _rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    # Text that does not shrink much, so that a log of some megabytes needs no millions of rows.
    names = [f"n{(number * 2654435761) % 2**32:x}{(number * 40503 + 12345) % 2**31:x}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int32()), "name": names}, schema=SCHEMA)


def _reader(source: FlussSource, table: TableSpec) -> SourceReader:
    from lakeward_source_fluss.source.plugin import FlussSourcePlugin  # noqa: PLC0415

    return FlussSourcePlugin().reader(source.reader_task(table), table)


def _read(source: FlussSource, table: TableSpec, state: BucketState) -> list[pa.RecordBatch]:
    reader = _reader(source, table)
    split = LogSplit("s", state.bucket, (), state.start, state.end)
    try:
        return [batch.records for batch in reader.read_log(split)]
    finally:
        reader.close()


def _ids(source: FlussSource, table: TableSpec, state: BucketState) -> list[int]:
    return [number for batch in _read(source, table, state) for number in batch.column("id").to_pylist()]


def _is_remote(source: FlussSource, table: TableSpec, state: BucketState) -> bool:
    from lakeward_source_fluss.formats.storage import Storage  # noqa: PLC0415
    from lakeward_source_fluss.source.bucket_log import BucketLog  # noqa: PLC0415

    log = BucketLog(source._client, Storage(), table, state.bucket, 1 << 20)
    return log.fetch(0).remote_log_fetch_info is not None


def _write_until(write: Callable[[], None], there: Callable[[], bool]) -> None:
    """Write again while it has no effect: right after a change of schema a server may take rows and drop them."""

    def written() -> bool:
        write()
        return there()

    wait_until(written, "what was written", turn_s=1.0)


def _snapshotted(lake_cluster: LakeCluster, source: FlussSource) -> KvSnapshot:
    lake_cluster.writer.create(NAME, SCHEMA, key=["id"])
    lake_cluster.writer.change(NAME, [("upsert", {"id": 1, "name": "a"})])
    return newest_snapshot(source, source.table(PATH))


def _supersede(lake_cluster: LakeCluster, source: FlussSource, rounds: int) -> None:
    for number in range(rounds):
        lake_cluster.writer.change(NAME, [("upsert", {"id": 10 + number, "name": "later"})])
        with_snapshot(source, source.table(PATH))


def _logged(lake_cluster: LakeCluster, source: FlussSource) -> tuple[TableSpec, dict[TableBucket, int]]:
    lake_cluster.writer.create(NAME, SCHEMA, properties=TIERED)
    lake_cluster.writer.append(NAME, _rows(0, 5))
    table = source.table(PATH)
    return table, {state.bucket: state.end for state in source.buckets(table)}


def _raw_commit(client: FlussClient, table: TableSpec, snapshot_id: int, prepared: str) -> None:
    """Commit as a service does that asks nobody and keeps nothing."""
    from lakeward_source_fluss.wire.tiering_messages import CommitLakeTableSnapshotRequest, PbLakeTableSnapshotMetadata  # noqa: PLC0415

    entry = PbLakeTableSnapshotMetadata(
        table_id=table.table_id,
        snapshot_id=snapshot_id,
        tiered_bucket_offsets_file_path=prepared,
        readable_bucket_offsets_file_path=prepared,
    )
    client.call_coordinator(CommitLakeTableSnapshotRequest(lake_table_snapshot_metadata=(entry,)))


def _add_column(client: FlussClient) -> None:
    from lakeward_source_fluss.source.tables import wire_path  # noqa: PLC0415
    from lakeward_source_fluss_kit.messages import AlterTableRequest, PbAddColumn  # noqa: PLC0415

    kind = json.dumps({"type": "BIGINT"}).encode()
    column = PbAddColumn(column_name="extra", data_type_json=kind, column_position_type=0)
    client.call_coordinator(
        AlterTableRequest(table_path=wire_path(PATH), ignore_if_not_exists=False, add_columns=(column,))
    )


def _projected(client: FlussClient, table: TableSpec) -> str:
    """Fetch the first and the new column over batches of both schemas; return the server's code, as text."""
    from lakeward_source_fluss.rpc.topology import BucketAddress  # noqa: PLC0415
    from lakeward_source_fluss.source.tables import wire_path  # noqa: PLC0415
    from lakeward_source_fluss.wire.messages import (  # noqa: PLC0415
        FetchLogRequest,
        PbFetchLogReqForBucket,
        PbFetchLogReqForTable,
    )

    wanted = PbFetchLogReqForBucket(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
    part = PbFetchLogReqForTable(
        table_id=table.table_id, projection_pushdown_enabled=True, projected_fields=(0, 2), buckets_req=(wanted,)
    )
    request = FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20, tables_req=(part,), max_wait_ms=100)
    answer = client.call_leader(BucketAddress(wire_path(table.path), None, 0), request)
    return str(answer.tables_resp[0].buckets_resp[0].error_code)
