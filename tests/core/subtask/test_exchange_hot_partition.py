"""One partition gets far more than its writer can write: what the others, barriers and control messages feel of it.

The slow write is a call that the test makes in the midst of: whatever happens there, happens while it lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.model.events import AckClose, AssignSplits, Open, SplitFinished
from lakeward.model.exchange import Side
from lakeward.subtask.ports import OutputLimits
from lakeward_service_kit.exchange_world import APPEND, EVERY, PARTITIONS, ExchangeWorld, rows_of, splits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLOW = 1


@pytest.fixture(autouse=True)
def _written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is held back on its way to the lake's writer, so that it can be seen when one is written."""
    for limit in ("GATHERED_BYTES", "HELD_BYTES"):
        monkeypatch.setattr(f"lakeward.subtask.fan_out.writer.{limit}", 1)


@pytest.fixture
def world(tmp_path: Path) -> ExchangeWorld:
    """Three subtasks; every slice is a batch of its own, so that many wait for the slow writer."""
    return ExchangeWorld(tmp_path, APPEND, 3, limits=OutputLimits(gathered_bytes=1))


def write_slowly(world: ExchangeWorld, meanwhile: Callable[[], None]) -> list[int]:
    """Let the first write of the slow subtask last until `meanwhile` has returned.

    Returns:
        For each of its writes, how many snapshots it had taken before; filled as they come.
    """
    snapshots: list[int] = []

    def on_write(subtask: int, partition: bytes) -> None:
        del partition
        if subtask == SLOW:
            snapshots.append(len(world.members[SLOW].told(Open)))
            if len(snapshots) == 1:
                meanwhile()

    world.lake.on_write = on_write
    return snapshots


def let_others_work(world: ExchangeWorld) -> None:
    """Turn all but the slow subtask until nothing is left for them."""
    others = [member for member in world.members if member.number != SLOW]
    while any(member.turn() for member in others):
        pass
    for member in others:
        member.subtask.turn(None)
    while any(member.turn() for member in others):
        pass


def test_a_slow_writer_holds_up_no_other_channel_and_no_other_writer(world: ExchangeWorld) -> None:
    written: list[int] = []

    def meanwhile() -> None:
        let_others_work(world)
        written.extend(world.lake.rows[number] for number in (0, 2))

    write_slowly(world, meanwhile)
    for number, split in enumerate(splits()):
        world.members[2 * (number % 2)].tell(AssignSplits(splits=[split]))
    assert rows_of(world.finish()) == EVERY
    assert written == [world.lake.rows[number] for number in (0, 2)], "all of theirs, while it wrote its first batch"


def test_a_slow_writer_delays_a_control_message_and_a_barrier_by_the_batch_that_it_writes(world: ExchangeWorld) -> None:
    slow = world.members[SLOW]

    def meanwhile() -> None:
        let_others_work(world)
        world.checkpoint()
        assert slow.told(AckClose), "answered by the thread that receives"
        let_others_work(world)
        assert [len(member.told(Open)) for member in world.members] == [1, 0, 1]

    snapshots = write_slowly(world, meanwhile)
    world.assign(splits())
    world.turn()
    assert 1 <= snapshots.count(0) <= PARTITIONS, "one batch, of so many partitions at most"
    assert len(snapshots) > 2 * PARTITIONS
    assert len(world.acks()) == 3
    assert rows_of(world.finish()) == EVERY


def test_a_full_channel_stops_the_readers_and_neither_barriers_nor_what_was_read_for_others(
    tmp_path: Path,
) -> None:
    limits = OutputLimits(window_bytes=2048, channel_bytes=1, gathered_bytes=1)  # a slice fits half a window
    world = ExchangeWorld(tmp_path, APPEND, 3, limits=limits)

    def meanwhile() -> None:
        let_others_work(world)
        waits = [member.exchange for member in world.members if member.number != SLOW]
        queued = [[output.queue.waiting_bytes for output in one._begun.outputs._outputs] for one in waits]
        assert [[bool(size) for size in sizes] for sizes in queued] == [[False, True, False]] * 2
        assert [member.told(SplitFinished) for member in world.members] == [[], [], []], "nothing more is read"
        world.checkpoint()
        let_others_work(world)
        assert [len(member.told(Open)) for member in world.members] == [1, 0, 1]
        world.clock.advance(2.0)
        let_others_work(world)

    write_slowly(world, meanwhile)
    world.assign(splits())
    world.turn()
    kept = [
        channel
        for ack in world.acks()
        if ack.snapshot.exchange is not None
        for channel in ack.snapshot.exchange.channels
    ]
    assert {channel.consumer for channel in kept if channel.side is Side.OUT} == {SLOW}
    assert rows_of(world.finish()) == EVERY
