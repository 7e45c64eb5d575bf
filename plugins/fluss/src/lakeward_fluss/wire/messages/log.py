"""Reading logs: offsets, and records.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import BOOL, BYTES, INT32, INT64, STRING


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PbFetchLogReqForBucket(Message):
    """Where to read a bucket; -2 is the earliest offset."""

    partition_id: Annotated[int | None, Field(1, INT64)] = None
    bucket_id: Annotated[int, Field(2, INT32)]
    fetch_offset: Annotated[int, Field(3, INT64)]
    max_fetch_bytes: Annotated[int, Field(4, INT32)]


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
