"""Upstream's tiering service and ours take turns on a cluster; its Flink connector reads what either wrote."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_source_fluss.source.source import FlussSource
    from lakeward_source_fluss_kit.clusters import LakeCluster
    from lakeward_source_fluss_kit.flink import Flink

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.slow]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
_RUN_S = 200
_CONFIG = """
[source]
type = "fluss"
bootstrap = "{bootstrap}"
[lake]
type = "iceberg"
catalog = "rest"
uri = "{uri}"
warehouse = "{warehouse}"
[spark]
master = "local[2]"
ui = false
"""


class Both:
    """Two tables, and either service."""

    def __init__(self, cluster: LakeCluster, flink: Flink, source: FlussSource, place: Path, database: str) -> None:
        self.cluster = cluster
        self.flink = flink
        self.database = database
        self.log, self.keyed = TablePath(database, "log"), TablePath(database, "keyed")
        self._source = source
        self._place = place

    def append(self, start: int, count: int) -> None:
        """Append rows to the log table."""
        self.cluster.writer.append(str(self.log), rows(start, count))

    def by_upstream(self) -> None:
        """Let upstream's service tier everything, then kill it, and give up what it had in hand."""
        self.flink.tier_until(self.registered)
        self._give_up()

    def by_us(self) -> None:
        """Let our service tier everything."""
        config = self._place / "lakeward.toml"
        text = _CONFIG.format(
            bootstrap=self.cluster.cluster.bootstrap, uri=self.cluster.catalog_uri, warehouse=self.cluster.warehouse
        )
        config.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "lakeward", "run", "--once", "--no-progress", "--config", str(config)]
        done = subprocess.run(
            command, cwd=self._place, capture_output=True, encoding="utf-8", timeout=_RUN_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.registered()

    def registered(self) -> bool:
        """Say whether Fluss knows lake snapshots of both tables up to their ends."""
        for path in (self.log, self.keyed):
            table = self._source.table(path)
            record = self._source.lake_record(table)
            tiered = {} if record is None else record.offsets
            if any(tiered.get(state.bucket, 0) < state.end for state in self._source.buckets(table)):
                return False
        return True

    def in_lake(self, path: TablePath) -> dict[int, str]:
        """Return the live rows as DuckDB reads them."""
        duckdb: Any = pytest.importorskip("duckdb")
        connection = duckdb.connect()
        for extension in ("avro", "iceberg"):
            place = Path(import_module(f"duckdb_extension_{extension}").__path__[0]) / "extensions"
            connection.execute(f"LOAD '{place}/v{duckdb.__version__}/{extension}.duckdb_extension'")
        location = self.cluster.catalog.load_table(str(path)).metadata_location
        found = connection.execute(f"SELECT id, name FROM iceberg_scan('{location}')").fetchall()  # noqa: S608 - a test's own text
        assert len(found) == len({number for number, _ in found})
        return dict(found)

    def ask(self, table: str) -> tuple[int, int] | str:
        """Ask Flink for the number of rows and the sum of their ids."""
        return self.flink.count_and_sum(self.database, table, "id")

    def _give_up(self) -> None:
        """Do what the server does by itself after two minutes of silence: whoever asks next is given the table."""
        for path in (self.log, self.keyed):
            table_id = self._source.table(path).table_id
            for epoch in range(1, 60):  # whichever it is: the others are refused, without effect
                self._source.heartbeat(HeartbeatRequest(failed=(TableEpoch(table_id, epoch, 0),)))


def rows(start: int, count: int) -> pa.Table:
    """Return rows with these ids."""
    ids = range(start, start + count)
    return pa.table({"id": ids, "name": [f"n{number}" for number in ids]}, schema=SCHEMA)


def summed(ids: range) -> tuple[int, int]:
    """Return what Flink is to say of these ids."""
    return len(ids), sum(ids)


@pytest.fixture
def both(lake_cluster: LakeCluster, flink: Flink, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    """Two lake-enabled tables with rows; dropped afterwards."""
    database = f"interop{abs(hash(request.node.name)) % 1000}"
    source = lake_cluster.source()
    both = Both(lake_cluster, flink, source, tmp_path, database)
    lake_cluster.writer.create(str(both.log), SCHEMA, buckets=2, properties=TIERED)
    lake_cluster.writer.create(str(both.keyed), SCHEMA, key=["id"], buckets=2, properties=TIERED)
    both.append(0, 1000)
    lake_cluster.writer.upsert(str(both.keyed), rows(0, 500))
    yield both
    for path in (both.log, both.keyed):
        lake_cluster.drop(str(path))
    source.close()


def test_both_services_take_turns_on_the_same_offsets(both: Both) -> None:
    both.by_upstream()
    expected = {number: f"n{number}" for number in range(500)}

    both.append(1000, 10)
    changes: list[tuple[str, dict[str, object]]]
    changes = [("upsert", {"id": 3, "name": "three"}), ("delete", {"id": 4}), ("upsert", {"id": 900, "name": "more"})]
    both.cluster.writer.change(str(both.keyed), changes)
    both.by_us()
    expected |= {3: "three", 900: "more"}
    del expected[4]
    assert both.in_lake(both.log) == {number: f"n{number}" for number in range(1010)}
    assert both.in_lake(both.keyed) == expected

    both.append(1010, 10)
    both.cluster.writer.change(str(both.keyed), [("delete", {"id": 900}), ("upsert", {"id": 3, "name": "again"})])
    both.by_upstream()
    expected[3] = "again"
    del expected[900]
    assert both.in_lake(both.log) == {number: f"n{number}" for number in range(1020)}
    assert both.in_lake(both.keyed) == expected

    both.append(1020, 10)
    both.cluster.writer.change(str(both.keyed), [("upsert", {"id": 3, "name": "ours"}), ("delete", {"id": 5})])
    both.by_us()
    expected[3] = "ours"
    del expected[5]
    assert both.in_lake(both.log) == {number: f"n{number}" for number in range(1030)}
    assert both.in_lake(both.keyed) == expected


def test_flink_reads_lake_and_log_of_tables_that_we_tiered(both: Both) -> None:
    both.by_us()
    both.append(1000, 10)  # in the log alone

    assert both.ask("log$lake") == summed(range(1000))
    assert both.ask("keyed$lake") == summed(range(500))
    assert both.ask("log") == summed(range(1010))
