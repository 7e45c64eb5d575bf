"""What a server says that this release does not know: an error that names it and the server, and never a guess."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest

from lakeward.errors import LakewardError, NewerSourceError, SourceError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest
from lakeward_source_fluss.formats.arrowbatch import read_record_batch
from lakeward_source_fluss.formats.schema import parse_schema
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.buckets import BucketStates
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.queue import TieringQueue
from lakeward_source_fluss.source.source import FlussSource
from lakeward_source_fluss.source.tables import TableCatalog, listed
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import RETRIABLE, ErrorCode
from lakeward_source_fluss.wire.errors import (
    FlussServerError,
    UnknownCodeError,
    UnsupportedApiError,
    VersionRefusedError,
    server_error,
)
from lakeward_source_fluss.wire.messages import (
    ErrorResponse,
    FetchLogResponse,
    GetTableInfoResponse,
    ListOffsetsResponse,
    ListPartitionInfosResponse,
    PbFetchLogRespForBucket,
    PbFetchLogRespForTable,
    PbKeyValue,
    PbListOffsetsRespForBucket,
    PbPartitionInfo,
    PbPartitionSpec,
    PbTablePath,
    ScanKvResponse,
)
from lakeward_source_fluss.wire.tiering_messages import LakeTieringHeartbeatResponse, PbLakeTieringTableInfo
from lakeward_source_fluss_kit.oneserver import (
    BUCKET,
    PATH,
    TABLE_ID,
    OneServer,
    arrow_batch,
    client_of,
    compacted,
    log_batch,
)
from lakeward_source_fluss_kit.releases import OF_1_0, ROW_TTL
from lakeward_source_fluss_kit.rescaled import Part, RescaledServer
from lakeward_source_fluss_kit.server import FakeServer, quick_options
from lakeward_testing.clock import FakeClock

ID = {"name": "id", "data_type": {"type": "INTEGER", "nullable": False}}
GOOD: dict[str, object] = {
    "version": 1,
    "schema": {"version": 1, "columns": [ID], "primary_key": ["id"]},
    "bucket_key": ["id"],
    "bucket_count": 1,
}
SERVER = {
    Release.V0_9: "the server is Fluss 0.9 by the APIs that it offers",
    Release.V1_0: "the server is Fluss 1.0 by the APIs that it offers",
}


def described(properties: dict[str, str] | None = None, **changes: object) -> GetTableInfoResponse:
    document = GOOD | {"properties": properties or {}} | changes
    return GetTableInfoResponse(
        table_id=TABLE_ID, schema_id=1, table_json=json.dumps(document).encode(), created_time=0, modified_time=0
    )


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (described({"table.kv.format-version": "3", ROW_TTL: "7 d"}), r"table.kv.format-version 1 or 2, found '3'"),
        (described({"table.kv.format-version": "3"}), r"table.kv.format-version 1 or 2, found '3'"),
        (described({"table.kv.format-version": "99"}), r"table.kv.format-version 1 or 2, found '99'"),
        (described({"table.kv.format-version": "two"}), r"table.kv.format-version 1 or 2, found 'two'"),
        (described({"table.kv.format-version": "2", ROW_TTL: "7 d"}), r"table.kv.ttl = '7 d'"),
        (described({"table.kv.row.ttl": "7 d"}), r"table.kv.row.ttl = '7 d'"),
        (described({"table.log.format": "AVRO"}), "table.log.format as one of ARROW, INDEXED, COMPACTED, found 'AVRO'"),
        (described({"table.kv.format": "ALIGNED"}), "table.kv.format as one of COMPACTED, INDEXED, found 'ALIGNED'"),
        (described({"table.changelog.image": "DIFF"}), "table.changelog.image as one of FULL, WAL, found 'DIFF'"),
        (described({"table.datalake.enabled": "later"}), "table.datalake.enabled as one of TRUE, FALSE, found 'later'"),
        (
            described({"table.datalake.historical-partition.enabled": "true"}),
            "table.datalake.historical-partition.enabled = true for table.datalake.format 'paimon' alone, found ",
        ),
        (described(version=2), "a description of version 1, found 2"),
        (described(schema={"version": 2, "columns": [ID]}), "Fluss schema: expected version 1, found 2"),
        (
            described(schema={"columns": [{"name": "v", "data_type": {"type": "VARIANT"}}]}),
            "expected a known data type, found 'VARIANT'",
        ),
        (
            described(
                schema={"columns": [{"name": "v", "data_type": {"type": "ARRAY", "element_type": {"type": "VECTOR"}}}]}
            ),
            "expected a known data type, found 'VECTOR'",
        ),
    ],
)
def test_table_stored_in_a_way_that_is_not_known_is_refused_where_it_is_described(
    answer: GetTableInfoResponse, found: str, release: Release
) -> None:
    with OneServer(release=release, further={ApiKey.GET_TABLE_INFO: lambda _: answer}) as server:
        with server.client() as client, pytest.raises(NewerSourceError) as refused:
            TableCatalog(client).table(PATH)
        shown = listed(PATH, answer, SERVER[release].removeprefix("the server is ")).spec

    assert f"table {PATH}: " in str(refused.value)
    assert found in str(refused.value)
    assert str(refused.value).endswith(SERVER[release])
    assert refused.value.permanent
    with pytest.raises(NewerSourceError) as listed_too:
        shown.check_readable()
    assert str(listed_too.value) == str(refused.value)


@pytest.mark.parametrize("key", ["table.kv.format-version", ROW_TTL, "table.kv.format"])
def test_log_table_is_not_refused_for_how_keyed_tables_are_stored(key: str) -> None:
    log_table = {"version": 1, "columns": [ID]}

    assert not listed(PATH, described({key: "9"}, schema=log_table)).spec.unreadable


def test_table_with_row_ttl_is_refused_with_what_its_expiry_would_do_to_the_lake() -> None:
    unreadable = listed(PATH, described({"table.kv.format-version": "3", ROW_TTL: "7 d"})).spec.unreadable

    assert "it has table.kv.ttl = '7 d': rows that expire leave no deletes in the log" in unreadable


def test_partition_for_expired_ones_that_no_property_tells_of_is_named_and_its_table_alone_refused() -> None:
    with (
        RescaledServer(1, {"mon": Part(1, 1)}) as server,
        client_of(server.server) as client,
    ):
        told = server.server.answer
        server.server.answer = lambda call: LISTED if call.api == ApiKey.LIST_PARTITION_INFOS else told(call)
        with pytest.raises(NewerSourceError, match="expected partitions of its own, found '__historical__'") as refused:
            BucketStates(client, TableCatalog(client)).states(server.table)

    assert "table db.days: " in str(refused.value)
    assert refused.value.permanent


LISTED = ListPartitionInfosResponse(
    partitions_info=(
        PbPartitionInfo(
            partition_id=2,
            partition_spec=PbPartitionSpec(partition_key_values=(PbKeyValue(key="day", value="__historical__"),)),
        ),
    )
)


@pytest.mark.parametrize("version", [None, "1", "2"])
def test_table_of_a_known_kv_format_version_is_described(version: str | None) -> None:
    properties = {} if version is None else {"table.kv.format-version": version}

    assert not listed(PATH, described(properties)).spec.unreadable


def with_magic(batch: bytes, magic: int) -> bytes:
    return batch[:12] + bytes([magic]) + batch[13:]


def with_attributes(batch: bytes, attributes: int) -> bytes:
    tail = batch[21 + 4 : 27] + bytes([attributes]) + batch[28:]
    return batch[:21] + struct.pack("<I", google_crc32c.value(tail)) + tail


ROW = compacted(1, b"x")
BATCHES = {
    "version": (with_magic(log_batch(0, [ROW]), 7), "a log batch of version 0, 1 or 2, found 7"),
    "attributes": (with_attributes(log_batch(0, [ROW]), 4), r"no attribute but append-only (1), found 4"),
    "change type": (log_batch(0, [ROW], change=9), "change types up to 4, found 9"),
    "high change bits": (log_batch(0, [ROW], change=0x11), "change types up to 4, found 17"),
}


@pytest.mark.parametrize(("batch", "found"), BATCHES.values(), ids=list(BATCHES))
@pytest.mark.parametrize("remote", [False, True], ids=["leader", "remote segment"])
def test_log_that_is_not_known_is_an_error_that_names_the_bucket_and_the_release(
    batch: bytes, found: str, remote: bool, release: Release, tmp_path: Path
) -> None:
    with OneServer(release=release) as server, server.client() as client:
        server.end = 1
        if remote:
            server.segment("s", 0, 1, tmp_path, [batch])
            server.local = 1
        else:
            server.batches = [batch]
        with pytest.raises(NewerSourceError) as refused:
            list(server.reader(client).read_log(LogSplit("b0", BUCKET, (), 0, 1)))

    assert found in str(refused.value)
    assert "batch at offset 0" in str(refused.value)
    assert str(refused.value).endswith(SERVER[release])


def message_with(offset_of: Callable[[bytes], int], value: int) -> memoryview:
    """Return an Arrow message in which the byte at a place is another."""
    whole = bytearray(arrow_batch(0, pa.record_batch({"id": pa.array(range(99), pa.int32())}))[48:])
    whole[offset_of(bytes(whole))] = value
    return memoryview(bytes(whole))


def field(message: bytes, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table lies; what follows the prefix of 8 bytes is the flatbuffer."""
    vtable = table - struct.unpack_from("<i", message, table)[0]
    return table + int(struct.unpack_from("<H", message, vtable + 4 + 2 * number)[0])


