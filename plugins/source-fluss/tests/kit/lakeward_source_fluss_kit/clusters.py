"""A cluster whose lake is Iceberg, and the lake's catalog, for the length of a `with` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakeward.clock import SystemClock
from lakeward_demo.fluss.cluster import ClusterPlan, FlussCluster
from lakeward_demo.fluss.writer import FlussWriter
from lakeward_source_fluss.source.connect import connect
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.plugin import FlussSourcePlugin
from lakeward_source_fluss.source.source import FlussSource

SETTINGS = {
    "kv.snapshot.interval": "1s",
    "log.segment.file-size": "1mb",
    "remote.log.task-interval-duration": "1s",
    # A tablet server that is killed before this forgets that records were acknowledged: they stay invisible for ever.
    "log.replica.high-watermark.checkpoint-interval": "200ms",
    # A coordinator that is killed is waited for so long by the next one. On a busy machine servers lose shorter ones.
    "zookeeper.client.session-timeout": "12s",
}


@dataclass(frozen=True, slots=True)
class LakeCluster:
    """A running cluster, its lake, and somebody who writes."""

    cluster: FlussCluster
    writer: FlussWriter
    catalog: Catalog
    catalog_uri: str
    warehouse: str
    options: FlussOptions = field(repr=False)

    def source(self) -> FlussSource:
        """Open the source; close it."""
        source = FlussSourcePlugin().open(self.options, SystemClock())
        if not isinstance(source, FlussSource):
            raise TypeError(type(source))
        return source

    def client(self) -> object:
        """Open a plain client; close it."""
        return connect(self.options)

    def take_system_columns_away(self, name: str) -> None:
        """Make the lake table anew, which the coordinator has just made, as the one of Fluss 1.0 does."""
        made = self.catalog.load_table(name)
        columns = [field for field in made.schema().fields if not field.name.startswith("__")]
        ids = {field.field_id for field in columns}
        spec = PartitionSpec(*(field for field in made.spec().fields if field.source_id in ids))
        schema = Schema(*columns, identifier_field_ids=made.schema().identifier_field_ids)
        self.catalog.drop_table(name)
        self.catalog.create_table(name, schema, partition_spec=spec, properties=made.properties)

    def drop(self, name: str) -> None:
        """Drop a table, and its lake table, which keeps a new one of that name from being made."""
        self.writer.drop(name)
        try:
            self.catalog.drop_table(name)
        except NoSuchTableError:
            return


@contextmanager
def lake_cluster(directory: Path, catalog_uri: str, warehouse: str) -> Iterator[LakeCluster]:
    """Start a cluster on a catalog that is already served."""
    lake = {
        "datalake.format": "iceberg",
        "datalake.iceberg.type": "rest",
        "datalake.iceberg.uri": catalog_uri,
        "datalake.iceberg.warehouse": warehouse,
    }
    with FlussCluster.running(directory, ClusterPlan(lake=lake, settings=SETTINGS)) as cluster:
        writer = FlussWriter(cluster.bootstrap, restart_coordinator=cluster.restart_coordinator)
        catalog = load_catalog("tests", type="rest", uri=catalog_uri)
        try:
            yield LakeCluster(
                cluster, writer, catalog, catalog_uri, warehouse, FlussOptions(bootstrap=cluster.bootstrap)
            )
        finally:
            writer.close()
            catalog.close()
