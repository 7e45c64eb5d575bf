"""One seed's run: its tables, its faults, and how it is brought to rest."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from lakeward.model.tables import TablePath
from lakeward_simulator import strikes
from lakeward_simulator.faults import CALLS, Fault, Faults
from lakeward_simulator.scheduler import FENCE_S, RunawayError
from lakeward_simulator.themes import faults
from lakeward_simulator.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_FAULTS_S = 26.0
"""Until then faults may strike."""
_QUIET_S = 8.0
"""Until then there is something to do, even if all faults have struck."""
_REST_S = 400.0
"""Then everything has to be in the lake within this time, in virtual seconds."""


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    seed: int
    failures: list[str]
    hits: Counter[tuple[str, str]]
    virtual_s: float
    lines: list[str] = field(default_factory=list)
    aim: tuple[str, str] | None = None
    """The fault that had to be among its faults."""


def run_seed(seed: int, *, story: bool = False, aim: tuple[str, str] | None = None) -> Outcome:
    """Run one seed.

    Args:
        seed: of all chance.
        story: keep what happens.
        aim: kind and step of a fault that has to be among those drawn, None for none.

    Returns:
        How it ended.
    """
    chance = Random(seed * 7919 + 1)  # noqa: S311 - a replay, not a secret
    world = World(seed, Faults(faults(chance, aim), amid=chance.choice((0.0, 0.5, 1.0))), story=story)
    world.on_fault = partial(strikes.strike, world)
    world.slots = chance.randint(1, 4)  # one of them is kept free for another round
    world.target_rows = chance.choice((2, 4, 8))
    world.commit_every = chance.choice((0.0, 0.0, 1.0, 3.0))
    world.max_split_rows = chance.choice((0, 5, 9))
    world.latency_s = chance.choice((0.05, 0.05, 0.3, 1.0))
    world.read_s = chance.choice((0.4, 0.8, 1.6))
    world.checkpoint_s = chance.choice((0.7, 2.0))
    world.max_round_s = chance.choice((5.0, 9.0, 60.0, 60.0))
    suit(world, aim)
    with world.alive():
        try:
            _populate(world, chance)
            world.start()
            world.run(_FAULTS_S, lambda: not world.faults.armed and world.scheduler.now > _QUIET_S)
            come_to_rest(world)
        except RunawayError as error:
            world.checks.fail(f"it runs away: {error}")
        except Exception:  # noqa: BLE001 - a bug of ours or of the product's: the seed has to be named either way
            world.checks.fail(traceback.format_exc())
        failures = [*world.checks.failures]
        for coordinator in world.coordinators:
            coordinator.loop.kill()
            coordinator.loop.dispose()
    return Outcome(seed, failures, world.faults.hits, world.scheduler.now, world.story.lines, aim)


def come_to_rest(world: World) -> None:
    """Stop all faults, wait until everything is in the lake, end the services in order, and look at what is left."""
    world.faults.over = True
    world.faults.armed.clear()
    world.story.note("world", "faults are over")
    _wait_for(world, world.checks.caught_up, "everything is in the lake")
    world.keep_alive = False
    for coordinator in world.running():
        coordinator.stop()
    _wait_for(world, lambda: not world.running(), "all services have ended")
    world.run(30.0, lambda: not world.connections)
    for _ in range(3):
        if world.checks.failures or not world.checks.leftovers():
            break
        _tidy(world)
    if not world.checks.failures:
        world.checks.at_rest()


def _tidy(world: World) -> None:
    """Start each service once more: it sweeps what earlier starts left, commits once, and ends in order."""
    for name in dict.fromkeys(one.service_name for one in world.coordinators):
        world.run(25.0)
        for path in [*world.source.tables_by_path]:
            world.append(path, 1)
        last = world.start(name, final=True)
        _wait_for(world, world.checks.caught_up, f"the last records are in the lake, by {name}")
        world.run(6.0)
        last.stop()
        _wait_for(world, lambda: not world.running(), f"{name} has ended for the last time")


def _wait_for(world: World, check: Callable[[], bool], what: str) -> None:
    if world.checks.failures:
        return
    world.run(_REST_S, check, every_s=0.5)
    if not check() and not world.checks.failures:
        world.checks.fail(f"within {_REST_S:.0f} s it did not happen that {what}")


def suit(world: World, aim: tuple[str, str] | None = None) -> None:
    """Make the steps likely that the run's faults wait for: some take a network or a table of a certain kind.

    Args:
        world: with the run's faults.
        aim: kind and step of the fault that has to strike, None for none.
    """
    steps = {fault.step for fault in world.faults.armed}
    services = {service for fault in world.faults.armed for service in CALLS if service in fault.kind.split()}
    if "lease" in steps | services:
        world.keyed, world.lease_s = 1.0, 9.0
    if "lake" in services and "read" in steps:
        world.commit_every = 2.0
    if "lake" in services and steps & {"report", "idle"}:  # what is called there cleans up after a failed round
        world.faults.armed.append(Fault("lake fails", "commit"))
    if "lake" in services and "report" in steps:  # files of a lost attempt are deleted while the round is reported
        world.faults.armed += [Fault("subtask crash", "read"), Fault("source slow", "report")]
    if "settle" in steps:
        _let_a_round_settle(world, undisturbed=aim is not None and aim[1] == "settle")
    if "cut" in steps:
        world.lose_data, world.overtaken_s = 4, 1.5
    if "drain" in steps:
        world.latency_s = 1.0


def _let_a_round_settle(world: World, *, undisturbed: bool) -> None:
    """Make the first round come to its end once its newest renewal is too old for a commit, and the source still away.

    The round has more to read than it can by then, and is cut: else it would be committed before. Whatever waits for it
    to settle must not lose its patience earlier.

    Args:
        world: with the run's faults.
        undisturbed: let all other faults wait for that as well.
    """
    world.read_s, world.max_round_s, world.away_s, world.more_rows = 3.0, FENCE_S + 2.0, 24.0, 100
    if any((fault.kind, fault.step) == ("store unknown", "settle") for fault in world.faults.armed):
        # What is written then is the service's state alone, before a lease is begun anew whose renewal has failed.
        world.keyed, world.lease_s = 1.0, 9.0
        world.faults.armed.append(Fault("lease fails", "settle"))
    for fault in world.faults.armed:
        if undisturbed or fault.step == "settle":
            fault.after = FENCE_S
    world.faults.armed.append(Fault("source away", "read"))


def _populate(world: World, chance: Random) -> None:
    for number in range(chance.choice((1, 1, 2))):
        path = TablePath("t", f"t{number}")
        keyed = chance.random() < world.keyed
        world.source.create(path, buckets=chance.randint(1, 3), keyed=keyed)
        world.append(path, chance.randint(4, 30))
        if chance.random() < 0.8 or world.keyed == 1.0:
            world.take_snapshots(path)
        world.append(path, world.more_rows)
        for _ in range(chance.randint(0, 3)):
            at = chance.random() * 10.0
            world.scheduler.at(at, partial(world.append, path, chance.randint(1, 8)))
            if chance.random() < 0.5:
                world.scheduler.at(at + 1.0, partial(world.take_snapshots, path))


def total(outcomes: Iterable[Outcome]) -> Counter[tuple[str, str]]:
    """Add the hits of many runs up."""
    hits: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        hits += outcome.hits
    return hits