def root(message: bytes) -> int:
    return 8 + int(struct.unpack_from("<I", message, 8)[0])


def referred(message: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", message, at)[0])


def compression(message: bytes) -> int:
    return referred(message, field(message, referred(message, field(message, root(message), 2)), 3))


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (message_with(lambda m: field(m, root(m), 0), 9), "Arrow metadata V4 (3) or V5 (4), found 9"),
        (message_with(lambda m: field(m, root(m), 1), 2), "kind 3 (a record batch), found 2"),
        (
            message_with(lambda m: field(m, compression(m), 0), 7),
            "Arrow compression LZ4_FRAME (0) or ZSTD (1), found 7",
        ),
    ],
)
def test_arrow_message_that_is_not_known_is_named(message: memoryview, found: str) -> None:
    with pytest.raises(NewerSourceError) as refused:
        read_record_batch(message, pa.schema([("id", pa.int32())]), 99, "batch")

    assert found in str(refused.value)


def test_values_of_a_scan_in_a_version_that_is_not_known_are_refused_with_the_release() -> None:
    data = struct.pack("<ibi", 5, 3, 0)
    with OneServer(primary_key=("id",)) as server, server.client() as client:
        answer = ScanKvResponse(log_offset=1, has_more_results=False, records=data)
        server.further[ApiKey.SCAN_KV] = lambda _: answer
        with pytest.raises(NewerSourceError) as refused:
            list(server.reader(client).read_snapshot(SnapshotSplit("b0", BUCKET, (), 0, 1, True)))

    assert "a value batch of version 0, found 3" in str(refused.value)
    assert str(refused.value).endswith(SERVER[Release.V1_0])


