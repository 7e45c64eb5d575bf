"""Rows of format version 3 keep their ids, and the commit of their last change, when their files are merged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestContent

from lakeward.model.results import CommitOutcome
from lakeward.model.upkeep import UpkeepOutcome
from lakeward_iceberg_kit.compacting import Job, compact
from lakeward_iceberg_kit.vectors import Keys, lineage, live
from lakeward_lake_iceberg.row_ids import with_ids_of_file, with_row_ids
from lakeward_testing.lake_tables import PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


@pytest.fixture
def options(options: IcebergOptions) -> IcebergOptions:
    """A fresh warehouse, in which three files are merged at once."""
    return msgspec.structs.replace(options, compaction_files=3, compaction_quiet_s=0)


@pytest.fixture
def keys(plugin: IcebergLakePlugin, lake: IcebergLake) -> Keys:
    """Three files with ten rows each, two of them deleted since."""
    keys = Keys(plugin, lake)
    for number in range(3):
        keys.tier([10 * number + key for key in range(10)])
    keys.tier([40], [3, 14])
    return keys


def test_rows_keep_their_ids_and_the_commit_of_their_last_change(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    before = lineage(catalog)
    assert compact(lake) == 1
    assert lineage(catalog) == before
    assert live(catalog, ManifestContent.DELETES) == []
    keys.check(catalog, read_table)


def test_files_of_merged_and_of_new_rows_are_merged_again(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    compact(lake)
    for key in range(50, 53):
        keys.tier([key], [key - 50])
    before = lineage(catalog)
    assert compact(lake) == 1
    assert lineage(catalog) == before
    keys.check(catalog, read_table)


def test_rows_that_are_deleted_while_tasks_work_get_one_vector_in_the_new_file(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    job = Job(lake).work()
    keys.tier([1], [12, 29])
    assert job.commit() is UpkeepOutcome.LANDED
    (vector,) = live(catalog, ManifestContent.DELETES)
    assert vector.record_count == 3
    keys.check(catalog, read_table)
    keys.tier([2])
    keys.check(catalog, read_table)


def test_a_round_that_began_before_a_compaction_deletes_its_rows_where_they_are_now(
    keys: Keys, lake: IcebergLake, catalog: SqlCatalog, read_table: Callable[..., pa.Table]
) -> None:
    tiering = keys.begin([1, 12], [29])
    assert compact(lake) == 1
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    keys.check(catalog, read_table)
    (vector,) = live(catalog, ManifestContent.DELETES)
    assert vector.record_count == 3
    assert lake.referenced(PATH, [file.path for file in tiering.files]) == {file.path for file in tiering.files}


def test_an_id_of_its_own_wins_over_that_of_the_file() -> None:
    schema = with_row_ids(pa.schema([("id", pa.int64())]))
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([None, 90]), pa.array([None, 4])], schema=schema)
    found = with_ids_of_file(batch, 5, 100, 7)
    assert found.to_pylist() == [
        {"id": 1, "_row_id": 105, "_last_updated_sequence_number": 7},
        {"id": 2, "_row_id": 90, "_last_updated_sequence_number": 4},
    ]
    assert with_ids_of_file(batch, 5, None, 7)["_row_id"].to_pylist() == [None, 90]
