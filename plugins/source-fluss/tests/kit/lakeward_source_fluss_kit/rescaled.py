"""A server with a partitioned table: at 1.0 each partition has its own count of buckets, which requests say."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from lakeward.model.tables import TableBucket, TablePath, TableSpec
from lakeward_source_fluss.formats.schema import FlussSchema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.partitions import HISTORICAL
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.messages import (
    ErrorResponse,
    FetchLogRequest,
    FetchLogResponse,
    GetTableInfoResponse,
    GetTableSchemaResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListPartitionInfosResponse,
    MetadataRequest,
    MetadataResponse,
    PbBucketMetadata,
    PbFetchLogRespForBucket,
    PbFetchLogRespForTable,
    PbKeyValue,
    PbListOffsetsRespForBucket,
    PbPartitionInfo,
    PbPartitionMetadata,
    PbPartitionSpec,
    PbTableMetadata,
    ScanKvRequest,
    ScanKvResponse,
)
from lakeward_source_fluss_kit.releases import OFFERS
from lakeward_source_fluss_kit.schemas import dump_schema
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TABLE_ID = 10
PATH = TablePath("db", "days")
_TEXT = FlussType(Kind.STRING, nullable=False)
SCHEMA = FlussSchema((FlussField("id", FlussType(Kind.INTEGER, nullable=False)), FlussField("day", _TEXT)), ())


@dataclass(frozen=True, slots=True)
class Part:
    """A partition; `heard` is how many buckets GET_METADATA says it has, where that is not `buckets`."""

    partition_id: int
    buckets: int
    heard: int | None = None


@dataclass
class RescaledServer:
    """Serves the table `PATH`, partitioned by day; each bucket of it holds the records of `log`.

    Attributes:
        table_buckets: the table's own count: the next partition gets it.
        parts: the partitions by day.
        release: the server's; one of 1.0 says counts of partitions, and wants them in requests.
        log: the batches of each bucket.
        start: where each bucket's log begins.
        end: where each bucket's log ends.
        not_ready: answers TABLET_METADATA_NOT_READY to so many calls first.
        schema: the table's columns, and its key.
        properties: the table's.
    """

    table_buckets: int
    parts: dict[str, Part]
    release: Release = Release.V1_0
    log: bytes = b""
    start: int = 0
    end: int = 0
    not_ready: int = 0
    schema: FlussSchema = SCHEMA
    properties: Mapping[str, str] = field(default_factory=dict)
    counts: list[int | None] = field(default_factory=list)
    """The count that each request for buckets had."""

    def __post_init__(self) -> None:
        """Begin to listen."""
        self.server = FakeServer(self._answer, offers=OFFERS[self.release])

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self.server.close()

    @property
    def says_counts(self) -> bool:
        """Whether it says and checks counts of partitions."""
        return self.release is Release.V1_0

    @property
    def table(self) -> TableSpec:
        """The table, as the source describes it."""
        logged = {"table.log.format": "COMPACTED"}
        return TableSpec(PATH, TABLE_ID, 1, SCHEMA.to_arrow(), (), ("day",), ("id",), self.table_buckets, 180.0, logged)

    def bucket(self, day: str, number: int) -> TableBucket:
        """Return a bucket of a partition."""
        return TableBucket(TABLE_ID, self.parts[day].partition_id, number)

    def end_of(self, partition_id: int, bucket: int) -> int:
        """Return where a bucket's log ends."""
        return self.end

    def log_of(self, partition_id: int, bucket: int, start: int) -> bytes:
        """Return the batches of a bucket's log from an offset on."""
        return self.log

    def _answer(self, call: Call) -> Answer:
        if call.api == ApiKey.GET_METADATA and not call.read(MetadataRequest).table_path:
            return None  # the servers alone
        answers: dict[int, Callable[[], Answer]] = {
            ApiKey.GET_TABLE_INFO: self._described,
            ApiKey.GET_TABLE_SCHEMA: lambda: GetTableSchemaResponse(schema_id=1, schema_json=dump_schema(self.schema)),
            ApiKey.LIST_PARTITION_INFOS: lambda: ListPartitionInfosResponse(
                partitions_info=tuple(self._info(day) for day in self.parts if day != HISTORICAL)
            ),
            ApiKey.GET_METADATA: lambda: self._metadata(call.read(MetadataRequest)),
            ApiKey.LIST_OFFSETS: lambda: self._offsets(call.read(ListOffsetsRequest)),
            ApiKey.FETCH_LOG: lambda: self._fetched(call.read(FetchLogRequest)),
            ApiKey.SCAN_KV: lambda: self._scanned(call.read(ScanKvRequest)),
        }
        return answers[call.api]() if call.api in answers else None

    def _described(self) -> GetTableInfoResponse:
        document = {
            "schema": json.loads(dump_schema(self.schema)),
            "partition_key": ["day"],
            "bucket_key": ["id"],
            "bucket_count": self.table_buckets,
            "properties": {"table.log.format": "COMPACTED", **self.properties},
        }
        return GetTableInfoResponse(
            table_id=TABLE_ID, schema_id=1, table_json=json.dumps(document).encode(), created_time=0, modified_time=0
        )

    def _info(self, day: str) -> PbPartitionInfo:
        part = self.parts[day]
        spec = PbPartitionSpec(partition_key_values=(PbKeyValue(key="day", value=day),))
        count = part.buckets if self.says_counts else None
        return PbPartitionInfo(partition_id=part.partition_id, partition_spec=spec, bucket_count_actual=count)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse | ErrorResponse:
        names = {one.partition_name for one in request.partitions_path}
        if names - set(self.parts):
            return ErrorResponse(error_code=ErrorCode.PARTITION_NOT_EXISTS)
        wanted = {*request.partitions_id, *(self.parts[name].partition_id for name in self.parts if name in names)}
        node = self.server.node()
        table = PbTableMetadata(
            table_path=wire_path(PATH),
            table_id=TABLE_ID,
            schema_id=1,
            table_json=b"{}",
            created_time=0,
            modified_time=0,
        )
        found = tuple(self._part(day) for day, part in self.parts.items() if part.partition_id in wanted)
        return MetadataResponse(
            coordinator_server=node, tablet_servers=(node,), table_metadata=(table,), partition_metadata=found
        )

    def _part(self, day: str) -> PbPartitionMetadata:
        part = self.parts[day]
        heard, self.parts[day] = part.heard or part.buckets, Part(part.partition_id, part.buckets)
        return PbPartitionMetadata(
            table_id=TABLE_ID,
            partition_name=day,
            partition_id=part.partition_id,
            bucket_metadata=tuple(PbBucketMetadata(bucket_id=one, leader_id=0) for one in range(part.buckets)),
            bucket_count_actual=heard if self.says_counts else None,
        )

    def _refusal(self, partition_id: int | None, count: int | None) -> ErrorResponse | None:
        """Return what a request for buckets of a partition is refused with."""
        self.counts.append(count)
        if self.not_ready:
            self.not_ready -= 1
            return ErrorResponse(error_code=ErrorCode.TABLET_METADATA_NOT_READY)
        right = {part.partition_id: part.buckets for part in self.parts.values()}.get(partition_id or 0)
        stale = self.says_counts and count != right
        return ErrorResponse(error_code=ErrorCode.STALE_METADATA) if stale else None

    def _offsets(self, request: ListOffsetsRequest) -> Answer:
        ends = {one: self.end_of(request.partition_id or 0, one) for one in request.bucket_id}
        first = request.offset_type == 0
        answers = tuple(
            PbListOffsetsRespForBucket(bucket_id=one, offset=self.start if first else end) for one, end in ends.items()
        )
        refusal = self._refusal(request.partition_id, request.bucket_count_actual)
        return refusal or ListOffsetsResponse(buckets_resp=answers)

    def _fetched(self, request: FetchLogRequest) -> Answer:
        (asked,) = request.tables_req[0].buckets_req
        place = (asked.partition_id or 0, asked.bucket_id)
        log, end = self.log_of(*place, asked.fetch_offset), self.end_of(*place)
        bucket = PbFetchLogRespForBucket(
            partition_id=asked.partition_id, bucket_id=asked.bucket_id, records=log, high_watermark=end
        )
        table = PbFetchLogRespForTable(table_id=TABLE_ID, buckets_resp=(bucket,))
        return self._refusal(asked.partition_id, asked.bucket_count_actual) or FetchLogResponse(tables_resp=(table,))

    def _scanned(self, request: ScanKvRequest) -> Answer:
        asked = request.bucket_scan_req
        refusal = None if asked is None else self._refusal(asked.partition_id, asked.bucket_count_actual)
        return refusal or ScanKvResponse(log_offset=self.end, has_more_results=False)
