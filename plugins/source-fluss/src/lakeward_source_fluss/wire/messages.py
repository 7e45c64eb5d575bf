"""The messages of Fluss by which tables are found and read: one dataclass each, under the server's own names.

Field numbers and types are those of `FlussApi.proto` in Fluss's sources (docs/explanation/decisions.md says why the
classes are not generated from it). Messages of the tiering queue and of leases are in `tiering_messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_source_fluss.wire.apis import ApiKey, Request
from lakeward_source_fluss.wire.protobuf import Field, Message
from lakeward_source_fluss.wire.scalars import BOOL, BYTES, INT32, INT64, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class PbApiVersion(Message):
    """The versions of one API that a server speaks."""

    api_key: Annotated[int, Field(1, INT32)]
    min_version: Annotated[int, Field(2, INT32)]
    max_version: Annotated[int, Field(3, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse(Message):
    """What a server can do; `server_type` is 1 for a coordinator, 2 for a tablet server, absent in 0.8."""

    api_versions: Annotated[tuple[PbApiVersion, ...], Field(1)] = ()
    server_type: Annotated[int | None, Field(2, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Asks what a server can do; the first call on each connection."""

    api: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    client_software_name: Annotated[str, Field(1, STRING)]
    client_software_version: Annotated[str, Field(2, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateResponse(Message):
    """The next challenge; absent or empty when the exchange is over."""

    challenge: Annotated[bytes | None, Field(1, BYTES)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateRequest(Request[AuthenticateResponse]):
    """One step of a SASL exchange; `protocol` is the name of the mechanism."""

    api: ClassVar[ApiKey] = ApiKey.AUTHENTICATE

    protocol: Annotated[str, Field(1, STRING)]
    token: Annotated[bytes, Field(2, BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse(Message):
    """The body of any failed call; `error_message` is absent where it is the default text of the code."""

    error_code: Annotated[int, Field(1, INT32)]
    error_message: Annotated[str | None, Field(2, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbTablePath(Message):
    """A table by name."""

    database_name: Annotated[str, Field(1, STRING)]
    table_name: Annotated[str, Field(2, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPhysicalTablePath(Message):
    """A table or a partition by name."""

    database_name: Annotated[str, Field(1, STRING)]
    table_name: Annotated[str, Field(2, STRING)]
    partition_name: Annotated[str | None, Field(3, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbTableBucket(Message):
    """A bucket by ids."""

    table_id: Annotated[int, Field(1, INT64)]
    partition_id: Annotated[int | None, Field(2, INT64)] = None
    bucket_id: Annotated[int, Field(3, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbKeyValue(Message):
    """A pair of texts."""

    key: Annotated[str, Field(1, STRING)]
    value: Annotated[str, Field(2, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPartitionSpec(Message):
    """One pair for each partition column."""

    partition_key_values: Annotated[tuple[PbKeyValue, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PbServerNode(Message):
    """A server; host and port are those of the listener that was asked."""

    node_id: Annotated[int, Field(1, INT32)]
    host: Annotated[str, Field(2, STRING)]
    port: Annotated[int, Field(3, INT32)]
    listeners: Annotated[str | None, Field(4, STRING)] = None
    rack: Annotated[str | None, Field(5, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbBucketMetadata(Message):
    """A bucket; `leader_id` absent or -1 means that there is none now."""

    bucket_id: Annotated[int, Field(1, INT32)]
    leader_id: Annotated[int | None, Field(2, INT32)] = None
    replica_id: Annotated[tuple[int, ...], Field(3, INT32, packed=True)] = ()
    leader_epoch: Annotated[int | None, Field(4, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbTableMetadata(Message):
    """A table and, unless it is partitioned, its buckets."""

    table_path: Annotated[PbTablePath, Field(1)]
    table_id: Annotated[int, Field(2, INT64)]
    schema_id: Annotated[int, Field(3, INT32)]
    table_json: Annotated[bytes, Field(4, BYTES)]
    bucket_metadata: Annotated[tuple[PbBucketMetadata, ...], Field(5)] = ()
    created_time: Annotated[int, Field(6, INT64)]
    modified_time: Annotated[int, Field(7, INT64)]
    remote_data_dir: Annotated[str | None, Field(8, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPartitionMetadata(Message):
    """A partition and its buckets; servers before 1.0 do not say how many it has."""

    table_id: Annotated[int, Field(1, INT64)]
    partition_name: Annotated[str, Field(2, STRING)]
    partition_id: Annotated[int, Field(3, INT64)]
    bucket_metadata: Annotated[tuple[PbBucketMetadata, ...], Field(4)] = ()
    bucket_count_actual: Annotated[int | None, Field(5, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse(Message):
    """The servers and the buckets asked for; no coordinator while one is being elected."""

    coordinator_server: Annotated[PbServerNode | None, Field(1)] = None
    tablet_servers: Annotated[tuple[PbServerNode, ...], Field(2)] = ()
    table_metadata: Annotated[tuple[PbTableMetadata, ...], Field(3)] = ()
    partition_metadata: Annotated[tuple[PbPartitionMetadata, ...], Field(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(Request[MetadataResponse]):
    """Asks for the servers, and for the buckets of tables and partitions; with partition ids name the table as well."""

    api: ClassVar[ApiKey] = ApiKey.GET_METADATA

    table_path: Annotated[tuple[PbTablePath, ...], Field(1)] = ()
    partitions_path: Annotated[tuple[PbPhysicalTablePath, ...], Field(2)] = ()
    partitions_id: Annotated[tuple[int, ...], Field(3, INT64, packed=True)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PbDatabaseSummary(Message):
    """A database in short."""

    database_name: Annotated[str, Field(1, STRING)]
    created_time: Annotated[int, Field(2, INT64)]
    table_count: Annotated[int, Field(3, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDatabasesResponse(Message):
    """Names, or summaries where they were asked for."""

    database_name: Annotated[tuple[str, ...], Field(1, STRING)] = ()
    database_summary: Annotated[tuple[PbDatabaseSummary, ...], Field(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDatabasesRequest(Request[ListDatabasesResponse]):
    """Asks for the databases."""

    api: ClassVar[ApiKey] = ApiKey.LIST_DATABASES

    include_summary: Annotated[bool | None, Field(1, BOOL)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTablesResponse(Message):
    """Names of tables that the user may see."""

    table_name: Annotated[tuple[str, ...], Field(1, STRING)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTablesRequest(Request[ListTablesResponse]):
    """Asks for the tables of a database."""

    api: ClassVar[ApiKey] = ApiKey.LIST_TABLES

    database_name: Annotated[str, Field(1, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTableInfoResponse(Message):
    """A table; `table_json` may hold secrets of the lake catalog, never log it."""

    table_id: Annotated[int, Field(1, INT64)]
    schema_id: Annotated[int, Field(2, INT32)]
    table_json: Annotated[bytes, Field(3, BYTES)]
    created_time: Annotated[int, Field(4, INT64)]
    modified_time: Annotated[int, Field(5, INT64)]
    remote_data_dir: Annotated[str | None, Field(6, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTableInfoRequest(Request[GetTableInfoResponse]):
    """Asks for a table."""

    api: ClassVar[ApiKey] = ApiKey.GET_TABLE_INFO

    table_path: Annotated[PbTablePath, Field(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTableSchemaResponse(Message):
    """A schema as JSON."""

    schema_id: Annotated[int, Field(1, INT32)]
    schema_json: Annotated[bytes, Field(2, BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTableSchemaRequest(Request[GetTableSchemaResponse]):
    """Asks for a schema; without an id for the latest."""

    api: ClassVar[ApiKey] = ApiKey.GET_TABLE_SCHEMA

    table_path: Annotated[PbTablePath, Field(1)]
    schema_id: Annotated[int | None, Field(2, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPartitionInfo(Message):
    """A partition and its values."""

    partition_id: Annotated[int, Field(1, INT64)]
    partition_spec: Annotated[PbPartitionSpec, Field(2)]
    remote_data_dir: Annotated[str | None, Field(3, STRING)] = None
    bucket_count_actual: Annotated[int | None, Field(4, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionInfosResponse(Message):
    """The partitions."""

    partitions_info: Annotated[tuple[PbPartitionInfo, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionInfosRequest(Request[ListPartitionInfosResponse]):
    """Asks for the partitions of a table."""

    api: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_INFOS

    table_path: Annotated[PbTablePath, Field(1)]
    partial_partition_spec: Annotated[PbPartitionSpec | None, Field(2)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbListOffsetsRespForBucket(Message):
    """An offset or an error."""

    bucket_id: Annotated[int, Field(1, INT32)]
    error_code: Annotated[int | None, Field(2, INT32)] = None
    error_message: Annotated[str | None, Field(3, STRING)] = None
    offset: Annotated[int | None, Field(4, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse(Message):
    """One entry for each bucket."""

    buckets_resp: Annotated[tuple[PbListOffsetsRespForBucket, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Asks a leader for offsets; `follower_server_id` is -1, `offset_type` 0 earliest, 1 latest, 2 by timestamp."""

    api: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS

    follower_server_id: Annotated[int, Field(1, INT32)]
    offset_type: Annotated[int, Field(2, INT32)]
    table_id: Annotated[int, Field(3, INT64)]
    partition_id: Annotated[int | None, Field(4, INT64)] = None
    bucket_id: Annotated[tuple[int, ...], Field(5, INT32, packed=True)] = ()
    start_timestamp: Annotated[int | None, Field(6, INT64)] = None
    bucket_count_actual: Annotated[int | None, Field(7, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbFetchLogReqForBucket(Message):
    """Where to read a bucket; -2 is the earliest offset."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    fetch_offset: Annotated[int, Field(3, INT64)]
    max_fetch_bytes: Annotated[int, Field(4, INT32)]
    bucket_count_actual: Annotated[int | None, Field(5, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbFetchLogReqForTable(Message):
    """What to read of a table; `filter_predicate` is an encoded message, passed as it is (main)."""

    table_id: Annotated[int, Field(1, INT64)]
    projection_pushdown_enabled: Annotated[bool, Field(2, BOOL)]
    projected_fields: Annotated[tuple[int, ...], Field(3, INT32, packed=True)] = ()
    buckets_req: Annotated[tuple[PbFetchLogReqForBucket, ...], Field(4)] = ()
    filter_predicate: Annotated[bytes | None, Field(5, BYTES)] = None
    filter_schema_id: Annotated[int | None, Field(6, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbRemoteLogSegment(Message):
    """A segment; its end offset is exclusive."""

    remote_log_segment_id: Annotated[str, Field(1, STRING)]
    remote_log_start_offset: Annotated[int, Field(2, INT64)]
    remote_log_end_offset: Annotated[int, Field(3, INT64)]
    segment_size_in_bytes: Annotated[int, Field(4, INT32)]
    max_timestamp: Annotated[int | None, Field(5, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbRemoteLogFetchInfo(Message):
    """Segments in remote storage; begin at `first_start_pos` of the first."""

    remote_log_tablet_dir: Annotated[str, Field(1, STRING)]
    partition_name: Annotated[str | None, Field(2, STRING)] = None
    remote_log_segments: Annotated[tuple[PbRemoteLogSegment, ...], Field(3)] = ()
    first_start_pos: Annotated[int | None, Field(4, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbFetchLogRespForBucket(Message):
    """Records, or remote segments to read instead, or an error; data end at `high_watermark`."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    error_code: Annotated[int | None, Field(3, INT32)] = None
    error_message: Annotated[str | None, Field(4, STRING)] = None
    high_watermark: Annotated[int | None, Field(5, INT64)] = None
    log_start_offset: Annotated[int | None, Field(6, INT64)] = None
    remote_log_fetch_info: Annotated[PbRemoteLogFetchInfo | None, Field(7)] = None
    records: Annotated[bytes | None, Field(8, BYTES)] = None
    filtered_end_offset: Annotated[int | None, Field(9, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbFetchLogRespForTable(Message):
    """One entry for each bucket, in any order."""

    table_id: Annotated[int, Field(1, INT64)]
    buckets_resp: Annotated[tuple[PbFetchLogRespForBucket, ...], Field(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLogResponse(Message):
    """One entry for each table, in any order."""

    tables_resp: Annotated[tuple[PbFetchLogRespForTable, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLogRequest(Request[FetchLogResponse]):
    """Reads records from a leader; `follower_server_id` is -1."""

    api: ClassVar[ApiKey] = ApiKey.FETCH_LOG

    follower_server_id: Annotated[int, Field(1, INT32)]
    max_bytes: Annotated[int, Field(2, INT32)]
    tables_req: Annotated[tuple[PbFetchLogReqForTable, ...], Field(3)] = ()
    max_wait_ms: Annotated[int | None, Field(4, INT32)] = None
    min_bytes: Annotated[int | None, Field(5, INT32)] = None
    read_preference: Annotated[int | None, Field(6, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbKvSnapshot(Message):
    """A bucket and its snapshot; no `snapshot_id` means that there is none yet (0 is a legal id)."""

    bucket_id: Annotated[int, Field(1, INT32)]
    snapshot_id: Annotated[int | None, Field(2, INT64)] = None
    log_offset: Annotated[int | None, Field(3, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLatestKvSnapshotsResponse(Message):
    """One entry for each bucket."""

    table_id: Annotated[int, Field(1, INT64)]
    partition_id: Annotated[int | None, Field(2, INT64)] = None
    latest_snapshots: Annotated[tuple[PbKvSnapshot, ...], Field(3)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLatestKvSnapshotsRequest(Request[GetLatestKvSnapshotsResponse]):
    """Asks for the newest snapshot of each bucket of a table or partition."""

    api: ClassVar[ApiKey] = ApiKey.GET_LATEST_KV_SNAPSHOTS

    table_path: Annotated[PbTablePath, Field(1)]
    partition_name: Annotated[str | None, Field(2, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbRemotePathAndLocalFile(Message):
    """Where a file lies and what it is called in a RocksDB directory."""

    remote_path: Annotated[str, Field(1, STRING)]
    local_file_name: Annotated[str, Field(2, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKvSnapshotMetadataResponse(Message):
    """The files; the log goes on at `log_offset`."""

    log_offset: Annotated[int, Field(1, INT64)]
    snapshot_files: Annotated[tuple[PbRemotePathAndLocalFile, ...], Field(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKvSnapshotMetadataRequest(Request[GetKvSnapshotMetadataResponse]):
    """Asks for the files of a snapshot; also the one way to learn that it exists."""

    api: ClassVar[ApiKey] = ApiKey.GET_KV_SNAPSHOT_METADATA

    table_id: Annotated[int, Field(1, INT64)]
    partition_id: Annotated[int | None, Field(2, INT64)] = None
    bucket_id: Annotated[int, Field(3, INT32)]
    snapshot_id: Annotated[int, Field(4, INT64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbScanReqForBucket(Message):
    """The bucket to scan; a limit of 0 or less is none (main)."""

    table_id: Annotated[int, Field(1, INT64)]
    partition_id: Annotated[int | None, Field(2, INT64)] = None
    bucket_id: Annotated[int, Field(3, INT32)]
    limit: Annotated[int | None, Field(4, INT64)] = None
    bucket_count_actual: Annotated[int | None, Field(5, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanKvResponse(Message):
    """Some rows, or an error; the log goes on at `log_offset`, which only the first answer has (main)."""

    error_code: Annotated[int | None, Field(1, INT32)] = None
    error_message: Annotated[str | None, Field(2, STRING)] = None
    scanner_id: Annotated[bytes | None, Field(3, BYTES)] = None
    has_more_results: Annotated[bool | None, Field(4, BOOL)] = None
    records: Annotated[bytes | None, Field(5, BYTES)] = None
    log_offset: Annotated[int | None, Field(6, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanKvRequest(Request[ScanKvResponse]):
    """Opens, continues or closes a scan of a bucket (main)."""

    api: ClassVar[ApiKey] = ApiKey.SCAN_KV

    scanner_id: Annotated[bytes | None, Field(1, BYTES)] = None
    bucket_scan_req: Annotated[PbScanReqForBucket | None, Field(2)] = None
    call_seq_id: Annotated[int | None, Field(3, INT32)] = None
    batch_size_bytes: Annotated[int | None, Field(4, INT32)] = None
    close_scanner: Annotated[bool | None, Field(5, BOOL)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbDescribeConfig(Message):
    """A key of the cluster's configuration, as it counts now. Values may be secrets."""

    config_key: Annotated[str, Field(1, STRING)]
    config_value: Annotated[str | None, Field(2, STRING)] = None
    config_source: Annotated[str, Field(3, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterConfigsResponse(Message):
    """The keys that are set."""

    configs: Annotated[tuple[PbDescribeConfig, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterConfigsRequest(Request[DescribeClusterConfigsResponse]):
    """Asks for the cluster's configuration."""

    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLUSTER_CONFIGS
