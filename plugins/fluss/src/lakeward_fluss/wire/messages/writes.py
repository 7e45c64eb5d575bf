"""Writing records. Lakeward itself writes none; tests do.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.messages.shared import PbTablePath
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import BYTES, FLOAT, INT32, INT64, STRING


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
