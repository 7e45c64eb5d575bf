"""Expiry of snapshots: what stays, what goes, and tables of many snapshots that nothing has expired before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.model.results import CommitOutcome
from lakeward_lake_paimon.expire import _AT_MOST
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.table import Table
from lakeward_paimon_kit.others import Other
from lakeward_paimon_kit.upkeep import compact
from lakeward_testing.clock import FakeClock
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

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakeward.model.tables import TablePath
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

    ReadTable = Callable[[TablePath], pa.Table]


class World:
    """A key table with changelog files, of which two snapshots are kept."""

    def __init__(self, plugin: PaimonLakePlugin, options: PaimonOptions) -> None:
        self.lake = plugin.open(msgspec.structs.replace(options, keep_snapshots=2), FakeClock())
        self.folder = Path(options.warehouse) / "shop.db" / "orders"
        self._plugin = plugin
        self._number = 0

    def tier(self, rounds: int) -> None:
        """Run rounds of one row each."""
        for _ in range(rounds):
            self._number += 1
            tiering = TieringRound(self._plugin, self.lake, key_table(), incarnation(), self._number)
            rows = [{"id": self._number, "name": "n"}]
            tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, changes=[1])])
            assert self.lake.commit(tiering.request()) is CommitOutcome.LANDED

    def ids(self) -> list[int]:
        """Return the ids of the snapshots."""
        return sorted(int(one.name.partition("-")[2]) for one in self.folder.glob("snapshot/snapshot-*"))

    def files(self, start: str) -> set[str]:
        """Return the names of files that begin so."""
        return {one.name for one in self.folder.rglob(f"{start}*")}


@pytest.fixture
def world(plugin: PaimonLakePlugin, options: PaimonOptions) -> World:
    """An empty warehouse."""
    return World(plugin, options)


def test_changelog_files_manifests_and_lists_go_with_their_snapshots(world: World, read_table: ReadTable) -> None:
    world.tier(4)
    assert (len(world.files("changelog-")), len(world.files("data-"))) == (4, 4)
    assert world.lake.expire(PATH, frozenset()) == 3
    assert world.ids() == [4, 5]
    assert (len(world.files("changelog-")), len(world.files("data-"))) == (2, 4)
    assert len(world.files("manifest-list-")) == 6
    assert (world.folder / "snapshot" / "EARLIEST").read_text(encoding="utf-8") == "4"
    assert sorted(read_table(PATH)["id"].to_pylist()) == [1, 2, 3, 4]


def test_a_tag_keeps_its_files_and_a_consumer_its_snapshots(
    plugin: PaimonLakePlugin, world: World, read_table: ReadTable
) -> None:
    world.tier(6)
    assert compact(plugin, world.lake) == 1
    (world.folder / "tag").mkdir()
    (world.folder / "tag" / "tag-before").write_bytes((world.folder / "snapshot" / "snapshot-3").read_bytes())
    (world.folder / "consumer").mkdir()
    (world.folder / "consumer" / "consumer-job").write_text(json.dumps({"nextSnapshot": 5}), encoding="utf-8")
    assert world.lake.expire(PATH, frozenset()) == 4
    assert world.ids() == [5, 6, 7, 8]  # the last one is a compaction
    tagged = json.loads((world.folder / "tag" / "tag-before").read_bytes())
    assert {tagged["baseManifestList"], tagged["deltaManifestList"]} <= world.files("manifest-list-")
    (world.folder / "consumer" / "consumer-job").unlink()
    world.lake.expire(PATH, frozenset())
    assert {tagged["baseManifestList"], tagged["deltaManifestList"]} <= world.files("manifest-list-")
    assert sorted(read_table(PATH)["id"].to_pylist()) == list(range(1, 7))


def test_a_table_with_branches_is_left_alone(world: World) -> None:
    world.tier(4)
    (world.folder / "branch" / "branch-b").mkdir(parents=True)
    assert world.lake.expire(PATH, frozenset()) == 0


def test_manifests_are_merged_when_they_are_many(world: World, read_table: ReadTable) -> None:
    world.tier(40)
    table = Table.load(LocalStorage(), str(world.folder), PATH)
    assert table is not None
    assert table.latest is not None
    assert len(table.manifests.manifests_of(table.latest)) < 32
    assert sorted(read_table(PATH)["id"].to_pylist()) == list(range(1, 41))


def test_many_snapshots_of_another_service_are_expired_in_several_calls_and_seldom_read(
    plugin: PaimonLakePlugin, options: PaimonOptions, monkeypatch: pytest.MonkeyPatch, read_table: ReadTable
) -> None:
    world = World(plugin, options)
    world.tier(1)
    for number in range(2 * _AT_MOST):
        Other(world.folder).commit("APPEND", user="__fluss_lake_tiering", fluss_offsets=f"/offsets/{number}")
    (world.folder / "_lakeward" / "table.json").unlink()
    (world.folder / "_lakeward" / "commit-2").unlink()
    read: list[str] = []
    plain = LocalStorage.read

    def counted(storage: LocalStorage, path: str) -> bytes | None:
        read.append(path)
        return plain(storage, path)

    world.lake.open_table(key_table(), incarnation(2000))
    monkeypatch.setattr(LocalStorage, "read", counted)
    world.lake.stamp(PATH, incarnation(2000))
    assert len([one for one in read if "/snapshot-" in one]) < 2 * _AT_MOST
    monkeypatch.undo()
    assert (
        world.lake.commit(TieringRound(plugin, world.lake, key_table(), incarnation(2000), 2).request())
        is CommitOutcome.LANDED
    )
    assert [world.lake.expire(PATH, frozenset()) for _ in range(3)] == [_AT_MOST, _AT_MOST, 2]
    assert head_of(world.lake).stamp == incarnation(2000)
    assert read_table(PATH)["id"].to_pylist() == [1]
