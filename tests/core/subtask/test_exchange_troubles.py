"""What may go wrong at a subtask of an exchange: aborts, stores that refuse or hang, channels that are lost."""

from __future__ import annotations

import gc
from random import Random
from typing import TYPE_CHECKING

import pytest

from lakeward.clock import SystemClock
from lakeward.errors import ExchangeLostError, StorageError
from lakeward.model.events import (
    AckCheckpoint,
    AckClose,
    CheckpointAborted,
    Close,
    DeclineCheckpoint,
    Failed,
    Open,
    SplitFinished,
    TriggerCheckpoint,
)
from lakeward.sockets.flight.transport import FlightExchange
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.exchange.checkpoint_part import ExchangePart
from lakeward_service_kit.exchange_world import APPEND, EVERY, KEYED, ExchangeWorld, Member, rows_of, splits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from lakeward.model.checkpoints import CheckpointRef
    from lakeward.model.exchange import ExchangeState, Segment

KINDS = pytest.mark.parametrize("kind", ["aligned", "unaligned"])
STORE = "store-checkpoint"


@pytest.fixture(autouse=True)
def _written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is held back on its way to the lake's writer, so that it can be seen when one is written."""
    for limit in ("GATHERED_BYTES", "HELD_BYTES"):
        monkeypatch.setattr(f"lakeward.subtask.fan_out.writer.{limit}", 1)


@pytest.fixture
def world(tmp_path: Path) -> ExchangeWorld:
    """Two subtasks that read; batches from one to the other stay on the way."""
    world = ExchangeWorld(tmp_path, APPEND, 2)
    world.memory.stalled = {(0, 1), (1, 0)}
    world.assign(splits())
    world.turn(12)
    return world


def begin_checkpoint(world: ExchangeWorld, kind: str, number: int = 1) -> None:
    """Start a checkpoint that cannot complete: what it cuts is on the way."""
    world.checkpoint(number)
    world.turn(12)
    if kind == "unaligned":
        world.clock.advance(2.0)
        world.idle()


def hear_of_the_next(member: Member) -> None:
    """Tell a subtask that checkpoint 1 was aborted, and trigger the next one."""
    member.tell(CheckpointAborted(checkpoint=1))
    member.tell(Close(checkpoint=2))
    member.tell(TriggerCheckpoint(checkpoint=2))


def states_of(acks: Iterable[AckCheckpoint]) -> list[ExchangeState]:
    return [ack.snapshot.exchange for ack in acks if ack.snapshot.exchange is not None]


def check_restored(world: ExchangeWorld, folder: Path, number: int) -> None:
    """Go on from a checkpoint with another number of subtasks: each row is there once."""
    acks = world.acked(number)
    assert len(acks) == world.count
    done = {blocked.result.split_id for ack in acks for blocked in ack.snapshot.blocked}
    again = ExchangeWorld(folder, APPEND, world.count + 1, states_of(acks))
    again.assign([wire for ack in acks for wire in ack.snapshot.progress if wire.split.split_id not in done])
    assert rows_of(again.finish()) == EVERY


# --- checkpoints that end early ---------------------------------------------------------------------------------------


@KINDS
def test_an_aborted_checkpoint_lets_all_go_on_and_the_next_one_is_right(
    world: ExchangeWorld, tmp_path: Path, kind: str
) -> None:
    begin_checkpoint(world, kind)
    assert world.acked(1) == []
    world.abort(1)
    world.turn(12)
    begin_checkpoint(world, kind, 2)
    world.memory.let_go()
    world.turn()
    assert world.acked(1) == []
    assert any(state.unaligned for state in states_of(world.acks(2))) is (kind == "unaligned")
    check_restored(world, tmp_path, 2)
    assert rows_of(world.finish()) == EVERY


@KINDS
def test_a_newer_checkpoint_supersedes_one_that_a_subtask_has_not_heard_the_end_of(
    world: ExchangeWorld, tmp_path: Path, kind: str
) -> None:
    """Its coordinator's message is late; the other subtask's barrier of the next one is not."""
    begin_checkpoint(world, kind)
    quick, late = world.members
    hear_of_the_next(quick)
    world.turn(12)
    hear_of_the_next(late)
    world.memory.let_go()
    world.turn()
    assert world.acked(1) == []
    check_restored(world, tmp_path, 2)
    assert rows_of(world.finish()) == EVERY


