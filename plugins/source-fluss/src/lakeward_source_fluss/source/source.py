"""A Fluss cluster as a source of tables: the driver's half. The work is done by the parts; this joins them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from lakeward.model.tables import TableBucket
from lakeward_source_fluss.source.bucket_log import BucketLog
from lakeward_source_fluss.source.buckets import BucketStates
from lakeward_source_fluss.source.calls import run_parallel
from lakeward_source_fluss.source.describe import describe_cluster, server_lakes
from lakeward_source_fluss.source.leases import FlussLeases
from lakeward_source_fluss.source.naming import naming_release
from lakeward_source_fluss.source.offsets import read_offsets
from lakeward_source_fluss.source.options import pack_task
from lakeward_source_fluss.source.queue import TieringQueue
from lakeward_source_fluss.source.read_log import oldest_record_ms
from lakeward_source_fluss.source.read_snapshot import snapshot_files
from lakeward_source_fluss.source.registry import LakeRegistry
from lakeward_source_fluss.source.table_formats import check_lake_format, log_format
from lakeward_source_fluss.source.tables import TableCatalog
from lakeward_source_fluss.wire.errors import SnapshotMissingError

if TYPE_CHECKING:
    from lakeward.model.tables import BucketState, KvSnapshot, TablePath, TableSpec
    from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, LakeRecord
    from lakeward.ports import CheckResult, Clock, ServerLake, SnapshotLeases
    from lakeward_source_fluss.formats.storage import Storage
    from lakeward_source_fluss.rpc.client import FlussClient
    from lakeward_source_fluss.source.options import FlussOptions


class FlussSource:
    """See `lakeward.ports.Source`."""

    name = "fluss"

    def __init__(self, client: FlussClient, storage: Storage, options: FlussOptions, clock: Clock) -> None:
        """Serve a cluster; `close` closes the client."""
        self._client = client
        self._storage = storage
        self._options = options
        self.catalog = TableCatalog(client)
        self._bucket_states = BucketStates(client, self.catalog, options.first_round)
        self._queue = TieringQueue(client, self.catalog, clock)
        self._registry = LakeRegistry(client, self.catalog)
        self.leases: SnapshotLeases = FlussLeases(client)

    def describe(self) -> Sequence[CheckResult]:
        """See `lakeward.ports.DescribedSource`."""
        return describe_cluster(self._client, self.catalog, self._options.first_round)

    def server_lakes(self) -> Sequence[ServerLake]:
        """See `lakeward.ports.LakeNamingSource`."""
        return server_lakes(self.catalog.tables())

    def tables(self) -> Sequence[TableSpec]:
        """See Protocol."""
        return tuple(table.spec for table in self.catalog.tables() if table.lake_enabled)

    def all_tables(self) -> Sequence[TableSpec]:
        """See Protocol."""
        return tuple(table.spec for table in self.catalog.tables())

    def table(self, path: TablePath) -> TableSpec:
        """See Protocol."""
        return self.catalog.table(path).spec

    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        """See Protocol."""
        return self._bucket_states.states(table)

    def missing_snapshots(self, snapshots: Collection[KvSnapshot]) -> frozenset[KvSnapshot]:
        """See Protocol. A lease on a snapshot says nothing of its existence; asking for its files does."""
        listed = list(snapshots)
        there = run_parallel(self._exists, listed)
        return frozenset(snapshot for snapshot, found in zip(listed, there, strict=True) if not found)

    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        """See Protocol."""
        behind = [
            (state.bucket, max(state.start, offsets.get(state.bucket, 0)), state.end)
            for state in self.buckets(table)
            if state.end > max(state.start, offsets.get(state.bucket, 0))
        ]
        times = run_parallel(lambda one: self._oldest_ms(table, *one), behind)
        return min((time for time in times if time is not None), default=None)

    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        """See Protocol."""
        return self._queue.heartbeat(heartbeat)

    def make_due(self, paths: Collection[TablePath]) -> bool:  # noqa: ARG002 - the server has no such call
        """See Protocol. Tables come when their freshness has passed."""
        return False

    def lake_record(self, table: TableSpec) -> LakeRecord | None:
        """See Protocol."""
        with naming_release(self._client):
            check_lake_format(table)
        return self._registry.record(table)

    def read_offsets(self, table: TableSpec, path: str) -> Mapping[TableBucket, int]:
        """See Protocol."""
        with naming_release(self._client):
            return read_offsets(self._storage, table, path)

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        """See Protocol. A table whose coordinator's connection was lost is renewed first, or refused."""
        self._queue.confirm(table.table_id)
        return self._registry.prepare(table, offsets)

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """See Protocol."""
        self._registry.commit(table, snapshot_id, prepared, offsets)

    def reader_task(self, table: TableSpec) -> bytes:  # noqa: ARG002 - the port gives it; a reader asks for schemas itself
        """See Protocol."""
        return pack_task(self._options)

    def close(self) -> None:
        """See Protocol."""
        self._client.close()

    def _oldest_ms(self, table: TableSpec, bucket: TableBucket, start: int, end: int) -> int | None:
        log = BucketLog(self._client, self._storage, table, bucket, fetch_bytes=1)
        with naming_release(self._client):
            return oldest_record_ms(log, log_format(table), start, end)

    def _exists(self, snapshot: KvSnapshot) -> bool:
        try:
            snapshot_files(self._client, snapshot.bucket, snapshot.snapshot_id)
        except SnapshotMissingError:
            return False
        return True
