"""Compaction of Iceberg tables: what is due, what stays as it is, and what others do meanwhile."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent

from lakeward.clock import SystemClock
from lakeward.errors import FencedError, OutcomeUnknownError
from lakeward.model.tables import Change
from lakeward.model.upkeep import UpkeepOutcome
from lakeward_iceberg_kit.checks import orphans_of
from lakeward_iceberg_kit.compacting import Job, append_deletes, compact, delete_rows, die_after
from lakeward_iceberg_kit.gateway import Fate
from lakeward_iceberg_kit.keyed import Keys
from lakeward_iceberg_kit.partitioned import DAY_US, World, layout
from lakeward_iceberg_kit.rewriting import rewrite_each_file
from lakeward_lake_iceberg.compaction import Live
from lakeward_lake_iceberg.head import summary_of
from lakeward_lake_iceberg.moves import MOVES_FILE, Merge, Moved, pack_positions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_iceberg.storage import local_path
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    check_landed,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

    from lakeward_iceberg_kit.gateway import Gateway
    from lakeward_lake_iceberg.lake import IcebergLake
    from lakeward_lake_iceberg.options import IcebergOptions

    ReadTable = Callable[..., pa.Table]

pytestmark = pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning")


@pytest.fixture
def options(options: IcebergOptions) -> IcebergOptions:
    """A fresh warehouse, in which three files are merged at once."""
    return msgspec.structs.replace(options, compaction_files=3, compaction_quiet_s=0)


@pytest.fixture
def keys(lake: IcebergLake) -> Keys:
    """Three files with ten rows each."""
    keys = Keys(lake)
    for number in range(3):
        keys.tier({10 * number + key: f"r{number}" for key in range(10)})
    return keys


def loaded(catalog: SqlCatalog) -> Table:
    """Return the table as somebody else sees it."""
    return catalog.load_table("shop.orders")


def test_deletes_of_merged_files_leave_with_them(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    keys.tier({0: None, 11: "new", 22: "new"})
    assert Live.of(loaded(catalog)).single
    assert compact(lake) == 1
    live = Live.of(loaded(catalog))
    assert (len(live.data), live.single, live.shared) == (1, {}, {})
    keys.check(read_table)


def test_a_snapshot_of_compaction_replaces_and_has_the_totals_of_its_files(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog
) -> None:
    keys.tier({0: None, 1: None})
    compact(lake)
    head = loaded(catalog).current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    told = {
        name: head.summary[f"total-{name}"] for name in ("records", "data-files", "delete-files", "position-deletes")
    }
    assert told == {"records": "28", "data-files": "1", "delete-files": "0", "position-deletes": "0"}


def test_a_file_of_many_deleted_rows_is_written_anew_by_itself(
    lake: IcebergLake, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    keys = Keys(lake)
    keys.tier(dict.fromkeys(range(10), "old"))
    keys.tier({0: None, 1: None})
    assert Job(lake).plan is None
    keys.tier({2: None})
    assert compact(lake) == 1
    assert [entry.data_file.record_count for entry in Live.of(loaded(catalog)).data.values()] == [7]
    keys.check(read_table)


def test_a_file_without_any_row_left_goes_and_none_comes(
    lake: IcebergLake, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    keys = Keys(lake)
    keys.tier(dict.fromkeys(range(4), "old"))
    keys.tier(dict.fromkeys(range(4)))
    assert compact(lake) == 1
    assert Live.of(loaded(catalog)).data == {}
    keys.check(read_table)


def test_a_partition_that_is_written_to_is_left_until_it_is_quiet_or_has_too_many_files(
    options: IcebergOptions,
) -> None:
    clock = FakeClock(wall_ms=SystemClock().wall_ms())
    waiting = msgspec.structs.replace(options, compaction_quiet_s=60, compaction_most_files=5)
    lake: Any = IcebergLakePlugin().open(waiting, clock)
    keys = Keys(lake)
    for number in range(4):
        keys.tier({number: "x"})
    assert Job(lake).plan is None
    clock.advance(61)
    assert Job(lake).plan is not None
    keys.tier({4: "x"})
    assert Job(lake).plan is not None
    lake.close()


def test_what_was_counted_is_not_read_again_for_the_plan_unless_the_table_has_changed(
    lake: IcebergLake, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lake.count_files(PATH).data_files == 3
    with monkeypatch.context() as patched:
        patched.setattr(Live, "of", lambda _: pytest.fail("they are read again"))
        assert Job(lake).plan is not None
    lake.count_files(PATH)
    keys.tier({50: "x"})
    job = Job(lake)
    assert job.plan is not None
    assert [task.files for task in job.plan.tasks] == [4]


def test_without_compaction_nothing_is_due(keys: Keys, options: IcebergOptions) -> None:
    del keys
    lake: Any = IcebergLakePlugin().open(msgspec.structs.replace(options, compaction="none"), FakeClock())
    assert Job(lake).plan is None
    lake.close()


def test_a_round_that_began_before_compactions_deletes_its_rows_where_they_are_now(
    options: IcebergOptions, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    # Files of one row group each: rows of one file come to lie in several.
    lake: Any = IcebergLakePlugin().open(msgspec.structs.replace(options, target_file_size_bytes=1 << 20), FakeClock())
    keys = Keys(lake)
    for number in range(3):
        keys.tier({10 * number + key: f"r{number}" for key in range(10)})
    keys.tier({5: None, 15: "before"})
    tiering = keys.begin({3: None, 13: "after", 23: "after", 15: "after", 77: "new"})
    assert compact(lake) == 1
    check_landed(lake.commit(tiering.request()))
    keys.check(read_table)
    keys.tier({3: "again", 13: None})
    compact(lake)
    keys.check(read_table)
    assert orphans_of(loaded(catalog)) == set()
    lake.close()


def test_the_deletes_of_a_round_are_carried_over_several_compactions(
    lake: IcebergLake, keys: Keys, options: IcebergOptions, read_table: ReadTable
) -> None:
    tiering = keys.begin({0: None, 10: "new", 29: "new"})
    compact(lake)
    # A single file is never merged: with a share so small, one deleted row makes it worn.
    eager: Any = IcebergLakePlugin().open(msgspec.structs.replace(options, compaction_deletes=0.001), FakeClock())
    delete_rows(eager._load(PATH), [(next(iter(Live.of(eager._load(PATH)).data)), 1)])
    keys.rows.pop(1)
    assert compact(eager) == 1
    check_landed(lake.commit(tiering.request()))
    keys.check(read_table)
    eager.close()


def test_moves_that_somebody_has_deleted_fence_the_round(lake: IcebergLake, keys: Keys, catalog: SqlCatalog) -> None:
    tiering = keys.begin({0: None})
    compact(lake)
    head = loaded(catalog).current_snapshot()
    assert head is not None
    assert head.summary is not None
    Path(local_path(head.summary[MOVES_FILE] or "")).unlink()
    with pytest.raises(FencedError, match="enumerate the round afresh"):
        lake.commit(tiering.request())


def test_rows_that_somebody_else_deletes_while_tasks_work_stay_deleted(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    job = Job(lake).work()
    paths = [*Live.of(loaded(catalog)).data]
    delete_rows(loaded(catalog), [(path, 4) for path in paths])
    for key in (4, 14, 24):
        keys.rows.pop(key)
    assert job.commit() is UpkeepOutcome.LANDED
    keys.check(read_table)
    assert not Live.of(loaded(catalog)).shared


def test_deletes_that_are_about_other_files_too_stay(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, options: IcebergOptions, read_table: ReadTable
) -> None:
    # The largest file is too large to be merged.
    keys.tier({key: secrets.token_hex(500) for key in range(100, 300)})
    table = loaded(catalog)
    sizes = {path: one.data_file.file_size_in_bytes for path, one in Live.of(table).data.items()}
    large = max(sizes, key=lambda path: sizes[path])
    delete_rows(table, [(path, 0) for path in sizes])
    for key in (0, 10, 20, 100):
        keys.rows.pop(key)
    some: Any = IcebergLakePlugin().open(
        msgspec.structs.replace(options, target_file_size_bytes=sizes[large]), FakeClock()
    )
    assert compact(some) == 1
    assert large in Live.of(loaded(catalog)).data
    assert sum(map(len, Live.of(loaded(catalog)).shared.values())) == 1
    keys.check(read_table)
    some.close()


def test_a_table_with_equality_deletes_is_left_alone(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, tmp_path: Path
) -> None:
    job = Job(lake).work()
    path = tmp_path / "equality.parquet"
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array([3])], schema=pa.schema([field])), path)
    append_deletes(loaded(catalog), str(path), DataFileContent.EQUALITY_DELETES, 1, equality_ids=[1])
    assert job.commit() is UpkeepOutcome.VOID
    assert Job(lake).plan is None
    del keys


def test_a_file_that_claims_a_sort_order_is_left_alone(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DataFile, "sort_order_id", property(lambda _: 1))
    del keys, catalog
    assert Job(lake).plan is None


def test_files_that_somebody_else_compacted_make_the_job_void(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    job = Job(lake).work()
    rewrite_each_file(loaded(catalog))
    assert job.commit() is UpkeepOutcome.VOID
    job.clean_up(lake)
    assert orphans_of(loaded(catalog)) == set()
    keys.check(read_table)


def test_rows_are_written_in_the_order_of_their_offsets_with_all_columns(
    lake: IcebergLake, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    table = log_table()
    for number in range(4):
        tiering = TieringRound(IcebergLakePlugin(), lake, table, incarnation(), number)
        rows = [{"id": key, "name": f"{number}"} for key in range(5)]
        tiering.write(log_split(table), [source_batch(COLUMNS, rows, start=5 * number)])
        check_landed(lake.commit(tiering.request()))
    before = read_table(PATH).sort_by("__offset")
    assert compact(lake) == 1
    (path,) = Live.of(loaded(catalog)).data
    assert pq.read_table(local_path(path))["__offset"].to_pylist() == list(range(20))
    assert read_table(PATH).sort_by("__offset").equals(before)


def test_partitions_are_merged_each_by_itself(lake: IcebergLake, catalog: SqlCatalog, read_table: ReadTable) -> None:
    world = World(IcebergLakePlugin(), lake, bucket_key=())
    for number in range(3):
        rows = [(10 * number + key, DAY_US * (key % 2), f"r{number}") for key in range(6)]
        world.tier([(row[0], row) for row in rows], layout("day(ts)"))
    assert compact(lake) == 1
    live = Live.of(loaded(catalog))
    assert sorted(entry.data_file.record_count for entry in live.data.values()) == [9, 9]
    world.tier([(0, None), (1, (1, 0, "moved"))], layout("day(ts)"))
    world.check(read_table(PATH))
    head = head_of(lake).snapshot_id
    assert head is not None
    assert list(lake.check_files(PATH, head, None)) == []


def test_files_of_before_a_change_of_the_layout_are_merged_where_they_are(
    lake: IcebergLake, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    world = World(IcebergLakePlugin(), lake, bucket_key=())
    for number in range(3):
        world.tier([(number, (number, DAY_US, "old"))], layout("day(ts)"))
    tiering = world.write([(0, None), (1, (1, 0, "new"))], layout("month(ts)"))
    assert compact(lake) == 1
    check_landed(lake.commit(tiering.request()))
    assert {entry.data_file.spec_id for entry in Live.of(loaded(catalog)).data.values()} == {
        loaded(catalog).spec().spec_id - 1,
        loaded(catalog).spec().spec_id,
    }
    world.check(read_table(PATH))


def test_rows_of_earlier_schemas_are_written_in_the_present_one(
    lake: IcebergLake, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    narrow = pa.schema([pa.field("id", pa.int32(), nullable=False), COLUMNS.field("name")])
    Keys(lake, key_table(narrow)).tier({1: "one"})
    wide = pa.schema([*COLUMNS, pa.field("more", pa.list_(pa.struct([("a", pa.int64())])))])
    for number, more in ((2, None), (3, [{"a": 7}, None]), (4, [])):
        tiering = TieringRound(IcebergLakePlugin(), lake, key_table(wide), incarnation(), number)
        batch = source_batch(wide, [{"id": number, "name": "x", "more": more}], changes=[Change.INSERT])
        tiering.write(log_split(tiering.table), [batch])
        check_landed(lake.commit(tiering.request()))
    with loaded(catalog).update_schema() as update:
        update.delete_column("name")
    before = read_table(PATH).sort_by("id")
    assert compact(lake) == 1
    found = read_table(PATH).sort_by("id")
    assert found.equals(before)
    assert found["more"].to_pylist() == [None, None, [{"a": 7}, None], []]
    assert "name" not in found.schema.names


@pytest.mark.parametrize("step", range(0, 12, 2))
def test_a_job_that_is_killed_leaves_nothing_and_loses_no_row(  # noqa: PLR0917 - what is patched, and what is checked
    lake: IcebergLake,
    keys: Keys,
    catalog: SqlCatalog,
    read_table: ReadTable,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    keys.tier({0: None, 10: "new"})
    job = Job(lake)
    die_after(step, monkeypatch, type(catalog))
    with suppress(KeyboardInterrupt):
        assert job.work().commit() is UpkeepOutcome.LANDED
    monkeypatch.undo()
    keys.check(read_table)
    job.clean_up(lake)
    assert orphans_of(loaded(catalog)) == set()
    compact(lake)
    keys.check(read_table)


@pytest.mark.parametrize("fate", [Fate.ANSWER_LOST, Fate.LANDED_409, Fate.LANDED_403, Fate.REPEATED, Fate.CONFLICT])
def test_a_commit_whose_answer_is_wrong_or_lost_lands_once_or_not_at_all(gateway: Gateway, fate: Fate) -> None:
    options = msgspec.structs.replace(gateway.options, compaction_files=3, compaction_quiet_s=0)
    lake: Any = IcebergLakePlugin().open(options, FakeClock())
    keys = Keys(lake)
    for number in range(3):
        keys.tier({number: "x"})
    job = Job(lake).work()
    gateway.fate = lambda request: fate if request.is_commit else Fate.PASSED
    with suppress(OutcomeUnknownError):
        job.commit()
    gateway.fate = lambda _: Fate.PASSED
    rows = gateway.catalog.load_table("shop.orders").scan().to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)) == keys.rows
    job.clean_up(lake)
    assert orphans_of(gateway.catalog.load_table("shop.orders")) == set()
    lake.close()


def test_snapshots_of_compactions_expire_with_their_moves(
    lake: IcebergLake, keys: Keys, catalog: SqlCatalog, read_table: ReadTable
) -> None:
    compact(lake)
    for number in range(25):
        keys.tier({0: f"{number}"})
    assert lake.expire(PATH, frozenset()) > 0
    assert orphans_of(loaded(catalog)) == set()
    assert not any(MOVES_FILE in summary_of(one) for one in loaded(catalog).metadata.snapshots)
    keys.check(read_table)


def test_positions_of_moved_rows_are_those_in_the_new_files() -> None:
    gone = np.array([1, 4], dtype=np.int64)
    source = Moved("old", 2, pack_positions(gone))
    merge = Merge(0, (), "zstd", (source,), (("a", 3), ("b", 10)))
    found = {path: positions.tolist() for path, positions in merge.moved(source, np.arange(7, dtype=np.int64))}
    # Rows 0, 2, 3, 5, 6 are the rows 2 to 6 of all: the first lies at the end of `a`.
    assert found == {"a": [2], "b": [0, 1, 2, 3]}
