"""Checkpoints while subtasks write what was restored: killed, rescaled, killed again; rows are compared exactly."""

from __future__ import annotations

import re
import threading
from collections import Counter
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lakeward.clock import SystemClock
from lakeward.errors import CorruptFileError, LakewardError, StorageError
from lakeward.machines.recovery import Recovery
from lakeward.model.events import (
    Cancel,
    DeclineCheckpoint,
    Failed,
    NoMoreSplits,
    RequestSplit,
    WriterFinished,
)
from lakeward.model.exchange import complete
from lakeward.model.settings import CheckpointSettings
from lakeward.sockets.flight.transport import FlightExchange
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.storage.spill_disk import LocalSpillDisk
from lakeward.subtask.exchange import recovering
from lakeward_mutants import recovery_shells as bugs
from lakeward_service_kit.exchange_world import APPEND, EVERY, KEYED, rows_of, splits
from lakeward_service_kit.gang_world import gang_world
from lakeward_service_kit.recovering_world import (
    Checkpoint,
    checkpointed,
    figures,
    hold_disks,
    killed_under_back_pressure,
    let_go,
    narrow,
    recovery,
    restored,
    spilled,
)
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.model.tables import TableSpec

pytestmark = pytest.mark.slow

TABLES = pytest.mark.parametrize("table", [APPEND, KEYED], ids=["append", "keyed"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces, so that most rows are on disk while few are in memory."""
    monkeypatch.setattr("lakeward.subtask.exchange.spilled_rows.SEGMENT_BYTES", 1000)


@TABLES
@pytest.mark.parametrize(("second", "third"), [(1, 2), (2, 2), (2, 3), (3, 1)])
@pytest.mark.parametrize("after", [0, 7])
@pytest.mark.parametrize("live", [False, True], ids=["no live rows", "live rows"])
def test_84_what_is_checkpointed_while_it_recovers_is_restored_whole(
    tmp_path: Path, table: TableSpec, second: int, third: int, after: int, *, live: bool
) -> None:
    first = killed_under_back_pressure(tmp_path, table)
    world = restored(tmp_path, table, second, first.states)
    if live:
        world.assign(first.splits)
    world.turn(after)
    checkpointed(world, 2, unaligned=live)
    phases = [one.recovery for one in figures(world)]
    world.turn()
    found = Checkpoint(world, 2)
    kept = sum(one.kept_spill_bytes for one in figures(world))
    assert phases == ["draining"] * second
    assert kept > 0, "of the spill itself"
    assert [one.markers_missing for one in figures(world)] == [0] * second
    if not live:
        world.assign(first.splits)
    assert rows_of(world.finish()) == EVERY

    going_on = found.splits if live else first.splits
    again = narrow(tmp_path, table, third, found.states, recovery=recovery(tmp_path))
    again.assign(going_on)
    states = again.finish()
    assert rows_of(states) == EVERY
    assert sum(state.rows for state in states) == len(EVERY)
    assert spilled(tmp_path) == []


class LosesAMarker(Recovery):
    """A bug: the last channel is not marked."""

    def mark(self, channel: int, checkpoint: int) -> None:
        if channel != self.channels - 1:
            super().mark(channel, checkpoint)


@TABLES
def test_a_marker_that_is_missing_fails_the_checkpoint_under_its_own_reason_and_is_counted(
    tmp_path: Path, table: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must never happen: so it is neither hidden as "not ready" nor left out of the figures."""
    first = killed_under_back_pressure(tmp_path, table)
    with monkeypatch.context() as patch:
        patch.setattr(recovering, "Recovery", LosesAMarker)
        world = restored(tmp_path, table, 2, first.states)
    world.turn(7)
    checkpointed(world, 2, unaligned=False)
    world.turn()
    declined = [one.reason for member in world.members for one in member.told(DeclineCheckpoint)]
    assert declined == ["marker missing"] * 2
    assert [one.markers_missing for one in figures(world)] == [1, 1]
    assert world.acked(2) == []
    world.abort(2)
    world.assign(first.splits)
    assert rows_of(world.finish()) == EVERY


@TABLES
@pytest.mark.parametrize("feature", [False, True], ids=["off", "on"])
def test_89_a_checkpoint_from_a_recovery_is_restored_with_the_feature_off_and_the_reverse(
    tmp_path: Path, table: TableSpec, *, feature: bool
) -> None:
    first = killed_under_back_pressure(tmp_path, table)
    world = narrow(tmp_path, table, 3, first.states) if feature else restored(tmp_path, table, 3, first.states)
    world.assign(first.splits)
    checkpointed(world, 2, unaligned=True)
    world.turn()
    found = Checkpoint(world, 2)
    again = narrow(tmp_path, table, 2, found.states, recovery=recovery(tmp_path) if feature else None)
    again.assign(found.splits)
    assert rows_of(again.finish()) == EVERY


@TABLES
def test_73_each_checkpoint_during_a_recovery_is_whole_by_itself_also_after_one_that_was_aborted(
    tmp_path: Path, table: TableSpec
) -> None:
    first = killed_under_back_pressure(tmp_path, table)
    world = restored(tmp_path, table, 2, first.states)
    world.assign(first.splits)
    for number in range(2, 6):
        checkpointed(world, number, unaligned=True)
        if number % 2:
            world.abort(number)
        world.turn(2)
    world.turn()
    found = Checkpoint(world, 4)
    assert sum(one.kept_spill_bytes for one in figures(world)) > 0
    again = narrow(tmp_path, table, 3, found.states, recovery=recovery(tmp_path))
    again.assign(found.splits)
    assert rows_of(again.finish()) == EVERY


@TABLES
def test_84_rows_go_over_the_network_as_well(tmp_path: Path, table: TableSpec) -> None:
    first = killed_under_back_pressure(tmp_path, table)
    world = narrow(
        tmp_path, table, 3, first.states, recovery=recovery(tmp_path), transport=FlightExchange(SystemClock())
    )
    try:
        world.assign(first.splits)
        assert rows_of(world.finish()) == EVERY
    finally:
        world.close()


def test_32_a_checkpoint_before_all_is_spilled_is_declined_as_not_ready(tmp_path: Path) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = narrow(tmp_path, APPEND, 2, first.states, recovery=recovery(tmp_path), wait=False)
    hold_disks(world)
    world.checkpoint(2)
    world.turn()
    assert [[one.reason for one in member.told(DeclineCheckpoint)] for member in world.members] == [["not ready"]] * 2
    assert [one.recovery for one in figures(world)] == ["not_ready"] * 2
    assert not any(member.told(RequestSplit) for member in world.members)
    world.abort(2)
    let_go(world)
    world.connect()
    world.assign(first.splits)
    assert rows_of(world.finish()) == EVERY


def test_35_nobody_sends_to_a_consumer_that_recovers_before_it_gives_credit(tmp_path: Path) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 2, first.states)
    hold_disks(world)
    world.assign(first.splits)
    world.turn()
    assert [one.received_bytes for one in figures(world)] == [0, 0]
    assert all(one.queued_bytes for one in figures(world))
    let_go(world)
    assert rows_of(world.finish()) == EVERY


def test_15_a_checkpoint_completes_though_the_drain_stands_still(tmp_path: Path) -> None:
    """Its barriers pass restored rows as well as live ones."""
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 2, first.states)
    hold_disks(world)
    world.assign(first.splits)
    world.turn(50)
    world.checkpoint(2)
    world.turn(50)
    assert len(world.acked(2)) == 2, "it waits for no alignment"
    assert [one.recovery for one in figures(world)] == ["draining"] * 2
    assert all(one.kept_spill_bytes for one in figures(world))


