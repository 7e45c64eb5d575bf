"""The two tables of a run: what is loaded into them, and what the lake must hold at the end."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from lakeward_rescale.scenario import Scenario
    from lakeward_source_embedded.store import EmbeddedStore

Row = tuple[object, ...]
_LAYOUTS = {"events": ("day(moment)", "bucket(4, id)"), "orders": ("region",)}
_REGIONS = 11
_BEGIN = datetime(2026, 3, 1)  # noqa: DTZ001 - a column without a time zone


class SourceTable:
    """A table in the store, with the rows that the lake must hold in `expected`."""

    def __init__(self, path: TablePath, columns: tuple[str, ...], expected: list[Row]) -> None:
        """Keep what `fill` has made. `columns` are those of a row that is compared."""
        self.path = path
        self.columns = columns
        self._expected = expected

    def rows(self) -> list[Row]:
        """Return what the lake must hold."""
        return self._expected


Tables = tuple[SourceTable, SourceTable]


def rules(scenario: Scenario, path: TablePath) -> TableSettings:
    """Return the rules of a table: how the lake table is partitioned."""
    return TableSettings(mode="mirror", lake_partition=_LAYOUTS[path.table], commit_every=scenario.commit_every_s)


def fill(store: EmbeddedStore, scenario: Scenario) -> Tables:
    """Make both tables with all their rows."""
    draw = random.Random(scenario.seed)  # noqa: S311 - test data
    return _events(store, scenario), _orders(store, scenario, draw)


def _events(store: EmbeddedStore, scenario: Scenario) -> SourceTable:
    """Make the append-only one: unique ids, spread over a few days."""
    path, ids = TablePath("t", "events"), range(scenario.rows)
    at = [_BEGIN + timedelta(seconds=number * 97 % 432_000) for number in ids]
    notes = [f"note {number % 977}" for number in ids]
    columns = {"id": pa.array(ids, pa.int64()), "moment": pa.array(at, pa.timestamp("us")), "note": notes}
    rows = pa.table(columns)
    store.create_table(path, rows.schema, buckets=scenario.buckets, freshness_s=0.2)
    step = scenario.rows // 3 + 1
    for start in range(0, scenario.rows, step):
        store.load(path, rows.slice(start, step))
    return SourceTable(path, ("id", "moment", "note"), list(zip(ids, at, notes, strict=True)))


def _orders(store: EmbeddedStore, scenario: Scenario, draw: random.Random) -> SourceTable:
    """Make the one with keys: each change of a key has a version of its own."""
    path = TablePath("t", "orders")
    schema = pa.schema(
        [
            pa.field("region", pa.string(), nullable=False),
            pa.field("id", pa.int64(), nullable=False),
            pa.field("note", pa.string()),
            pa.field("version", pa.int64()),
        ]
    )
    # A snapshot is taken when the tables are filled half; without one, all changes are read.
    properties = {"table.kv.snapshot.interval-s": "0"}
    store.create_table(path, schema, ("region", "id"), buckets=scenario.buckets, freshness_s=0.2, properties=properties)
    live: dict[int, Row] = {}
    changes: list[tuple[str, int, str, int, str]] = []
    keys = scenario.rows // 3
    for version in range(scenario.rows // 2):  # an update is two records: so both tables have about as many
        key = draw.randrange(keys)
        region = f"r{key * 7 % _REGIONS}"
        if key in live and draw.random() < 0.2:
            del live[key]
            changes.append((region, key, "", version, "delete"))
            continue
        changes.append((region, key, f"note {version % 977}", version, "update" if key in live else "insert"))
        live[key] = changes[-1][:4]
    columns = [*schema.names, "change"]
    steps = 3
    for number in range(steps):
        part = changes[len(changes) * number // steps : len(changes) * (number + 1) // steps]
        data = dict(zip(columns, zip(*part, strict=True), strict=True))
        table = pa.table({name: pa.array(values) for name, values in data.items()})
        store.load(path, table, "change")
        if scenario.snapshots and number == 1:
            store.snapshot(path)
    return SourceTable(path, tuple(schema.names), list(live.values()))
