"""The race itself, on a real server: the clean-up of KV snapshots against a reader, with each lease backend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import SnapshotGoneError
from lakeward.hooks.backend import LeaseBackend
from lakeward.model.leases import Lease
from lakeward.model.splits import SnapshotSplit
from lakeward.model.tables import TablePath
from lakeward_source_fluss_kit.snapshots import newest_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.tables import KvSnapshot
    from lakeward_source_fluss.source.source import FlussSource
    from lakeward_source_fluss_kit.clusters import LakeCluster

pytestmark = [pytest.mark.fluss, pytest.mark.slow]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
PATH = TablePath("race", "t")
ROWS = {number: f"n{number}" for number in range(100)}


@pytest.fixture
def source(lake_cluster: LakeCluster) -> Iterator[FlussSource]:
    """The source; the test's one table is dropped afterwards."""
    source = lake_cluster.source()
    yield source
    lake_cluster.drop(str(PATH))
    source.close()


@pytest.fixture
def snapshot(lake_cluster: LakeCluster, source: FlussSource) -> KvSnapshot:
    """A snapshot of `ROWS`, the newest one for now."""
    lake_cluster.writer.create(str(PATH), SCHEMA, key=["id"])
    lake_cluster.writer.change(str(PATH), [("upsert", {"id": number, "name": name}) for number, name in ROWS.items()])
    return newest_snapshot(source, source.table(PATH))


def test_without_a_lease_the_snapshot_vanishes_under_its_reader(
    lake_cluster: LakeCluster, source: FlussSource, snapshot: KvSnapshot
) -> None:
    _supersede(lake_cluster, source)

    assert source.missing_snapshots([snapshot]) == {snapshot}
    with pytest.raises(SnapshotGoneError):
        _read(source, snapshot)


@pytest.mark.parametrize(("name", "protects"), [("fluss", True), ("ttl", True), ("noop", False)])
def test_each_backend_does_what_it_says(
    lake_cluster: LakeCluster, source: FlussSource, snapshot: KvSnapshot, name: str, protects: bool
) -> None:
    backend = _backend(name)
    held = {snapshot.bucket: snapshot.snapshot_id}
    lease = Lease(lease_id=f"race-{name}-1", generation=1, duration_s=60.0, held=held, server=source.leases)

    answer = backend.acquire(lease, held)
    _supersede(lake_cluster, source)

    assert answer.protects is protects
    assert source.missing_snapshots([snapshot]) == (frozenset() if protects else {snapshot})
    if protects:
        assert _read(source, snapshot) == ROWS
    backend.release(lease, frozenset(held))
    _supersede(lake_cluster, source)
    kept = name == "ttl"  # it never releases: the server's expiry does
    assert source.missing_snapshots([snapshot]) == (frozenset() if kept else {snapshot})


def _backend(name: str) -> LeaseBackend:
    module = pytest.importorskip(f"lakeward_lease_{name}.backend")
    names = {"fluss": "FlussLeases", "ttl": "TtlLeases", "noop": "NoLeases"}
    found = getattr(import_module(module.__name__), names[name])
    return LeaseBackend(name, found)


def _read(source: FlussSource, snapshot: KvSnapshot) -> dict[int, str]:
    from lakeward_source_fluss.source.plugin import FlussSourcePlugin  # noqa: PLC0415 - without a cluster it is not needed

    table = source.table(PATH)
    reader = FlussSourcePlugin().reader(source.reader_task(table), table)
    split = SnapshotSplit("s", snapshot.bucket, (), snapshot.snapshot_id, snapshot.log_offset)
    try:
        rows = pa.Table.from_batches([batch.records for batch in reader.read_snapshot(split)])
    finally:
        reader.close()
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def _supersede(lake_cluster: LakeCluster, source: FlussSource) -> None:
    """Write and wait for newer snapshots, three times: the server keeps one."""
    for number in range(3):
        lake_cluster.writer.change(str(PATH), [("upsert", {"id": 1000 + number, "name": "later"})])
        newest_snapshot(source, source.table(PATH))
