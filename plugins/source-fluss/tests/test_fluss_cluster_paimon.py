"""Values on a cluster whose lake is Paimon: pyfluss writes, the service tiers, Paimon's Java reader reads."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_paimon_kit.java import JavaReader
    from lakeward_source_fluss_kit.paimon import PaimonCluster

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.slow]
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
DATABASE = "paimon"
TYPES, KEYED_TYPES = f"{DATABASE}.types", f"{DATABASE}.keyed_types"
WHOLE = datetime(2024, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - a timestamp without time zone
COLUMNS: dict[str, tuple[pa.DataType, object]] = {
    "tiny": (pa.int8(), -1),
    "small": (pa.int16(), -2),
    "i": (pa.int32(), -3),
    "f": (pa.float32(), 1.5),
    "d": (pa.float64(), -2.5),
    "b": (pa.bool_(), True),
    "text": (pa.string(), "Zürich"),
    "raw": (pa.binary(), b"\x00\xff"),
    "dec": (pa.decimal128(10, 2), Decimal("-12.34")),
    "wide": (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
    "day": (pa.date32(), date(1969, 12, 31)),
    "at": (pa.time32("s"), time(12, 34, 56)),
    "ts": (pa.timestamp("us"), WHOLE),
    "ltz": (pa.timestamp("us", tz="UTC"), WHOLE.replace(tzinfo=UTC)),
}
"""Every type that pyfluss writes, with a value."""


def in_lake(reader: JavaReader, cluster: PaimonCluster, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return all live rows as Paimon shows them, in order."""
    return sorted(reader.rows(reader.table(str(cluster.warehouse), name), *columns))


def test_every_type_that_a_client_writes_is_the_same_value_in_paimon(
    paimon_cluster: PaimonCluster, paimon_reader: JavaReader, tmp_path: Path
) -> None:
    fields = [pa.field(name, kind) for name, (kind, _) in COLUMNS.items()]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *fields])
    values = {name: [value, None] for name, (_, value) in COLUMNS.items()}
    table = pa.table({"id": [1, 2], **values}, schema=schema)
    paimon_cluster.writer.create(TYPES, schema, properties=TIERED)
    paimon_cluster.writer.create(KEYED_TYPES, schema, key=["id"], properties=TIERED)
    paimon_cluster.writer.append(TYPES, table)
    paimon_cluster.writer.upsert(KEYED_TYPES, table)
    try:
        paimon_cluster.tier(tmp_path, DATABASE)
        for name in (TYPES, KEYED_TYPES):
            full, empty = in_lake(paimon_reader, paimon_cluster, name, "id", *COLUMNS)
            assert full[1:7] == ("-1", "-2", "-3", "1.5", "-2.5", "true")
            assert full[7] == "Zürich"
            assert full[9:12] == ("-12.34", "1234567890123456789012345678.0123456789", "1969-12-31")
            assert full[12].startswith("12:34:56")
            assert full[13:] == ("2024-01-02 03:04:05.678901",) * 2
            assert empty == ("2", *(None,) * len(COLUMNS))
            done = subprocess.run(
                [sys.executable, "-m", "lakeward", "verify", name, "-o", "json"],
                cwd=tmp_path,
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert json.loads(done.stdout)["equal"] is True
    finally:
        for name in (TYPES, KEYED_TYPES):
            paimon_cluster.drop(name)
