"""The messages of Fluss's tiering queue, of the lake snapshots that it knows, and of leases; see `messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_source_fluss.wire.apis import ApiKey, Request
from lakeward_source_fluss.wire.messages import ErrorResponse, PbTableBucket, PbTablePath
from lakeward_source_fluss.wire.protobuf import Field, Message
from lakeward_source_fluss.wire.scalars import BOOL, INT32, INT64, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class PbKvSnapshotLeaseForBucket(Message):
    """One leased snapshot."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    snapshot_id: Annotated[int, Field(3, INT64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbKvSnapshotLeaseForTable(Message):
    """The leased snapshots of one table; never mix entries with and without a partition."""

    table_id: Annotated[int, Field(1, INT64)]
    bucket_snapshots: Annotated[tuple[PbKvSnapshotLeaseForBucket, ...], Field(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireKvSnapshotLeaseResponse(Message):
    """Granted; the list has been empty in every release so far, verify each snapshot."""

    unavailable_snapshots: Annotated[tuple[PbKvSnapshotLeaseForTable, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireKvSnapshotLeaseRequest(Request[AcquireKvSnapshotLeaseResponse]):
    """Creates, renews or extends a lease; it lives from now for `lease_duration_ms`."""

    api: ClassVar[ApiKey] = ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE

    lease_id: Annotated[str, Field(1, STRING)]
    lease_duration_ms: Annotated[int, Field(2, INT64)]
    snapshots_to_lease: Annotated[tuple[PbKvSnapshotLeaseForTable, ...], Field(3)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKvSnapshotLeaseResponse(Message):
    """Done, or there was nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKvSnapshotLeaseRequest(Request[ReleaseKvSnapshotLeaseResponse]):
    """Gives up buckets of a lease."""

    api: ClassVar[ApiKey] = ApiKey.RELEASE_KV_SNAPSHOT_LEASE

    lease_id: Annotated[str, Field(1, STRING)]
    buckets_to_release: Annotated[tuple[PbTableBucket, ...], Field(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropKvSnapshotLeaseResponse(Message):
    """Done, or there was nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropKvSnapshotLeaseRequest(Request[DropKvSnapshotLeaseResponse]):
    """Removes a whole lease."""

    api: ClassVar[ApiKey] = ApiKey.DROP_KV_SNAPSHOT_LEASE

    lease_id: Annotated[str, Field(1, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbLakeTieringStats(Message):
    """Size of the lake table (main)."""

    file_size: Annotated[int | None, Field(1, INT64)] = None
    record_count: Annotated[int | None, Field(2, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbHeartbeatReqForTable(Message):
    """An assigned table and the epochs under which it was assigned."""

    table_id: Annotated[int, Field(1, INT64)]
    coordinator_epoch: Annotated[int, Field(2, INT32)]
    tiering_epoch: Annotated[int, Field(3, INT64)]
    lake_tiering_stats: Annotated[PbLakeTieringStats | None, Field(4)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbLakeTieringTableInfo(Message):
    """A table that the coordinator assigns."""

    table_id: Annotated[int, Field(1, INT64)]
    table_path: Annotated[PbTablePath, Field(2)]
    tiering_epoch: Annotated[int, Field(3, INT64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbHeartbeatRespForTable(Message):
    """What became of a table named in the request; no `error` means success."""

    table_id: Annotated[int, Field(1, INT64)]
    error: Annotated[ErrorResponse | None, Field(2)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTieringHeartbeatResponse(Message):
    """The coordinator epoch, a table if one was asked for and is due, and an answer for each table named."""

    coordinator_epoch: Annotated[int, Field(1, INT32)]
    tiering_table: Annotated[PbLakeTieringTableInfo | None, Field(2)] = None
    tiering_table_resp: Annotated[tuple[PbHeartbeatRespForTable, ...], Field(3)] = ()
    finished_table_resp: Annotated[tuple[PbHeartbeatRespForTable, ...], Field(4)] = ()
    failed_table_resp: Annotated[tuple[PbHeartbeatRespForTable, ...], Field(5)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTieringHeartbeatRequest(Request[LakeTieringHeartbeatResponse]):
    """Renews, finishes, fails and requests tables; an empty one asks for the coordinator epoch."""

    api: ClassVar[ApiKey] = ApiKey.LAKE_TIERING_HEARTBEAT

    tiering_tables: Annotated[tuple[PbHeartbeatReqForTable, ...], Field(1)] = ()
    finished_tables: Annotated[tuple[PbHeartbeatReqForTable, ...], Field(2)] = ()
    failed_tables: Annotated[tuple[PbHeartbeatReqForTable, ...], Field(3)] = ()
    request_table: Annotated[bool | None, Field(4, BOOL)] = None
    force_finished_tables: Annotated[tuple[int, ...], Field(5, INT64)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PbBucketOffset(Message):
    """The next offset to tier of a bucket; there is no field 3."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    log_end_offset: Annotated[int | None, Field(4, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbTableOffsets(Message):
    """The offsets of a table."""

    table_id: Annotated[int, Field(1, INT64)]
    table_path: Annotated[PbTablePath, Field(2)]
    bucket_offsets: Annotated[tuple[PbBucketOffset, ...], Field(3)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPrepareLakeTableRespForTable(Message):
    """The path of the stored file, or an error."""

    error_code: Annotated[int | None, Field(1, INT32)] = None
    error_message: Annotated[str | None, Field(2, STRING)] = None
    table_id: Annotated[int | None, Field(3, INT64)] = None
    lake_table_offsets_path: Annotated[str | None, Field(4, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareLakeTableSnapshotResponse(Message):
    """One entry for each table."""

    prepare_lake_table_resp: Annotated[tuple[PbPrepareLakeTableRespForTable, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareLakeTableSnapshotRequest(Request[PrepareLakeTableSnapshotResponse]):
    """Stores offsets in a file, over the previous ones unless these are to be ignored."""

    api: ClassVar[ApiKey] = ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT

    bucket_offsets: Annotated[tuple[PbTableOffsets, ...], Field(1)] = ()
    ignore_previous_table_offsets: Annotated[bool | None, Field(2, BOOL)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbLakeTableOffsetForBucket(Message):
    """The end offset of a bucket."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    log_end_offset: Annotated[int | None, Field(4, INT64)] = None
    max_timestamp: Annotated[int | None, Field(6, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbLakeTableSnapshotInfo(Message):
    """Offsets of a lake snapshot; they move the lake log end offset of the bucket leaders."""

    table_id: Annotated[int | None, Field(1, INT64)] = None
    snapshot_id: Annotated[int, Field(2, INT64)]
    buckets_req: Annotated[tuple[PbLakeTableOffsetForBucket, ...], Field(3)] = ()
    table_path: Annotated[PbTablePath | None, Field(4)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbLakeTableSnapshotMetadata(Message):
    """A lake snapshot; `earliest_snapshot_id_to_keep` absent keeps the latest alone, -1 keeps all."""

    table_id: Annotated[int, Field(1, INT64)]
    snapshot_id: Annotated[int, Field(2, INT64)]
    tiered_bucket_offsets_file_path: Annotated[str, Field(3, STRING)]
    readable_bucket_offsets_file_path: Annotated[str | None, Field(4, STRING)] = None
    earliest_snapshot_id_to_keep: Annotated[int | None, Field(5, INT64)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbCommitLakeTableSnapshotRespForTable(Message):
    """What became of a table; 0.8 numbers the fields otherwise, see `legacy`."""

    error_code: Annotated[int | None, Field(1, INT32)] = None
    error_message: Annotated[str | None, Field(2, STRING)] = None
    table_id: Annotated[int, Field(3, INT64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLakeTableSnapshotResponse(Message):
    """One entry for each table."""

    table_resp: Annotated[tuple[PbCommitLakeTableSnapshotRespForTable, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLakeTableSnapshotRequest(Request[CommitLakeTableSnapshotResponse]):
    """Registers lake snapshots. NOT idempotent: a repeat may delete the offsets file. Always send `tables_req` too."""

    api: ClassVar[ApiKey] = ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT

    tables_req: Annotated[tuple[PbLakeTableSnapshotInfo, ...], Field(1)] = ()
    lake_table_snapshot_metadata: Annotated[tuple[PbLakeTableSnapshotMetadata, ...], Field(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PbLakeSnapshotForBucket(Message):
    """The offset of a bucket; servers never fill `partition_name`."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    log_offset: Annotated[int | None, Field(3, INT64)] = None
    partition_name: Annotated[str | None, Field(4, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLakeSnapshotResponse(Message):
    """A lake snapshot and its offsets."""

    table_id: Annotated[int, Field(1, INT64)]
    snapshot_id: Annotated[int, Field(2, INT64)]
    bucket_snapshots: Annotated[tuple[PbLakeSnapshotForBucket, ...], Field(3)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLakeSnapshotRequest(Request[GetLakeSnapshotResponse]):
    """Asks for a lake snapshot: the latest, the latest readable, or one by id."""

    api: ClassVar[ApiKey] = ApiKey.GET_LAKE_SNAPSHOT

    table_path: Annotated[PbTablePath, Field(1)]
    snapshot_id: Annotated[int | None, Field(2, INT64)] = None
    readable: Annotated[bool | None, Field(3, BOOL)] = None