@KINDS
def test_an_abort_that_comes_before_the_barrier_and_the_trigger_leaves_nothing_blocked(
    world: ExchangeWorld, kind: str
) -> None:
    first, second = world.members
    second.tell(Close(checkpoint=1))
    second.tell(CheckpointAborted(checkpoint=1))
    first.tell(Close(checkpoint=1))
    first.tell(TriggerCheckpoint(checkpoint=1))
    world.turn(12)
    if kind == "unaligned":
        world.clock.advance(2.0)
        world.idle()
    world.memory.let_go()
    world.turn()
    assert second.told(Open) == []
    assert world.acked(1) == [], "the second has sent no barrier"
    first.tell(CheckpointAborted(checkpoint=1))
    assert rows_of(world.finish()) == EVERY


def test_a_blocked_channel_goes_on_once_a_lost_abort_is_told_again(world: ExchangeWorld) -> None:
    """The coordinator says after each reconnect how the newest checkpoint has ended (`test_gang`)."""
    first, second = world.members
    for event in (Close(checkpoint=1), TriggerCheckpoint(checkpoint=1)):
        second.tell(event)
    first.tell(Close(checkpoint=1))
    first.tell(CheckpointAborted(checkpoint=1))
    world.memory.let_go()
    world.turn()
    world.idle()
    before = world.lake.rows[1]
    assert before < world.lake.rows[0], "its channel to itself is blocked"
    for _ in range(2):
        second.tell(CheckpointAborted(checkpoint=1))
        world.turn()
    assert world.lake.rows.total() == len(EVERY)
    assert rows_of(world.finish()) == EVERY


def test_a_checkpoint_that_has_ended_keeps_no_rows_in_memory(world: ExchangeWorld) -> None:
    """However long its store hangs, and however many come after it."""
    slow = world.members[1]
    slow.executor.held = {STORE}
    begin_checkpoint(world, "unaligned")
    world.memory.let_go()
    world.turn()
    assert slow.told(AckCheckpoint) == []
    gc.collect()
    parts = [one for one in gc.get_objects() if isinstance(one, ExchangePart) and one.received]
    assert parts
    world.abort(1)
    world.turn()
    assert not [part for part in parts if part.received or part.queued or part.open_rows]


@pytest.mark.parametrize("seed", range(6))
def test_no_batch_is_held_once_all_has_ended(tmp_path: Path, seed: int) -> None:
    """Checkpoints complete, are aborted and wait for their store at random; channels stall at random."""
    chance = Random(seed)  # noqa: S311 - a schedule, no secret
    world = ExchangeWorld(tmp_path, APPEND, 2)
    world.assign(splits())
    for number in range(1, 7):
        world.memory.let_go()
        world.memory.stalled = {(a, b) for a in range(2) for b in range(2) if chance.random() < 0.5}
        for member in world.members:
            member.executor.held = {STORE} if chance.random() < 0.3 else set()
        world.turn(chance.randrange(12))
        begin_checkpoint(world, chance.choice(["aligned", "unaligned"]), number)
        if chance.random() < 0.5:
            world.memory.let_go()
            world.turn(chance.randrange(40))
        world.abort(number)
    for member in world.members:
        member.executor.held = set()
    world.memory.let_go()
    assert rows_of(world.finish()) == EVERY
    for member in world.members:
        work = member.exchange
        assert [len(waiting) for waiting in work._begun.inputs._waiting] == [0, 0]
        assert [len(one.waiting) + len(one.gathered) for one in work._begun.outputs._outputs] == [0, 0]
        assert work._part is None
        assert all(part.ended for part in member.parts_to_store)


# --- the store --------------------------------------------------------------------------------------------------------


class RefusingFiles(CheckpointFiles):
    """A store that refuses a number of segments, each after its first batch."""

    refusals = 1

    def write_segment(self, ref: CheckpointRef, name: str, batches: Iterable[pa.RecordBatch]) -> Segment:
        def broken() -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(batches):
                if self.refusals and not number:
                    self.refusals -= 1
                    message = f"{name}: no space left"
                    raise StorageError(message)
                yield batch

        return super().write_segment(ref, name, broken())


