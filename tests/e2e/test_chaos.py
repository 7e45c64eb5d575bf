"""Real processes are killed and paused at random moments; in the end the lake holds exactly what the source holds.

`LAKEWARD_CHAOS_FAULTS` says how many faults, `LAKEWARD_CHAOS_SEED` which ones; a failure names the seed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_faulty.pause import pause
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.world import World

FAULTS = int(os.environ.get("LAKEWARD_CHAOS_FAULTS", "0"))
SEED = int(os.environ.get("LAKEWARD_CHAOS_SEED", "1"))
FENCE_S = 4
KINDS = ("kill the driver", "kill the JVM", "pause the driver", "kill a subtask", "pause a subtask")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.timeout(300 + 60 * FAULTS),
    pytest.mark.skipif(not FAULTS, reason="too long for the gate: `tox run -e chaos`"),
]


class Chaos:
    """One run: services that come and go under faults."""

    def __init__(self, world: World, config: Path) -> None:
        """Start nothing yet."""
        self.world = world
        self.config = config
        self.dice = random.Random(SEED)  # noqa: S311 - which fault comes next
        self.told: Counter[str] = Counter()

    def fault(self) -> None:
        """Let a service work for a moment, then hurt it or one of its subtasks."""
        service = self._living()
        time.sleep(self.dice.uniform(0.5, 8.0))
        name = self.dice.choice(list(KINDS))
        self.told[name] += 1
        match name:
            case "kill the driver":
                service.send(signal.SIGKILL)
                service.ended()
            case "kill the JVM":
                self._hurt(service.java(), signal.SIGKILL)
                assert service.ended() == 1
            case "pause the driver":
                self._pause(service)
            case "kill a subtask":
                self._hurt(service.readers(), signal.SIGKILL)
            case _:
                hurt = self._hurt(service.readers(), signal.SIGSTOP)
                time.sleep(self.dice.uniform(0.1, 6.0))
                self._hurt(hurt, signal.SIGCONT)

    def _pause(self, service: ServiceProcess) -> None:
        """Pause it, let a successor work meanwhile, and wake it up as a zombie."""
        pause(service.pid, self.world.root / "store" / "store.db")
        successor = self.world.start(self.config)
        time.sleep(self.dice.uniform(1.0, 2.5 * FENCE_S))
        service.send(signal.SIGCONT)
        if self.dice.random() < 0.5:
            successor.send(signal.SIGKILL)
            successor.ended()

    def _living(self) -> ServiceProcess:
        """Return a service that is up: one that is paused before would be no zombie but the later of two starts."""
        found: list[ServiceProcess] = []

        def up() -> bool:
            found[:] = [self.world.serve(self.config)]  # another one where the last has just been superseded
            status = self.world.status()
            return status.get("pid") == found[0].pid and status.get("state") == "serving"

        wait_until(up, "a service to be up")
        return found[0]

    def _hurt(self, processes: list[psutil.Process], number: signal.Signals) -> list[psutil.Process]:
        chosen = self.dice.sample(processes, min(len(processes), 1))
        for process in chosen:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return chosen


def test_random_faults_cost_no_row_and_double_none(world: World) -> None:
    """Checkpoints every second, small files, steps committed on the way, a KV snapshot under a lease."""
    log, keyed = LogTable(world.store, "events", buckets=3), KeyTable(world.store, "orders", buckets=2)
    config = world.configure(
        checkpoint_keys={"interval_s": 1, "pause_s": 0.2},
        lake_keys={"target_file_size_bytes": 65536},
        spark_keys={"subtask_timeout_s": 5},
    )
    with config.open("a", encoding="utf-8") as out:
        out.write('[tables."shop.events"]\ncommit_every = 2.0\n')
    world.arm("each-write.events", "sleep 0.3", always=True)
    world.arm("each-write.orders", "sleep 0.3", always=True)
    chaos = Chaos(world, config)
    for number in range(FAULTS):
        for _ in range(6):
            log.load(3000)
            keyed.load(1500, keys=4000)
        if number % 3 == 0:
            keyed.snapshot()
        chaos.fault()
    print(f"seed {SEED}: {dict(chaos.told)}, {len(world.processes)} processes")  # noqa: T201 - the figure
    world.disarm("each-write.events")
    world.disarm("each-write.orders")
    last = world.serve(config)
    world.until_same(log, keyed)
    for process in world.processes:
        if process is not last:  # a successor that died in time supersedes nobody: the last need not be the newest
            process.ended()
    last.end()
    world.run_once(config)
    world.run_once(config)
    time.sleep(FENCE_S)
    world.run_once(config)
    world.assert_clean(log, keyed)
    assert world.checkpoints() == []
