"""Processes that are paused while a later start commits and expires: what they know by then is old, and may be gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lakeward.errors import CorruptFileError, FencedError, OutcomeUnknownError
from lakeward.model.lake_offsets import OFFSETS_FILE
from lakeward.model.results import CommitOutcome
from lakeward_lake_paimon import commit
from lakeward_lake_paimon.local_storage import LocalStorage, PinnedFolder
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.others import Other
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_lake_paimon.options import PaimonOptions


class World:
    """Rounds of one row each on a lake of which an expiry keeps one snapshot."""

    def __init__(self, plugin: PaimonLakePlugin, options: PaimonOptions) -> None:
        self._plugin = plugin
        self.lake = plugin.open(msgspec.structs.replace(options, keep_snapshots=1), FakeClock())
        self.folder = Path(options.warehouse) / "shop.db" / "orders"
        self._number = 0

    def begin(self, start: int = 1000) -> TieringRound:
        """Start a round, and write a row."""
        self._number += 1
        tiering = TieringRound(self._plugin, self.lake, log_table(), incarnation(start), self._number)
        tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": self._number}])])
        return tiering

    def tier(self, rounds: int, start: int = 1000) -> list[TieringRound]:
        """Commit rounds."""
        done: list[TieringRound] = []
        for _ in range(rounds):
            done.append(self.begin(start))
            assert self.lake.commit(done[-1].request()) is CommitOutcome.LANDED
        return done

    def go_on(self) -> None:
        """Let a later start commit three rounds, and expire all but the head."""
        self.tier(3, start=2000)
        assert self.lake.expire(PATH, frozenset()) > 0

    def ids(self) -> list[int]:
        """Return the ids of the snapshots."""
        return sorted(int(one.name.partition("-")[2]) for one in self.folder.glob("snapshot/snapshot-*"))

    def latest(self) -> int:
        """Return what the hint says, with which readers begin."""
        return int((self.folder / "snapshot" / "LATEST").read_text(encoding="utf-8"))


@pytest.fixture
def world(plugin: PaimonLakePlugin, options: PaimonOptions) -> World:
    """A table with two commits."""
    world = World(plugin, options)
    world.tier(2)
    return world


def pause(
    monkeypatch: pytest.MonkeyPatch, owner: type, call: str, at: Callable[[str], bool], meanwhile: Callable[[], None]
) -> None:
    """Do something just before the first call of that name whose argument is the one, as if the caller slept there."""
    original = getattr(owner, call)

    def paused(*arguments: Any) -> Any:  # noqa: ANN401 - as the method
        if at(str(arguments[1])):
            monkeypatch.setattr(owner, call, original)
            meanwhile()
        return original(*arguments)

    monkeypatch.setattr(owner, call, paused)


def test_a_commit_whose_number_was_expired_while_it_slept_is_not_taken_for_landed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = world.begin()
    request = stale.request()
    pause(monkeypatch, PinnedFolder, "create", lambda name: name.startswith("snapshot-"), world.go_on)
    with pytest.raises(OutcomeUnknownError, match="snapshot 4 was expired"):
        world.lake.commit(request)
    assert (world.ids(), world.latest()) == ([7], 7)
    assert world.lake.find(PATH, stale.round_id, 0) is None


def test_a_stamp_whose_number_was_expired_while_it_slept_is_in_no_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause(monkeypatch, PinnedFolder, "create", lambda name: name.startswith("snapshot-"), world.go_on)
    with pytest.raises(OutcomeUnknownError, match="snapshot 4 was expired"):
        world.lake.stamp(PATH, incarnation(1500))
    assert world.ids() == [7]
    assert head_of(world.lake).stamp == incarnation(2000)


def test_a_stamp_that_is_written_down_late_does_not_outlive_that_of_a_later_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause(monkeypatch, PinnedFolder, "replace", lambda name: name.startswith("stamp-"), world.go_on)
    world.lake.stamp(PATH, incarnation(1500))
    with pytest.raises(FencedError):
        world.lake.stamp(PATH, incarnation(1500))
    Other(world.folder).commit("COMPACT")
    for number in world.ids()[:-1]:
        (world.folder / "snapshot" / f"snapshot-{number}").unlink()
    assert head_of(world.lake).stamp == incarnation(2000)


def test_a_copy_that_is_written_late_takes_no_offsets_from_a_snapshot_that_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "INLINE_BYTES", 10)
    late = world.begin()

    def go_on() -> None:
        world.tier(3, start=2000)

    pause(monkeypatch, PinnedFolder, "replace", lambda name: name.startswith("commit-"), go_on)
    assert world.lake.commit(late.request()) is CommitOutcome.LANDED
    said = [json.loads(path.read_bytes()).get("properties", {}) for path in world.folder.glob("snapshot/snapshot-*")]
    named = {one[OFFSETS_FILE] for one in said if OFFSETS_FILE in one}
    assert len(named) == 4
    assert named == {path.name for path in world.folder.glob("_lakeward/offsets-*")}


def test_a_hint_that_is_written_late_does_not_lead_readers_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    late = world.begin()
    pause(monkeypatch, PinnedFolder, "replace", lambda name: name == "LATEST", world.go_on)
    with pytest.raises(OutcomeUnknownError):
        world.lake.commit(late.request())
    assert (world.ids(), world.latest()) == ([8], 8)


def test_files_that_the_table_needs_are_told_though_what_was_read_is_expired_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [file.path for one in world.tier(1) for file in one.files]
    pause(monkeypatch, LocalStorage, "names", lambda folder: folder.endswith("/tag"), world.go_on)
    assert world.lake.referenced(PATH, files) == frozenset(files)


def test_a_table_whose_head_is_expired_while_it_is_read_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause(monkeypatch, LocalStorage, "read", lambda path: path.endswith("/snapshot-3"), world.go_on)
    head = head_of(world.lake)
    assert (head.snapshot_id, head.stamp) == (7, incarnation(2000))


def test_a_commit_that_another_program_expires_while_the_table_is_read_is_known_by_its_copy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, and is read only now: that is no table that was rolled back, nor one without a stamp."""
    before = head_of(world.lake)
    Other(world.folder).commit("COMPACT")

    def expire() -> None:
        for number in world.ids()[:-1]:
            (world.folder / "snapshot" / f"snapshot-{number}").unlink()

    pause(monkeypatch, LocalStorage, "names", lambda folder: folder.endswith("/_lakeward"), expire)
    head = head_of(world.lake)
    assert (head.snapshot_id, head.stamp) == (4, before.stamp)
    assert head.commit == before.commit


