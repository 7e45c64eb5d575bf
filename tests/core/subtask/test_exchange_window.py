"""What the coordinator sends between its own snapshot and a subtask's: with an exchange it is in neither of them.

The numbers are those of the scenarios of the checkpoint protocol (checkpoints.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.model.events import AssignSplits, Open
from lakeward.subtask.exchange.phase import ExchangePhase
from lakeward_service_kit.exchange_world import APPEND, EVERY, KEYED, ROWS, ExchangeWorld, rows_of, splits

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.events import AckCheckpoint
    from lakeward.model.tables import TableSpec

TABLES = pytest.mark.parametrize("table", [APPEND, KEYED], ids=["append", "keyed"])


def with_splits_sent_in_the_window(world: ExchangeWorld, *, unaligned: bool) -> list[AckCheckpoint]:
    """Take a checkpoint in whose window two more splits wait; they go out as soon as a subtask opens its gateway.

    Batches from one subtask to the other stay on the way meanwhile.
    """
    world.memory.stalled = {(0, 1), (1, 0)}
    before, waiting = splits()[:2], splits()[2:]
    world.assign(before)
    world.turn(12)
    world.checkpoint()
    world.turn(5)
    for member in world.members:
        assert member.told(Open), "its readers' snapshot is taken: what waited for that goes out"
        member.tell(AssignSplits(splits=[waiting.pop()]))
    world.turn(12)
    assert world.acked(1) == [], "the window of the writers' snapshots is still open"
    if unaligned:
        world.clock.advance(2.0)
        world.idle()
    world.memory.let_go()
    world.turn()
    acks = world.acks()
    assert {wire.split.split_id for ack in acks for wire in ack.snapshot.progress} == {
        one.split.split_id for one in before
    }
    states = [ack.snapshot.exchange for ack in acks if ack.snapshot.exchange is not None]
    assert any(state.unaligned for state in states) is unaligned
    kept = sum(channel.segment.rows for state in states for channel in state.channels)
    assert bool(kept) is unaligned
    assert sum(state.rows for state in states) + kept <= ROWS * len(before), "none of the splits that were sent since"
    return acks


@TABLES
@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
def test_scenarios_55_and_56_what_is_sent_in_the_window_is_in_no_snapshot_and_is_read_once(
    tmp_path: Path, table: TableSpec, unaligned: bool
) -> None:
    world = ExchangeWorld(tmp_path, table, 2)
    with_splits_sent_in_the_window(world, unaligned=unaligned)
    assert rows_of(world.finish()) == EVERY


@TABLES
@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_scenarios_57_and_58_with_a_failure_what_was_sent_in_the_window_is_sent_again_and_read_once(
    tmp_path: Path, table: TableSpec, unaligned: bool, count: int
) -> None:
    """The launch is lost after the checkpoint: the coordinator's snapshot has those splits as not assigned."""
    world = ExchangeWorld(tmp_path, table, 2)
    acks = with_splits_sent_in_the_window(world, unaligned=unaligned)
    again = ExchangeWorld(
        tmp_path, table, count, [ack.snapshot.exchange for ack in acks if ack.snapshot.exchange is not None]
    )
    again.assign([*(wire for ack in acks for wire in ack.snapshot.progress), *splits()[2:]])
    assert rows_of(again.finish()) == EVERY


@pytest.mark.parametrize(("late_s", "unaligned"), [(0.0, False), (2.0, True)])
def test_the_time_to_be_aligned_counts_from_the_trigger_also_where_the_subtasks_were_busy(
    tmp_path: Path, late_s: float, *, unaligned: bool
) -> None:
    world = ExchangeWorld(tmp_path, APPEND, 2)
    world.memory.stalled = {(0, 1), (1, 0)}
    world.assign(splits()[:2])
    world.turn(12)
    world.checkpoint()
    world.clock.advance(late_s)  # as if a write took so long
    world.turn(1)
    assert [member.exchange.phase for member in world.members] == [ExchangePhase.RUNNING] * 2
    world.turn(12)
    world.memory.let_go()
    world.turn()
    assert (
        any(ack.snapshot.exchange.unaligned for ack in world.acks() if ack.snapshot.exchange is not None) is unaligned
    )
    world.assign(splits()[2:])
    assert rows_of(world.finish()) == EVERY
