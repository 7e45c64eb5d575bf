"""Messages of Fluss that tests alone send or read: what changes tables and writes rows, and what 0.8 had otherwise."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_source_fluss.wire import messages, tiering_messages
from lakeward_source_fluss.wire.apis import ApiKey, Request
from lakeward_source_fluss.wire.messages import PbKeyValue, PbKvSnapshot, PbPartitionSpec, PbTablePath
from lakeward_source_fluss.wire.protobuf import Field, Message
from lakeward_source_fluss.wire.scalars import BOOL, BYTES, FLOAT, INT32, INT64, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class GetClusterHealthResponse(Message):
    """Counts of replicas; `status` 0 is green (main)."""

    num_replicas: Annotated[int, Field(1, INT32)]
    in_sync_replicas: Annotated[int, Field(2, INT32)]
    num_leader_replicas: Annotated[int, Field(3, INT32)]
    active_leader_replicas: Annotated[int, Field(4, INT32)]
    status: Annotated[int, Field(5, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetClusterHealthRequest(Request[GetClusterHealthResponse]):
    """Asks for counts of replicas (main)."""

    api: ClassVar[ApiKey] = ApiKey.GET_CLUSTER_HEALTH


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseExistsResponse(Message):
    """Whether there is one."""

    exists: Annotated[bool, Field(1, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseExistsRequest(Request[DatabaseExistsResponse]):
    """Asks whether there is a database."""

    api: ClassVar[ApiKey] = ApiKey.DATABASE_EXISTS

    database_name: Annotated[str, Field(1, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExistsResponse(Message):
    """Whether there is one."""

    exists: Annotated[bool, Field(1, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExistsRequest(Request[TableExistsResponse]):
    """Asks whether there is a table."""

    api: ClassVar[ApiKey] = ApiKey.TABLE_EXISTS

    table_path: Annotated[PbTablePath, Field(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDatabaseInfoResponse(Message):
    """A database; the numbers really start at 3."""

    database_json: Annotated[bytes, Field(3, BYTES)]
    created_time: Annotated[int, Field(4, INT64)]
    modified_time: Annotated[int, Field(5, INT64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDatabaseInfoRequest(Request[GetDatabaseInfoResponse]):
    """Asks for a database."""

    api: ClassVar[ApiKey] = ApiKey.GET_DATABASE_INFO

    database_name: Annotated[str, Field(1, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListKvSnapshotsResponse(Message):
    """Retained and leased ids, also leased ones that do not exist (main)."""

    table_id: Annotated[int, Field(1, INT64)]
    partition_id: Annotated[int | None, Field(2, INT64)] = None
    active_snapshots: Annotated[tuple[PbKvSnapshot, ...], Field(3)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListKvSnapshotsRequest(Request[ListKvSnapshotsResponse]):
    """Asks for retained and leased snapshots (main)."""

    api: ClassVar[ApiKey] = ApiKey.LIST_KV_SNAPSHOTS

    table_id: Annotated[int, Field(1, INT64)]
    partition_id: Annotated[int | None, Field(2, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetFileSystemSecurityTokenResponse(Message):
    """Credentials; never log them."""

    schema: Annotated[str, Field(1, STRING)]
    token: Annotated[bytes, Field(2, BYTES)]
    expiration_time: Annotated[int | None, Field(3, INT64)] = None
    addition_info: Annotated[tuple[PbKeyValue, ...], Field(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetFileSystemSecurityTokenRequest(Request[GetFileSystemSecurityTokenResponse]):
    """Asks for credentials of the remote data directory."""

    api: ClassVar[ApiKey] = ApiKey.GET_FILESYSTEM_SECURITY_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitScanResponse(Message):
    """Some rows, or an error."""

    error_code: Annotated[int | None, Field(1, INT32)] = None
    error_message: Annotated[str | None, Field(2, STRING)] = None
    is_log_table: Annotated[bool | None, Field(3, BOOL)] = None
    records: Annotated[bytes | None, Field(4, BYTES)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitScanRequest(Request[LimitScanResponse]):
    """Reads some rows of a bucket; the numbers start at 2."""

    api: ClassVar[ApiKey] = ApiKey.LIMIT_SCAN

    table_id: Annotated[int, Field(2, INT64)]
    partition_id: Annotated[int | None, Field(3, INT64)] = None
    bucket_id: Annotated[int, Field(4, INT32)]
    limit: Annotated[int, Field(5, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabaseResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabaseRequest(Request[CreateDatabaseResponse]):
    """Creates a database."""

    api: ClassVar[ApiKey] = ApiKey.CREATE_DATABASE

    database_name: Annotated[str, Field(1, STRING)]
    ignore_if_exists: Annotated[bool, Field(2, BOOL)]
    database_json: Annotated[bytes | None, Field(3, BYTES)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableRequest(Request[CreateTableResponse]):
    """Creates a table."""

    api: ClassVar[ApiKey] = ApiKey.CREATE_TABLE

    table_path: Annotated[PbTablePath, Field(1)]
    table_json: Annotated[bytes, Field(2, BYTES)]
    ignore_if_exists: Annotated[bool, Field(3, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTableResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTableRequest(Request[DropTableResponse]):
    """Drops a table."""

    api: ClassVar[ApiKey] = ApiKey.DROP_TABLE

    table_path: Annotated[PbTablePath, Field(1)]
    ignore_if_not_exists: Annotated[bool, Field(2, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionRequest(Request[CreatePartitionResponse]):
    """Creates a partition."""

    api: ClassVar[ApiKey] = ApiKey.CREATE_PARTITION

    table_path: Annotated[PbTablePath, Field(1)]
    partition_spec: Annotated[PbPartitionSpec, Field(2)]
    ignore_if_not_exists: Annotated[bool, Field(3, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartitionResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartitionRequest(Request[DropPartitionResponse]):
    """Drops a partition."""

    api: ClassVar[ApiKey] = ApiKey.DROP_PARTITION

    table_path: Annotated[PbTablePath, Field(1)]
    partition_spec: Annotated[PbPartitionSpec, Field(2)]
    ignore_if_not_exists: Annotated[bool, Field(3, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbAlterConfig(Message):
    """One option; `op_type` 0 sets it."""

    config_key: Annotated[str, Field(1, STRING)]
    config_value: Annotated[str | None, Field(2, STRING)] = None
    op_type: Annotated[int, Field(3, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbAddColumn(Message):
    """One column; `column_position_type` 0 is last."""

    column_name: Annotated[str, Field(1, STRING)]
    data_type_json: Annotated[bytes, Field(2, BYTES)]
    comment: Annotated[str | None, Field(3, STRING)] = None
    column_position_type: Annotated[int, Field(4, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableRequest(Request[AlterTableResponse]):
    """Changes options of a table or adds columns."""

    api: ClassVar[ApiKey] = ApiKey.ALTER_TABLE

    table_path: Annotated[PbTablePath, Field(1)]
    ignore_if_not_exists: Annotated[bool, Field(2, BOOL)]
    config_changes: Annotated[tuple[PbAlterConfig, ...], Field(3)] = ()
    add_columns: Annotated[tuple[PbAddColumn, ...], Field(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabaseResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabaseRequest(Request[DropDatabaseResponse]):
    """Drops a database."""

    api: ClassVar[ApiKey] = ApiKey.DROP_DATABASE

    database_name: Annotated[str, Field(1, STRING)]
    ignore_if_not_exists: Annotated[bool, Field(2, BOOL)]
    cascade: Annotated[bool, Field(3, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitWriterResponse(Message):
    """A writer id."""

    writer_id: Annotated[int, Field(1, INT64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitWriterRequest(Request[InitWriterResponse]):
    """Asks for a writer id."""

    api: ClassVar[ApiKey] = ApiKey.INIT_WRITER

    table_path: Annotated[tuple[PbTablePath, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPutKvReqForBucket(Message):
    """A KV batch for a bucket."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    records: Annotated[bytes, Field(3, BYTES)]
    bucket_count_actual: Annotated[int | None, Field(4, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPutKvRespForBucket(Message):
    """What became of a bucket."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    error_code: Annotated[int | None, Field(3, INT32)] = None
    error_message: Annotated[str | None, Field(4, STRING)] = None
    log_end_offset: Annotated[int | None, Field(5, INT64)] = None
    pressure: Annotated[float | None, Field(6, FLOAT)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKvResponse(Message):
    """One entry for each bucket."""

    buckets_resp: Annotated[tuple[PbPutKvRespForBucket, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKvRequest(Request[PutKvResponse]):
    """Upserts and deletes; no target columns means whole rows."""

    api: ClassVar[ApiKey] = ApiKey.PUT_KV

    acks: Annotated[int, Field(1, INT32)]
    table_id: Annotated[int, Field(2, INT64)]
    timeout_ms: Annotated[int, Field(3, INT32)]
    target_columns: Annotated[tuple[int, ...], Field(4, INT32, packed=True)] = ()
    buckets_req: Annotated[tuple[PbPutKvReqForBucket, ...], Field(5)] = ()
    agg_mode: Annotated[int | None, Field(6, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbProduceLogReqForBucket(Message):
    """A log batch for a bucket."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    records: Annotated[bytes, Field(3, BYTES)]
    bucket_count_actual: Annotated[int | None, Field(4, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbProduceLogRespForBucket(Message):
    """What became of a bucket."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    error_code: Annotated[int | None, Field(3, INT32)] = None
    error_message: Annotated[str | None, Field(4, STRING)] = None
    base_offset: Annotated[int | None, Field(5, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLogResponse(Message):
    """One entry for each bucket."""

    buckets_resp: Annotated[tuple[PbProduceLogRespForBucket, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLogRequest(Request[ProduceLogResponse]):
    """Appends records; `acks` -1 waits for all replicas."""

    api: ClassVar[ApiKey] = ApiKey.PRODUCE_LOG

    acks: Annotated[int, Field(1, INT32)]
    table_id: Annotated[int, Field(2, INT64)]
    timeout_ms: Annotated[int, Field(3, INT32)]
    buckets_req: Annotated[tuple[PbProduceLogReqForBucket, ...], Field(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyPbLakeTableOffsetForBucket(Message):
    """The offsets of a bucket."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    log_start_offset: Annotated[int | None, Field(3, INT64)] = None
    log_end_offset: Annotated[int | None, Field(4, INT64)] = None
    partition_name: Annotated[str | None, Field(5, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyPbLakeTableSnapshotInfo(Message):
    """A lake snapshot and its offsets."""

    table_id: Annotated[int, Field(1, INT64)]
    snapshot_id: Annotated[int, Field(2, INT64)]
    buckets_req: Annotated[tuple[LegacyPbLakeTableOffsetForBucket, ...], Field(3)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyPbCommitLakeTableSnapshotRespForTable(Message):
    """What became of a table."""

    table_id: Annotated[int, Field(1, INT64)]
    error_code: Annotated[int | None, Field(2, INT32)] = None
    error_message: Annotated[str | None, Field(3, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyCommitLakeTableSnapshotResponse(Message):
    """One entry for each table."""

    table_resp: Annotated[tuple[LegacyPbCommitLakeTableSnapshotRespForTable, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyCommitLakeTableSnapshotRequest(Request[LegacyCommitLakeTableSnapshotResponse]):
    """Registers lake snapshots at a server of 0.8, with the offsets inline."""

    api: ClassVar[ApiKey] = ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT

    tables_req: Annotated[tuple[LegacyPbLakeTableSnapshotInfo, ...], Field(1)] = ()


def all_messages() -> list[type[Message]]:
    """Return the classes of all messages, those of the product first."""
    modules = (messages, tiering_messages, sys.modules[__name__])
    return [
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, Message) and found.__module__ == module.__name__
    ]
