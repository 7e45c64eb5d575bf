"""Leases on KV snapshots (servers of 0.9 or later).

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.messages.shared import PbTableBucket
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import INT32, INT64, STRING


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
