"""Tables as Fluss's coordinator makes and changes them: legacy and clean, new columns, other bucket counts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.table import Table
from lakeward_lake_paimon.table_schema import new_schema
from lakeward_paimon_kit.made import SYSTEM, create_as_fluss, required
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

    ReadTable = Callable[[TablePath], pa.Table]

TYPES = {"id": "BIGINT", "name": "STRING"}
DAILY = COLUMNS.append(pa.field("day", pa.string(), nullable=False))


def tier(plugin: PaimonLakePlugin, lake: Lake, table: TableSpec, number: int, ids: list[int], *, day: str = "") -> None:
    """Write rows of bucket 0, and commit them."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    rows = [{"id": one, "name": f"n{one}", "note": "new", "day": day} for one in ids]
    split = log_split(table, 0, (day,) if day else ())
    tiering.write(split, [source_batch(table.schema, rows, changes=[1] * len(rows))])
    assert lake.commit(tiering.request(source_path="/offsets")) is CommitOutcome.LANDED


def alter(folder: Path, number: int, **changes: object) -> None:
    """Write the next schema, as the coordinator does: `fields`, or `options` to add."""
    stored = json.loads((folder / "schema" / f"schema-{number - 1}").read_bytes())
    stored |= {"id": number, "fields": changes.get("fields", stored["fields"])}
    more = changes.get("options", {})
    assert isinstance(more, dict)
    stored["options"] |= more
    (folder / "schema" / f"schema-{number}").write_text(json.dumps(stored), encoding="utf-8")


@pytest.mark.parametrize("system", [True, False], ids=["legacy", "clean"])
def test_a_column_that_the_coordinator_adds_is_written_and_old_rows_have_null(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable, *, system: bool
) -> None:
    folder = create_as_fluss(options, log_table(), TYPES, system=system)
    tier(plugin, lake, log_table(), 1, [1])
    fields = json.loads((folder / "schema" / "schema-0").read_bytes())["fields"]
    place = len(fields) - len(SYSTEM) if system else len(fields)
    alter(folder, 1, fields=[*fields[:place], {"id": 101, "name": "note", "type": "STRING"}, *fields[place:]])
    tier(plugin, lake, log_table(), 2, [2])  # Fluss's row has fewer columns yet
    tier(plugin, lake, log_table(COLUMNS.append(pa.field("note", pa.string()))), 3, [3])
    found = read_table(PATH).sort_by("id")
    assert found["note"].to_pylist() == [None, None, "new"]
    assert found.column_names[:3] == ["id", "name", "note"]
    assert len(list((folder / "schema").iterdir())) == 2


@pytest.mark.parametrize("system", [True, False], ids=["legacy", "clean"])
def test_a_column_that_the_lake_lacks_is_added_where_the_coordinator_adds_it(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable, *, system: bool
) -> None:
    folder = create_as_fluss(options, log_table(), TYPES, system=system)
    tier(plugin, lake, log_table(), 1, [1])
    nested = pa.field("note", pa.string()), pa.field("deep", pa.struct([("x", pa.int32())]))
    wider = pa.schema([*COLUMNS, *nested])
    tier(plugin, lake, log_table(wider), 2, [2])
    stored = json.loads((folder / "schema" / "schema-1").read_bytes())
    names = [field["name"] for field in stored["fields"]]
    assert names == ["id", "name", "note", "deep", *(SYSTEM if system else ())]
    assert [field["id"] for field in stored["fields"] if field["name"] in {"note", "deep"}] == [101, 102]
    assert stored["highestFieldId"] == 103
    assert read_table(PATH).sort_by("id")["note"].to_pylist() == [None, "new"]


def test_a_partition_keeps_its_count_of_buckets_when_the_table_gets_another(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable
) -> None:
    table = key_table(DAILY, primary_key=("id", "day"), partition_keys=("day",))
    folder = create_as_fluss(options, table, required({**TYPES, "day": "STRING"}, ["id", "day"]))
    tier(plugin, lake, table, 1, [1], day="mon")
    alter(folder, 1, options={"bucket": "4"})
    wider = key_table(DAILY, primary_key=("id", "day"), partition_keys=("day",), buckets=4)
    wider = replace(wider, bucket_counts=((("mon",), 2), (("wed",), 2)))
    tier(plugin, lake, wider, 2, [2], day="mon")
    tier(plugin, lake, wider, 3, [3], day="tue")
    tier(plugin, lake, wider, 4, [4], day="wed")  # made before the change, and never tiered
    found = Table.load(LocalStorage(), str(folder), PATH)
    assert found is not None
    totals = {(one.partition[-8:-5], one.total_buckets) for one in found.manifests.live(found.latest).values()}
    assert totals == {(b"mon", 2), (b"tue", 4), (b"wed", 2)}
    assert sorted(read_table(PATH)["id"].to_pylist()) == [1, 2, 3, 4]
    made_anew = replace(wider, bucket_counts=())
    with pytest.raises(SchemaMismatchError, match=r"partition day=mon: expected 2 buckets, as its files have, found 4"):
        tier(plugin, lake, made_anew, 5, [5], day="mon")


def test_a_table_is_made_as_the_coordinator_makes_it(options: PaimonOptions) -> None:
    properties = {"table.datalake.enabled": "true", "table.datalake.format": "paimon", "paimon.bucket": "9"}
    for table in (
        log_table(properties=properties),
        log_table(bucket_key=("id",), properties=properties),
        key_table(properties=properties),
        key_table(DAILY, primary_key=("id", "day"), partition_keys=("day",), properties=properties),
    ):
        folder = create_as_fluss(options, table, _types(table))
        wanted = json.loads((folder / "schema" / "schema-0").read_bytes())
        made = json.loads(new_schema(table, system_columns=True, time_ms=0).to_bytes())
        for key in ("version", "fields", "partitionKeys", "primaryKeys", "options"):
            assert made[key] == wanted[key]
        (folder / "schema" / "schema-0").unlink()
        (folder / "schema").rmdir()


@pytest.mark.parametrize("said", ["true", "TRUE"])
def test_a_table_with_deletion_vectors_is_refused_with_what_to_do(
    lake: Lake, options: PaimonOptions, said: str
) -> None:
    create_as_fluss(options, key_table(), required(TYPES, ["id"]), more={"deletion-vectors.enabled": said})
    words = (
        rf"expected the table option deletion-vectors\.enabled = false, found {said}\. "
        r'Make the table anew without that option, or leave it to .* tables\."shop\.orders"\.include = false'
    )
    with pytest.raises(SchemaMismatchError, match=words):
        lake.open_table(key_table(), incarnation())


def test_a_table_that_has_lost_a_system_column_is_refused(lake: Lake, options: PaimonOptions) -> None:
    create_as_fluss(options, log_table(), {**TYPES, "__bucket": "INT"}, system=False)
    with pytest.raises(SchemaMismatchError, match="found no __offset, __timestamp"):
        lake.open_table(log_table(), incarnation())


def _types(table: TableSpec) -> dict[str, object]:
    types = {field.name: "BIGINT" if field.name == "id" else "STRING" for field in table.schema}
    return required(types, [field.name for field in table.schema if not field.nullable])