def test_offsets_file_of_a_version_that_is_not_known_is_refused_with_the_release(tmp_path: Path) -> None:
    file = tmp_path / "x.offsets"
    file.write_text('{"version":2,"table_id":10}', encoding="utf-8")
    with OneServer() as server, source_at(server) as source, pytest.raises(NewerSourceError) as refused:
        source.read_offsets(server.table, str(file))

    assert "an offsets file of version 1, found 2" in str(refused.value)
    assert str(refused.value).endswith(SERVER[Release.V1_0])


def test_table_of_a_lake_that_is_not_known_is_refused_before_it_is_tiered_and_no_mirror_of_it() -> None:
    properties = {"table.datalake.enabled": "true", "table.datalake.format": "delta", "table.log.format": "COMPACTED"}
    with OneServer(properties=properties) as server, source_at(server) as source:
        server.batches = [log_batch(0, [ROW])]
        assert [state.end for state in source.buckets(server.table)] == [1]
        with pytest.raises(NewerSourceError) as refused:
            source.lake_record(server.table)
        assert not server.server.asked(ApiKey.GET_LAKE_SNAPSHOT)

    assert "table.datalake.format as one of ICEBERG, PAIMON, LANCE, HUDI, found 'delta'" in str(refused.value)
    assert str(refused.value).endswith(SERVER[Release.V1_0])


def test_schema_of_older_rows_in_a_type_that_is_not_known_is_named_as_it_is_read() -> None:
    with pytest.raises(NewerSourceError, match="found 'GEOMETRY'"):
        parse_schema(json.dumps({"columns": [{"name": "v", "data_type": {"type": "GEOMETRY"}}]}))


class source_at:  # noqa: N801 - it reads as a function
    """The source at a server."""

    def __init__(self, server: OneServer) -> None:
        self._client = server.client()

    def __enter__(self) -> FlussSource:
        return FlussSource(self._client, Storage(), FlussOptions(bootstrap=""), FakeClock())

    def __exit__(self, *_: object) -> None:
        self._client.close()


@pytest.mark.parametrize("code", [-2, 76, 999, 32767])
def test_code_that_is_not_known_is_no_other_code_and_ends_the_call(code: int, release: Release) -> None:
    with OneServer(release=release) as server, server.client() as client:
        server.further[ApiKey.GET_TABLE_INFO] = lambda _: ErrorResponse(error_code=code, error_message="new")
        with pytest.raises(UnknownCodeError) as refused:
            TableCatalog(client).table(PATH)
        asked = len(server.server.asked(ApiKey.GET_TABLE_INFO))

    assert asked == 1
    assert (refused.value.server_code, refused.value.retriable, refused.value.permanent) == (code, False, True)
    assert f"UNKNOWN_CODE ({code}): new" in str(refused.value)
    assert str(refused.value).endswith(SERVER[release])


