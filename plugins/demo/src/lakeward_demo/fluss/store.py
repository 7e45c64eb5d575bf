"""What `lakeward demo --source fluss` plays on: a private cluster, and somebody who writes to it with pyfluss."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lakeward.clock import SystemClock
from lakeward.errors import SourceError
from lakeward_demo.fluss.cluster import ClusterPlan, FlussCluster
from lakeward_demo.fluss.jars import FLUSS_VERSION, LAKE_JARS, SERVER_JARS, jar_cache
from lakeward_demo.fluss.writer import FlussWriter
from lakeward_demo.store import DemoCluster, SnapshotCount
from lakeward_source_fluss.formats.storage import Storage
from lakeward_source_fluss.source.connect import connect
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.source import FlussSource

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.tables import TableBucket
    from lakeward_demo.lakes import SharedLake
    from lakeward_demo.store import DemoTable, SnapshotKey

FRESHNESS = "2s"
_SETTINGS = {"kv.snapshot.interval": "1s"}
_SETTLE_S, _STEP_S = 30.0, 0.1
_DELETE = "delete"


@contextmanager
def demo_cluster(directory: Path, lake: SharedLake, report: Callable[[str], None]) -> Iterator[DemoCluster]:
    """Run a cluster whose lake is also ours, for the length of a `with` block.

    `report` is called with one line of progress at a time.

    Raises:
        LakewardError: the cluster cannot be had here; says why.
    """
    missing = sum(
        not (jar_cache() / jar.file).is_file() for jar in (*SERVER_JARS, *LAKE_JARS[lake.cluster["datalake.format"]])
    )
    fetched = f"fetching {missing} jars into {jar_cache()} first, once" if missing else f"jars of {jar_cache()}"
    report(f"Starting a private Fluss {FLUSS_VERSION} cluster ({fetched}) ...")
    clock = SystemClock()
    start = clock.now()
    with FlussCluster.running(directory, ClusterPlan(lake=lake.cluster, settings=_SETTINGS)) as cluster:
        report(
            f"ZooKeeper, coordinator and tablet server are up after {clock.now() - start:.1f} s at\n"
            f"{cluster.bootstrap}; the cluster shares the {lake.where} with us."
        )
        address = json.dumps({"bootstrap": cluster.bootstrap, "remote": str(cluster.directory / "remote")})
        yield DemoCluster(address, {"bootstrap": cluster.bootstrap})


class FlussDemoStore:
    """See `lakeward_demo.store.DemoStore`."""

    def __init__(self, address: str) -> None:
        """Open a cluster of this machine."""
        place = json.loads(address)
        options = FlussOptions(bootstrap=place["bootstrap"])
        self._remote = Path(place["remote"])
        self._source = FlussSource(connect(options), Storage({}), options, SystemClock())
        self._writer = FlussWriter(options.bootstrap)
        self._partitions: set[tuple[str, ...]] = set()

    def create(self, table: DemoTable) -> None:
        """See Protocol."""
        tiered = {"table.datalake.enabled": "true", "table.datalake.freshness": FRESHNESS}
        self._writer.create(
            str(table.path),
            table.columns,
            key=table.primary_key,
            partition=table.partition_keys,
            buckets=table.buckets,
            properties=tiered if table.tiered else {},
        )

    def load(self, table: DemoTable, rows: pa.Table, change: str | None = None) -> None:
        """See Protocol."""
        if change is None:
            self._append(table, rows)
            return
        # pyfluss wants nothing but the key of a row that is deleted.
        changes = [
            (_DELETE, {name: row[name] for name in table.primary_key}) if kind == _DELETE else ("upsert", row)
            for kind, row in zip(rows[change].to_pylist(), rows.select(table.columns.names).to_pylist(), strict=True)
        ]
        self._writer.change(str(table.path), changes)

    def settle(self, table: DemoTable) -> None:
        """See Protocol.

        Raises:
            SourceError: the server takes none.
        """
        if not table.primary_key:
            return
        for _ in range(int(_SETTLE_S / _STEP_S)):
            states = self._source.buckets(self._source.table(table.path))
            if all(state.snapshot is not None for state in states if state.end):
                return
            time.sleep(_STEP_S)
        message = f"table {table.path}: expected a KV snapshot of each bucket after {_SETTLE_S:g} s, found fewer"
        raise SourceError(message)

    def snapshots(self, table: DemoTable) -> SnapshotCount:
        """See Protocol. Ids begin with 0 and have no gaps; what is left lies in the remote directory."""
        taken = sum(newest + 1 for newest in self._newest(table).values())
        return SnapshotCount(taken, taken - len(self._there(table)))

    def superseded(self, table: DemoTable) -> frozenset[SnapshotKey]:
        """See Protocol. The last but one may be about to go; one older than that is there for a lease alone."""
        there = self._there(table)
        newest = self._newest(table)
        return frozenset(key for key in there if key[1] < newest.get(key[0], 0) - 1)

    def ends(self, table: DemoTable) -> Mapping[TableBucket, int]:
        """See Protocol."""
        return {state.bucket: state.end for state in self._source.buckets(self._source.table(table.path))}

    def registered(self, table: DemoTable) -> Mapping[TableBucket, int]:
        """See Protocol."""
        record = self._source.lake_record(self._source.table(table.path))
        return {} if record is None else record.offsets

    def leases(self) -> int:
        """See Protocol. The server keeps a file for each table of a lease."""
        leases = self._remote / "lease" / "kv-snapshot"
        return len({file.relative_to(leases).parts[0] for file in leases.rglob("*.metadata")})

    def close(self) -> None:
        """See Protocol."""
        self._writer.close()
        self._source.close()

    def _append(self, table: DemoTable, rows: pa.Table) -> None:
        """Append rows, partition by partition: pyfluss puts a batch into one."""
        if not table.partition_keys:
            self._writer.append(str(table.path), rows)
            return
        for values in rows.select(table.partition_keys).group_by(table.partition_keys).aggregate([]).to_pylist():
            part = rows
            for name, value in values.items():
                part = part.filter(pc.equal(part[name], value))
            partition = (str(table.path), *values.values())
            if partition not in self._partitions:
                self._writer.partition(str(table.path), values)
                self._partitions.add(partition)
            self._writer.append(str(table.path), part.combine_chunks())

    def _newest(self, table: DemoTable) -> Mapping[int, int]:
        states = self._source.buckets(self._source.table(table.path))
        return {one.bucket.bucket: one.snapshot.snapshot_id for one in states if one.snapshot is not None}

    def _there(self, table: DemoTable) -> set[SnapshotKey]:
        """Return bucket and id of each snapshot in the remote directory."""
        spec = self._source.table(table.path)
        place = self._remote / "kv" / spec.path.database / f"{spec.path.table}-{spec.table_id}"
        return {(int(one.parent.name), int(one.name.removeprefix("snap-"))) for one in place.glob("*/snap-*")}
