"""Subtasks that go on from a checkpoint, and are checkpointed meanwhile."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from lakeward.model.events import Connected, DeployRecovery
from lakeward.model.exchange import ExchangeFigures, ExchangeState, Side
from lakeward.subtask.ports import OutputLimits
from lakeward_service_kit.exchange_world import ExchangeWorld, splits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.tables import TableSpec

narrow = partial(ExchangeWorld, limits=OutputLimits(window_bytes=1, gathered_bytes=2000))
"""One batch under way, so that rows wait at both ends of a channel."""


def recovery(folder: Path, *, quota: int = 1 << 30, memory: int = 1) -> DeployRecovery:
    names = [folder / "disk-a", folder / "disk-b"]
    for name in names:
        name.mkdir(exist_ok=True)
    return DeployRecovery(spill_dirs=list(map(str, names)), spill_quota_bytes=quota, memory_bytes=memory)


def spilled(folder: Path) -> list[Path]:
    return [path for name in ("disk-a", "disk-b") for path in (folder / name).glob("*")]


def figures(world: ExchangeWorld) -> list[ExchangeFigures]:
    return [member.exchange.figures for member in world.members]


def hold_disks(world: ExchangeWorld) -> None:
    """Let nothing be read back, from the checkpoint or from the spill."""
    for member in world.members:
        member.executor.held.add("restore-rows")


def let_go(world: ExchangeWorld) -> None:
    for member in world.members:
        member.executor.held.clear()


class Checkpoint:
    """What a completed checkpoint holds: states, and splits to go on with."""

    def __init__(self, world: ExchangeWorld, number: int) -> None:
        found = world.acks(number)
        self.states = [ack.snapshot.exchange for ack in found if ack.snapshot.exchange is not None]
        done = {blocked.result.split_id for ack in found for blocked in ack.snapshot.blocked}
        going_on = [wire for ack in found for wire in ack.snapshot.progress]
        self.splits: list[SplitProgress] = [wire for wire in going_on if wire.split.split_id not in done]


_KILLED: dict[Path, Checkpoint] = {}
"""By the place of its files: what a launch left, from which many tests go on in their own ways."""


def killed_once(folder: Path, name: str, run: Callable[[Path], Checkpoint]) -> Checkpoint:
    """Let a launch run and die where no test of this process has; give this test files of its own.

    Args:
        folder: of the test. Tests whose folders have one parent share the launch.
        name: which launch it is.
        run: runs it in a folder.

    Returns:
        What it left.
    """
    place = folder.parent / f"killed-{name}"
    if place not in _KILLED:
        _KILLED[place] = run(place)
    shutil.copytree(place, folder, dirs_exist_ok=True)
    return _KILLED[place]


def killed_under_back_pressure(folder: Path, table: TableSpec, count: int = 2) -> Checkpoint:
    """Run until a checkpoint holds open rows and rows of channels, of both sides; then all subtasks die."""
    return killed_once(folder, f"{table.path.table}-{count}", lambda place: _run_and_die(place, table, count))


def _run_and_die(folder: Path, table: TableSpec, count: int) -> Checkpoint:
    world = narrow(folder, table, count)
    world.memory.stalled = {(0, 1), (1, 0)}
    world.assign(splits())
    world.turn(12)
    world.checkpoint()
    world.turn(12)
    world.clock.advance(2.0)
    world.idle()
    world.memory.let_go()
    world.turn()
    found = Checkpoint(world, 1)
    assert all(any(one.side is side for state in found.states for one in state.channels) for side in Side)
    assert any(state.open_rows for state in found.states)
    return found


def restored(
    folder: Path, table: TableSpec, count: int, states: list[ExchangeState], *, memory: int = 1
) -> ExchangeWorld:
    """Launch from a checkpoint, up to the moment in which all are connected and nothing is drained."""
    world = narrow(folder, table, count, states, recovery=recovery(folder, memory=memory), wait=False)
    while not all(member.told(Connected) for member in world.members):
        world.turn(1)
    return world


def checkpointed(world: ExchangeWorld, number: int, *, unaligned: bool) -> None:
    """Take a checkpoint while rows are drained, without letting anything else go on before its cut."""
    world.checkpoint(number)
    for _ in range(4):
        world.turn(1)
        if unaligned:
            world.clock.advance(2.0)
            for member in world.members:
                member.subtask.turn(None)
