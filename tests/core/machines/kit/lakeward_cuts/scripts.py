"""Courses of events that the game of chance hardly ever takes; each takes the kind of world to play in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.checkpoint_protocol import CheckpointAsked
from lakeward.machines.checkpoints import CheckpointPhase

if TYPE_CHECKING:
    from lakeward_cuts.process import Process
    from lakeward_cuts.world import World

LAST = "j"


def process(world: World, subtask: int) -> Process:
    """A subtask's process."""
    found = world.seats[subtask].process
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
    process(world, 1).ask()
    world.exchange(1)
    return world


def triggered(kind: type[World]) -> World:
    """As above; a checkpoint runs, both were triggered, and neither has heard of it."""
    world = last_split(kind)
    world.step(CheckpointAsked(now=world.now))
    while world.checkpoints.phase is not CheckpointPhase.COLLECTING:
        for subtask in (0, 1):
            world.beat(subtask)
            for _ in range(2):
                world.deliver_down(subtask)
                world.deliver_up(subtask)
    return world


def left_after_its_snapshot(kind: type[World]) -> None:
    """Subtask 0 takes its snapshot, finishes its split and leaves before its part is stored."""
    world = triggered(kind)
    world.exchange(0)
    world.exchange(1)
    process(world, 1).stored()
    world.exchange(1)
    process(world, 0).finish()
    process(world, 0).ask()
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
    process(world, 0).ask()
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
