"""Who may change a table: stale starts, processes that wake up late, and other programs that commit in between."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import FencedError, LakewardError, RolledBackError, StorageError, TableGoneError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import TablePath
from lakeward_lake_paimon import lake as lake_module
from lakeward_lake_paimon import local_storage as storage_module
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_paimon_kit.others import Other
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
    from collections.abc import Callable

    import pyarrow as pa

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

    ReadTable = Callable[[TablePath], pa.Table]


class World:
    """Rounds on one lake."""

    def __init__(self, plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions) -> None:
        self.lake = lake
        self._plugin = plugin
        self.folder = Path(options.warehouse) / "shop.db" / "orders"

    def begin(self, ids: list[int], table: TableSpec | None = None, start: int = 1000, number: int = 1) -> TieringRound:
        """Start a round, and write rows of these ids."""
        tiering = TieringRound(self._plugin, self.lake, table or log_table(), incarnation(start), number)
        rows = [{"id": one, "name": f"r{number}"} for one in ids]
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, changes=[1] * len(rows))])
        return tiering

    def other(self) -> Other:
        """Another program that knows nothing of us."""
        return Other(self.folder)

    def files(self) -> dict[str, int]:
        """Return all files of the table, with the time of each one's last change."""
        return {str(one): one.stat().st_mtime_ns for one in self.folder.rglob("*") if one.is_file()}


@pytest.fixture
def world(plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions) -> World:
    """An empty warehouse."""
    return World(plugin, lake, options)


def test_the_commit_of_a_stale_start_fails_however_late_it_is_sent(world: World, read_table: ReadTable) -> None:
    stale = world.begin([1])
    request = stale.request()
    live = world.begin([2], start=2000)
    with pytest.raises(FencedError) as fenced:
        world.lake.commit(request)
    assert fenced.value.by == str(incarnation(2000))
    assert world.lake.commit(live.request()) is CommitOutcome.LANDED
    with pytest.raises(FencedError):
        world.lake.commit(request)
    assert read_table(PATH)["id"].to_pylist() == [2]


def test_a_commit_that_wakes_up_between_its_check_and_its_link_lands_nowhere(
    world: World, monkeypatch: pytest.MonkeyPatch, read_table: ReadTable
) -> None:
    stale = world.begin([1])
    request = stale.request()

    def overtaken() -> None:
        live = world.begin([2], start=2000)
        assert world.lake.commit(live.request()) is CommitOutcome.LANDED

    pause_before_link(monkeypatch, overtaken)
    assert world.lake.commit(request) is CommitOutcome.CONFLICT
    assert world.lake.find(PATH, stale.round_id, 0) is None
    assert read_table(PATH)["id"].to_pylist() == [2]


def test_a_commit_that_wakes_up_after_its_table_was_set_aside_leaves_the_new_one_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, read_table: ReadTable
) -> None:
    for number in range(1, 4):
        assert world.lake.commit(world.begin([number], number=number).request()) is CommitOutcome.LANDED
    stale = world.begin([9], number=4)
    new: dict[str, int] = {}

    def made_anew() -> None:
        live = world.begin([8], log_table(table_id=8), start=2000)
        assert world.lake.commit(live.request()) is CommitOutcome.LANDED
        new.update(world.files())

    pause_before_link(monkeypatch, made_anew)
    with pytest.raises(FencedError, match="set aside"):
        world.lake.commit(stale.request())
    assert {name: world.files().get(name) for name in new if "/snapshot/" in name} == {
        name: at for name, at in new.items() if "/snapshot/" in name
    }
    head = head_of(world.lake)
    assert (head.table_id, head.snapshot_id) == (8, 2)
    assert read_table(PATH)["id"].to_pylist() == [8]
    # It went where the old table had gone, and that is whole.
    assert sorted(read_table(TablePath("shop", "orders__dropped_7"))["id"].to_pylist()) == [1, 2, 3, 9]


def test_an_expiry_that_wakes_up_after_its_table_was_set_aside_deletes_nothing_of_the_new_one(
    plugin: PaimonLakePlugin, options: PaimonOptions, monkeypatch: pytest.MonkeyPatch, read_table: ReadTable
) -> None:
    from msgspec.structs import replace  # noqa: PLC0415 - of this alone

    from lakeward_testing.clock import FakeClock  # noqa: PLC0415 - as above

    lake = plugin.open(replace(options, keep_snapshots=2), FakeClock())
    world = World(plugin, lake, options)
    for number in range(1, 8):
        lake.commit(world.begin([number], number=number).request())
    delete = storage_module.PinnedFolder.delete

    def pausing(folder: Any, name: str) -> None:  # noqa: ANN401 - a folder
        monkeypatch.setattr(storage_module.PinnedFolder, "delete", delete)
        for number in range(1, 8):
            lake.commit(world.begin([10 * number], log_table(table_id=8), start=2000, number=number).request())
        folder.delete(name)

    monkeypatch.setattr(storage_module.PinnedFolder, "delete", pausing)
    assert lake.expire(PATH, frozenset()) > 0
    assert sorted(one.name for one in (world.folder / "snapshot").glob("snapshot-*")) == [
        f"snapshot-{number}" for number in range(1, 9)
    ]
    assert sorted(read_table(PATH)["id"].to_pylist()) == [10 * number for number in range(1, 8)]


