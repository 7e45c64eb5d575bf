"""The server's lease API on KV snapshots, with its traps covered (fluss.md, "Leases on KV snapshots")."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from lakeward.errors import UsageError
from lakeward.model.leases import Protection
from lakeward.model.tables import TableBucket
from lakeward_source_fluss.source.naming import naming_right
from lakeward_source_fluss.wire.errors import FlussServerError, UnknownBucketError
from lakeward_source_fluss.wire.messages import PbTableBucket
from lakeward_source_fluss.wire.tiering_messages import (
    AcquireKvSnapshotLeaseRequest,
    DropKvSnapshotLeaseRequest,
    PbKvSnapshotLeaseForBucket,
    PbKvSnapshotLeaseForTable,
    ReleaseKvSnapshotLeaseRequest,
)

if TYPE_CHECKING:
    from lakeward_source_fluss.rpc.client import FlussClient

MAX_DURATION_S = 366 * 86_400.0
"""A year: near 2^63 ms the server's sum overflows, and the lease is reaped at once."""
_ID = re.compile(r"[A-Za-z0-9._-]{1,199}")
"""It becomes a node of ZooKeeper and a directory; the server checks nothing."""
_NOT_IN_LEASE = "NullPointerException"
"""What 0.9 says when a table is released that the lease does not contain; main says success."""


class FlussLeases:
    """See `lakeward.ports.SnapshotLeases`."""

    def __init__(self, client: FlussClient) -> None:
        """Use an open client."""
        self._client = client

    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See Protocol. The server grants a lease on anything: verify.

        Without snapshots nothing is sent: an empty renewal would create an empty lease anew where the old one had
        run out, and call that a success.
        """
        check_id(lease_id)
        check_clean(snapshots)
        duration_ms = _duration_ms(duration_s)
        if not snapshots:
            return Protection(until_s=duration_s)
        try:
            self._acquire(lease_id, duration_ms, snapshots)
        except UnknownBucketError:
            gone = self._acquire_by_table(lease_id, duration_ms, snapshots)
            return Protection(until_s=duration_s, unavailable=gone)
        return Protection(until_s=duration_s)

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        """See Protocol. Table by table: one that was dropped cannot be released, and would keep the others."""
        check_id(lease_id)
        for table in sorted({bucket.table_id for bucket in buckets}):
            self._release(lease_id, [bucket for bucket in buckets if bucket.table_id == table])

    def drop(self, lease_id: str) -> None:
        """See Protocol."""
        check_id(lease_id)
        self._client.call_coordinator(DropKvSnapshotLeaseRequest(lease_id=lease_id))

    def _acquire(self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int]) -> None:
        tables = tuple(
            PbKvSnapshotLeaseForTable(
                table_id=table_id,
                bucket_snapshots=tuple(
                    PbKvSnapshotLeaseForBucket(
                        partition_id=bucket.partition_id, bucket_id=bucket.bucket, snapshot_id=snapshot
                    )
                    for bucket, snapshot in sorted(snapshots.items(), key=lambda item: item[0].sort_key())
                    if bucket.table_id == table_id
                ),
            )
            for table_id in sorted({bucket.table_id for bucket in snapshots})
        )
        request = AcquireKvSnapshotLeaseRequest(
            lease_id=lease_id, lease_duration_ms=duration_ms, snapshots_to_lease=tables
        )
        with naming_right(request.api, _named(snapshots)):
            self._client.call_coordinator(request)

    def _acquire_by_table(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int]
    ) -> dict[TableBucket, int]:
        """Acquire for each table alone, as a dropped one makes the server refuse all; return what is gone."""
        gone: dict[TableBucket, int] = {}
        for table_id in sorted({bucket.table_id for bucket in snapshots}):
            part = {bucket: snapshot for bucket, snapshot in snapshots.items() if bucket.table_id == table_id}
            try:
                self._acquire(lease_id, duration_ms, part)
            except UnknownBucketError:
                gone |= part
        return gone

    def _release(self, lease_id: str, buckets: Iterable[TableBucket]) -> None:
        named = tuple(
            PbTableBucket(table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket)
            for bucket in sorted(buckets, key=TableBucket.sort_key)
        )
        request = ReleaseKvSnapshotLeaseRequest(lease_id=lease_id, buckets_to_release=named)
        try:
            with naming_right(request.api, _named(buckets)):
                self._client.call_coordinator(request)
        except UnknownBucketError:
            return  # the table was dropped: there is nothing left to protect
        except FlussServerError as refused:
            if _NOT_IN_LEASE not in refused.server_message:
                raise


def _named(buckets: Iterable[TableBucket]) -> str:
    return " or ".join(f"id {table_id}" for table_id in sorted({bucket.table_id for bucket in buckets}))


def check_id(lease_id: str) -> None:
    """Check a lease's id.

    Raises:
        UsageError: the server would take it and make something else of it.
    """
    if not _ID.fullmatch(lease_id) or lease_id in {".", ".."}:
        message = f"lease id: expected up to 199 letters, digits, '.', '_' and '-', found {lease_id!r}"
        raise UsageError(message)


def check_clean(snapshots: Mapping[TableBucket, int]) -> None:
    """Check that no table has entries with and without a partition, and that all numbers are ones of a server.

    Raises:
        UsageError: the server would silently lease a part of it only.
    """
    partitioned: dict[int, bool] = {}
    for bucket, snapshot in snapshots.items():
        has = bucket.partition_id is not None
        if partitioned.setdefault(bucket.table_id, has) != has:
            message = f"lease: expected buckets of table {bucket.table_id} all with or all without a partition"
            raise UsageError(message)
        if bucket.bucket < 0 or snapshot < 0:
            message = f"lease: expected bucket and snapshot >= 0, found {bucket} and {snapshot}"
            raise UsageError(message)


def _duration_ms(duration_s: float) -> int:
    if not 0 < duration_s <= MAX_DURATION_S:
        message = f"lease duration: expected seconds, > 0 and at most {MAX_DURATION_S:g}, found {duration_s:g}"
        raise UsageError(message)
    return max(1, int(duration_s * 1000))