def test_36_an_input_that_ends_before_the_recovery_finishes_nothing_early(tmp_path: Path) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 2, first.states)
    hold_disks(world)
    for member in world.members:
        member.tell(NoMoreSplits())
    world.turn()
    assert not any(member.told(WriterFinished) for member in world.members)
    let_go(world)
    world.turn()
    found = [member.told(WriterFinished)[0].state for member in world.members]
    known = sum(state.rows for state in first.states)
    assert sum(state.rows for state in found) == len(rows_of(found)) > known


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"spill_quota_bytes": 100}, r"checkpoint\.spill_quota: 100"), ({"spill_dirs": ["nowhere"]}, "No such file")],
)
def test_61_what_cannot_be_spilled_ends_the_subtask_with_that_cause_and_leaves_nothing(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    limits = msgspec.structs.replace(recovery(tmp_path), **change)
    world = narrow(tmp_path, APPEND, 1, first.states, recovery=limits, wait=False)
    world.may_fail = True
    world.turn()
    (member,) = world.members
    assert isinstance(member.subtask.error, StorageError)
    assert re.search(reason, member.told(Failed)[0].message)
    world.close()
    assert spilled(tmp_path) == []


def test_76_a_spill_that_is_damaged_while_it_is_drained_ends_the_subtask_with_that_cause(tmp_path: Path) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 1, first.states)
    world.may_fail = True
    for path in tmp_path.rglob("*.spill"):
        path.write_bytes(path.read_bytes()[:-1])
    world.turn()
    (member,) = world.members
    assert isinstance(member.subtask.error, CorruptFileError)
    world.close()
    assert spilled(tmp_path) == []


