"""Services on a cluster that are killed, rescaled, and killed in the recovery: `python -m lakeward_cluster.rescales`.

A run is one table, whose lake is slow, so that rows wait in channels. The service is killed once an unaligned
checkpoint with rows of channels is complete, and started with another number of slots. It stands still at the first
checkpoint that is complete while it recovers, and of which a part is in spill files: that one is looked at as it is
stored. In half of the runs the service is killed there as well, and started with yet another number. In the end DuckDB
has to find each row once, and nothing else may be left.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lakeward.clock import SystemClock
from lakeward.observe.condition import SUSPENDED
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_cluster.cluster import HOST, OTHER_HOST
from lakeward_cluster.spills import RECOVERED, noted, spilled_bytes
from lakeward_cluster.world import ClusterWorld
from lakeward_e2e.exchange import exchange_sections, slow_down
from lakeward_e2e.process import kill_all
from lakeward_e2e.tables import KeyTable, LogTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakeward.model.checkpoints import Checkpoint
    from lakeward.model.exchange import ExchangeState
    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.tables import AnyTable

RUN_S = 300.0
"""Seconds after which a run counts as hung; on a busy machine with two cores one takes two minutes."""
ROWS, MORE_ROWS = 1800, 300
READ_S, WRITE_S = 0.05, 0.2
_LOOK_S = 0.1
_SIZES = (1, 2, 3, 4)
"""Slots that the two machines can give."""

Victim = Literal["driver", "jvm"]
ENDED = {"driver": -signal.SIGKILL, "jvm": 1}
"""What a service ends with, by what of it was killed."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens in a run."""

    seed: int
    keyed: bool
    """Whether the table has a primary key."""
    snapshots: bool
    """Of one that has: whether its first rows are read from snapshots."""
    buckets: int
    sizes: tuple[int, ...]
    """Slots of each service."""
    victims: tuple[Victim, ...]
    """Of each service but the last one."""

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Draw it. Both kinds of tables alternate; two runs that are killed twice follow two that are not."""
        draw = random.Random(seed)  # noqa: S311 - a test's choice
        keyed = seed % 2 == 0
        victims: tuple[Victim, ...] = ("driver", "jvm")
        sizes = draw.sample(_SIZES, 2)
        sizes.append(draw.choice([size for size in _SIZES if size != sizes[1]]))
        kills = 2 if seed % 4 < 2 else 1
        return cls(
            seed=seed,
            keyed=keyed,
            snapshots=keyed and draw.random() < 0.5,
            buckets=draw.randrange(2, 5),
            sizes=tuple(sizes[: kills + 1]),
            victims=tuple(draw.choice(victims) for _ in range(kills)),
        )


@dataclass
class Result:
    """What came of a run. It is right if `problems` is empty."""

    scenario: Scenario
    seconds: float = 0.0
    hung: bool = False
    lost: int = 0
    """Rows that the lake should hold and does not."""
    doubled: int = 0
    """Rows that the lake holds and should not."""
    launched: list[int] = field(default_factory=list)
    """How many subtasks the checkpoints were of that were looked at."""
    recovering: int = 0
    """Checkpoints that completed in a recovery, and of which a part was in spill files."""
    spill_bytes: int = 0
    """Of these, together."""
    problems: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return it in a line, and one more for each problem."""
        one = self.scenario
        kind = ("keyed, snapshots" if one.snapshots else "keyed") if one.keyed else "log"
        sizes = " -> ".join(map(str, one.sizes))
        text = (
            f"seed {one.seed}: {kind}, slots {sizes}, killed {' '.join(one.victims)}; {self.seconds:.0f} s, "
            f"checkpoints of {self.launched} subtasks, {self.recovering} in recoveries, {self.spill_bytes} B of spills"
        )
        return "".join((text, *(f"\n  WRONG {problem}" for problem in self.problems)))


class HungError(Exception):
    """A run is not over in time."""