def test_an_overtaken_start_that_wakes_up_late_changes_no_file(world: World) -> None:
    stale = world.begin([1])
    world.lake.commit(world.begin([2], start=2000).request())
    before = world.files()
    for call in (
        lambda: world.lake.commit(stale.request()),
        lambda: world.lake.stamp(PATH, incarnation(1000)),
        lambda: world.lake.open_table(log_table(), incarnation(1000)),
        lambda: world.lake.open_table(log_table(table_id=9), incarnation(1000)),
    ):
        with pytest.raises(FencedError):
            call()
    assert world.files() == before


def test_snapshots_of_another_program_between_are_survived(world: World, read_table: ReadTable) -> None:
    first = world.begin([1])
    world.lake.commit(first.request())
    second = world.begin([2], number=2)
    world.other().commit("APPEND")
    world.other().commit("COMPACT")
    head = head_of(world.lake)
    assert head.stamp == incarnation(1000)
    assert head.commit is not None
    assert head.commit.snapshot_id == 2
    assert world.lake.commit(second.request()) is CommitOutcome.LANDED
    assert sorted(read_table(PATH)["id"].to_pylist()) == [1, 2]


def test_each_snapshot_has_a_uuid_of_its_own(world: World) -> None:
    for number in (1, 2):
        assert world.lake.commit(world.begin([number], number=number).request()) is CommitOutcome.LANDED
    found = [json.loads(one.read_bytes())["uuid"] for one in world.folder.glob("snapshot/snapshot-*")]
    assert (len(found), len(set(found))) == (3, 3)


def test_a_snapshot_of_another_program_at_the_last_moment_is_a_conflict_and_the_next_try_lands(
    world: World, monkeypatch: pytest.MonkeyPatch, read_table: ReadTable
) -> None:
    tiering = world.begin([1])
    pause_before_link(monkeypatch, lambda: world.other().commit("COMPACT"))
    request = tiering.request()
    assert world.lake.commit(request) is CommitOutcome.CONFLICT
    written = world.lake.commit_leftovers(PATH, request.ids)
    world.lake.delete(frozenset(written) - world.lake.referenced(PATH, written))
    assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert read_table(PATH)["id"].to_pylist() == [1]


def test_rows_that_another_program_adds_to_a_bucket_of_a_round_fence_the_round(world: World) -> None:
    world.lake.commit(world.begin([1], key_table()).request())
    late = world.begin([2], key_table(), number=2)
    world.other().copy_newest_file(sequence=500)
    with pytest.raises(FencedError, match="added rows to bucket 0"):
        world.lake.commit(late.request())
    again = world.begin([2], key_table(), number=3)
    assert world.lake.commit(again.request()) is CommitOutcome.LANDED
    newest = max(world.folder.glob("snapshot/snapshot-*"), key=lambda one: int(one.name.partition("-")[2]))
    assert int(json.loads(newest.read_bytes())["properties"]["lakeward.next-sequence"]) == 502


def test_a_newest_commit_that_another_program_has_expired_is_known_from_its_copy(world: World) -> None:
    tiering = world.begin([1])
    world.lake.commit(tiering.request())
    before = head_of(world.lake).commit
    for _ in range(3):
        world.other().commit("COMPACT")
    for number in (1, 2):
        (world.folder / "snapshot" / f"snapshot-{number}").unlink()
    assert head_of(world.lake).commit == before
    assert world.lake.find(PATH, tiering.round_id, 0) == 2
    following = world.begin([2], number=2)
    assert world.lake.commit(following.request()) is CommitOutcome.LANDED


def test_a_table_that_was_rolled_back_and_went_on_says_so(world: World, roll_back: Callable[..., None]) -> None:
    for number in (1, 2):
        world.lake.commit(world.begin([number], number=number).request())
    roll_back(PATH, 2)
    world.other().commit("APPEND")
    with pytest.raises(RolledBackError, match="another snapshot of that number"):
        world.lake.head(PATH)


def test_a_disk_without_links_is_refused_and_nothing_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiering = world.begin([1])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match="snapshot"):
        world.lake.commit(tiering.request())
    monkeypatch.undo()
    assert head_of(world.lake).commit is None


def test_a_link_whose_answer_is_lost_counts_as_landed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tiering = world.begin([1])
    link = os.link

    def lost(*names: Any, **told: Any) -> None:  # noqa: ANN401 - as `os.link`
        link(*names, **told)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "link", lost)
    assert world.lake.commit(tiering.request()) is CommitOutcome.LANDED
    monkeypatch.undo()
    assert world.lake.find(PATH, tiering.round_id, 0) == 2


def test_a_store_without_links_is_refused_by_its_address(plugin: PaimonLakePlugin, options: PaimonOptions) -> None:
    from msgspec.structs import replace  # noqa: PLC0415 - of this alone

    from lakeward_testing.clock import FakeClock  # noqa: PLC0415 - as above

    with pytest.raises(LakewardError, match=r"lake\.warehouse: expected a directory of this machine"):
        plugin.open(replace(options, warehouse="hdfs://host/lake"), FakeClock())


def test_a_table_that_is_gone_is_said(world: World) -> None:
    with pytest.raises(TableGoneError):
        world.lake.commit_leftovers(TablePath("no", "table"), world.lake.new_ids(PATH))
    assert lake_module.PaimonLake.name == "paimon"
    assert LocalStorage().names("/no/such/folder") == ()


def pause_before_link(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Do something just before the next file is linked to its name, as if the process had been paused there."""
    link = storage_module.PinnedFolder._link

    def paused(*arguments: Any) -> bool:  # noqa: ANN401 - as the method
        monkeypatch.setattr(storage_module.PinnedFolder, "_link", link)
        meanwhile()
        return link(*arguments)

    monkeypatch.setattr(storage_module.PinnedFolder, "_link", paused)
