"""Random nested types, and values of them that writers and readers easily get wrong."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

DEPTH = 3
_NULLS = 0.25
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
        return kind, lambda: None if self.random.random() < _NULLS else make()

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

    def columns(self) -> tuple[pa.Schema, Callable[[int], dict[str, Any]]]:
        """Return a table of a key `id` and some columns, and what makes the row of a key."""
        made = {f"c{number}": self.some() for number in range(self.random.randrange(1, 4))}
        schema = pa.schema(
            [pa.field("id", pa.int64(), nullable=False), *((name, one[0]) for name, one in made.items())]
        )
        return schema, lambda key: {"id": key} | {name: make() for name, (_, make) in made.items()}