class Run:
    """One run; the world is its own from its beginning on."""

    def __init__(self, world: ClusterWorld, scenario: Scenario, timeout_s: float = RUN_S) -> None:
        """Begin in an empty directory.

        Args:
            world: whose cluster has two workers of two slots each, and which runs nothing else.
            scenario: what is to happen.
            timeout_s: after which it counts as hung.
        """
        kind = "keyed" if scenario.keyed else "log"
        self._name = f"{kind}_{scenario.seed}"
        world.begin(world.base / self._name)
        self._world = world
        self._scenario = scenario
        self._deadline = time.monotonic() + timeout_s
        self._spill = world.root / "spill"
        self._spill.mkdir()
        self._table: AnyTable = (KeyTable if scenario.keyed else LogTable)(world.store, self._name, scenario.buckets)
        self._store = CheckpointFiles(SmallFiles(str(world.root / "state")), SystemClock())
        self._result = Result(scenario)

    def run(self) -> Result:
        """Do it."""
        began = time.monotonic()
        try:
            self._do()
        except HungError as error:
            self._result.hung = True
            self._result.problems.append(f"hung: waited for {error}; {self._words()}")
        except AssertionError as error:
            self._result.problems.append(str(error))
        for service in self._world.processes:
            service.destroy()
        recovered = [int(line.split()[1]) for line in noted(self._world.faults, f"{RECOVERED}.{self._name}")]
        self._result.recovering, self._result.spill_bytes = len(recovered), sum(recovered)
        self._result.seconds = time.monotonic() - began
        return self._result

    def _do(self) -> None:
        first, second, *third = self._scenario.sizes
        victims = self._scenario.victims
        self._fill()
        service = self._start(first)
        self._stop_at("completed-unaligned", service)
        before = self._look("the checkpoint with rows of channels")
        channels = sum(one.segment.held_rows for state in before for one in state.channels)
        assert channels > 0, f"no row of a channel is in {self._newest().ref}"
        assert any(state.unaligned for state in before), f"{self._newest().ref} is aligned"
        self._kill(service, victims[0], "completed-unaligned")

        self._table.load(MORE_ROWS)
        service = self._start(second)
        self._stop_at("completed-spilled", service)
        after = self._look("the checkpoint in the recovery")
        self._check_recovering()
        assert self._of(after) != self._of(before), "it is not rescaled"
        restored = self._newest().ref
        if third:
            self._kill(service, victims[1], "completed-spilled")
            service = self._start(third[0])
            self._until(lambda: "goes on from a checkpoint" in service.words(), "the restore")
            if victims[1] == "driver":
                assert f"checkpoint={restored}" in service.words(), "it is not that checkpoint which is restored"
        else:
            self._world.let_go(self._point("completed-spilled"))
        self._hurry()
        self._compare()
        self._find_nothing_left(service)

    # --- services -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        table, world = self._table, self._world
        world.arm(f"each-read.{self._name}", f"sleep {READ_S}", always=True)
        slow_down(world, table, write_s=WRITE_S)
        table.load(ROWS // 2)
        if isinstance(table, KeyTable) and self._scenario.snapshots:
            table.snapshot()
        table.load(ROWS // 2)

    def _hurry(self) -> None:
        """Let the rest be read and written as fast as it can be."""
        self._world.arm(f"each-read.{self._name}", "sleep 0", always=True)
        slow_down(self._world, self._table, write_s=0)

    def _start(self, slots: int) -> ServiceProcess:
        world = self._world
        # Executors of the service before may be there a little longer than it was, and have slots.
        self._until(lambda: not world.cluster.executors(), "the executors to be gone")
        sections = exchange_sections(self._table, aligned_timeout_s=0.0)
        sections["checkpoint_keys"] |= {"during_recovery": "true", "spill_dirs": f'["{self._spill}"]', "memory": 1}
        return world.start(world.configure_spills(slots=slots, **sections))

    def _stop_at(self, point: str, service: ServiceProcess) -> None:
        """Let the driver stand still once it comes to a point."""
        self._world.arm(self._point(point), "wait")
        self._until(
            lambda: self._world.fired(self._point(point)) or not service.alive or self._world.same(self._table), point
        )
        assert service.alive, f"a service ended without a kill: {service.words()}"
        assert self._world.fired(self._point(point)), f"never reached: {point}; {service.words()}"

    def _kill(self, service: ServiceProcess, victim: Victim, point: str) -> None:
        if victim == "driver":
            service.send(signal.SIGKILL)
        else:
            kill_all(service.java())
        self._world.let_go(self._point(point))
        self._until(lambda: not service.alive, "the end of what was killed")
        code = service.ended()
        service.destroy()
        assert code == ENDED[victim], f"exit code {code} after a kill of its {victim}: {service.words()}"

    def _point(self, name: str) -> str:
        return f"{name}.{self._name}"

    def _words(self) -> str:
        return "\n".join(f"--- {process.log.name}: {process.words()}" for process in self._world.processes[-1:])

    def _until(self, look: Callable[[], object], what: str) -> None:
        while not look():
            known = self._world.table_status(self._table)
            assert known.get("status") != SUSPENDED, f"the service refuses to go on: {known.get('message')}"
            if time.monotonic() > self._deadline:
                raise HungError(what)
            time.sleep(_LOOK_S)

    # --- what is stored -------------------------------------------------------------------------------------

    def _newest(self) -> Checkpoint:
        refs = [info.ref for info in self._store.list("tier") if info.completed_ms is not None]
        assert refs, "no checkpoint is complete"
        return self._store.load(refs[-1])

    def _look(self, what: str) -> list[ExchangeState]:
        states = [part.exchange for part in self._newest().subtasks if part.exchange is not None]
        assert states, f"{what} has no state of an exchange"
        self._result.launched.append(self._of(states))
        return states

    @staticmethod
    def _of(states: Iterable[ExchangeState]) -> int:
        return next(state.subtasks for state in states)

    def _check_recovering(self) -> None:
        """Look whether the newest checkpoint names rows that lie beside one of the service before, and are spilled."""
        newest = self._newest()
        mine = f"/{newest.ref.incarnation}/"
        states = [part.exchange for part in newest.subtasks if part.exchange is not None]
        named = [one for state in states for one in state.segments() if one.kept is not None and mine not in one.name]
        assert sum(one.held_rows for one in named) > 0, f"{newest.ref} names no row of the checkpoint that was restored"
        assert spilled_bytes(self._world.faults, str(newest.ref)) > 0, f"nothing of {newest.ref} was in spill files"

    # --- what came of it ------------------------------------------------------------------------------------

    def _compare(self) -> None:
        world, table = self._world, self._table
        self._until(lambda: world.same(table) or self._all_tiered(), "all rows to be tiered")
        found, wanted = Counter(world.warehouse.rows(table)), Counter(table.rows())
        lost, more = wanted - found, found - wanted
        self._result.lost, self._result.doubled = lost.total(), more.total()
        assert not lost, f"{lost.total()} rows lost: {[*lost][:3]}; {self._words()}"
        assert not more, f"{more.total()} rows doubled: {[*more][:3]}; {self._words()}"

    def _all_tiered(self) -> bool:
        """Whether the service has nothing left to do."""
        report = self._world.table_status(self._table)
        return report.get("lag_rows") == 0 and (report.get("round") or {}).get("outcome") == "committed"

    def _find_nothing_left(self, service: ServiceProcess) -> None:
        world = self._world
        world.until_clean(self._table)
        world.until_no_checkpoints()
        service.send(signal.SIGTERM)
        self._until(lambda: not service.alive, "the end of the service")
        assert service.ended() == 0, service.words()
        assert [*self._spill.rglob("*")] == [], "spill files are left"
        for process in world.processes:
            assert "marker missing" not in process.words(), process.words()


# --- many of them -------------------------------------------------------------------------------------------------


def summary(results: list[Result]) -> tuple[str, bool]:
    """Return the last line, and whether all is well."""
    wrong = sum(bool(result.problems) for result in results)
    text = (
        f"{len(results)} runs: {sum(result.lost > 0 for result in results)} lost rows, "
        f"{sum(result.doubled > 0 for result in results)} doubled rows, {sum(result.hung for result in results)} hung, "
        f"{wrong} wrong in all; {sum(len(result.scenario.victims) > 1 for result in results)} were killed twice; "
        f"{sum(result.recovering > 0 for result in results)} completed checkpoints in a recovery, "
        f"{sum(result.recovering for result in results)} in all, "
        f"with {sum(result.spill_bytes for result in results)} B of spills; "
        f"{sum(result.seconds for result in results) / max(1, len(results)):.0f} s a run"
    )
    return text, bool(results) and wrong == 0


def runs(world: ClusterWorld, seeds: Iterable[int], timeout_s: float = RUN_S) -> Iterator[Result]:
    """Do runs, one after the other, on one cluster.

    Args:
        world: as of `Run`.
        seeds: of the runs.
        timeout_s: of each.
    """
    for seed in seeds:
        yield Run(world, Scenario.of(seed), timeout_s).run()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Do what the command line says; return 1 if anything was lost, doubled, hung or left over, or not shown."""
    parser = argparse.ArgumentParser(prog="python -m lakeward_cluster.rescales", description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each further one has the next")
    parser.add_argument("--timeout", type=float, default=RUN_S, help="seconds after which a run counts as hung")
    parser.add_argument("--keep", action="store_true", help="keep the directory of each run, not of wrong ones alone")
    parser.add_argument("--directory", type=Path, help="where runs lie; default: a new one")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="lakeward-rescales-", dir=options.directory))
    results: list[Result] = []
    world = ClusterWorld(place)
    try:
        world.cluster.add_workers(HOST, OTHER_HOST, cores=2)
        for result in runs(world, range(options.seed, options.seed + options.runs), options.timeout):
            results.append(result)
            _say(result.line())
            if result.problems:
                _say(f"  kept in {world.root}")
            elif not options.keep:
                shutil.rmtree(world.root)
    finally:
        world.destroy()
    text, well = summary(results)
    _say(text)
    if well and not options.keep:
        shutil.rmtree(place)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
