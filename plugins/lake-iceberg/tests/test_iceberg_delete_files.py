"""Files of position deletes that become one, while the data files that they are about stay."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lakeward.clock import SystemClock
from lakeward.model.upkeep import UpkeepOutcome
from lakeward_iceberg_kit.checks import orphans_of
from lakeward_iceberg_kit.compacting import Job, compact, delete_rows, die_after
from lakeward_iceberg_kit.keyed import Keys
from lakeward_iceberg_kit.newest import NewestPlugin
from lakeward_iceberg_kit.rewriting import rewrite_each_file
from lakeward_lake_iceberg.compaction import Live
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, check_landed, key_table

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.options import IcebergOptions

    ReadTable = Callable[..., pa.Table]

pytestmark = pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning")


@pytest.fixture
def options(options: IcebergOptions) -> IcebergOptions:
    """A fresh warehouse, in which partitions are always quiet, and no data file is written anew."""
    return msgspec.structs.replace(options, compaction_files=9, compaction_quiet_s=0, compaction_deletes=1)


@pytest.fixture
def keys(lake: IcebergLake) -> Keys:
    """Two files with a hundred rows each, and three delete files of the first."""
    keys = Keys(lake)
    for number in range(2):
        keys.tier({100 * number + key: f"r{number}" for key in range(100)})
    for key in range(3):
        keys.tier({key: None})
    return keys


def loaded(catalog: SqlCatalog) -> Table:
    """Return the table as somebody else sees it."""
    return catalog.load_table("shop.orders")


def live(catalog: SqlCatalog) -> Live:
    """Return its files."""
    return Live.of(loaded(catalog))


def first_file(catalog: SqlCatalog) -> str:
    """Return the data file that has deletes."""
    return next(iter(live(catalog).single))


def check(keys: Keys, catalog: SqlCatalog, read_table: ReadTable) -> None:
    """Assert that DuckDB and pyiceberg read the rows, and that no file lies about that is no part of the table."""
    keys.check(read_table)
    rows = loaded(catalog).scan().to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)) == keys.rows
    assert orphans_of(loaded(catalog)) == set()


def test_delete_files_of_one_data_file_become_one_and_no_data_file_is_written(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    data = set(live(catalog).data)
    assert len(live(catalog).deletes) == 3
    assert compact(lake) == 1
    assert set(live(catalog).data) == data
    assert [entry.data_file.record_count for entry in live(catalog).deletes] == [3]
    assert set(live(catalog).single) <= data
    check(keys, catalog, read_table)
    head = loaded(catalog).current_snapshot()
    assert head is not None
    assert head.summary is not None
    told = [head.summary[f"total-{name}"] for name in ("data-files", "delete-files", "position-deletes")]
    assert (head.summary.operation.value, told) == ("replace", ["2", "1", "3"])


def test_delete_files_that_a_partition_shares_become_one_without_rows_of_files_that_are_gone(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    paths = sorted(live(catalog).data)
    rows = {path: 0 if path == first_file(catalog) else 100 for path in paths}
    for row in (50, 60):
        gone = f"{paths[0]}-gone.parquet"
        delete_rows(loaded(catalog), [*((path, row) for path in paths), (gone, 7)])
        for first in rows.values():
            keys.rows.pop(first + row)
    assert compact(lake) == 1
    assert len(live(catalog).single) == 1
    assert [file.record_count for files in live(catalog).shared.values() for file in files] == [4]
    check(keys, catalog, read_table)


def test_delete_files_of_a_partition_that_is_written_to_are_left_until_it_is_quiet_or_they_are_too_many(
    options: IcebergOptions, catalog: SqlCatalog
) -> None:
    clock = FakeClock(wall_ms=SystemClock().wall_ms())
    waiting = msgspec.structs.replace(options, compaction_quiet_s=60, compaction_delete_files=3)
    lake: Any = IcebergLakePlugin().open(waiting, clock)
    keys = Keys(lake)
    keys.tier(dict.fromkeys(range(100), "x"))
    for key in range(2):
        keys.tier({key: None})
    assert Job(lake).plan is None
    clock.advance(61)
    assert Job(lake).plan is not None
    keys.tier({2: None})
    assert Job(lake).plan is not None
    assert len(live(catalog).deletes) == 3
    lake.close()


def test_deletes_of_data_files_that_are_due_go_with_them(
    keys: Keys, catalog: SqlCatalog, options: IcebergOptions, read_table: ReadTable
) -> None:
    eager: Any = IcebergLakePlugin().open(msgspec.structs.replace(options, compaction_files=2), FakeClock())
    assert compact(eager) == 1
    assert live(catalog).deletes == []
    check(keys, catalog, read_table)
    eager.close()


def test_a_round_that_began_before_the_merge_still_replaces_what_it_found(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    keys.tier({3: None})
    # The fifth delete file of a data file contains the four that were there, and replaces them.
    tiering = keys.begin({4: None, 7: "new"})
    assert compact(lake) == 1
    check_landed(lake.commit(tiering.request()))
    check(keys, catalog, read_table)
    keys.tier({5: None})
    compact(lake)
    assert len(live(catalog).deletes) == 1
    check(keys, catalog, read_table)


def test_a_merge_of_files_that_a_round_has_replaced_is_void(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    keys.tier({3: None})
    job = Job(lake).work()
    keys.tier({4: None})
    assert job.commit() is UpkeepOutcome.VOID
    job.clean_up(lake)
    check(keys, catalog, read_table)


def test_rows_that_a_round_or_somebody_else_deletes_while_tasks_work_stay_deleted(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    job = Job(lake).work()
    keys.tier({10: None, 11: "new"})
    delete_rows(loaded(catalog), [(first_file(catalog), 40)])
    keys.rows.pop(40)
    assert job.commit() is UpkeepOutcome.LANDED
    check(keys, catalog, read_table)


def test_deletes_of_a_data_file_that_somebody_has_rewritten_meanwhile_harm_nobody(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    job = Job(lake).work()
    rewrite_each_file(loaded(catalog))
    job.commit()
    job.clean_up(lake)
    check(keys, catalog, read_table)


@pytest.mark.parametrize("step", range(11))
def test_a_job_that_is_killed_loses_no_delete(  # noqa: PLR0917 - what is patched, and what is checked
    lake: IcebergLake,
    keys: Keys,
    catalog: SqlCatalog,
    read_table: ReadTable,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    job = Job(lake)
    die_after(step, monkeypatch, type(catalog))
    with suppress(KeyboardInterrupt):
        assert job.work().commit() is UpkeepOutcome.LANDED
    monkeypatch.undo()
    keys.check(read_table)
    job.clean_up(lake)
    check(keys, catalog, read_table)
    compact(lake)
    assert len(live(catalog).deletes) == 1
    check(keys, catalog, read_table)


def test_deletion_vectors_are_left_alone(options: IcebergOptions, catalog: SqlCatalog) -> None:
    lake: Any = NewestPlugin().open(options, FakeClock())
    keys = Keys(lake, key_table(buckets=1, lake_properties={"format-version": "3"}))
    for number in range(4):
        keys.tier(dict.fromkeys(range(10 * number, 10 * number + 10), f"r{number}"))
    keys.tier({0: None, 10: None, 20: None, 30: None})
    assert len(live(catalog).deletes) == 4
    assert Job(lake).plan is None
    lake.close()


@pytest.mark.parametrize("expired", [False, True])
def test_two_small_files_are_enough_once_a_partition_is_old(options: IcebergOptions, *, expired: bool) -> None:
    clock = FakeClock(wall_ms=SystemClock().wall_ms())
    kept = msgspec.structs.replace(options, compaction_age_s=3600, keep_snapshots=1)
    lake: Any = IcebergLakePlugin().open(kept, clock)
    keys = Keys(lake, key_table(buckets=2))
    for number in range(3):
        keys.tier({number: "x"})
    if expired:  # the times of the files are those that the storage says
        keys.tier({7: "x"}, bucket=1)
        assert lake.expire(PATH, frozenset()) >= 3
    assert Job(lake).plan is None
    clock.advance(3601)
    job = Job(lake)
    assert job.plan is not None
    assert [task.files for task in job.plan.tasks] == [3]
    lake.close()