def test_a_subtask_that_is_cancelled_in_the_midst_of_a_recovery_leaves_no_spill(tmp_path: Path) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 2, first.states)
    world.turn(3)
    assert spilled(tmp_path) != []
    assert all(one.spill_bytes for one in figures(world))
    for member in world.members:
        member.tell(Cancel(reason="lost"))
    world.turn()
    world.close()
    assert spilled(tmp_path) == []


class WatchedDisk(LocalSpillDisk):
    """Calls `on_close` before each file that was written is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.on_close: Callable[[], None] = lambda: None

    def create(self, path: Path) -> FileIO:
        """See `SpillDisk`."""
        return WatchedFile(path, self)


class WatchedFile(FileIO):
    def __init__(self, path: Path, disk: WatchedDisk) -> None:
        super().__init__(path, "x")
        self._disk = disk

    def close(self) -> None:
        """See `FileIO`."""
        if not self.closed:
            super().close()
            self._disk.on_close()


def test_a_disk_that_hangs_while_the_spill_is_sealed_does_not_hold_up_the_end(tmp_path: Path) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    disk = WatchedDisk()
    world = narrow(tmp_path, APPEND, 1, first.states, recovery=recovery(tmp_path), spill_disk=disk, wait=False)
    ends: list[bool] = []

    def end() -> None:
        thread = threading.Thread(target=world.members[0].subtask.close, daemon=True)
        thread.start()
        thread.join(LIMIT_S)
        ends.append(not thread.is_alive())

    disk.on_close = end
    world.turn()
    assert ends == [True]
    assert spilled(tmp_path) == []


def test_78_a_store_that_refuses_a_checkpoint_does_not_harm_the_drain(tmp_path: Path) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 2, first.states)
    world.assign(first.splits)
    store = world.store
    world.store = CheckpointFiles(SmallFiles("/dev/null/nowhere"), world.clock)
    checkpointed(world, 2, unaligned=True)
    world.turn()
    assert all(member.told(DeclineCheckpoint) for member in world.members)
    world.store = store
    world.abort(2)
    assert rows_of(world.finish()) == EVERY
    assert spilled(tmp_path) == []


def test_the_spill_goes_with_the_recovery_though_a_checkpoint_of_it_waits_to_be_stored(tmp_path: Path) -> None:
    """It names rows of the checkpoint that was restored, and needs no copy of them."""
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 2, first.states)
    for member in world.members:
        member.executor.held.add("store-checkpoint")
    world.assign(first.splits)
    checkpointed(world, 2, unaligned=True)
    world.turn()
    assert [one.recovery for one in figures(world)] == ["none"] * 2
    assert spilled(tmp_path) == []
    let_go(world)
    world.turn()
    again = narrow(tmp_path, APPEND, 3, Checkpoint(world, 2).states, recovery=recovery(tmp_path))
    again.assign(Checkpoint(world, 2).splits)
    assert rows_of(again.finish()) == EVERY


def test_a_checkpoint_that_names_rows_which_are_damaged_since_ends_its_restore_with_that_cause(tmp_path: Path) -> None:
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 3, first.states)
    hold_disks(world)
    checkpointed(world, 2, unaligned=False)
    world.turn()
    found = Checkpoint(world, 2)
    name = found.states[0].segments()[0].name
    path = next(tmp_path.rglob(name.rpartition("/")[2]))
    path.write_bytes(path.read_bytes()[:-20])
    again = narrow(tmp_path, APPEND, 1, found.states, recovery=recovery(tmp_path), wait=False)
    again.may_fail = True
    again.turn()
    error = again.members[0].subtask.error
    assert isinstance(error, CorruptFileError)
    assert path.name in str(error)


@TABLES
def test_a_checkpoint_that_meets_a_recovery_copies_no_row_that_is_not_written(tmp_path: Path, table: TableSpec) -> None:
    """It names the segments of the checkpoint that was restored, each key group once."""
    first = killed_under_back_pressure(tmp_path, table)
    stored = {segment.name for state in first.states for segment in state.segments()}
    world = restored(tmp_path, table, 3, first.states)
    hold_disks(world)
    checkpointed(world, 2, unaligned=False)
    world.turn()
    found = [segment for state in Checkpoint(world, 2).states for segment in state.segments()]
    assert {segment.name for segment in found} == stored
    rows = Counter[str]()
    for segment in found:
        rows[segment.name] += segment.held_rows
    assert rows == {segment.name: segment.rows for state in first.states for segment in state.segments()}


@TABLES
def test_without_the_feature_no_directory_is_touched_and_nobody_waits_for_credit(
    tmp_path: Path, table: TableSpec
) -> None:
    first = killed_under_back_pressure(tmp_path, table)
    world = narrow(tmp_path, table, 2, first.states)
    assert [one.recovery for one in figures(world)] == ["", ""]
    world.assign(first.splits)
    assert rows_of(world.finish()) == EVERY
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "state"]


def test_a_fresh_round_spills_nothing_though_it_might(tmp_path: Path) -> None:
    world = narrow(tmp_path, APPEND, 2, recovery=recovery(tmp_path))
    world.assign(splits())
    assert rows_of(world.finish()) == EVERY
    assert [one.recovery for one in figures(world)] == ["", ""]
    assert spilled(tmp_path) == []


@pytest.mark.parametrize("live", [False, True], ids=["no live rows", "live rows"])
def test_no_step_is_made_of_a_checkpoint_that_is_to_close_files_and_meets_a_recovery(
    tmp_path: Path, *, live: bool
) -> None:
    """With live rows it waits for them, and so for the recovery: then it may be."""
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 2, first.states)
    hold_disks(world)
    if live:
        world.assign(first.splits)
        world.turn(50)
    world.checkpoint(2, close_files=True)
    world.turn(50)
    assert len(world.acked(2)) == (0 if live else 2)
    let_go(world)
    world.turn()
    found = Checkpoint(world, 2)
    assert complete(found.states) is live
    again = narrow(tmp_path, APPEND, 3, found.states, recovery=recovery(tmp_path))
    again.assign(found.splits if live else first.splits)
    assert rows_of(again.finish()) == EVERY


def test_88_the_feature_is_off_where_no_checkpoint_may_be_unaligned(tmp_path: Path) -> None:
    settings = CheckpointSettings(during_recovery=True, unaligned=False, spill_dirs=("/spill",))
    exchange = gang_world(tmp_path, settings=settings).gather()[0].deployed.exchange
    assert exchange is not None
    assert exchange.recovery is None


# --- bugs put back ----------------------------------------------------------------------------------------------

DRAINED = partial(
    test_84_what_is_checkpointed_while_it_recovers_is_restored_whole,
    table=APPEND,
    second=2,
    third=3,
    after=7,
    live=True,
)
OFF = partial(test_without_the_feature_no_directory_is_touched_and_nobody_waits_for_credit, table=APPEND)
FULL = partial(
    test_61_what_cannot_be_spilled_ends_the_subtask_with_that_cause_and_leaves_nothing,
    change={"spill_quota_bytes": 100},
    reason="spill_quota",
)


@pytest.mark.parametrize(
    ("bug", "case"),
    [
        (bugs.bug_1_commits_nothing, DRAINED),
        (bugs.bug_1_commits_what_is_read, DRAINED),
        (bugs.bug_7_sends_before_it_has_credit,
         test_35_nobody_sends_to_a_consumer_that_recovers_before_it_gives_credit),
        (bugs.bug_11_spills_though_it_is_off, OFF),
        (bugs.bug_12_swallows_what_cannot_be_spilled, FULL),
        (bugs.bug_12_takes_an_error_for_the_end,
         test_76_a_spill_that_is_damaged_while_it_is_drained_ends_the_subtask_with_that_cause),
        (bugs.bug_14_hears_no_mark_while_it_recovers,
         test_15_a_checkpoint_completes_though_the_drain_stands_still),
        (bugs.bug_15_keeps_the_spill_of_what_has_ended,
         test_the_spill_goes_with_the_recovery_though_a_checkpoint_of_it_waits_to_be_stored),
        (bugs.bug_19_ends_with_its_input, test_36_an_input_that_ends_before_the_recovery_finishes_nothing_early),
        (bugs.bug_21_needs_no_unaligned_checkpoints,
         test_88_the_feature_is_off_where_no_checkpoint_may_be_unaligned),
        (bugs.bug_22_knows_one_kind_of_state, DRAINED),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)  # fmt: skip
@pytest.mark.mutant
def test_each_known_bug_of_what_is_around_the_machine_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
    case: Callable[[Path], None],
) -> None:
    bug(monkeypatch)
    own = tmp_path / "own"  # nothing that the bug has touched is gone on with elsewhere
    own.mkdir()
    with pytest.raises((AssertionError, LakewardError)):
        case(own)
