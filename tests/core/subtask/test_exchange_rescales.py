"""Gangs that are killed and go on with another number of subtasks; numbers are those of the catalogue of cases."""

from __future__ import annotations

import os
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.events import NoMoreSplits, WriterFinished
from lakeward.subtask.exchange.recovering import RowsRecovery
from lakeward_service_kit.exchange_world import APPEND, EVERY, KEYED, ROWS, ExchangeWorld, rows_of, splits
from lakeward_service_kit.recovering_world import (
    Checkpoint,
    checkpointed,
    figures,
    hold_disks,
    killed_once,
    killed_under_back_pressure,
    narrow,
    recovery,
    restored,
    spilled,
)

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.exchange import ExchangeState
    from lakeward.model.tables import TableSpec

pytestmark = pytest.mark.slow

TABLES = pytest.mark.parametrize("table", [APPEND, KEYED], ids=["append", "keyed"])
ALL = os.environ.get("LAKEWARD_KILLS") == "all"
"""`tox run -e kills-all` runs the further cases, which take the longest."""
PAIRS = [(1, 2), (2, 3), (3, 7), (4, 8), (13, 14), (3, 5), (12, 7), *([(20, 21)] if ALL else [])]
FURTHER = [(KEYED, 7, 2), (APPEND, 2, 7), (KEYED, 3, 5), (APPEND, 5, 3)] if ALL else []
UNCHANGED = [1, 3, 7]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces, so that most rows are on disk while few are in memory."""
    monkeypatch.setattr("lakeward.subtask.exchange.spilled_rows.SEGMENT_BYTES", 2000)


def killed(folder: Path, table: TableSpec, count: int) -> Checkpoint:
    """Run until a checkpoint holds rows of channels; every other channel stands still."""
    return killed_once(folder, f"{table.path.table}-{count}-parted", lambda place: _run_and_die(place, table, count))


def _run_and_die(folder: Path, table: TableSpec, count: int) -> Checkpoint:
    world = narrow(folder, table, count)
    world.memory.stalled = {(one, other) for one in range(count) for other in range(count) if (one + other) % 2}
    world.memory.stalled |= {(0, 0)}
    world.assign(splits())
    world.turn(12)
    world.checkpoint()
    world.turn(12)
    world.clock.advance(2.0)
    world.idle()
    world.memory.let_go()
    world.turn()
    found = Checkpoint(world, 1)
    assert any(state.channels for state in found.states)
    return found


def assert_order(states: list[ExchangeState]) -> None:
    """Rows of a bucket and a partition are in their order in each file, and files do not overlap."""
    spans: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for file in (file for state in states for file in state.files):
        found: dict[tuple[int, str], list[int]] = defaultdict(list)
        for row in pa.ipc.open_file(file.path).read_all().to_pylist():
            found[row["id"] // ROWS, row["name"]].append(row["id"])
        for key, ids in found.items():
            assert ids == sorted(ids)
            spans[key].append((ids[0], ids[-1]))
    for ordered in map(sorted, spans.values()):
        assert all(before[1] < after[0] for before, after in pairwise(ordered))


@pytest.mark.parametrize(
    ("table", "before", "after"),
    # In the gate to fewer and to more, of each table: the table or the direction makes them differ, not both at once.
    [(APPEND, 7, 2), (KEYED, 2, 7), (APPEND, 3, 5), (KEYED, 5, 3), *FURTHER],
    ids=lambda one: f"{one}" if isinstance(one, int) else one.path.table,
)
def test_47_two_kinds_of_tables_are_rescaled_checkpointed_in_the_recovery_and_rescaled_back(
    tmp_path: Path, table: TableSpec, before: int, after: int
) -> None:
    first = killed(tmp_path, table, before)
    world = restored(tmp_path, table, after, first.states)
    world.assign(first.splits)
    checkpointed(world, 2, unaligned=True)
    world.turn()
    assert sum(one.kept_spill_bytes for one in figures(world)) > 0
    found = Checkpoint(world, 2)
    again = narrow(tmp_path, table, before, found.states, recovery=recovery(tmp_path))
    again.assign(found.splits)
    assert rows_of(again.finish()) == EVERY


@pytest.mark.parametrize(
    ("table", "before", "after"),
    [
        *((APPEND, before, after) for before, after in PAIRS),
        *((KEYED, after, before) for before, after in PAIRS),
        *((KEYED, count, count) for count in UNCHANGED),
    ],
    ids=lambda one: f"{one}" if isinstance(one, int) else one.path.table,
)
def test_48_any_number_of_subtasks_goes_on_as_any_other(
    tmp_path: Path, table: TableSpec, before: int, after: int
) -> None:
    first = killed(tmp_path, table, before)
    world = narrow(tmp_path, table, after, first.states, recovery=recovery(tmp_path))
    world.assign(first.splits)
    states = world.finish()
    assert rows_of(states) == EVERY
    assert sum(state.rows for state in states) == len(EVERY)
    assert spilled(tmp_path) == []


def test_77_a_subtask_that_is_closed_while_its_drain_is_parked_leaves_nothing(tmp_path: Path) -> None:
    """Memory is full and the writer takes no more; or the disk does not answer."""
    first = killed_under_back_pressure(tmp_path, APPEND)
    for hang in (False, True):
        world = restored(tmp_path, APPEND, 2, first.states)
        if hang:
            hold_disks(world)
        else:
            world.turn(2)
        assert spilled(tmp_path) != []
        world.close()
        assert spilled(tmp_path) == []


@pytest.mark.parametrize("count", [1, 5, 20])
@pytest.mark.parametrize("timeout_s", [0.0, 0.001, 0.005])
def test_81_a_few_and_many_subtasks_with_any_time_for_the_alignment(
    tmp_path: Path, count: int, timeout_s: float
) -> None:
    world = narrow(tmp_path, APPEND, count, aligned_timeout_s=timeout_s)
    world.assign(splits())
    for number in range(1, 4):
        world.turn(8)
        world.checkpoint(number)
        world.turn(2)
        world.clock.advance(0.003)
        world.idle()
    world.turn()
    found = Checkpoint(world, 3)
    again = narrow(tmp_path, APPEND, count, found.states, aligned_timeout_s=timeout_s, recovery=recovery(tmp_path))
    again.assign(found.splits)
    assert rows_of(again.finish()) == EVERY


def written(world: ExchangeWorld, rows: int) -> None:
    """Let all work until writers have taken so many rows, or nothing more happens."""
    for _ in range(1000):
        if world.lake.rows.total() >= rows:
            break
        world.turn(1)


@TABLES
def test_82_failures_while_rows_are_sent_in_a_snapshot_in_a_recovery_and_at_the_end_lose_nothing(
    tmp_path: Path, table: TableSpec
) -> None:
    world = narrow(tmp_path, table, 3)
    world.assign(splits())
    written(world, len(EVERY) // 8)
    checkpointed(world, 1, unaligned=True)
    written(world, len(EVERY) // 4)
    found = Checkpoint(world, 1)

    world = restored(tmp_path, table, 2, found.states)
    world.assign(found.splits)
    written(world, len(EVERY) // 4)
    checkpointed(world, 2, unaligned=True)
    written(world, len(EVERY) // 2)
    found = Checkpoint(world, 2)
    for member in world.members:
        member.executor.held.add("store-checkpoint")
    checkpointed(world, 3, unaligned=True)
    assert world.acked(3) == [], "it dies in the midst of the snapshot"

    world = restored(tmp_path, table, 3, found.states)
    world.assign(found.splits)
    written(world, len(EVERY) // 8)
    checkpointed(world, 4, unaligned=True)
    world.turn(20)
    found = Checkpoint(world, 4)

    world = restored(tmp_path, table, 2, found.states)
    world.assign(found.splits)
    checkpointed(world, 5, unaligned=True)
    assert [one.recovery for one in figures(world)] == ["draining"] * 2
    world.turn(20)
    found = Checkpoint(world, 5)

    for ends in (False, True):
        world = restored(tmp_path, table, 3, found.states)
        world.assign(found.splits)
        if ends:
            assert rows_of(world.finish()) == EVERY
        else:
            world.turn()
            world.idle()
            world.members[0].tell(NoMoreSplits())
            world.turn()
            assert not all(member.told(WriterFinished) for member in world.members), "it dies while it ends"


@TABLES
def test_83_rows_of_a_bucket_stay_in_their_order_over_two_restores(tmp_path: Path, table: TableSpec) -> None:
    first = killed_under_back_pressure(tmp_path, table)
    world = restored(tmp_path, table, 3, first.states)
    world.assign(first.splits)
    checkpointed(world, 2, unaligned=True)
    world.turn()
    found = Checkpoint(world, 2)
    again = narrow(tmp_path, table, 2, found.states, recovery=recovery(tmp_path))
    again.assign(found.splits)
    states = again.finish()
    assert rows_of(states) == EVERY
    assert_order(states)


@TABLES
def test_85_with_nothing_on_its_way_a_checkpoint_and_one_in_the_recovery_from_it_hold_no_row_of_a_channel(
    tmp_path: Path, table: TableSpec
) -> None:
    world = narrow(tmp_path, table, 2)
    world.assign(splits()[:1])
    world.turn()
    world.idle()
    world.checkpoint()
    world.turn()
    first = Checkpoint(world, 1)
    world = restored(tmp_path, table, 3, first.states)
    checkpointed(world, 2, unaligned=False)
    world.turn()
    found = Checkpoint(world, 2)
    assert [state.channels for state in (*first.states, *found.states)] == [()] * 5
    assert any(state.open_rows for state in found.states)
    again = narrow(tmp_path, table, 2, found.states, recovery=recovery(tmp_path))
    again.assign(splits()[1:])
    assert rows_of(again.finish()) == EVERY


def test_86_of_a_hundred_times_the_memory_no_more_than_one_piece_beyond_it_is_ever_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeward.subtask.exchange.spilled_rows.SEGMENT_BYTES", 100)
    first = killed_under_back_pressure(tmp_path, APPEND)
    world = restored(tmp_path, APPEND, 1, first.states, memory=500)
    recovering = world.members[0].exchange._restored
    assert isinstance(recovering, RowsRecovery)
    held, largest = 0, 0
    while not recovering.done:
        held = max(held, recovering._machine.held_bytes)
        largest = max([largest, *(piece.size_bytes for piece in recovering._memory)])
        world.turn(1)
    assert recovering.total_bytes > 100 * 500
    assert 0 < held < 500 + largest
    world.assign(first.splits)
    assert rows_of(world.finish()) == EVERY
