"""Reading the rows of a bucket from the server itself.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import BOOL, BYTES, INT32, INT64, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class PbScanReqForBucket(Message):
    """The bucket to scan; a limit of 0 or less is none (main)."""

    table_id: Annotated[int, Field(1, INT64)]
    partition_id: Annotated[int | None, Field(2, INT64)] = None
    bucket_id: Annotated[int, Field(3, INT32)]
    limit: Annotated[int | None, Field(4, INT64)] = None


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
