"""A world whose source is a Fluss cluster, and whose lake's catalog the two share."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward_cluster.world import ClusterWorld
from lakeward_demo.rest_server import RestCatalogServer
from lakeward_source_fluss_kit.clusters import LakeCluster, lake_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lakeward.model.tables import TablePath
    from lakeward_e2e.tables import AnyTable

_BATCH_ROWS = 100
"""The client puts a batch into one bucket: a load in several goes to all of them."""
_DELETE = "delete"


class FlussStore:
    """See `lakeward_e2e.tables.TableStore`; tables are tiered by the cluster's queue, or left to be mirrored."""

    def __init__(self, cluster: LakeCluster, *, tiered: bool) -> None:
        """Work on a cluster.

        Args:
            cluster: a running one.
            tiered: whether tables are lake-enabled.
        """
        self._writer = cluster.writer
        self._tiered = tiered
        self._keys: dict[TablePath, tuple[str, ...]] = {}

    def create_table(
        self,
        path: TablePath,
        schema: pa.Schema,
        *,
        primary_key: Sequence[str] = (),
        buckets: int = 1,
        freshness_s: float = 60.0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a table; a server knows freshness in whole seconds, and takes snapshots by itself."""
        del properties
        lake = {"table.datalake.enabled": "true", "table.datalake.freshness": f"{max(1, round(freshness_s))}s"}
        self._keys[path] = (*primary_key,)
        settings = lake if self._tiered else {}
        self._writer.create(str(path), schema, key=primary_key, buckets=buckets, properties=settings)

    def load(self, path: TablePath, rows: object, change: str | None = None) -> int:
        """Append rows, or make the changes that a column names, in order."""
        assert isinstance(rows, pa.Table)
        if change is None:
            self._writer.append(str(path), pa.Table.from_batches(rows.to_batches(max_chunksize=_BATCH_ROWS)))
            return len(rows)
        key = self._keys[path]
        # The client wants nothing but the key of a row that is deleted.
        changes = [
            (_DELETE, {name: row[name] for name in key}) if kind == _DELETE else ("upsert", row)
            for kind, row in zip(rows[change].to_pylist(), rows.drop_columns([change]).to_pylist(), strict=True)
        ]
        self._writer.change(str(path), changes)
        return len(rows)

    def snapshot(self, path: TablePath) -> int:
        """Take none: the server does so each second."""
        del path
        return 0


class FlussWorld(ClusterWorld):
    """See `World`; what is asked of the embedded store there is asked of the Fluss cluster here."""

    def __init__(self, root: Path) -> None:
        """Start a Fluss cluster, a catalog, and a Spark master without workers.

        Raises:
            JarsMissingError: the servers' jars cannot be had here.
            JavaError: there is no Java.
        """
        self._stack = ExitStack()
        with ExitStack() as stack:
            catalog = stack.enter_context(RestCatalogServer.running(root / "warehouse"))
            self.fluss = stack.enter_context(lake_cluster(root / "fluss", catalog.uri, catalog.warehouse))
            super().__init__(root)
            self._stack = stack.pop_all()
        self.tiered, self.mirrored = FlussStore(self.fluss, tiered=True), FlussStore(self.fluss, tiered=False)

    def configure_cluster(self, service: str = "tier", slots: int = 2, **sections: Any) -> Path:  # noqa: ANN401
        """Write a configuration, see `ClusterWorld.configure_cluster`."""
        source = {"type": '"fluss-faulty"', "bootstrap": f'"{self.fluss.cluster.bootstrap}"'}
        lake = {"catalog": '"rest"', "uri": f'"{self.fluss.catalog_uri}"'}
        return super().configure_cluster(service, slots, source_keys=source, lake_keys=lake, **sections)

    def is_registered(self, table: AnyTable) -> bool:
        """Say whether the cluster knows what the lake has of a table, as it does of those that it tiers."""
        with closing(self.fluss.source()) as source:
            return source.lake_record(source.table(table.path)) is not None

    def leases_held(self) -> Sequence[object]:
        """Return the server's files of leases: it keeps one for each table of a lease."""
        leases = self.fluss.cluster.directory / "remote" / "lease" / "kv-snapshot"
        return [*leases.rglob("*.metadata")]

    def destroy(self) -> None:
        """End everything."""
        super().destroy()
        self._stack.close()
