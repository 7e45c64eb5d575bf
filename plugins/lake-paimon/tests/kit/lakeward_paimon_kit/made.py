"""Lake tables as others make them: Fluss's coordinator, with any type that Fluss has."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.model.tables import TableSpec
    from lakeward_lake_paimon.options import PaimonOptions

SYSTEM = {"__bucket": "INT", "__offset": "BIGINT", "__timestamp": "TIMESTAMP(3) WITH LOCAL TIME ZONE"}
_AT = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
TYPES: dict[str, tuple[Any, pa.DataType, object, str]] = {
    "ti": ("TINYINT", pa.int8(), -1, "-1"),
    "si": ("SMALLINT", pa.int16(), -2, "-2"),
    "bi": ("BIGINT", pa.int64(), -3, "-3"),
    "f": ("FLOAT", pa.float32(), 1.5, "1.5"),
    "d": ("DOUBLE", pa.float64(), 2.5, "2.5"),
    "b": ("BOOLEAN", pa.bool_(), True, "true"),
    "c": ("CHAR(5)", pa.string(), "abc  ", "abc  "),
    "s": ("STRING", pa.string(), "grün", "grün"),
    "bn": ("BINARY(3)", pa.binary(3), b"\x01\x02\x03", "\x01\x02\x03"),
    "byt": ("BYTES", pa.binary(), b"\x04\x05", "\x04\x05"),
    "d5": ("DECIMAL(5, 2)", pa.decimal128(5, 2), Decimal("-12.30"), "-12.30"),
    "d10": ("DECIMAL(10, 2)", pa.decimal128(10, 2), Decimal("12.34"), "12.34"),
    "d18": ("DECIMAL(18, 4)", pa.decimal128(18, 4), Decimal("-1234567.8901"), "-1234567.8901"),
    "d38": ("DECIMAL(38, 10)", pa.decimal128(38, 10), Decimal("1e20"), "100000000000000000000.0000000000"),
    "dt": ("DATE", pa.date32(), date(1969, 12, 31), "1969-12-31"),
    "tm": ("TIME(0)", pa.time32("s"), time(12, 34, 56), "12:34:56"),
    "tm6": ("TIME(3)", pa.time64("us"), time(12, 34, 56, 789123), "12:34:56.789"),
    "t0": (
        "TIMESTAMP(0)",
        pa.timestamp("s"),
        _AT.replace(tzinfo=None, year=1969, month=12, day=31, hour=23, minute=59, second=59, microsecond=0),
        "1969-12-31 23:59:59",
    ),
    "t3": ("TIMESTAMP(3)", pa.timestamp("ms"), _AT.replace(tzinfo=None, microsecond=678000), "2024-01-02 03:04:05.678"),
    "t6": ("TIMESTAMP(6)", pa.timestamp("us"), _AT.replace(tzinfo=None), "2024-01-02 03:04:05.678901"),
    "t9": ("TIMESTAMP(9)", pa.timestamp("us"), _AT.replace(tzinfo=None), "2024-01-02 03:04:05.678901000"),
    "l3": (
        "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        pa.timestamp("ms", "UTC"),
        _AT.replace(microsecond=678000),
        "2024-01-02 03:04:05.678",
    ),
    "l6": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.timestamp("us", "UTC"), _AT, "2024-01-02 03:04:05.678901"),
    "l9": ("TIMESTAMP(9) WITH LOCAL TIME ZONE", pa.timestamp("us", "UTC"), _AT, "2024-01-02 03:04:05.678901000"),
    "a": ({"type": "ARRAY", "element": "INT"}, pa.list_(pa.int32()), [1, None], "[1, null]"),
    "m": (
        {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"},
        pa.map_(pa.string(), pa.int32()),
        [("a", 1)],
        "{a -> 1}",
    ),
    "r": (
        {"type": "ROW", "fields": [{"id": 90, "name": "x", "type": "INT"}, {"id": 91, "name": "y", "type": "STRING"}]},
        pa.struct([("x", pa.int32()), ("y", pa.string())]),
        {"x": 7, "y": "z"},
        "{7, z}",
    ),
    "deep": (
        {
            "type": "ARRAY",
            "element": {
                "type": "ROW",
                "fields": [{"id": 92, "name": "q", "type": {"type": "ARRAY", "element": "DECIMAL(20, 2)"}}],
            },
        },
        pa.list_(pa.struct([("q", pa.list_(pa.decimal128(20, 2)))])),
        [{"q": [Decimal("1.25"), None]}, None],
        "[{[1.25, null]}, null]",
    ),
}
"""Of each type by a column's name: the lake's type, the source's, a value, and what Paimon casts that to as text."""


def create_as_fluss(
    options: PaimonOptions,
    table: TableSpec,
    types: Mapping[str, object],
    *,
    system: bool = True,
    more: Mapping[str, str] | None = None,
) -> Path:
    """Write the schema that Fluss's coordinator gives a lake table; return the table's folder.

    Args:
        options: the warehouse.
        table: the source's table.
        types: the lake's types by column, as JSON.
        system: whether it has the columns that Fluss gave its tables before 1.0.
        more: further options.
    """
    columns = {**types, **(SYSTEM if system else {})}
    keys = [name for name in table.primary_key if name not in table.partition_keys] or list(table.bucket_key)
    told = {"bucket": str(table.buckets), "bucket-key": ",".join(keys)} if keys else {"bucket": "-1"}
    told |= {"changelog-producer": "input"} if table.has_primary_key else {}
    schema = {
        "version": 3,
        "id": 0,
        "fields": [{"id": number, "name": name, "type": kind} for number, (name, kind) in enumerate(columns.items())],
        "highestFieldId": 100,
        "partitionKeys": list(table.partition_keys),
        "primaryKeys": list(table.primary_key),
        "options": {
            **told,
            "partition.legacy-name": "false",
            "fluss.table.datalake.enabled": "true",
            "fluss.table.datalake.format": "paimon",
            **(more or {}),
        },
        "timeMillis": 1_795_776_855_628,
    }
    folder = Path(options.warehouse) / f"{table.path.database}.db" / table.path.table
    (folder / "schema").mkdir(parents=True)
    (folder / "schema" / "schema-0").write_text(json.dumps(schema, indent=2), encoding="utf-8")
    return folder


def required(types: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    """Return types of which some columns are not nullable, as those of a key."""
    return {name: f"{kind} NOT NULL" if name in names else kind for name, kind in types.items()}
