"""Random nested tables: what is written is what `lakeward verify` reads, to the bit, and it raises no false alarm.

`LAKEWARD_FUZZ_TABLES` says how many tables are tried.
"""

from __future__ import annotations

import os
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.tables import Change, TablePath
from lakeward.observe.verify.values import cast_plain, plain_type, same_values
from lakeward.testing.lake_tables import TieringRound, head_of, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

TABLES = int(os.environ.get("LAKEWARD_FUZZ_TABLES", "20"))
DEPTH = 3
NAN = float("nan")
LEAVES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 0, 127]),
    (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.float32(), [0.0, -0.0, NAN, float("inf"), 1.5]),
    (pa.float64(), [0.0, -0.0, NAN, float("-inf"), 5e-324]),
    (pa.decimal128(38, 3), [Decimal("0.000"), Decimal("-12345678901234567890123456789012345.678")]),
    (pa.string(), ["", "null", "\u00e4\U0001f40b", "x" * 40]),
    (pa.binary(), [b"", b"\xff" * 20]),
    (pa.binary(3), [b"\0\0\0", b"abc"]),
    (pa.date32(), [-719162, 0, 2932896]),
    (pa.time32("ms"), [0, 86_399_999]),
    (pa.time64("ns"), [0, 999, 86_399_999_999_999]),
    (pa.timestamp("s"), [-1, 0, 253402300799]),
    (pa.timestamp("us", "UTC"), [-62135596800000000, -1, 0]),
    (pa.timestamp("ns"), [-1, -1_001, 0, 999, -(2**63) + 1]),
    (pa.timestamp("ns", "UTC"), [-1, 1_000, 2**63 - 1]),
]
Maker = tuple[pa.DataType, "Callable[[], Any]"]


class Shapes:
    """Random types, each with what makes its values."""

    def __init__(self, seed: int) -> None:
        """Choose by a seed."""
        self.random = random.Random(seed)  # noqa: S311 - a test's own choice

    def some(self, depth: int = 0) -> Maker:
        """Return a type and what makes its values, null among them."""
        kinds = ["leaf", "list", "row", "map"] if depth < DEPTH else ["leaf"]
        kind, make = getattr(self, f"_{self.random.choice(kinds)}")(depth)
        return kind, lambda: None if self.random.random() < 0.25 else make()

    def _leaf(self, _: int) -> Maker:
        kind, values = self.random.choice(LEAVES)
        return kind, lambda: self.random.choice(values)

    def _list(self, depth: int) -> Maker:
        kind, make = self.some(depth + 1)
        return pa.list_(kind), lambda: [make() for _ in range(self.random.randrange(3))]

    def _row(self, depth: int) -> Maker:
        fields = {name: self.some(depth + 1) for name in ("a", "b", "c.d")[: self.random.randrange(1, 4)]}
        kind = pa.struct([(name, kind) for name, (kind, _) in fields.items()])
        return kind, lambda: {name: make() for name, (_, make) in fields.items()}

    def _map(self, depth: int) -> Maker:
        kind, make = self.some(depth + 1)
        key, keys = self.random.choice([one for one in LEAVES if not pa.types.is_floating(one[0])])
        return pa.map_(key, kind), lambda: [(one, make()) for one in self.random.sample(keys, self.random.randrange(3))]


@pytest.mark.parametrize("seed", range(TABLES))
def test_a_random_nested_table_is_read_as_it_was_written(
    plugin: IcebergLakePlugin, lake: IcebergLake, seed: int
) -> None:
    shapes = Shapes(seed)
    columns = {f"c{number}": shapes.some() for number in range(shapes.random.randrange(1, 4))}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, one[0]) for name, one in columns.items())])
    table = key_table(schema, bucket_key=(), path=TablePath("shop", "orders"))
    expected: dict[int, dict[str, Any]] = {}
    for number in (1, 2):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        keys = shapes.random.sample(range(30), 15)
        rows = [{"id": key} | {name: make() for name, (_, make) in columns.items()} for key in keys]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * len(rows))])
        lake.commit(tiering.request())
        expected |= {row["id"]: row for row in rows}
    snapshot = head_of(lake).snapshot_id or 0
    assert list(lake.check_files(table.path, snapshot, None)) == []
    batches = list(lake.read_rows(table.path, snapshot))
    ids = [key for batch in batches for key in batch["id"].to_pylist()]
    assert sorted(ids) == sorted(expected)
    for name, (kind, _) in columns.items():
        plain = plain_type(batches[0].schema.field(name).type)
        found = pa.concat_arrays([cast_plain(batch[name], plain) for batch in batches])
        source = cast_plain(pa.array([expected[key][name] for key in ids], kind), plain)
        assert same_values(source, found).all(), (name, kind)