@KINDS
def test_a_store_that_refuses_rows_costs_the_checkpoint_and_nothing_else(
    world: ExchangeWorld, tmp_path: Path, kind: str
) -> None:
    world.store = RefusingFiles(SmallFiles(str(tmp_path / "state")), world.clock)
    begin_checkpoint(world, kind)
    world.memory.let_go()
    world.turn()
    declined = [one for member in world.members for one in member.told(DeclineCheckpoint)]
    assert [(one.checkpoint, "no space left" in one.reason) for one in declined] == [(1, True)]
    world.abort(1)
    world.checkpoint(2)
    world.turn()
    check_restored(world, tmp_path, 2)
    assert rows_of(world.finish()) == EVERY


@KINDS
def test_a_store_that_hangs_holds_up_no_row_and_no_later_end_of_its_checkpoint(
    world: ExchangeWorld, tmp_path: Path, kind: str
) -> None:
    slow = world.members[1]
    slow.executor.held = {STORE}
    begin_checkpoint(world, kind)
    world.memory.let_go()
    world.turn()
    assert [len(member.told(AckCheckpoint)) for member in world.members] == [1, 0]
    assert len(slow.told(SplitFinished)) == 2, "it goes on reading"
    world.abort(1)
    world.checkpoint(2)
    world.turn()
    slow.executor.held.clear()
    world.turn()
    assert [ack.checkpoint for ack in slow.told(AckCheckpoint)] == [2], "nothing is stored of what has ended"
    check_restored(world, tmp_path, 2)
    assert rows_of(world.finish()) == EVERY


def test_a_subtask_ends_though_its_store_hangs(world: ExchangeWorld) -> None:
    world.members[1].executor.held = {STORE}
    begin_checkpoint(world, "unaligned")
    world.memory.let_go()
    world.turn()
    world.abort(1)
    assert rows_of(world.finish()) == EVERY
    world.close()


# --- channels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["reading", "checkpoint"])
def test_a_lost_channel_ends_the_subtask_with_its_cause(world: ExchangeWorld, when: str) -> None:
    if when == "checkpoint":
        begin_checkpoint(world, "unaligned")
    world.may_fail = True
    world.memory.receiver(1).on_lost(0, "channel from subtask 0: connection reset")
    world.turn(5)
    lost = world.members[1]
    assert isinstance(lost.subtask.error, ExchangeLostError)
    (failed,) = lost.told(Failed)
    assert (failed.code, failed.permanent) == (ExchangeLostError.code, False)
    assert "channel from subtask 0: connection reset" in failed.message
    assert lost.told(AckCheckpoint) == []


# --- over the network -------------------------------------------------------------------------------------------------


@pytest.fixture
def networked(tmp_path: Path) -> Iterator[ExchangeWorld]:
    """Two subtasks that exchange rows over Arrow Flight."""
    world = ExchangeWorld(tmp_path, KEYED, 2, transport=FlightExchange(SystemClock()))
    yield world
    world.close()


def test_over_flight_an_aborted_checkpoint_lets_all_go_on_and_the_next_one_completes(networked: ExchangeWorld) -> None:
    world = networked
    world.assign(splits())
    first, second = world.members
    first.tell(Close(checkpoint=1))
    first.tell(TriggerCheckpoint(checkpoint=1))
    world.until(lambda: bool(first.told(Open)))
    world.abort(1)
    world.checkpoint(2)
    world.until(lambda: len(world.acked(2)) == world.count)
    assert second.told(AckClose)
    assert rows_of(world.finish()) == EVERY


def test_over_flight_a_newer_checkpoint_supersedes(networked: ExchangeWorld) -> None:
    world = networked
    world.assign(splits())
    quick, late = world.members
    world.checkpoint(1)
    late.executor.held = {STORE}
    hear_of_the_next(quick)
    world.until(lambda: len(quick.told(Open)) == 2)
    hear_of_the_next(late)
    late.executor.held = set()
    world.until(lambda: len(world.acked(2)) == world.count)
    assert rows_of(world.finish()) == EVERY


def test_over_flight_a_peer_that_ends_early_is_the_cause_of_the_others_end(networked: ExchangeWorld) -> None:
    world = networked
    world.may_fail = True
    gone, other = world.members
    gone.subtask.close()
    world.until(lambda: other.subtask.error is not None)
    assert isinstance(other.subtask.error, ExchangeLostError)
    assert other.told(Failed)[0].code == ExchangeLostError.code
    assert "subtask 0" in other.told(Failed)[0].message
