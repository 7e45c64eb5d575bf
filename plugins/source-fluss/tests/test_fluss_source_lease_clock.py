"""What a lease of six hours protects at a server that cleans up by its own clock, and what a table created anew is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lakeward.clock import SystemClock
from lakeward.errors import OffsetsBeyondLogError, SnapshotGoneError
from lakeward.machines.splits.enumeration import enumerate_splits
from lakeward.model.splits import SnapshotSplit
from lakeward.model.tables import KvSnapshot
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.source import FlussSource
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.messages import ErrorResponse, GetKvSnapshotMetadataRequest
from lakeward_source_fluss.wire.tiering_messages import (
    AcquireKvSnapshotLeaseRequest,
    AcquireKvSnapshotLeaseResponse,
    DropKvSnapshotLeaseRequest,
    DropKvSnapshotLeaseResponse,
)
from lakeward_source_fluss_kit.oneserver import BUCKET, OneServer, compacted
from lakeward_source_fluss_kit.server import Answer, Call

HOURS = 3600.0
OLD = KvSnapshot(BUCKET, 1, 7)


@dataclass
class LeasedSnapshots:
    """The snapshots of one bucket and the leases on them, by a clock that is set forward."""

    server: OneServer
    now_s: float = 0.0
    retained: set[int] = field(default_factory=lambda: {OLD.snapshot_id})
    leases: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take part in the server's answers."""
        self._files = self.server.further[ApiKey.GET_KV_SNAPSHOT_METADATA]
        self.server.further |= {
            ApiKey.GET_KV_SNAPSHOT_METADATA: self._metadata,
            ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: self._acquire,
            ApiKey.DROP_KV_SNAPSHOT_LEASE: self._drop,
        }

    def go_on(self, hours: float) -> None:
        """Let time pass, and let the server take a newer snapshot and clean up."""
        self.now_s += hours * HOURS
        newest = max(self.retained) + 1
        held = {snapshot for until_s, snapshot in self.leases.values() if until_s > self.now_s}
        self.retained = {newest} | (self.retained & held)

    def _metadata(self, call: Call) -> Answer:
        if call.read(GetKvSnapshotMetadataRequest).snapshot_id not in self.retained:
            return ErrorResponse(error_code=ErrorCode.KV_SNAPSHOT_NOT_EXIST)
        return self._files(call)

    def _acquire(self, call: Call) -> Answer:
        asked = call.read(AcquireKvSnapshotLeaseRequest)
        ((one,),) = (table.bucket_snapshots for table in asked.snapshots_to_lease)
        self.leases[asked.lease_id] = (self.now_s + asked.lease_duration_ms / 1000, one.snapshot_id)
        return AcquireKvSnapshotLeaseResponse()

    def _drop(self, call: Call) -> Answer:
        self.leases.pop(call.read(DropKvSnapshotLeaseRequest).lease_id, None)
        return DropKvSnapshotLeaseResponse()


@pytest.fixture
def snapshots(tmp_path: Path, release: Release) -> Iterator[LeasedSnapshots]:
    """A server with one snapshot of ten rows."""
    with OneServer(primary_key=("id",), release=release) as server:
        values = ((bytes([key]), b"\1\0" + compacted(key, b"x")) for key in range(10))
        server.put_snapshot(tmp_path / "db", values, log_offset=OLD.log_offset)
        yield LeasedSnapshots(server)


@pytest.fixture
def source(snapshots: LeasedSnapshots) -> Iterator[FlussSource]:
    """The source at that server."""
    client = snapshots.server.client()
    opened = FlussSource(client, Storage(), FlussOptions(bootstrap=""), SystemClock())
    yield opened
    opened.close()


def rows(snapshots: LeasedSnapshots, spool: Path) -> int:
    """Read the old snapshot; return its rows."""
    spool.mkdir(exist_ok=True)
    split = SnapshotSplit("b0-s1", BUCKET, (), OLD.snapshot_id, OLD.log_offset)
    with snapshots.server.client() as client:
        reader = snapshots.server.reader(client, spool)
        return sum(batch.records.num_rows for batch in reader.read_snapshot(split))


def test_snapshot_outlives_outages_of_less_than_six_hours_and_no_longer_ones(
    snapshots: LeasedSnapshots, source: FlussSource, tmp_path: Path
) -> None:
    source.leases.acquire("svc-1-a-1", 6 * HOURS, {BUCKET: OLD.snapshot_id})

    snapshots.go_on(5.9)
    assert source.missing_snapshots([OLD]) == frozenset()
    source.leases.acquire("svc-2-b-2", 6 * HOURS, {BUCKET: OLD.snapshot_id})
    source.leases.drop("svc-1-a-1")
    snapshots.go_on(5.9)
    assert source.missing_snapshots([OLD]) == frozenset()
    assert rows(snapshots, tmp_path / "spool") == 10

    snapshots.go_on(0.2)
    assert source.missing_snapshots([OLD]) == {OLD}
    with pytest.raises(SnapshotGoneError, match=r"KV snapshot 1 was cleaned away"):
        rows(snapshots, tmp_path / "spool")


def test_snapshot_without_a_lease_is_gone_with_the_next_one(snapshots: LeasedSnapshots, source: FlussSource) -> None:
    snapshots.go_on(0.1)

    assert source.missing_snapshots([OLD]) == {OLD}


def test_lakes_offsets_beyond_the_log_of_a_cluster_created_anew_are_an_error_with_both(
    snapshots: LeasedSnapshots, source: FlussSource
) -> None:
    snapshots.server.end = 10

    with pytest.raises(OffsetsBeyondLogError, match=r"10/0.*\b50\b.*\b10\b"):
        enumerate_splits(source.buckets(snapshots.server.table), {BUCKET: 50}, primary_key=True, max_split_rows=0)
