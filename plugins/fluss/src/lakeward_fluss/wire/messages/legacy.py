"""COMMIT_LAKE_TABLE_SNAPSHOT as servers of 0.8 have it: other field numbers under the same api key.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import INT32, INT64, STRING


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
