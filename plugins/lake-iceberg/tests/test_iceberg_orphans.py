"""Files that nothing names: found once they are old, and no other file is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyiceberg.table.statistics import StatisticsFile

from lakeward.clock import SystemClock
from lakeward.errors import LakeError
from lakeward_iceberg_kit.checks import orphans_of
from lakeward_iceberg_kit.compacting import Job, compact
from lakeward_iceberg_kit.keyed import Keys
from lakeward_iceberg_kit.newest import NewestPlugin
from lakeward_lake_iceberg.orphans import find_orphans
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_iceberg.storage import Storage, local_path
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, check_landed, key_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.options import IcebergOptions

_NOW_MS = SystemClock().wall_ms()
_DAY_MS = 86_400_000
_ALL_MS = _NOW_MS + _DAY_MS
"""A time that all files were written before."""


@pytest.fixture(params=["2", "3"])
def keys(request: pytest.FixtureRequest, options: IcebergOptions) -> Iterator[Keys]:
    """A table with deletes, compactions, a tag, expired snapshots and offsets, in both versions of the format."""
    eager = msgspec.structs.replace(options, compaction_files=3, compaction_quiet_s=0, keep_snapshots=4)
    plugin = IcebergLakePlugin() if request.param == "2" else NewestPlugin()
    lake: Any = plugin.open(eager, FakeClock())
    keys = Keys(lake, key_table(buckets=1, lake_properties={"format-version": request.param}))
    for number in range(5):
        keys.tier(dict.fromkeys(range(3 * number, 3 * number + 5), f"r{number}"))
    table = lake._load(PATH)
    with table.manage_snapshots() as manage:
        manage.create_tag(table.metadata.current_snapshot_id, "audit")
    compact(lake)
    for number in range(6):
        keys.tier({number: None, 20 + number: "new"})
    lake.expire(PATH, frozenset())
    yield keys
    lake.close()


def orphaned(lake: IcebergLake, *kept: str, before_ms: int = _ALL_MS) -> set[str]:
    """Return the names of the files that are found."""
    return {one.path.rpartition("/")[2] for one in lake.find_orphans(PATH, kept, before_ms)}


def put(table: Table, name: str, days_old: float = 10) -> Path:
    """Put a file into the table's location."""
    path = Path(local_path(table.location())) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("left", encoding="utf-8")
    seconds = (_NOW_MS - days_old * _DAY_MS) / 1000
    os.utime(path, (seconds, seconds))
    return path


@pytest.fixture
def table(catalog: SqlCatalog, keys: Keys) -> Table:
    """The table as somebody else sees it."""
    del keys
    return catalog.load_table("shop.orders")


def test_no_file_is_found_that_the_table_needs(lake: IcebergLake, table: Table) -> None:
    assert orphans_of(table) == set()
    assert orphaned(lake) == set()


def test_old_files_of_data_and_metadata_that_nothing_names_are_found(
    lake: IcebergLake, table: Table, keys: Keys, read_table: Callable[..., pa.Table]
) -> None:
    left = put(table, "data/id_bucket=0/spark-1.parquet"), put(table, "metadata/1-m0.avro")
    put(table, "data/young.parquet", days_old=1)
    put(table, "elsewhere/other.parquet")
    put(table, "data/_temporary/0/spark-2.parquet")
    found = lake.find_orphans(PATH, (), _NOW_MS - 7 * _DAY_MS)
    assert {local_path(one.path) for one in found} == set(map(str, left))
    assert [one.size_bytes for one in found] == [4, 4]
    lake.delete([one.path for one in found])
    assert not any(path.exists() for path in left)
    keys.check(read_table)


def test_files_of_rounds_that_are_not_settled_stay(lake: IcebergLake, table: Table) -> None:
    put(table, "data/tiering-1-0/7-1-9/part.parquet")
    put(table, "metadata/5b2c-m0.avro")
    put(table, "data/left.parquet")
    assert orphaned(lake, f"{table.location()}/data/tiering-1-0/7-1-9/", "5b2c") == {"left.parquet"}


def test_files_of_a_round_and_a_job_that_are_about_to_commit_are_young(
    lake: IcebergLake, keys: Keys, read_table: Callable[..., pa.Table]
) -> None:
    before_ms = _NOW_MS - _DAY_MS
    tiering = keys.begin({1: "late"})
    job = Job(lake)
    assert orphaned(lake, before_ms=before_ms) == set()
    assert orphaned(lake) != set()
    check_landed(lake.commit(tiering.request()))
    del job
    keys.check(read_table)


def test_a_commit_that_lands_while_files_are_listed_is_seen(lake: IcebergLake, table: Table, keys: Keys) -> None:
    tiering = keys.begin({1: "late"})
    loads = iter(range(2))

    def load() -> Table:
        if next(loads):
            check_landed(lake.commit(tiering.request()))
        return lake._load(PATH)

    found = find_orphans(PATH, load, Storage(table.location(), {}), (), _ALL_MS)
    # The commit has taken the oldest metadata file out of the log.
    assert [one.path for one in found if not one.path.endswith(".metadata.json")] == []


def test_a_table_that_forbids_it_is_left_alone(lake: IcebergLake, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    with pytest.raises(LakeError, match=r"gc\.enabled"):
        lake.find_orphans(PATH, (), _ALL_MS)


def test_statistics_of_another_engine_stay(lake: IcebergLake, table: Table) -> None:
    path = put(table, "metadata/ndv.stats")
    snapshot_id = table.metadata.snapshots[-1].snapshot_id
    told = StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot_id,
            "statistics-path": str(path),
            "file-size-in-bytes": 4,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
    )
    with table.update_statistics() as update:
        update.set_statistics(told)
    assert orphaned(lake) == set()


def test_metadata_files_stay_where_the_table_keeps_those_that_fall_out_of_its_log(
    lake: IcebergLake, table: Table
) -> None:
    put(table, "metadata/00000-0.metadata.json")
    assert orphaned(lake) == {"00000-0.metadata.json"}
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
    assert orphaned(lake) == set()


def test_a_folder_of_data_outside_of_the_location_is_not_looked_into(
    lake: IcebergLake, table: Table, tmp_path: Path
) -> None:
    shared = tmp_path / "shared" / "others.parquet"
    shared.parent.mkdir()
    shared.write_text("of another table", encoding="utf-8")
    with table.transaction() as change:
        change.set_properties({"write.data.path": str(shared.parent)})
    assert orphaned(lake) == set()