@pytest.mark.parametrize("api", [ApiKey.LIST_OFFSETS, ApiKey.FETCH_LOG, ApiKey.SCAN_KV])
def test_code_that_is_not_known_in_a_buckets_part_of_an_answer_ends_the_call(api: ApiKey) -> None:
    parts = {
        ApiKey.LIST_OFFSETS: ListOffsetsResponse(
            buckets_resp=(PbListOffsetsRespForBucket(bucket_id=0, error_code=200),)
        ),
        ApiKey.FETCH_LOG: FetchLogResponse(
            tables_resp=(
                PbFetchLogRespForTable(
                    table_id=TABLE_ID, buckets_resp=(PbFetchLogRespForBucket(bucket_id=0, error_code=200),)
                ),
            )
        ),
        ApiKey.SCAN_KV: ScanKvResponse(error_code=200),
    }
    with OneServer(primary_key=("id",)) as server, server.client() as client:
        server.further[api] = lambda _: parts[api]
        reader = server.reader(client)
        work: dict[ApiKey, Callable[[], object]] = {
            ApiKey.LIST_OFFSETS: lambda: BucketStates(client, TableCatalog(client), "scan").states(server.table),
            ApiKey.FETCH_LOG: lambda: list(reader.read_log(LogSplit("b0", BUCKET, (), 0, 1))),
            ApiKey.SCAN_KV: lambda: list(reader.read_snapshot(SnapshotSplit("b0", BUCKET, (), 0, 1, True))),
        }
        with pytest.raises(UnknownCodeError) as refused:
            work[api]()
        assert len(server.server.asked(api)) == 1

    assert f"{api.name}" in str(refused.value)
    assert str(refused.value).endswith(SERVER[Release.V1_0])


@pytest.mark.parametrize("code", sorted(ErrorCode))
def test_every_known_code_is_either_worth_another_try_or_not(code: ErrorCode) -> None:
    error = server_error("CALL", code)

    assert not isinstance(error, UnknownCodeError)
    assert error.retriable is (code in RETRIABLE)


def test_server_of_1_0_refuses_row_ttl_tables_to_old_clients_and_that_table_alone_is_given_up(tmp_path: Path) -> None:
    properties = {"table.log.format": "COMPACTED", ROW_TTL: "7 d"}
    with OneServer(primary_key=("id",), properties=properties) as server, server.client() as client:
        server.put_snapshot(tmp_path / "db", [(b"k", b"\1\0" + ROW)], log_offset=1)
        with pytest.raises(VersionRefusedError) as refused:
            BucketStates(client, TableCatalog(client)).states(server.table)

    assert refused.value.permanent
    assert "UNSUPPORTED_VERSION (2)" in str(refused.value)
    assert "this release speaks version 0 of every call: upgrade Lakeward, or leave the table out" in str(refused.value)
    assert str(refused.value).endswith(SERVER[Release.V1_0])


def test_api_that_is_offered_in_newer_versions_alone_is_named_with_them() -> None:
    offers = OF_1_0 | {int(ApiKey.GET_TABLE_INFO): (1, 3)}
    with FakeServer(lambda _: None, offers=offers) as server, FlussClient.connect(quick_options(server)) as client:
        with pytest.raises(UnsupportedApiError, match="expected version 0 among those that it offers, found 1 to 3"):
            TableCatalog(client).table(PATH)
        assert not server.asked(ApiKey.GET_TABLE_INFO)


@pytest.fixture
def handing_out() -> Iterator[OneServer]:
    """A coordinator that hands out a table that cannot be described."""
    described_later = described({"table.kv.format-version": "3"})
    with OneServer(further={ApiKey.GET_TABLE_INFO: lambda _: described_later}) as server:
        path = PbTablePath(database_name=PATH.database, table_name=PATH.table)
        offer = PbLakeTieringTableInfo(table_id=TABLE_ID, table_path=path, tiering_epoch=1)
        server.further[ApiKey.LAKE_TIERING_HEARTBEAT] = lambda _: LakeTieringHeartbeatResponse(
            coordinator_epoch=0, tiering_table=offer
        )
        yield server


def test_table_that_cannot_be_described_is_taken_from_the_queue_so_that_it_fails_by_itself(
    handing_out: OneServer,
) -> None:
    with handing_out.client() as client:
        taken = TieringQueue(client, TableCatalog(client), FakeClock()).heartbeat(HeartbeatRequest(request=True))

    assert taken.assignment is not None
    assert (taken.assignment.path, taken.assignment.freshness_s) == (TablePath("db", "t"), 180.0)


@pytest.mark.parametrize("error", [UnknownCodeError, VersionRefusedError])
def test_refusals_of_newer_servers_fail_one_table_and_are_the_sources_own(error: type[FlussServerError]) -> None:
    assert issubclass(error, SourceError)
    assert issubclass(error, NewerSourceError)
    assert error.code == NewerSourceError.code != LakewardError.code
