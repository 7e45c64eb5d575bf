"""A service in another time zone, with another language and without a home directory tiers the same rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath
from lakeward_e2e.world import World

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "İsim": pa.string(),
    "day": pa.date32(),
    "local": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "time": pa.time32("ms"),
    "amount": pa.decimal128(20, 3),
    "ratio": pa.float64(),
}
SCHEMA = pa.schema([pa.field(name, kind, nullable=name != "id") for name, kind in COLUMNS.items()])
FIRST = datetime(1969, 12, 31, 18, 10, tzinfo=UTC)
LAYOUT = ("day(local)", "hour(instant)", "truncate(2, İsim)", "amount")
ELSEWHERE = {
    "Kathmandu": {"TZ": "Asia/Kathmandu", "LC_ALL": "C"},
    # Java follows a locale that is not installed only if it is told so.
    "Istanbul": {
        "TZ": "America/St_Johns",
        "LC_ALL": "tr_TR.UTF-8",
        "JAVA_TOOL_OPTIONS": "-Duser.language=tr -Duser.country=TR",
    },
}


def rows() -> pa.Table:
    """Rows around the midnights of several zones, in 1970 and at a change to summer time."""
    count = 60
    instants = [FIRST + timedelta(minutes=25 * one, days=89 * (one % 2)) for one in range(count)]
    values: dict[str, list[Any]] = {
        "id": [*range(count)],
        "İsim": [("İi", "I\u0131", "ß", "TITLE", "title", None)[one % 6] for one in range(count)],
        "day": [None if one % 7 == 0 else date(1970, 1, 1) + timedelta(days=one - 30) for one in range(count)],
        "local": [one.replace(tzinfo=None) for one in instants],
        "instant": instants,
        "time": [one.time() for one in instants],
        "amount": [Decimal(one % 3 - 1).scaleb(-3) for one in range(count)],
        "ratio": [one / 7 for one in range(count)],
    }
    return pa.table(values, SCHEMA)


def tiered(place: Path, environment: dict[str, str]) -> tuple[list[Any], list[Any]]:
    """Tier a log and a partitioned table of keys; return rows, and partitions with their numbers of rows."""
    world = World(place)
    try:
        for name, key in (("log", ()), ("keyed", ("id",))):
            path = TablePath("shop", name)
            world.store.create_table(path, SCHEMA, primary_key=key, buckets=2)
            changes = rows().append_column("op", pa.array(["insert"] * len(rows())))
            world.store.load(path, changes if key else rows(), "op" if key else None)
        layout = f"lake_partition = {json.dumps(LAYOUT, ensure_ascii=False)}"
        world.start(world.configure(tables={"keyed": layout}), "--once", **environment).ended()
        return [_found(world, name) for name in ("log", "keyed")], [
            _partitions(world, name) for name in ("log", "keyed")
        ]
    finally:
        world.destroy()


def _found(world: World, name: str) -> list[dict[str, Any]]:
    table = world.warehouse.table(TablePath("shop", name))
    assert table is not None, world.processes[-1].words()
    found = table.scan(selected_fields=tuple(COLUMNS)).to_arrow().select(list(COLUMNS)).to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def _partitions(world: World, name: str) -> list[str]:
    table = world.warehouse.table(TablePath("shop", name))
    assert table is not None
    return sorted(f"{task.file.partition} {task.file.record_count}" for task in table.scan().plan_files())


def test_the_lake_has_the_same_rows_whatever_zone_language_and_home_a_service_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tiered(tmp_path / "plain", {})
    assert plain[0] == [rows().to_pylist()] * 2
    monkeypatch.delenv("HOME")
    for name, environment in ELSEWHERE.items():
        assert tiered(tmp_path / name, environment) == plain, name
