"""KV snapshots, and the credentials of the store that they lie in.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.messages.shared import PbKeyValue, PbTablePath
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import BYTES, INT32, INT64, STRING


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
