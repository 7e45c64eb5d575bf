"""Upstream's tiering service and ours take turns on Paimon tables; Flink reads lake and log of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward_paimon_kit.java import java_reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward_paimon_kit.java import JavaReader
    from lakeward_source_fluss_kit.flink import Flink
    from lakeward_source_fluss_kit.paimon import PaimonCluster

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.slow]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
DATABASE = "turns"
LOG, KEYED = f"{DATABASE}.log", f"{DATABASE}.keyed"


@pytest.fixture
def tables(paimon_cluster: PaimonCluster) -> Iterator[PaimonCluster]:
    """A log table and a primary-key table with rows; dropped afterwards."""
    paimon_cluster.writer.create(LOG, SCHEMA, buckets=2, properties=TIERED)
    paimon_cluster.writer.create(KEYED, SCHEMA, key=["id"], buckets=2, properties=TIERED)
    paimon_cluster.writer.append(LOG, rows(0, 1000))
    paimon_cluster.writer.upsert(KEYED, rows(0, 500))
    yield paimon_cluster
    for name in (LOG, KEYED):
        paimon_cluster.drop(name)


@pytest.fixture
def reader() -> Iterator[JavaReader]:
    """Paimon's own reader in Java."""
    with java_reader() as reader:
        yield reader


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": ids, "name": [f"n{number}" for number in ids]}, schema=SCHEMA)


def by_upstream(tables: PaimonCluster, flink: Flink) -> None:
    """Let upstream's service tier everything, then kill it, and give up what it had in hand."""
    flink.tier_until(lambda: tables.is_tiered(LOG, KEYED))
    tables.give_up(LOG, KEYED)


def in_lake(reader: JavaReader, tables: PaimonCluster, name: str) -> dict[str, str]:
    """Return the live rows as Paimon reads them."""
    found = reader.rows(reader.table(str(tables.warehouse), name), "id", "name")
    assert len(found) == len({key for key, _ in found})
    return dict(found)


def test_both_services_take_turns_and_flink_reads_lake_and_log_as_one_table(
    tables: PaimonCluster, paimon_flink: Flink, reader: JavaReader, tmp_path: Path
) -> None:
    writer = tables.writer
    keyed = {str(number): f"n{number}" for number in range(500)}
    for turn in range(4):
        if turn % 2:
            tables.tier(tmp_path, DATABASE)
        else:
            by_upstream(tables, paimon_flink)
        assert in_lake(reader, tables, LOG) == {str(number): f"n{number}" for number in range(1000 + turn * 10)}
        assert in_lake(reader, tables, KEYED) == keyed
        writer.append(LOG, rows(1000 + turn * 10, 10))
        writer.change(
            KEYED,
            [
                ("upsert", {"id": 3, "name": f"turn{turn}"}),
                ("delete", {"id": 10 + turn}),
                ("upsert", {"id": 900 + turn, "name": "more"}),
            ],
        )
        keyed |= {"3": f"turn{turn}", str(900 + turn): "more"}
        del keyed[str(10 + turn)]

    # The last changes are in the log alone.
    before = {name: in_lake(reader, tables, name) for name in (LOG, KEYED)}
    for name, now in ((LOG, range(1040)), (KEYED, map(int, keyed))):
        ids = list(now)
        table = name.partition(".")[2]
        assert paimon_flink.count_and_sum(DATABASE, table, "id") == (len(ids), sum(ids))
        tiered = [int(key) for key in before[name]]
        assert paimon_flink.count_and_sum(DATABASE, f"{table}$lake", "id") == (len(tiered), sum(tiered))
