"""Courses of events that the game of chance hardly ever takes; each takes the kind of world to play in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.checkpoints import CheckpointPhase
from lakeward.machines.checkpoints.gateway import GatewayPhase
from lakeward_cuts.process import POLICY, Process

if TYPE_CHECKING:
    from lakeward_cuts.world import World

LAST = "j"


def process(world: World, subtask: int) -> Process:
    """A subtask's process."""
    found = world.peers[subtask].process
    assert found is not None
    return found


def last_split(kind: type[World]) -> World:
    """Subtask 0 reads the last split, subtask 1 waits for one."""
    world = kind()
    world.register(0)
    world.exchange(0)
    while process(world, 0).work != [LAST]:
        world.turn(checkpoints=False)
    world.register(1)
    world.exchange(1)
    process(world, 1).request()
    world.exchange(1)
    return world


def triggered(kind: type[World]) -> World:
    """As above; a checkpoint runs, both were triggered, and neither has received it."""
    world = last_split(kind)
    world.start_checkpoint()
    for turn in range(40):
        if world.checkpoints.phase is CheckpointPhase.COLLECTING:
            break
        subtask = turn % 2
        world.heartbeat(subtask)
        world.deliver_down(subtask)
        for _ in range(2):
            world.deliver_up(subtask)
    assert [process(world, subtask).taken for subtask in (0, 1)] == [0, 0]
    return world


def finished_after_its_snapshot(kind: type[World]) -> None:
    """Subtask 0 takes its snapshot, finishes its split and leaves before its part is stored."""
    world = triggered(kind)
    world.exchange(0)
    world.exchange(1)
    process(world, 1).stored()
    world.exchange(1)
    process(world, 0).finish()
    process(world, 0).request()
    world.exchange(0)
    if world.storing is not None:
        world.settle_store(ok=True)
    world.finish()


def opened_one_by_one(kind: type[World]) -> None:
    """Subtask 0 is through while subtask 1, whose connection breaks, has not taken its snapshot."""
    world = triggered(kind)
    world.exchange(0)
    process(world, 0).stored()
    process(world, 0).finish()
    process(world, 0).request()
    world.exchange(0)
    world.break_connection(1)
    second = process(world, 1)
    while not second.taken:
        world.deliver_down(1)
    second.stored()
    world.exchange(1)
    assert world.storing is not None
    world.settle_store(ok=True)
    world.finish()


def abort_lost_with_a_connection(kind: type[World]) -> None:
    """Subtask 1 closed; the message that the checkpoint is aborted is lost, and no other checkpoint follows."""
    world = triggered(kind)
    world.tick(POLICY.timeout_s)
    assert world.aborted
    world.break_connection(1)
    world.exchange(1)
    assert process(world, 1).gateway.phase is GatewayPhase.OPEN, "A-I9: both ends are open"
    world.finish()


def overtaken_by_its_own_message(kind: type[World]) -> None:
    """On a new connection, subtask 0's close acknowledgement is faster than a finish that is sent again."""
    world = last_split(kind)
    process(world, 0).finish()
    world.start_checkpoint()
    world.deliver_down(0)
    world.break_connection(0, overtaking=True)
    world.deliver_up(0)
    world.exchange(1)
    assert world.checkpoints.phase is CheckpointPhase.CUTTING
    world.exchange(0)
    world.finish()
