"""Another program drops or renames a column of a lake table: no row loses a value without a word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.ports import ReadableLake
from lakeward.ports.lake import LOST_COLUMNS
from lakeward_paimon_kit.altering import added, alter, dropped, renamed
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

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.altering import Alter

    ReadTable = Callable[[TablePath], pa.Table]

RENAMED = (
    r"^shop\.orders: the lake table does not fit: expected column 'name', found field 1 renamed to 'label' by somebody "
    r"else\. Rename 'label' back to 'name' \(in Spark: ALTER TABLE shop\.orders RENAME COLUMN `label` TO `name`\), or "
    r"add a nullable column 'name' of type STRING for the new rows \(in Spark: ALTER TABLE shop\.orders ADD COLUMN "
    r"`name` STRING\); those of before then stay in 'label'$"
)
DROPPED = (
    r"^shop\.orders: the lake table does not fit: expected column 'name', found field 1 dropped by somebody else\. "
    r"Add a nullable column 'name' of type STRING for the new rows \(in Spark: ALTER TABLE shop\.orders ADD COLUMN "
    r"`name` STRING\)$"
)


def tier(plugin: PaimonLakePlugin, lake: Lake, number: int, table: TableSpec) -> None:
    """Commit a round of one row, whose id is the round's number."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    row = dict.fromkeys(table.schema.names, f"n{number}") | {"id": number}
    tiering.write(log_split(table), [source_batch(table.schema, [row], changes=[1])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def folder_of(options: PaimonOptions) -> Path:
    """Return where the table lies."""
    return Path(options.warehouse) / "shop.db" / "orders"


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
@pytest.mark.parametrize(
    ("change", "said"), [(renamed("name", "label"), RENAMED), (dropped("name"), DROPPED)], ids=["renamed", "dropped"]
)
def test_a_column_that_was_lost_is_named_and_the_lake_table_stays_as_it_was(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, change: Alter, said: str, *, keyed: bool
) -> None:
    table = (key_table if keyed else log_table)(buckets=1)
    tier(plugin, lake, 1, table)
    alter(folder_of(options), change)
    folder = folder_of(options) / "schema"
    before = {one.name for one in folder.iterdir()}
    with pytest.raises(SchemaMismatchError, match=said):
        lake.open_table(table, incarnation())
    assert {one.name for one in folder.iterdir()} == before


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_a_column_that_the_server_renames_in_source_and_lake_keeps_its_values(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable, *, keyed: bool
) -> None:
    """Of a tiered table: the server alters it, and nothing is altered here."""
    table = (key_table if keyed else log_table)(buckets=1, system_columns=False, union_read=True)
    tier(plugin, lake, 1, table)
    alter(folder_of(options), renamed("name", "label"))
    schemas = {one.name for one in (folder_of(options) / "schema").iterdir()}
    tier(plugin, lake, 2, replace(table, schema=COLUMNS.set(1, COLUMNS.field(1).with_name("label"))))
    assert read_table(PATH).to_pylist() == [{"id": 1, "label": "n1"}, {"id": 2, "label": "n2"}]
    assert {one.name for one in (folder_of(options) / "schema").iterdir()} == schemas


def test_a_column_that_is_renamed_back_is_written_again(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable
) -> None:
    table = log_table(buckets=1, system_columns=False)
    tier(plugin, lake, 1, table)
    alter(folder_of(options), renamed("name", "label"))
    alter(folder_of(options), renamed("label", "name"))
    tier(plugin, lake, 2, table)
    assert read_table(PATH).to_pylist() == [{"id": 1, "name": "n1"}, {"id": 2, "name": "n2"}]


def test_a_column_that_a_person_adds_under_the_lost_name_gets_the_new_rows(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable
) -> None:
    table = log_table(buckets=1, system_columns=False)
    tier(plugin, lake, 1, table)
    alter(folder_of(options), renamed("name", "label"))
    alter(folder_of(options), added("name"))
    tier(plugin, lake, 2, table)
    rows = [{"id": 1, "label": "n1", "name": None}, {"id": 2, "label": None, "name": "n2"}]
    assert read_table(PATH).to_pylist() == rows


def test_a_column_that_is_new_in_the_source_is_still_added_beside_one_that_a_person_added(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable
) -> None:
    tier(plugin, lake, 1, log_table(buckets=1, system_columns=False))
    alter(folder_of(options), added("own"))
    wider = log_table(COLUMNS.append(pa.field("late", pa.string())), buckets=1, system_columns=False)
    tier(plugin, lake, 2, wider)
    assert read_table(PATH).to_pylist() == [
        {"id": 1, "name": "n1", "own": None, "late": None},
        {"id": 2, "name": "n2", "own": None, "late": "n2"},
    ]


def test_a_column_that_is_renamed_while_its_rows_are_written_has_their_values_under_its_new_name(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, read_table: ReadTable
) -> None:
    tiering = TieringRound(plugin, lake, log_table(buckets=1, system_columns=False), incarnation())
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1, "name": "n1"}])])
    alter(folder_of(options), renamed("name", "label"))
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert read_table(PATH).to_pylist() == [{"id": 1, "label": "n1"}]


@pytest.mark.parametrize(
    ("changes", "lost", "names"),
    [
        ((), {}, ["n1"]),
        ((dropped("name"),), {"name": "somebody else dropped it"}, None),
        ((renamed("name", "label"),), {"name": "somebody else renamed it to 'label'"}, None),
        ((dropped("name"), added("name")), {}, [None]),
    ],
    ids=["as it was", "dropped", "renamed", "dropped and added"],
)
def test_verify_is_told_of_columns_that_the_table_once_had(  # noqa: PLR0917 - parameters
    plugin: PaimonLakePlugin,
    lake: Lake,
    options: PaimonOptions,
    changes: tuple[Alter, ...],
    lost: dict[str, str],
    names: list[str | None] | None,
) -> None:
    tier(plugin, lake, 1, log_table(buckets=1))
    for change in changes:
        alter(folder_of(options), change)
    assert isinstance(lake, ReadableLake)
    first, rows = lake.read_rows(PATH, 2)
    assert json.loads(first.schema.metadata[LOST_COLUMNS]) == lost
    assert (rows["name"].to_pylist() if "name" in rows.schema.names else None) == names
