"""A disk that is full, read-only or refuses: the cause is said at once, and nothing that was stored is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import StorageError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_paimon_kit.refusals import Refusal, files_of_at_most
from lakeward_paimon_kit.upkeep import Job, compact
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_lake_paimon.lake import PaimonLake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

_SMALL, _ROWS = 1 << 16, 100_000
TABLES = {"log": log_table(buckets=1), "key": key_table(buckets=1)}


@pytest.fixture
def folder(options: PaimonOptions) -> Path:
    """Where the table lies."""
    return Path(options.warehouse) / "shop.db" / "orders"


class World:
    """A table of one bucket, whose rounds write a row each."""

    def __init__(self, plugin: PaimonLakePlugin, lake: PaimonLake, table: TableSpec) -> None:
        self.plugin = plugin
        self.lake = lake
        self.table = table
        self.ids: list[int] = []
        self._number = 0

    def begin(self) -> TieringRound:
        """Begin a round, and write its row, whose id is its number."""
        self._number += 1
        tiering = TieringRound(self.plugin, self.lake, self.table, incarnation(), self._number)
        rows = [{"id": self._number, "name": f"n{self._number}"}]
        tiering.write(log_split(self.table), [source_batch(COLUMNS, rows, changes=[Change.INSERT])])
        return tiering

    def tier(self) -> None:
        """Commit a round."""
        assert self.lake.commit(self.begin().request()) is CommitOutcome.LANDED
        self.ids.append(self._number)

    def landed(self) -> None:
        """Know that the round which has begun last is committed."""
        self.ids.append(self._number)

    def check(self) -> None:
        """Look at the rows of the head, and at what is said of its files."""
        snapshot = head_of(self.lake).snapshot_id or 0
        rows = [one for batch in self.lake.read_rows(PATH, snapshot) for one in batch["id"].to_pylist()]
        assert sorted(rows) == self.ids
        assert list(self.lake.check_files(PATH, snapshot, None)) == []


@pytest.fixture(params=TABLES)
def world(request: pytest.FixtureRequest, plugin: PaimonLakePlugin, lake: PaimonLake) -> World:
    """A table with one commit."""
    world = World(plugin, lake, TABLES[request.param])
    world.tier()
    return world


def large(table: TableSpec) -> SourceBatch:
    """Return a batch that takes more room than there is."""
    chance = np.random.default_rng(7)
    numbers = pa.array(chance.integers(1 << 62, size=_ROWS))
    rows = pa.table({"id": numbers, "name": numbers.cast(pa.string())}).to_pylist()
    return source_batch(table.schema, rows, changes=[Change.INSERT] * _ROWS)


def test_a_writer_that_finds_no_room_says_so_at_once_and_leaves_nothing(world: World, folder: Path) -> None:
    tiering = world.begin()
    before = {one for one in folder.rglob("*") if one.is_file()}
    writer = world.plugin.writer(tiering.task, world.table, log_split(world.table), 2)
    with files_of_at_most(_SMALL), pytest.raises(StorageError) as refused:  # noqa: PT012 - whichever of them flushes
        writer.write(large(world.table))
        writer.close()
    assert os.strerror(errno.EFBIG) in str(refused.value)
    assert f"{folder}/bucket-" in str(refused.value)
    writer.abort()
    assert {one for one in folder.rglob("*") if one.is_file()} == before
    assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    world.landed()
    world.check()


def test_a_bucket_whose_folder_cannot_be_made_is_named(world: World, folder: Path) -> None:
    (folder / "bucket-0").rename(folder / "hidden")
    (folder / "bucket-0").write_text("in the way", encoding="utf-8")
    with pytest.raises(StorageError, match=rf"{folder}/bucket-0"):
        world.begin()
    (folder / "bucket-0").unlink()
    (folder / "hidden").rename(folder / "bucket-0")
    world.tier()
    world.ids = [1, 3]
    world.check()


@pytest.mark.parametrize("why", [errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_a_commit_that_the_disk_refuses_at_any_step_has_landed_or_not_and_nothing_is_lost(
    world: World, folder: Path, why: int
) -> None:
    outcomes: list[bool] = []
    refused = True
    while refused:
        tiering = world.begin()
        request = tiering.request()
        words = ""
        with pytest.MonkeyPatch.context() as patch:
            refusal = Refusal(patch, len(outcomes), why)
            try:
                world.lake.commit(request)
            except StorageError as failed:
                words = str(failed)
        refused = refusal.changes > len(outcomes)
        landed = world.lake.find(PATH, request.round_id, 0) is not None
        outcomes.append(landed)
        if not landed:
            assert os.strerror(why) in words
            assert str(folder) in words
            left = world.lake.commit_leftovers(PATH, request.ids)
            assert not world.lake.referenced(PATH, left)
            world.lake.delete(left)
            assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
        else:
            assert not words
        world.landed()
        world.check()
    # Lists and manifests, then the snapshot; what comes after the link is no part of the commit.
    assert outcomes == sorted(outcomes)
    assert 5 < outcomes.index(True) < len(outcomes) - 2


def test_a_compaction_that_finds_no_room_leaves_the_files_that_it_would_have_merged(
    plugin: PaimonLakePlugin, lake: PaimonLake, folder: Path
) -> None:
    world = World(plugin, lake, TABLES["key"])
    for _ in range(6):
        world.tier()
    job = Job(plugin, lake)
    before = {one for one in folder.rglob("*") if one.is_file()}
    with files_of_at_most(64), pytest.raises(StorageError, match=os.strerror(errno.EFBIG)):
        job.work()
    job.clean_up(lake)
    assert {one for one in folder.rglob("*") if one.is_file()} == before
    world.check()
    assert compact(plugin, lake) == 1
    world.check()
