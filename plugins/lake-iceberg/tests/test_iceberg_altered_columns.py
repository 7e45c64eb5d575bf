"""A column of the source that somebody else renames or drops in the lake table: no row may land without its value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.table.update import AssertTableUUID, RemoveSchemasUpdate
from pyiceberg.types import StringType

from lakeward.errors import SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward_iceberg_kit.partitioned import EVENTS, World, layout
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

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

    Tier = Callable[..., TieringRound]

RENAMED = (
    r"^shop\.orders: the lake table does not fit: expected column 'name', found field 2 renamed to 'label' by somebody "
    r"else\. Rename 'label' back to 'name' \(in Spark: ALTER TABLE shop\.orders RENAME COLUMN `label` TO `name`\), or "
    r"add a nullable column 'name' of type string for the new rows \(in Spark: ALTER TABLE shop\.orders ADD COLUMN "
    r"`name` string\); those of before then stay in 'label'$"
)
DROPPED = (
    r"^shop\.orders: the lake table does not fit: expected column 'name', found field 2 dropped by somebody else\. "
    r"Add a nullable column 'name' of type string for the new rows \(in Spark: ALTER TABLE shop\.orders ADD COLUMN "
    r"`name` string\)$"
)


@pytest.fixture
def tier(plugin: IcebergLakePlugin, lake: Lake) -> Tier:
    """Commits one round with one row whose id is the round's number."""

    def run(number: int, table: TableSpec | None = None) -> TieringRound:
        tiering = TieringRound(plugin, lake, table or log_table(), incarnation(), number)
        write(tiering)
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
        return tiering

    return run


def write(tiering: TieringRound) -> None:
    """Write one row."""
    number = tiering.number
    batch = source_batch(COLUMNS, [{"id": number, "name": f"n{number}"}], start=number)
    tiering.write(log_split(tiering.table), [batch])


def rename(catalog: SqlCatalog, old: str, new: str) -> None:
    with catalog.load_table("shop.orders").update_schema() as update:
        update.rename_column(old, new)


def drop(catalog: SqlCatalog, name: str) -> None:
    with catalog.load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(name)


def add(catalog: SqlCatalog, name: str) -> None:
    with catalog.load_table("shop.orders").update_schema() as update:
        update.add_column(name, StringType())


def forget_earlier_schemas(catalog: SqlCatalog) -> None:
    """As an expiry that cleans the metadata does."""
    table = catalog.load_table("shop.orders")
    now = table.metadata.current_schema_id
    ids = [schema.schema_id for schema in table.metadata.schemas if schema.schema_id != now]
    update = RemoveSchemasUpdate.model_validate({"schema-ids": ids})
    catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_a_renamed_column_is_refused_and_the_lake_table_stays_as_it_was(
    lake: Lake, tier: Tier, catalog: SqlCatalog, *, keyed: bool
) -> None:
    table = (key_table if keyed else log_table)()
    tier(1, table)
    rename(catalog, "name", "label")
    before = catalog.load_table("shop.orders").metadata
    with pytest.raises(SchemaMismatchError, match=RENAMED):
        lake.open_table(table, incarnation())
    assert catalog.load_table("shop.orders").metadata == before


def test_a_dropped_column_is_refused_and_the_lake_table_stays_as_it_was(
    lake: Lake, tier: Tier, catalog: SqlCatalog
) -> None:
    tier(1)
    drop(catalog, "name")
    before = catalog.load_table("shop.orders").metadata
    with pytest.raises(SchemaMismatchError, match=DROPPED):
        lake.open_table(log_table(), incarnation())
    assert catalog.load_table("shop.orders").metadata == before


def test_a_column_that_is_dropped_and_added_with_another_name_is_refused(
    lake: Lake, tier: Tier, catalog: SqlCatalog
) -> None:
    tier(1)
    drop(catalog, "name")
    add(catalog, "label")
    with pytest.raises(SchemaMismatchError, match=DROPPED):
        lake.open_table(log_table(), incarnation())


@pytest.mark.parametrize(
    "alter", [lambda catalog: rename(catalog, "name", "label"), lambda catalog: drop(catalog, "name")]
)
@pytest.mark.parametrize("forgets", [False, True], ids=["schemas kept", "schemas removed"])
def test_a_column_that_goes_away_between_opening_and_writing_is_refused(
    lake: Lake, tier: Tier, catalog: SqlCatalog, alter: Callable[[SqlCatalog], None], *, forgets: bool
) -> None:
    """The writers match columns by name: its values would be in no file."""
    first, table = tier(1), log_table()
    lake.open_table(table, incarnation())
    head = lake.stamp(PATH, incarnation())
    alter(catalog)
    if forgets:
        forget_earlier_schemas(catalog)
    with pytest.raises(SchemaMismatchError, match=r"shop\.orders: .* expected column 'name', found "):
        lake.writer_task(table, head, first.round_id)


