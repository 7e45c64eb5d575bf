"""One seed's run: its tables, its faults, and how it is brought to rest."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from lakeward.model.tables import TablePath
from lakeward.subtask.ports import OutputLimits
from lakeward_simulator import strikes
from lakeward_simulator.checks import ORPHAN
from lakeward_simulator.faults import CALLS, DISK, EXCHANGE, ROWS, Fault, Faults
from lakeward_simulator.partitions import ROUTES
from lakeward_simulator.rescaling import Division
from lakeward_simulator.scheduler import FENCE_S, RunawayError
from lakeward_simulator.themes import bucket_faults, exchange_faults, faults, recovery_faults
from lakeward_simulator.upkeep import UpkeptLake
from lakeward_simulator.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakeward_simulator.coordinator import Coordinator

_PARTITIONED = 1 / 3
"""Share of the runs whose tables have a lake partitioning."""
_NEVER_PARTITIONED = frozenset({4, 7, 16, 18, 20, 118, 304, 348, 443, 494, 2026112280612})
"""Seeds that tests, and the table of mistakes in the documentation, name for what they do without."""
_RECOVERING = 1 / 2
"""Share of the runs with an exchange that take checkpoints during recoveries."""
_IN_MEMORY = 1 / 3
"""Share of the runs that recover in which disks are faster than writers, so that pieces wait in memory."""
_LIMITED = 1 / 2
"""Share of the runs with a lake partitioning in which Spark has no more slots than it has."""
_EVOLVING = 1 / 4
"""Share of the same whose lake partitioning is another one at every other start."""
_NEVER_RECOVERING = frozenset({532, 3083, 21494, 2026112303598})
"""As `_NEVER_PARTITIONED`."""
_RESCALED = 1 / 5
"""Share of the runs in which counts of buckets change."""
_NEVER_RESCALED = frozenset({
    *_NEVER_PARTITIONED, *_NEVER_RECOVERING,
    0, 1, 2, 3, 8, 12, 23, 31, 179, 188, 360, 696,
    2026112302103, 2026112302516, 2026112402044, 2026112426851, 2026112446387, 2026112477855,
})  # fmt: skip
"""As `_NEVER_PARTITIONED`."""
_UPKEPT = 1 / 6
"""Share of the runs whose lake has upkeep by jobs of its own; tables with a partitioning of the lake's have none."""
_LETTERS = 1 / 6
"""Share of the runs in which some rows do not fit, and become dead letters."""
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
    recovered: int = 0
    """Checkpoints that completed, of which a part was stored during a recovery."""
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
    drawn = Faults(faults(chance, aim), amid=chance.choice((0.0, 0.5, 1.0)))
    upkept = aim is None and seed not in _NEVER_RESCALED and Random(seed * 7919 + 6).random() < _UPKEPT  # noqa: S311 - as above
    world = World(seed, drawn, story=story, upkept=upkept)
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
    world.keeps_letters = Random(seed * 7919 + 8).random() < _LETTERS and seed not in _NEVER_RESCALED  # noqa: S311 - as above
    _partition(world, Random(seed * 7919 + 2), aim)  # noqa: S311 - as above
    _rescale(world, Random(seed * 7919 + 5))  # noqa: S311 - as above
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
    return Outcome(
        seed, failures, world.faults.hits, world.scheduler.now, world.checks.recovered, world.story.lines, aim
    )


def come_to_rest(world: World) -> None:
    """Stop all faults, wait until everything is in the lake, end the services in order, and look at what is left."""
    world.faults.over = True
    world.faults.armed.clear()
    world.story.note("world", "faults are over")
    _wait_for(world, world.checks.caught_up, "everything is in the lake")
    if refused := world.checks.refused():
        for table in refused:
            world.mend(table)
        _wait_for(world, world.checks.caught_up, "everything is in the lake, also of what it had refused")
    world.keep_alive = False
    for coordinator in world.running():
        coordinator.stop()
    _wait_for(world, lambda: not world.running(), "all services have ended")
    world.run(30.0, lambda: not world.connections)
    for rows in (0, 0, 0, 1):
        left = world.checks.leftovers()
        if world.checks.failures or not left:
            break
        # Of two services one may get the table each time. One alone needs no new rows to delete what is nobody's.
        if rows and len(_services(world)) == 1:
            for sentence in left:
                if sentence.startswith(ORPHAN):
                    world.checks.fail(f"it takes new rows to clean up: {sentence}")
        tidy(world, rows)
    if not world.checks.failures:
        world.checks.at_rest()


def _services(world: World) -> list[str]:
    return [*dict.fromkeys(one.service_name for one in world.coordinators)]


def tidy(world: World, rows: int) -> None:
    """Start each service once more: it sweeps what earlier starts left, commits new rows if any, and ends in order.

    It does all upkeep before it ends: tasks of a job that it cancels would write after its own sweep, each time.
    """
    for name in _services(world):
        world.run(25.0)
        for path in [*world.source.tables_by_path] if rows else ():
            world.append(path, rows)
        last = world.start(name, final=True)
        _wait_for(world, world.checks.caught_up, f"the last records are in the lake, by {name}")
        world.run(6.0)
        _wait_for(world, partial(_is_upkept, last), f"{name} has no upkeep left to do")
        last.stop()
        _wait_for(world, lambda: not world.running(), f"{name} has ended for the last time")


def _is_upkept(coordinator: Coordinator) -> bool:
    return not coordinator.upkeep.has_work


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


