"""Rows by SCAN_KV, from the recorded answers of a server that offers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import SourceError
from lakeward.model.tables import TableBucket, TablePath, TableSpec
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.source.bucket_log import BucketLog
from lakeward_source_fluss.source.buckets import BucketStates
from lakeward_source_fluss.source.kv_scan import KvScan
from lakeward_source_fluss.source.schemas import TableSchemas
from lakeward_source_fluss.source.tables import TableCatalog, wire_path
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.messages import (
    GetTableInfoResponse,
    GetTableSchemaResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    PbBucketMetadata,
    PbListOffsetsRespForBucket,
    PbTableMetadata,
    ScanKvRequest,
    ScanKvResponse,
)
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, Recorded, quick_options

FRAMES = Path(__file__).with_name("data") / "fluss-frames.jsonl"
PATH = TablePath("db", "kv")
SCHEMA_JSON = (
    b'{"version":1,"columns":[{"name":"id","data_type":{"type":"INTEGER","nullable":false},"id":0},'
    b'{"name":"v","data_type":{"type":"STRING"},"id":1}],"primary_key":["id"],"highest_field_id":1}'
)
SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("v", pa.string())])
SPEC = TableSpec(PATH, 10, 1, SCHEMA, ("id",), (), ("id",), 1, 180.0)
BUCKET = TableBucket(10, None, 0)
RECORDED_OFFSET, WHOLE, SMALL, ONE = 22, 100_000, 80, 10
"""What the recorded server's log stood at; sizes of answers that were asked for then."""


def recorded() -> Recorded:
    """Read what was recorded; where one request was sent several times the first answer counts."""
    lines = [json.loads(line) for line in FRAMES.read_text(encoding="utf-8").splitlines()]
    scans = [one for one in lines if one["key"] == ApiKey.SCAN_KV]
    frames = {
        (one["key"], bytes.fromhex(one["request_hex"])[12:]): bytes.fromhex(one["response_hex"])
        for one in reversed(scans)
    }
    return Recorded(frames)


@dataclass
class ScanServer:
    """Describes the one table by itself; scans are answered by `scans` first, then from what was recorded."""

    scans: Callable[[ScanKvRequest], ScanKvResponse | None] = lambda _: None
    recorded: Recorded = field(default_factory=recorded)

    def __post_init__(self) -> None:
        self.server = FakeServer(self._answer, metadata=self._metadata)

    def scanned(self) -> list[ScanKvRequest]:
        """Return the scans that were asked for."""
        return [call.read(ScanKvRequest) for call in self.server.asked(ApiKey.SCAN_KV)]

    def _answer(self, call: Call) -> Answer:
        match call.api:
            case ApiKey.API_VERSIONS | ApiKey.GET_METADATA:
                return None
            case ApiKey.GET_TABLE_SCHEMA:
                return GetTableSchemaResponse(schema_id=1, schema_json=SCHEMA_JSON)
            case ApiKey.GET_TABLE_INFO:
                return GetTableInfoResponse(table_id=10, schema_id=1, table_json=b"{}", created_time=0, modified_time=0)
            case ApiKey.LIST_OFFSETS:
                end = 0 if call.read(ListOffsetsRequest).offset_type == 0 else 20
                return ListOffsetsResponse(buckets_resp=(PbListOffsetsRespForBucket(bucket_id=0, offset=end),))
            case ApiKey.SCAN_KV:
                request = call.read(ScanKvRequest)
                ended = ScanKvResponse() if request.close_scanner else None
                return self.scans(request) or self.recorded(call) or ended
        return self.recorded(call)

    def _metadata(self) -> MetadataResponse:
        node = self.server.node()
        table = PbTableMetadata(
            table_path=wire_path(PATH),
            table_id=10,
            schema_id=1,
            table_json=b"{}",
            bucket_metadata=(PbBucketMetadata(bucket_id=0, leader_id=0),),
            created_time=0,
            modified_time=0,
        )
        return MetadataResponse(coordinator_server=node, tablet_servers=(node,), table_metadata=(table,))


@pytest.fixture
def server() -> Iterator[ScanServer]:
    """A server of main."""
    started = ScanServer()
    yield started
    started.server.close()


@pytest.fixture
def client(server: ScanServer) -> Iterator[FlussClient]:
    """A client of it."""
    with FlussClient.connect(quick_options(server.server)) as opened:
        yield opened


def scan(client: FlussClient, reply_bytes: int) -> Iterator[tuple[list[int], int]]:
    """Scan the bucket; keys and offset of each batch."""
    log = BucketLog(client, Storage(), SPEC, BUCKET, 1)
    for rows, offset in KvScan(log, reply_bytes).batches(TableSchemas(client, SPEC)):
        yield rows.column("id").to_pylist(), offset


def test_bucket_that_fits_into_one_answer_is_read_at_the_offset_of_its_rows(client: FlussClient) -> None:
    ((keys, offset),) = scan(client, WHOLE)

    assert len(keys) == len(set(keys)) == 18
    assert offset == RECORDED_OFFSET


def test_scan_that_the_server_gives_up_after_rows_is_an_error_and_not_a_shorter_table(client: FlussClient) -> None:
    batches = scan(client, SMALL)

    assert [next(batches)[0][0], next(batches)[0][0]] == [0, 9]
    with pytest.raises(SourceError, match=r"gave the scan up after 13 rows .*kv.scanner.ttl.* from the beginning"):
        next(batches)


def test_scan_that_is_lost_before_any_row_begins_anew(server: ScanServer, client: FlussClient) -> None:
    opened = iter([ScanKvResponse(scanner_id=b"x", has_more_results=True, log_offset=21)])

    def lost(request: ScanKvRequest) -> ScanKvResponse | None:
        if request.scanner_id == b"x":
            return ScanKvResponse(error_code=ErrorCode.SCANNER_EXPIRED)
        return None if request.scanner_id is not None else next(opened, None)

    server.scans = lost

    ((keys, offset),) = scan(client, WHOLE)
    assert (len(keys), offset) == (18, RECORDED_OFFSET)


def test_scan_that_is_left_early_is_closed(server: ScanServer, client: FlussClient) -> None:
    batches = scan(client, ONE)
    next(batches)
    assert isinstance(batches, Iterator)
    batches.close()  # type: ignore[attr-defined]  # a generator's

    closed = [request for request in server.scanned() if request.close_scanner]
    assert [request.scanner_id for request in closed] == [server.scanned()[1].scanner_id]


def test_a_place_among_the_scanners_is_waited_for(server: ScanServer, client: FlussClient) -> None:
    full = iter([ScanKvResponse(error_code=ErrorCode.TOO_MANY_SCANNERS)] * 2)
    server.scans = lambda _: next(full, None)

    ((keys, _),) = scan(client, WHOLE)
    assert len(keys) == 18


def test_bucket_that_is_to_be_scanned_has_a_live_snapshot_at_its_end(server: ScanServer, client: FlussClient) -> None:
    (state,) = BucketStates(client, TableCatalog(client), "scan").states(SPEC)

    assert state.snapshot is not None
    assert (state.snapshot.live, state.snapshot.log_offset) == (True, 20)
    assert not server.server.asked(ApiKey.GET_LATEST_KV_SNAPSHOTS)