def test_a_column_that_is_renamed_while_its_rows_are_written_has_their_values_under_its_new_name(
    plugin: IcebergLakePlugin, lake: Lake, tier: Tier, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    """Files name their fields by id, so it is as if the column was renamed after the commit."""
    tier(1)
    tiering = TieringRound(plugin, lake, log_table(), incarnation(), 2)
    write(tiering)
    rename(catalog, "name", "label")
    lake.commit(tiering.request())
    assert sorted(read_table(PATH).column("label").to_pylist()) == ["n1", "n2"]


def test_a_column_that_is_renamed_back_is_written_again(
    lake: Lake, tier: Tier, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    tier(1)
    rename(catalog, "name", "label")
    with pytest.raises(SchemaMismatchError):
        lake.open_table(log_table(), incarnation())
    rename(catalog, "label", "name")
    tier(2)
    assert sorted(read_table(PATH).column("name").to_pylist()) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("alter", "left"),
    [(lambda catalog: rename(catalog, "name", "label"), ["n1", None]), (lambda catalog: drop(catalog, "name"), None)],
    ids=["renamed", "dropped"],
)
def test_a_column_that_a_person_adds_under_the_lost_name_gets_the_new_rows(
    tier: Tier, catalog: SqlCatalog, alter: Callable[[SqlCatalog], None], left: list[str | None] | None
) -> None:
    tier(1)
    alter(catalog)
    add(catalog, "name")
    tier(2)
    rows = catalog.load_table("shop.orders").scan().to_arrow().sort_by("id")
    assert rows.column("name").to_pylist() == [None, "n2"]
    assert (rows.column("label").to_pylist() if left else None) == left


def test_each_column_that_was_lost_is_named(lake: Lake, tier: Tier, catalog: SqlCatalog) -> None:
    table = log_table(COLUMNS.append(pa.field("note", pa.string())))
    tier(1, table)
    rename(catalog, "name", "label")
    drop(catalog, "note")
    with pytest.raises(SchemaMismatchError, match=r"column 'name', .*; expected column 'note', .* dropped"):
        lake.open_table(table, incarnation())


@pytest.mark.parametrize("column", ["id", "__offset"])
def test_a_key_or_system_column_that_was_renamed_can_only_be_renamed_back(
    lake: Lake, tier: Tier, catalog: SqlCatalog, column: str
) -> None:
    tier(1, key_table())
    rename(catalog, column, "label")
    with pytest.raises(
        SchemaMismatchError, match=f"renamed to 'label' by .*Rename 'label' back to '{column}' [^)]*\\)$"
    ):
        lake.open_table(key_table(), incarnation())


def test_a_partition_column_that_was_renamed_is_told_as_that(
    plugin: IcebergLakePlugin, lake: Lake, catalog: SqlCatalog
) -> None:
    World(plugin, lake).tier([(1, (1, 0, "a"))], layout("day(ts)"))
    rename(catalog, "ts", "at")
    with pytest.raises(SchemaMismatchError, match="expected column 'ts', found field 2 renamed to 'at' by somebody"):
        lake.open_table(key_table(EVENTS, lake_partition=layout("day(ts)"), buckets=1), incarnation())


def test_a_field_of_a_struct_that_was_renamed_is_refused(lake: Lake, catalog: SqlCatalog) -> None:
    table = log_table(pa.schema([pa.field("s", pa.struct([pa.field("inner", pa.string())]))]))
    lake.open_table(table, incarnation())
    rename(catalog, "s.inner", "other")
    with pytest.raises(SchemaMismatchError, match=r"column 's': type struct<.*inner.*found struct<.*other"):
        lake.open_table(table, incarnation())


def test_a_column_that_is_new_in_the_source_is_still_added(tier: Tier, catalog: SqlCatalog) -> None:
    tier(1)
    tier(2, log_table(COLUMNS.append(pa.field("note", pa.string()))))
    assert "note" in catalog.load_table("shop.orders").schema().column_names


def test_a_column_without_an_id_that_the_source_renames_stays_beside_the_new_one(
    plugin: IcebergLakePlugin, lake: Lake, tier: Tier, catalog: SqlCatalog
) -> None:
    tier(1)
    schema = pa.schema([one.with_name("label") if one.name == "name" else one for one in COLUMNS])
    tiering = TieringRound(plugin, lake, log_table(schema), incarnation(), 2)
    tiering.write(log_split(tiering.table), [source_batch(schema, [{"id": 2, "label": "n2"}], start=2)])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    found = catalog.load_table("shop.orders").scan(selected_fields=("id", "name", "label")).to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "name": "n1", "label": None},
        {"id": 2, "name": None, "label": "n2"},
    ]