def _partition(world: World, chance: Random, aim: tuple[str, str] | None) -> None:
    """Give some of the runs tables with a lake partitioning, most with an exchange: small channels, few open files.

    Args:
        world: everything.
        chance: of this alone: other runs are as they would be without it.
        aim: kind and step of the fault that has to strike, None for none.
    """
    tables, recovering = world.partitioned, aim is not None and (aim[1] == "recover" or aim[0] in {*DISK, *ROWS})
    exchanged = recovering or (aim is not None and aim[0] in EXCHANGE)
    upkept = isinstance(world.lake, UpkeptLake)
    drawn = chance.random() < _PARTITIONED and world.seed not in _NEVER_PARTITIONED and not upkept
    if not drawn and not exchanged:
        return
    kinds = ("append", "keyed") if exchanged else ("append", "append", "keyed", "keyed", "moving")
    route = tables.routes[TablePath("t", "t0")] = chance.choice(kinds)
    world.faults.armed += exchange_faults(chance) if route != "moving" else ()
    if chance.random() < 0.5:
        tables.routes[TablePath("t", "t1")] = chance.choice([*ROUTES])
    world.slots = chance.randint(2, 5)
    world.exchange.window_bytes = chance.choice((200, 600, 1 << 20))
    tables.limits = OutputLimits(
        window_bytes=world.exchange.window_bytes,
        channel_bytes=chance.choice((300, 2000)),
        subtask_bytes=chance.choice((600, 4000)),
        gathered_bytes=chance.choice((1, 300, 1 << 20)),
        gathered_rows=chance.choice((1, 3, 100)),
    )
    tables.aligned_timeout_s = chance.choice((0.0, 0.0, 0.3, 1.5))
    tables.unaligned = chance.random() < 0.85
    tables.open_rows = chance.choice((1, 400, 1 << 20))
    tables.open_files = chance.choice((1, 2, 64))
    world.exchange.latency_s = chance.choice((0.05, 0.3, 1.0))
    limits = Random(world.seed * 7919 + 4)  # noqa: S311 - as above
    if limits.random() < _LIMITED and world.seed not in _NEVER_RECOVERING:
        tables.missing_slots = limits.choice((0, 0, 1, 2))
    tables.evolves = limits.random() < _EVOLVING and world.seed not in _NEVER_RECOVERING
    if route != "moving":
        _recover(world, Random(world.seed * 7919 + 3), aimed=recovering)  # noqa: S311 - as above


def _recover(world: World, chance: Random, *, aimed: bool) -> None:
    """Let some of the runs with an exchange take checkpoints during recoveries: many small pieces, little memory.

    Args:
        world: everything.
        chance: of this alone.
        aimed: a fault of a recovery has to strike.
    """
    if not aimed and (chance.random() >= _RECOVERING or world.seed in _NEVER_RECOVERING):
        return
    tables = world.partitioned
    tables.during_recovery = (True,) if aimed else chance.choice(((True,), (True,), (True, False), (False, True)))
    tables.unaligned = aimed or chance.random() < 0.95
    tables.aligned_timeout_s = chance.choice((0.0, 0.0, 0.3))
    tables.limits = replace(tables.limits, restored_bytes=chance.choice((1, 1, 200, 1 << 20)))
    tables.memory = chance.choice((1, 400, 1 << 20))
    tables.open_rows = chance.choice((400, 1 << 20, 1 << 20))
    world.target_rows = chance.choice((4, 8, 30))
    world.checkpoint_s = 0.7
    world.more_rows = max(world.more_rows, chance.choice((20, 40, 80)))
    world.commit_every = chance.choice((0.0, 0.0, 0.0, 2.0))
    world.latency_s, world.exchange.latency_s = chance.choice((0.05, 0.05, 0.3)), chance.choice((0.05, 0.3))
    world.read_s = chance.choice((0.8, 1.6))
    if chance.random() < _IN_MEMORY:
        tables.restored_s, tables.written_s, world.more_rows = 0.02, 0.1, 100
        tables.limits = replace(tables.limits, restored_bytes=1)
    others = world.faults.armed[aimed:]
    world.faults.armed = world.faults.armed[:aimed] + chance.sample(others, min(len(others), chance.choice((0, 0, 1))))
    if aimed:  # something has to be recovered from first
        world.faults.armed[0].patience = _FAULTS_S
        world.faults.armed.append(Fault("job crash", "read", needs="rows"))
        world.faults.armed += [Fault("channel slow", "read")] * chance.choice((0, 1))
    else:
        world.faults.armed += recovery_faults(chance)


def _rescale(world: World, chance: Random) -> None:
    """Let counts of buckets change in some of the runs: of tables that the lake divides by the same count, or does not.

    Args:
        world: everything.
        chance: of this alone.
    """
    if chance.random() >= _RESCALED or world.seed in _NEVER_RESCALED:
        return
    for path in (TablePath("t", "t0"), TablePath("t", "t1")):
        if path not in world.partitioned.routes:
            parts = chance.choice((0, 0, 1, 2))
            world.rescaling.divisions[path] = Division(by_key=chance.random() < 0.4, partitions=parts)
    if world.keyed < 1.0:
        world.keyed = chance.choice((0.0, 0.0, 0.5))
    some = chance.sample(world.faults.armed, min(len(world.faults.armed), chance.choice((0, 1, 2))))
    if not world.partitioned.recovers:
        world.faults.armed = some
    world.faults.armed += bucket_faults(chance)


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
        if path in world.rescaling.divisions:
            table, at = world.source.tables_by_path[path], world.random.random() * 12.0
            world.later(at, partial(world.add_partition, table))


def total(outcomes: Iterable[Outcome]) -> Counter[tuple[str, str]]:
    """Add the hits of many runs up."""
    hits: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        hits += outcome.hits
    return hits