def test_of_many_snapshots_a_look_at_the_table_reads_the_head(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store each costs a request."""
    world.tier(20)
    read, original = [], LocalStorage.read

    def counted(storage: LocalStorage, path: str) -> bytes | None:
        read.append(path)
        return original(storage, path)

    monkeypatch.setattr(LocalStorage, "read", counted)
    head = head_of(world.lake)
    assert len(world.ids()) > 20
    assert [path for path in read if "/snapshot/" in path] == [f"{head.location}/snapshot/snapshot-{head.snapshot_id}"]


def test_a_damaged_head_is_said_and_not_read_for_ever(world: World, options: PaimonOptions) -> None:
    said = json.loads((world.folder / "snapshot" / "snapshot-3").read_bytes())
    (world.folder / "manifest" / said["baseManifestList"]).unlink()
    lake = PaimonLakePlugin().open(options, FakeClock())
    with pytest.raises(CorruptFileError, match="expected a manifest of Paimon, found 'nothing'"):
        lake.referenced(PATH, [f"{world.folder}/bucket-0/none.parquet"])


def test_a_snapshot_that_came_late_with_an_expired_number_goes_with_the_next_expiry(world: World) -> None:
    late = (world.folder / "snapshot" / "snapshot-2").read_bytes()
    world.go_on()
    (world.folder / "snapshot" / "snapshot-2").write_bytes(late)
    world.tier(1, start=2000)
    assert world.lake.expire(PATH, frozenset()) == 2
    assert world.ids() == [8]
    assert head_of(world.lake).commit is not None
