"""A column of a mirror gets a wider type with the source's; rows of before are read with it, and are not rewritten."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import SchemaMismatchError
from lakeward.model.partitioning import PartitionField
from lakeward.ports import FileCheckedLake, ReadableLake
from lakeward_paimon_kit.upkeep import compact
from lakeward_paimon_kit.wider import KINDS, NARROW, NEW, OLD, WIDE, spec, tier, widened
from lakeward_testing.lake_tables import COLUMNS, PATH, head_of, incarnation, key_table, log_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.reader import PythonReader

    ReadTable = Callable[[TablePath], pa.Table]

both = pytest.mark.parametrize("key", [False, True], ids=["log", "key"])


def schemas(options: PaimonOptions) -> list[dict[str, tuple[int, str]]]:
    """Return id and type of each column in each schema."""
    folder = Path(options.warehouse) / "shop.db" / "orders" / "schema"
    stored = [json.loads((folder / f"schema-{number}").read_bytes()) for number in range(len(list(folder.iterdir())))]
    return [{one["name"]: (one["id"], one["type"]) for one in schema["fields"]} for schema in stored]


def verified(lake: Lake) -> list[dict[str, object]]:
    """Return the rows as `lakeward verify` reads them; nothing is said wrongly of any file."""
    assert isinstance(lake, ReadableLake)
    assert isinstance(lake, FileCheckedLake)
    snapshot = head_of(lake).snapshot_id or 0
    assert list(lake.check_files(PATH, snapshot, None)) == []
    batches = lake.read_rows(PATH, snapshot)
    return sorted((row for one in batches for row in one.to_pylist()), key=lambda row: row["id"])


@both
def test_rows_of_before_and_after_are_read_in_the_wider_types(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable, *, key: bool
) -> None:
    rows = widened(plugin, lake, key=key)

    first, second = schemas(options)
    assert [second[name][1].removesuffix(" NOT NULL") for name in WIDE.names] == list(KINDS)
    assert [number for number, _ in first.values()] == [number for number, _ in second.values()]
    assert read_table(PATH).sort_by("id").to_pylist() == rows
    assert verified(lake) == rows


@pytest.mark.parametrize("name", ["whole", "real", "price"])
@both
def test_a_filter_finds_rows_of_files_from_before(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, python_reader: PythonReader, name: str, *, key: bool
) -> None:
    widened(plugin, lake, key=key)

    for value, ids in ((OLD[name], {1} if key else {1, 2}), (NEW[name], {2, 4} if key else {4})):
        found, _ = python_reader.scan(options.warehouse, str(PATH), ("equal", name, value))
        assert {row["id"] for row in found.to_pylist() if row[name] == value} == ids


def test_files_of_before_are_merged_with_those_of_after(
    plugin: PaimonLakePlugin, lake: Lake, read_table: ReadTable
) -> None:
    rows = widened(plugin, lake, key=True)

    assert compact(plugin, lake) == 1

    assert read_table(PATH).sort_by("id").to_pylist() == rows
    assert verified(lake) == rows


@both
def test_columns_that_are_added_renamed_and_widened_at_once_are_followed(
    plugin: PaimonLakePlugin, lake: Lake, read_table: ReadTable, *, key: bool
) -> None:
    tier(plugin, lake, spec(NARROW, key=key), 1, [{"id": 1, **OLD}])
    wider = pa.schema([*WIDE, ("more", pa.string())])

    tier(plugin, lake, spec(wider, key=key), 2, [{"id": 2, **NEW, "more": "m"}])

    expected = [{"id": 1, **OLD, "more": None}, {"id": 2, **NEW, "more": "m"}]
    assert read_table(PATH).sort_by("id").to_pylist() == expected


def in_key() -> list[tuple[TableSpec, TableSpec]]:
    narrow = pa.schema([pa.field("id", pa.int32(), nullable=False), *list(COLUMNS)[1:]])
    wide = narrow.set(0, pa.field("id", pa.int64(), nullable=False))
    own = (PartitionField.parse("truncate(10, id)"),)
    return [
        (key_table(narrow), key_table(wide)),
        (log_table(narrow, bucket_key=("id",)), log_table(wide, bucket_key=("id",))),
        (log_table(narrow, partition_keys=("id",)), log_table(wide, partition_keys=("id",))),
        (log_table(narrow, lake_partition=own), log_table(wide, lake_partition=own)),
    ]


@pytest.mark.parametrize(("narrow", "wide"), in_key(), ids=["key", "bucket key", "partition key", "lake_partition"])
def test_a_key_keeps_its_type_and_the_table_is_refused_with_what_to_do(
    lake: Lake, options: PaimonOptions, narrow: TableSpec, wide: TableSpec
) -> None:
    lake.open_table(narrow, incarnation())

    expected = r"column 'id': type BIGINT.*, found INT.* in a key or a partitioning, .* `lakeward tables accept`"
    with pytest.raises(SchemaMismatchError, match=expected):
        lake.open_table(wide, incarnation())
    assert len(schemas(options)) == 1


@pytest.mark.parametrize(
    "changes", [{"union_read": True}, {"may_widen": False}], ids=["the server's to alter", "types are frozen"]
)
def test_types_stay_where_they_are_not_for_us_to_change(
    lake: Lake, options: PaimonOptions, changes: dict[str, bool]
) -> None:
    lake.open_table(replace(spec(NARROW, key=False), **changes), incarnation())

    with pytest.raises(SchemaMismatchError, match="column 'tiny': type SMALLINT, found TINYINT"):
        lake.open_table(replace(spec(WIDE, key=False), **changes), incarnation())
    assert len(schemas(options)) == 1


@pytest.mark.parametrize(
    ("narrow", "other"),
    [
        (pa.int64(), pa.int32()),
        (pa.int32(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 3)),
        (pa.int32(), pa.string()),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
    ],
)
def test_a_type_that_is_another_one_or_narrower_or_inside_of_another_is_not_followed(
    lake: Lake, options: PaimonOptions, narrow: pa.DataType, other: pa.DataType
) -> None:
    lake.open_table(log_table(COLUMNS.append(pa.field("v", narrow))), incarnation())

    if (narrow, other) == (pa.int64(), pa.int32()):
        lake.open_table(log_table(COLUMNS.append(pa.field("v", other))), incarnation())
    else:
        with pytest.raises(SchemaMismatchError, match="column 'v': type"):
            lake.open_table(log_table(COLUMNS.append(pa.field("v", other))), incarnation())
    assert len(schemas(options)) == 1


def test_rows_of_a_round_that_had_begun_before_are_read_in_the_wider_type(
    plugin: PaimonLakePlugin, lake: Lake, read_table: ReadTable
) -> None:
    tier(plugin, lake, spec(WIDE, key=True), 1, [{"id": 1, **NEW}])

    tier(plugin, lake, spec(NARROW, key=True), 2, [{"id": 2, **OLD}])

    assert read_table(PATH).sort_by("id").to_pylist() == [{"id": 1, **NEW}, {"id": 2, **OLD}]
