"""Values whose log differs from their row, though a client has written them as it should."""

from __future__ import annotations

import json
import struct
from datetime import datetime
from typing import TYPE_CHECKING

import google_crc32c
import pytest

from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TablePath
from lakeward_source_fluss_kit.snapshots import with_snapshot
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakeward.model.tables import BucketState, TableSpec
    from lakeward_source_fluss.source.source import FlussSource
    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.slow]
PATH = TablePath("vals", "t")
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - a timestamp without time zone
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as above
TABLE = {
    "version": 1,
    "schema": {
        "version": 1,
        "columns": [
            {"name": "id", "data_type": {"type": "INTEGER", "nullable": False}, "id": 0},
            {"name": "c", "data_type": {"type": "CHAR", "length": 5}, "id": 1},
            {"name": "t", "data_type": {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 9}, "id": 2},
        ],
        "primary_key": ["id"],
        "highest_field_id": 2,
    },
    "partition_key": [],
    "bucket_key": ["id"],
    "bucket_count": 1,
    "properties": {"table.kv.format": "INDEXED"},
    "custom_properties": {},
}


def indexed(number: int, text: bytes, moment: datetime) -> bytes:
    """Return a row as every client of Fluss writes it: CHAR filled up with zero bytes."""
    millis, micros = divmod((moment - EPOCH) // LAST.resolution, 1000)
    return b"\0" + struct.pack("<i5sqi", number, text, millis, micros * 1000)


def kv_batch(rows: list[tuple[bytes, bytes]]) -> bytes:
    """Return upserts of rows by key, as PUT_KV takes them."""
    records = b"".join(struct.pack("<iB", 1 + len(key) + len(row), len(key)) + key + row for key, row in rows)
    tail = struct.pack("<hbqii", 1, 0, -1, -1, len(rows)) + records
    body = struct.pack("<bI", 0, google_crc32c.value(tail)) + tail
    return struct.pack("<i", len(body)) + body


@pytest.fixture
def source(lake_cluster: LakeCluster) -> Iterator[FlussSource]:
    """The source; the test's one table is dropped afterwards."""
    source = lake_cluster.source()
    yield source
    lake_cluster.drop(str(PATH))
    source.close()


@pytest.fixture
def table(lake_cluster: LakeCluster, source: FlussSource) -> TableSpec:
    """Row 1 was updated after it had been written, both times with 'a' in the year 9999."""
    from lakeward_source_fluss.rpc.topology import BucketAddress  # noqa: PLC0415
    from lakeward_source_fluss.source.calls import MOVING, retry  # noqa: PLC0415
    from lakeward_source_fluss.source.connect import connect  # noqa: PLC0415
    from lakeward_source_fluss.source.tables import wire_path  # noqa: PLC0415
    from lakeward_source_fluss.wire.errors import check_code  # noqa: PLC0415
    from lakeward_source_fluss_kit.messages import (  # noqa: PLC0415
        CreateDatabaseRequest,
        CreateTableRequest,
        PbPutKvReqForBucket,
        PutKvRequest,
    )

    path = wire_path(PATH)
    with connect(lake_cluster.options) as client:
        client.call_coordinator(CreateDatabaseRequest(database_name=PATH.database, ignore_if_exists=True))
        client.call_coordinator(
            CreateTableRequest(table_path=path, table_json=json.dumps(TABLE).encode(), ignore_if_exists=False)
        )
        spec = source.table(PATH)

        def put(rows: list[tuple[bytes, bytes]]) -> None:
            bucket = PbPutKvReqForBucket(bucket_id=0, records=kv_batch(rows))
            request = PutKvRequest(acks=-1, table_id=spec.table_id, timeout_ms=10_000, buckets_req=(bucket,))
            answer = client.call_leader(BucketAddress(path, None, 0), request)
            for one in answer.buckets_resp:
                check_code("PUT_KV", one.error_code, one.error_message)

        row = indexed(1, b"a", LAST)
        for _ in range(2):
            retry(lambda: put([(b"\1", row)]), MOVING, LIMIT_S, lambda: client.forget_leaders(path))
    return spec


def test_server_writes_the_padding_of_char_to_the_changelog_and_the_source_takes_it_off(
    lake_cluster: LakeCluster, source: FlussSource, table: TableSpec
) -> None:
    from lakeward_source_fluss.source.plugin import FlussSourcePlugin  # noqa: PLC0415

    state = with_snapshot(source, table)
    assert state.snapshot is not None
    reader = FlussSourcePlugin().reader(source.reader_task(table), table)
    log = [one.records for one in reader.read_log(LogSplit("b0", state.bucket, (), 0, state.end))]
    split = SnapshotSplit("b0-s", state.bucket, (), state.snapshot.snapshot_id, state.snapshot.log_offset)
    snapshot = [one.records for one in reader.read_snapshot(split)]
    reader.close()

    theirs = logged(lake_cluster, table, state)
    assert {text for batch in theirs for text in batch.column("c").to_pylist()} == {"a\0\0\0\0"}
    assert [text for batch in log for text in batch.column("c").to_pylist()] == ["a", "a", "a"]
    assert [text for batch in snapshot for text in batch.column("c").to_pylist()] == ["a"]
    assert [moment for batch in snapshot for moment in batch.column("t").to_pylist()] == [LAST]
    # The server multiplies without looking: what the log has is another time, and nobody can tell.
    nanos = ((LAST - EPOCH) // LAST.resolution * 1000 + 2**63) % 2**64 - 2**63
    assert {one for batch in theirs for one in batch.column("t").cast("int64").to_pylist()} == {nanos}


def logged(lake_cluster: LakeCluster, table: TableSpec, state: BucketState) -> list[pa.RecordBatch]:
    """Return what the server's log holds, as Arrow reads it."""
    from lakeward_source_fluss.formats.arrowbatch import read_record_batch  # noqa: PLC0415
    from lakeward_source_fluss.formats.logbatch import LogFormat  # noqa: PLC0415
    from lakeward_source_fluss.formats.schema import parse_schema  # noqa: PLC0415
    from lakeward_source_fluss.formats.storage import Storage  # noqa: PLC0415
    from lakeward_source_fluss.source.bucket_log import BucketLog  # noqa: PLC0415
    from lakeward_source_fluss.source.connect import connect  # noqa: PLC0415
    from lakeward_source_fluss.source.read_log import read_batches  # noqa: PLC0415

    schema = parse_schema(json.dumps(TABLE["schema"])).to_arrow(logged=True)
    with connect(lake_cluster.options) as client:
        log = BucketLog(client, Storage(), table, state.bucket, 1 << 20)
        batches = list(read_batches(log, LogFormat.ARROW, 0, state.end))
    return [read_record_batch(one.payload, schema, one.rows, one.origin) for one in batches if one.rows]
