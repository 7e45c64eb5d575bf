"""Compaction of key tables: rows stay, runs become few, deletes go, and a process may die at each of its steps."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.errors import OutcomeUnknownError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.model.upkeep import UpkeepOutcome
from lakeward.ports import ReadableLake
from lakeward_lake_paimon import merge_files
from lakeward_lake_paimon.commit import next_sequence
from lakeward_lake_paimon.compaction import due_merges
from lakeward_lake_paimon.local_storage import LocalStorage, PinnedFolder
from lakeward_lake_paimon.table import Table
from lakeward_paimon_kit.kills import Kill, KilledError
from lakeward_paimon_kit.made import TYPES, create_as_fluss
from lakeward_paimon_kit.upkeep import Job, compact
from lakeward_testing.clock import FakeClock
from lakeward_testing.interruptions import Changelog
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    source_batch,
)

pytestmark = pytest.mark.slow
STEPS = 42
"""Changes of the disk by a job of one task, its commit, and the expiry after it."""
if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.manifests import Entry
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

    ReadTable = Callable[[TablePath], pa.Table]


class World:
    """A key table of one bucket, and what it should hold."""

    def __init__(self, plugin: PaimonLakePlugin, options: PaimonOptions, seed: int = 0) -> None:
        self.plugin = plugin
        self.options = options
        self.lake = plugin.open(options, FakeClock())
        self.rows: dict[int, str] = {}
        self.folder = Path(options.warehouse) / "shop.db" / "orders"
        self._source = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._number = 0

    def tier(self, rounds: int = 1, changes: int = 30, table: TableSpec | None = None) -> None:
        """Run rounds of random changes, without upkeep."""
        for _ in range(rounds):
            self._number += 1
            tiering = TieringRound(self.plugin, self.lake, table or key_table(buckets=1), incarnation(), self._number)
            log = Changelog.of_changes(self._source, self.rows, changes)
            tiering.write(log_split(tiering.table), [log.batch(0, len(log.rows), snapshot=False)])
            assert self.lake.commit(tiering.request()) is CommitOutcome.LANDED
            self.rows = log.table

    def compact(self) -> None:
        """Merge what is due."""
        compact(self.plugin, self.lake)

    def again(self) -> Lake:
        """Start again: a lake of a process of its own, which takes the stamp over."""
        self.lake = self.plugin.open(self.options, FakeClock())
        self.lake.stamp(PATH, incarnation())
        return self.lake

    def table(self) -> Table:
        """Return the table as it is."""
        found = Table.load(LocalStorage(), str(self.folder), PATH)
        assert found is not None
        return found

    def live(self) -> list[Entry]:
        """Return the files of the head."""
        table = self.table()
        return list(table.manifests.live(table.latest).values())

    def check(self, read_table: ReadTable) -> None:
        """Compare with what a reader sees."""
        found = read_table(PATH)
        assert sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == sorted(self.rows.items())

    def strays(self) -> set[str]:
        """Return the files that no snapshot names."""
        listed = {str(one) for one in self.folder.rglob("*") if one.is_file() and "/snapshot/" not in str(one)}
        own = {one for one in listed if "/_lakeward/" in one or "/schema/" in one}
        return listed - own - self.lake.referenced(PATH, listed)


@pytest.fixture
def world(plugin: PaimonLakePlugin, options: PaimonOptions) -> World:
    """An empty warehouse, of which each expiry keeps two snapshots."""
    return World(plugin, msgspec.structs.replace(options, keep_snapshots=2))


def test_runs_are_merged_into_the_top_level_and_deletes_go(world: World, read_table: ReadTable) -> None:
    world.tier(6)
    before = head_of(world.lake).commit
    world.compact()
    assert [(one.file.level, one.file.deleted_rows, one.file.rows) for one in world.live()] == [(5, 0, len(world.rows))]
    assert head_of(world.lake).commit == before
    world.check(read_table)
    assert world.strays() == set()


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_the_source_whenever_it_is_compacted(
    plugin: PaimonLakePlugin, options: PaimonOptions, read_table: ReadTable, seed: int
) -> None:
    world = World(plugin, options, seed)
    source = random.Random(seed)  # noqa: S311 - reproducible on purpose
    for _ in range(12):
        world.tier(source.randrange(1, 4), changes=source.choice([3, 40, 400]))
        if source.random() < 0.6:
            world.compact()
            assert due_merges(world.table().schema, world.live()) == []
    world.check(read_table)


def test_a_large_old_run_is_left_alone_and_its_deletes_are_kept(world: World, read_table: ReadTable) -> None:
    rows = [{"id": number, "name": f"{number:0200d}"} for number in range(100, 5000)]
    tiering = TieringRound(world.plugin, world.lake, key_table(buckets=1), incarnation())
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, changes=[Change.INSERT] * len(rows))])
    assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    world.rows = {number: f"{number:0200d}" for number in range(100, 5000)}
    world.tier(5)
    world.compact()
    (large,) = world.live()
    world.tier(4)
    tiering = TieringRound(world.plugin, world.lake, key_table(buckets=1), incarnation(), 99)
    gone = source_batch(COLUMNS, [{"id": 100}, {"id": 101}], changes=[Change.DELETE] * 2)
    tiering.write(log_split(tiering.table), [gone])
    assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    del world.rows[100], world.rows[101]
    world.compact()
    fresh, old = sorted(world.live(), key=lambda one: one.file.level)
    assert old == large
    assert (fresh.file.level, fresh.file.deleted_rows) == (4, 2 + sum(key not in world.rows for key in range(12)))
    world.check(read_table)


def test_files_are_divided_at_the_target_size_without_overlap(
    plugin: PaimonLakePlugin, options: PaimonOptions, read_table: ReadTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_files, "_GROUP_ROWS", 5000)
    world = World(plugin, msgspec.structs.replace(options, target_file_size_bytes=20_000))
    for start in range(0, 60_000, 10_000):
        tiering = TieringRound(plugin, world.lake, key_table(buckets=1), incarnation(), start + 1)
        rows = [
            {"id": (number * 7919) % 60_000, "name": f"{number * 2654435761:x}"}
            for number in range(start, start + 10_000)
        ]
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, changes=[1] * len(rows))])
        assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
        world.rows |= {int(str(row["id"])): str(row["name"]) for row in rows}
    world.compact()
    keys = sorted(
        (int.from_bytes(one.file.min_key[-8:], "little"), int.from_bytes(one.file.max_key[-8:], "little"))
        for one in world.live()
    )
    assert len(keys) > 1
    assert all(one[1] < other[0] for one, other in pairwise(keys))
    world.check(read_table)


@pytest.mark.parametrize("system", [True, False], ids=["legacy", "clean"])
def test_each_type_and_a_column_that_was_added_survive(
    plugin: PaimonLakePlugin, options: PaimonOptions, *, system: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(n, one[1]) for n, one in TYPES.items())])
    table = key_table(schema, buckets=1)
    types = {"id": "BIGINT NOT NULL", **{name: one[0] for name, one in TYPES.items()}}
    create_as_fluss(options, table, types, system=system)
    world = World(plugin, options)
    values = {name: one[2] for name, one in TYPES.items()}
    added = key_table(schema.append(pa.field("late", pa.string())), buckets=1)
    before: list[Any] = []
    for number in range(1, 8):
        spec = table if number < 4 else added
        tiering = TieringRound(plugin, world.lake, spec, incarnation(), number)
        row = {"id": number, **values, "late": "later"}
        tiering.write(log_split(spec), [source_batch(spec.schema, [row, {"id": 50}], changes=[1, 3])])
        assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    before = rows_of(world)
    world.compact()
    assert [one.file.level for one in world.live()] == [5]
    assert rows_of(world) == before
    assert [row["late"] for row in before] == [None] * 3 + ["later"] * 4 + [None]


@pytest.mark.parametrize("int96", [False, True], ids=["as-written", "int96"])
def test_times_of_years_that_nanoseconds_cannot_hold_survive(
    plugin: PaimonLakePlugin, options: PaimonOptions, *, int96: bool
) -> None:
    kinds = {"t3": pa.timestamp("ms"), "t6": pa.timestamp("us"), "l6": pa.timestamp("us", "UTC")}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(*one) for one in kinds.items())])
    table, world = key_table(schema, buckets=1, system_columns=False), World(plugin, options)
    expected: list[dict[str, Any]] = []
    for number, year in enumerate((1, 1677, 1969, 2024, 2263, 9999)):
        at = datetime(year, 12, 31, 23, 59, 59, 678000, tzinfo=UTC)
        expected.append({"id": number, "t3": at.replace(tzinfo=None), "t6": at.replace(tzinfo=None), "l6": at})
        tiering = TieringRound(plugin, world.lake, table, incarnation(), number + 1)
        (file, _) = tiering.write(log_split(table), [source_batch(schema, expected[-1:], changes=[Change.INSERT])])
        assert {one.physical_type for one in columns_of(file.path) if one.name in kinds} == {"INT64"}
        if int96:  # as files were written once, and as other engines may write them
            pq.write_table(pq.read_table(file.path), file.path, use_deprecated_int96_timestamps=True)
            assert {one.physical_type for one in columns_of(file.path) if one.name in kinds} == {"INT96"}
        assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert rows_of(world) == expected
    world.compact()
    assert [one.file.level for one in world.live()] == [5]
    assert rows_of(world) == expected


def test_such_years_survive_beside_a_column_of_nanoseconds_of_which_no_digit_is_lost(
    plugin: PaimonLakePlugin, options: PaimonOptions
) -> None:
    kinds = {"t6": pa.timestamp("us"), "t9": pa.timestamp("ns")}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(*one) for one in kinds.items())])
    table, world = key_table(schema, buckets=1, system_columns=False), World(plugin, options)
    far = datetime(9999, 12, 31, 23, 59, 59, 678000)  # noqa: DTZ001 - without a zone
    for number in range(1, 7):
        tiering = TieringRound(plugin, world.lake, table, incarnation(), number)
        rows = [{"id": number, "t6": far, "t9": number}]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.INSERT])])
        assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    for _ in range(2):
        snapshot = head_of(world.lake).snapshot_id
        assert snapshot is not None
        assert isinstance(world.lake, ReadableLake)
        found = pa.Table.from_batches(world.lake.read_rows(PATH, snapshot)).sort_by("id")
        assert found["t6"].to_pylist() == [far] * 6
        assert found["t9"].cast(pa.int64()).to_pylist() == [1, 2, 3, 4, 5, 6]
        world.compact()
        assert [one.file.level for one in world.live()] == [5]


def test_times_of_both_units_within_one_column_survive(plugin: PaimonLakePlugin, options: PaimonOptions) -> None:
    both = pa.struct([("t6", pa.timestamp("us")), ("t9", pa.timestamp("ns"))])
    kinds = {"r": both, "a": pa.list_(both), "m": pa.map_(pa.timestamp("us"), pa.list_(pa.timestamp("ns")))}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(*one) for one in kinds.items())])
    table, world = key_table(schema, buckets=1, system_columns=False), World(plugin, options)
    far = datetime(9999, 12, 31, 23, 59, 59, 678000)  # noqa: DTZ001 - without a zone
    for number in range(1, 7):
        tiering = TieringRound(plugin, world.lake, table, incarnation(), number)
        row = {"t6": far, "t9": number}
        rows: list[dict[str, Any]] = [{"id": number, "r": row, "a": [row, None, {}], "m": [(far, [number, None])]}]
        rows.append({"id": -number, "a": [], "m": []})
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.INSERT] * 2)])
        assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    whole = pa.struct([("t6", pa.timestamp("us")), ("t9", pa.int64())])
    plain = {"r": whole, "a": pa.list_(whole), "m": pa.map_(pa.timestamp("us"), pa.list_(pa.int64()))}
    for _ in range(2):
        assert isinstance(world.lake, ReadableLake)
        found = pa.Table.from_batches(world.lake.read_rows(PATH, head_of(world.lake).snapshot_id or 0)).sort_by("id")
        values = {name: found[name].cast(kind).to_pylist() for name, kind in plain.items()}
        fine = [{"t6": far, "t9": number} for number in range(1, 7)]
        empty = {"t6": None, "t9": None}
        assert values["r"] == [None] * 6 + fine
        assert values["a"] == [[]] * 6 + [[one, None, empty] for one in fine]
        assert values["m"] == [[]] * 6 + [[(far, [number, None])] for number in range(1, 7)]
        world.compact()
        assert [one.file.level for one in world.live()] == [5]


def columns_of(path: str) -> list[pq.ColumnSchema]:
    """Return the columns of a Parquet file."""
    schema = pq.read_metadata(path).schema
    return [schema.column(number) for number in range(len(schema))]


def test_a_table_that_another_engine_compacts_is_left_alone(plugin: PaimonLakePlugin, options: PaimonOptions) -> None:
    for number, (own, more) in enumerate(
        [("none", {}), ("own", {"paimon.write-only": "true"}), ("own", {"paimon.changelog-producer": "lookup"})]
    ):
        told = msgspec.structs.replace(options, compaction=own, warehouse=f"{options.warehouse}{number}")
        world = World(plugin, told)
        world.tier(8, table=key_table(buckets=1, properties=more))
        world.compact()
        assert [one.file.level for one in world.live()] == [0] * 8


def test_a_start_that_was_overtaken_plans_nothing(world: World) -> None:
    world.tier(6)
    world.plugin.open(world.options, FakeClock()).stamp(PATH, incarnation(2000))
    assert Job(world.plugin, world.lake).plan is None


def test_a_compaction_carries_no_offsets_and_the_sequence_numbers_go_on(world: World) -> None:
    world.tier(6)
    before = next_sequence(world.table())
    world.compact()
    table = world.table()
    assert table.latest is not None
    assert (table.latest.commit_kind, table.latest.commit_user) == ("COMPACT", "lakeward")
    assert set(table.latest.said) == {"lakeward.incarnation", "lakeward.table-id"}
    assert next_sequence(table) == before
    assert table.latest.total_record_count == len(world.rows)


def test_changelog_files_and_what_snapshots_say_of_them_stay_as_they_were(world: World) -> None:
    world.tier(6)
    before = changelogs(world)
    assert sum(count for count, _ in before.values()) >= 6
    world.compact()
    (compaction,) = changelogs(world).keys() - before.keys()
    assert changelogs(world) == before | {compaction: (0, None)}
    world.lake.expire(PATH, frozenset())
    assert changelogs(world) == {number: found for number, found in before.items() if number == compaction - 1} | {
        compaction: (0, None)
    }
    assert world.strays() == set()


def changelogs(world: World) -> dict[int, tuple[int, int | None]]:
    """Return the changelog files of each snapshot that are there, and how many changes it says it has."""
    table, found = world.table(), dict[int, tuple[int, int | None]]()
    there = {one.name for one in world.folder.rglob("changelog-*.parquet")}
    for path in (world.folder / "snapshot").glob("snapshot-*"):
        snapshot = json.loads(path.read_bytes())
        name = snapshot.get("changelogManifestList")
        entries = [] if name is None else list(table.manifests.entries(table.manifests.read_list(name)))
        assert {one.file.name for one in entries} <= there
        found[snapshot["id"]] = (len(entries), snapshot.get("changelogRecordCount") or None)
    return found


def test_a_merge_that_another_program_has_overtaken_is_void(world: World, read_table: ReadTable) -> None:
    world.tier(6)
    late = Job(world.plugin, world.lake)
    late.work()
    world.compact()
    assert late.commit() is UpkeepOutcome.VOID
    late.clean_up(world.lake)
    assert world.strays() == set()
    world.check(read_table)


def test_an_answer_of_the_disk_that_is_lost_leaves_rows_and_nothing_else(
    world: World, read_table: ReadTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tier(6)
    job = Job(world.plugin, world.lake)
    job.work()
    link = PinnedFolder.create

    def lost(folder: PinnedFolder, name: str, data: bytes, tag: str) -> bool:
        link(folder, name, data, tag)
        raise OutcomeUnknownError(name)

    with monkeypatch.context() as patch:
        patch.setattr(PinnedFolder, "create", lost)
        with pytest.raises(OutcomeUnknownError):
            job.commit()
    job.clean_up(world.again())
    assert [one.file.level for one in world.live()] == [5]
    assert world.strays() == set()
    world.check(read_table)


@pytest.mark.parametrize("at", range(STEPS + 1))
def test_a_process_that_dies_at_any_step_leaves_every_row_and_the_next_one_cleans_up(
    world: World, read_table: ReadTable, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    world.tier(6)
    job = Job(world.plugin, world.lake)
    with monkeypatch.context() as patch:
        Kill(patch, at)
        died = False
        try:
            job.work()
            job.commit()
            world.lake.expire(PATH, frozenset())
        except KilledError:
            died = True
    # The last one lives: so no step is left out where there come to be more of them.
    assert died == (at < STEPS)
    world.check(read_table)
    job.clean_up(world.again())
    world.lake.expire(PATH, frozenset())
    world.check(read_table)
    world.tier(6)
    world.compact()
    world.lake.expire(PATH, frozenset())
    world.check(read_table)
    assert world.strays() == set()
    assert not [one for one in (world.folder / "_lakeward").iterdir() if one.name.startswith("expiry-")]


def rows_of(world: World) -> list[Any]:
    """Return all rows of the head by the lake's own reader, ordered."""
    snapshot = head_of(world.lake).snapshot_id
    assert snapshot is not None
    assert isinstance(world.lake, ReadableLake)
    batches = world.lake.read_rows(PATH, snapshot)
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])
