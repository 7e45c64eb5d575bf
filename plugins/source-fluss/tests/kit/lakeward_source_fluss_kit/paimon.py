"""A cluster whose lake is Paimon in a directory, for the length of a `with` block."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.clock import SystemClock
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, TableEpoch
from lakeward_demo.fluss.cluster import ClusterPlan, FlussCluster
from lakeward_demo.fluss.writer import FlussWriter
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss.source.plugin import FlussSourcePlugin
from lakeward_source_fluss.source.source import FlussSource
from lakeward_source_fluss_kit.clusters import SETTINGS

_CONFIG = """
[source]
type = "fluss"
bootstrap = "{bootstrap}"
[lake]
type = "paimon"
warehouse = "{warehouse}"
[spark]
master = "local[2]"
ui = false
[tables."*.*"]
include = false
[tables."{database}.*"]
include = true
"""


@dataclass(frozen=True, slots=True)
class PaimonCluster:
    """A running cluster, its warehouse, and somebody who writes."""

    cluster: FlussCluster
    writer: FlussWriter
    warehouse: Path
    options: FlussOptions = field(repr=False)

    @contextmanager
    def source(self) -> Iterator[FlussSource]:
        """Open the source for the length of a `with` block."""
        source = FlussSourcePlugin().open(self.options, SystemClock())
        if not isinstance(source, FlussSource):
            raise TypeError(type(source))
        try:
            yield source
        finally:
            source.close()

    def is_tiered(self, *names: str) -> bool:
        """Return whether Fluss has lake snapshots of these tables up to the ends of their logs."""
        with self.source() as source:
            for name in names:
                table = source.table(TablePath.parse(name))
                record = source.lake_record(table)
                tiered = {} if record is None else record.offsets
                if any(tiered.get(state.bucket, 0) < state.end for state in source.buckets(table)):
                    return False
        return True

    def service(self, place: Path, database: str) -> list[str]:
        """Return the command that tiers one database once; its configuration is written into a directory."""
        config = place / "lakeward.toml"
        text = _CONFIG.format(bootstrap=self.cluster.bootstrap, warehouse=self.warehouse, database=database)
        config.write_text(text, encoding="utf-8")
        return [sys.executable, "-m", "lakeward", "run", "--once", "--no-progress", "--config", str(config)]

    def tier(self, place: Path, database: str, limit_s: float = 200.0) -> None:
        """Tier one database once, by our service."""
        done = subprocess.run(
            self.service(place, database),
            cwd=place,
            capture_output=True,
            encoding="utf-8",
            timeout=limit_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def give_up(self, *names: str) -> None:
        """Do what the server does by itself after two minutes of silence: whoever asks next is given the tables."""
        with self.source() as source:
            for name in names:
                table_id = source.table(TablePath.parse(name)).table_id
                for epoch in range(1, 60):  # whichever it is: the others are refused, without effect
                    source.heartbeat(HeartbeatRequest(failed=(TableEpoch(table_id, epoch, 0),)))

    def drop(self, name: str) -> None:
        """Drop a table, and its lake table, which keeps a new one of that name from being made."""
        self.writer.drop(name)
        database, _, table = name.partition(".")
        shutil.rmtree(self.warehouse / f"{database}.db" / table, ignore_errors=True)


@contextmanager
def paimon_cluster(directory: Path, warehouse: Path) -> Iterator[PaimonCluster]:
    """Start a cluster; the warehouse is made if it is not there."""
    warehouse.mkdir(parents=True, exist_ok=True)
    lake = {
        "datalake.format": "paimon",
        "datalake.paimon.metastore": "filesystem",
        "datalake.paimon.warehouse": str(warehouse),
    }
    with FlussCluster.running(directory, ClusterPlan(lake=lake, settings=SETTINGS)) as cluster:
        writer = FlussWriter(cluster.bootstrap, restart_coordinator=cluster.restart_coordinator)
        try:
            yield PaimonCluster(cluster, writer, warehouse, FlussOptions(bootstrap=cluster.bootstrap))
        finally:
            writer.close()
