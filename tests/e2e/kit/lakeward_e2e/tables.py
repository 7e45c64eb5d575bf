"""Tables that are filled at random but know what they hold: what the lake is compared with."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = tuple[object, ...]
_CHANGE = "change"


class TableStore(Protocol):
    """Where tables are: the embedded store, or a cluster that stands in its place."""

    def create_table(
        self,
        path: TablePath,
        schema: pa.Schema,
        *,
        primary_key: Sequence[str] = (),
        buckets: int = 1,
        freshness_s: float = 60.0,
        properties: Mapping[str, str] | None = None,
    ) -> object:
        """Create a table."""

    def load(self, path: TablePath, rows: object, change: str | None = None) -> int:
        """Append rows, or make the changes that a column names."""

    def snapshot(self, path: TablePath) -> int:
        """Take KV snapshots now."""


class LogTable:
    """An append-only table of unique ids."""

    columns = ("id", "note")

    def __init__(self, store: TableStore, name: str, buckets: int = 2, **properties: str) -> None:
        """Create it in the store, in the database `shop`."""
        self.path = TablePath("shop", name)
        self.store = store
        self._next = 0
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])
        store.create_table(self.path, schema, buckets=buckets, freshness_s=0.5, properties=_keys(properties))

    def load(self, rows: int = 500) -> None:
        """Append rows."""
        ids = range(self._next, self._next + rows)
        self._next += rows
        self.store.load(self.path, pa.table({"id": list(ids), "note": [_note(number) for number in ids]}))

    def rows(self) -> list[Row]:
        """Return what the lake must hold, sorted."""
        return sorted(((number, _note(number)) for number in range(self._next)), key=str)


class KeyTable:
    """A primary-key table with inserts, updates and deletes."""

    columns = ("id", "note", "version")

    def __init__(self, store: TableStore, name: str, buckets: int = 2, **properties: str) -> None:
        """Create it in the store, in the database `shop`."""
        self.path = TablePath("shop", name)
        self.store = store
        self._rows: dict[int, Row] = {}
        self._version = 0
        self._random = random.Random(name)  # noqa: S311 - test data
        schema = pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("note", pa.string()),
                pa.field("version", pa.int32()),
            ]
        )
        store.create_table(
            self.path, schema, primary_key=("id",), buckets=buckets, freshness_s=0.5, properties=_keys(properties)
        )

    def load(self, changes: int = 500, keys: int = 400) -> None:
        """Insert, update and delete."""
        self._version += 1
        rows: list[tuple[int, str, int, str]] = []
        for _ in range(changes):
            key = self._random.randrange(keys)
            if key in self._rows and self._random.random() < 0.3:
                del self._rows[key]
                rows.append((key, "", 0, "delete"))
            else:
                note = _note(self._random.randrange(1000))
                rows.append((key, note, self._version, "update" if key in self._rows else "insert"))
                self._rows[key] = (key, note, self._version)
        columns = list(zip(*rows, strict=True))
        data = pa.table(dict(zip([*self.columns, _CHANGE], columns, strict=True)))
        data = data.set_column(2, "version", data.column("version").cast(pa.int32()))
        self.store.load(self.path, data, _CHANGE)

    def snapshot(self) -> None:
        """Take KV snapshots now."""
        self.store.snapshot(self.path)

    def rows(self) -> list[Row]:
        """Return what the lake must hold, sorted."""
        return sorted(self._rows.values(), key=str)


AnyTable = LogTable | KeyTable


def _note(number: int) -> str:
    return f"note {number % 97}"


def _keys(properties: dict[str, str]) -> dict[str, str]:
    """Turn `kv_snapshot_num_retained` into `table.kv.snapshot.num-retained`; intervals are off unless given."""
    named = {
        "retained": "table.kv.snapshot.num-retained",
        "interval": "table.kv.snapshot.interval-s",
    }
    return {"table.kv.snapshot.interval-s": "0"} | {named[key]: text for key, text in properties.items()}
