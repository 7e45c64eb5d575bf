"""Subtasks that exchange rows, in one process, with the test in the coordinator's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.model.events import (
    AckCheckpoint,
    CheckpointAborted,
    CheckpointComplete,
    Close,
    NoMoreSplits,
    Open,
    Progress,
    SplitFinished,
    SubtaskDone,
    TriggerCheckpoint,
    WriterFinished,
)
from lakeward.subtask.ports import OutputLimits
from lakeward_service_kit.exchange_world import APPEND, EVERY, KEYED, PARTITIONS, ROWS, ExchangeWorld, rows_of, splits

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.tables import TableSpec

pytestmark = pytest.mark.slow

END = (WriterFinished, SubtaskDone)
TABLES = pytest.mark.parametrize("table", [APPEND, KEYED], ids=["append", "keyed"])


@TABLES
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_row_is_written_once(tmp_path: Path, table: TableSpec, count: int) -> None:
    world = ExchangeWorld(tmp_path, table, count)
    world.assign(splits())
    states = world.finish()
    assert rows_of(states) == EVERY
    assert sum(state.rows for state in states) == len(EVERY)
    assert sum(state.left_out for state in states) == 0
    results = [event.result for member in world.members for event in member.told(SplitFinished)]
    assert {(result.rows, result.files, result.left_out) for result in results} == {(ROWS, (), None)}


def test_a_subtask_that_finishes_while_its_gateway_is_closed_is_done_only_once_its_writer_was_reported(
    tmp_path: Path,
) -> None:
    world = ExchangeWorld(tmp_path, APPEND, 2)
    world.assign(splits())
    world.turn()
    world.idle()
    for member in world.members:
        member.tell(Close(checkpoint=1))
        member.tell(NoMoreSplits())
    world.turn()
    world.idle()
    assert [member.told(SubtaskDone) + member.told(WriterFinished) for member in world.members] == [[], []]
    for member in world.members:
        member.tell(CheckpointAborted(checkpoint=1))
    world.turn()
    world.idle()
    ends = [[type(event) for event in member.sent if isinstance(event, END)] for member in world.members]
    assert ends == [list(END)] * 2


def test_a_split_that_ends_between_the_close_and_the_own_snapshot_is_in_the_part(tmp_path: Path) -> None:
    """Its end is held back by then, and the coordinator's part has not heard of it."""
    world = ExchangeWorld(tmp_path, APPEND, 2)
    world.assign(splits())
    for member in world.members:
        member.tell(Close(checkpoint=1))
    world.turn()
    world.idle()
    assert [member.told(SplitFinished) for member in world.members] == [[], []]
    for member in world.members:
        member.tell(TriggerCheckpoint(checkpoint=1))
    world.turn()
    world.idle()
    held = {blocked.result.split_id for ack in world.acks() for blocked in ack.snapshot.blocked}
    assert held == {wire.split.split_id for wire in splits()}
    sent = {event.result.split_id for member in world.members for event in member.told(SplitFinished)}
    assert sent == held


def test_the_time_for_which_a_reader_stands_still_behind_full_channels_is_counted(tmp_path: Path) -> None:
    limits = OutputLimits(window_bytes=1, channel_bytes=1, gathered_bytes=1)
    world = ExchangeWorld(tmp_path, APPEND, 2, limits=limits)
    world.memory.stalled = {(0, 1)}
    world.assign(splits())
    world.turn(50)
    world.clock.advance(3.0)
    world.turn(1)
    work = world.members[0].exchange
    assert work.figures.credit_wait_s == pytest.approx(3.0)
    assert world.members[0].told(SplitFinished) == [], "it stands still"


def test_the_last_figures_of_a_round_that_is_shorter_than_the_time_between_two_reports_are_those_of_its_end(
    tmp_path: Path,
) -> None:
    world = ExchangeWorld(tmp_path, APPEND, 2)
    world.assign(splits())
    world.finish()
    last = [member.told(Progress)[-1].exchange for member in world.members]
    assert sum(one.received_bytes for one in last) == sum(one.sent_bytes for one in last) > 0
    assert [one.queued_bytes for one in last] == [0, 0]
    assert all("partition" in one.timings_s for one in last)
    kinds = [[type(event) for event in member.sent] for member in world.members]
    assert all(kind.index(Progress) < kind.index(SubtaskDone) for kind in kinds)


@pytest.mark.parametrize("count", [2, 3])
def test_a_partition_of_a_keyed_table_has_one_writer(tmp_path: Path, count: int) -> None:
    world = ExchangeWorld(tmp_path, KEYED, count)
    world.assign(splits())
    partitions = [{file.detail for file in state.files} for state in world.finish()]
    assert sum(map(len, partitions)) == len(set().union(*partitions)) == PARTITIONS


@TABLES
@pytest.mark.parametrize("kind", ["aligned", "unaligned", "close_files"])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_checkpoint_under_back_pressure_is_restored(tmp_path: Path, table: TableSpec, kind: str, after: int) -> None:
    """Two channels are stalled: its batches wait on the way, those after them in their producer's queue."""
    world = ExchangeWorld(tmp_path, table, 2)
    world.memory.stalled = {(0, 1), (1, 0)}
    world.assign(splits())
    world.turn(12)
    world.checkpoint(close_files=kind == "close_files")
    world.turn(12)
    if kind == "unaligned":
        world.clock.advance(2.0)
        world.idle()
    world.memory.let_go()
    world.turn()
    assert all(member.told(Open) for member in world.members)
    acks = world.acks()
    states = [ack.snapshot.exchange for ack in acks if ack.snapshot.exchange is not None]
    assert any(state.unaligned for state in states) is (kind == "unaligned")
    assert bool([channel for state in states for channel in state.channels]) is (kind == "unaligned")
    assert (not any(state.open_rows for state in states)) is (kind == "close_files")
    done = {blocked.result.split_id for ack in acks for blocked in ack.snapshot.blocked}
    finished = {event.result.split_id for member in world.members for event in member.told(SplitFinished)}
    going_on = [wire for ack in acks for wire in ack.snapshot.progress]
    known = {wire.split.split_id for wire in going_on} | done
    assert finished | known == {"s0", "s1", "s2", "s3"}

    again = ExchangeWorld(tmp_path, table, after, states)
    again.assign([wire for wire in going_on if wire.split.split_id not in done])
    assert rows_of(again.finish()) == EVERY


@TABLES
def test_later_checkpoints_refer_to_rows_that_are_stored(tmp_path: Path, table: TableSpec) -> None:
    world = ExchangeWorld(tmp_path, table, 2)
    world.assign(splits())
    world.turn(20)
    world.checkpoint(1)
    world.turn(20)
    for member in world.members:
        member.tell(CheckpointComplete(checkpoint=1))
    world.checkpoint(2)
    world.turn()
    first, second = [
        {
            s.name
            for m in world.members
            for a in m.told(AckCheckpoint)
            if a.checkpoint == n
            for s in a.snapshot.exchange.segments()
        }
        for n in (1, 2)
    ]
    assert first
    assert first <= second
    assert rows_of(world.finish()) == EVERY
