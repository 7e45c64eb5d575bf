"""A service on a real Spark, killed, and killed again at a checkpoint after its restore; no key asks for it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.exchange import DAEMON, assert_nothing_lost, exchange_sections, exchanging_tables
from lakeward_e2e.kills import NOT_IN_GATE
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.tables import AnyTable
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def configured(world: World, spill: Path, *tables: AnyTable) -> Path:
    """Write a configuration in which Spark has its files in `spill`, and restored rows pass it a few at a time."""
    sections = exchange_sections(*tables, aligned_timeout_s=0)
    sections["checkpoint_keys"] |= {"memory": 1}
    options = DAEMON | {"spark.local.dir": str(spill)}
    conf = "{ " + ", ".join(f'"{key}" = "{text}"' for key, text in options.items()) + " }"
    return world.configure(master="local[3]", spark_keys={"conf": conf}, **sections)


def killed_at(world: World, config: Path, point: str) -> None:
    """Start the service, and wait until it is killed at a point."""
    world.arm(point, "kill-driver")
    assert ended_by_kill(world.start(config))


def ended_by_kill(service: ServiceProcess) -> bool:
    """Wait until a service has ended; say whether it was killed."""
    code = service.ended()
    service.destroy()
    return code == -signal.SIGKILL


def recovering(world: World, table: AnyTable) -> bool:
    """Say whether the status file tells of a recovery of a table's running round."""
    moved = (world.table_status(table).get("round") or {}).get("exchange") or {}
    return moved.get("recovery") in {"not_ready", "draining", "none"}


@NOT_IN_GATE
def test_a_service_that_spills_what_it_restores_is_killed_twice_and_loses_no_row(world: World) -> None:
    spill = world.root / "spill"
    spill.mkdir()
    log, keyed = exchanging_tables(world)
    world.arm("each-read.events", "sleep 0.5", always=True)
    for table in (log, keyed):
        table.load(1800)  # the round may not end before the checkpoint after the restore is seen
    config = configured(world, spill, log, keyed)

    killed_at(world, config, "completed-unaligned.events")
    # A checkpoint right after the restore may be older than the first report: it waits until one told of a recovery.
    world.hold("before-complete.events")
    world.hold("before-lake-commit.events")
    second = world.start(config)
    wait_until(lambda: recovering(world, log), f"a report of the recovery; {second.words()}")
    assert world.table_status(log)["round"]["exchange"]["spill_places"] == ["Spark's local directories"]
    # What is drained by now is in open files: the checkpoint holds rows in any case, of channels or of files.
    world.arm("completed.events", "kill-driver")
    world.let_go("before-complete.events")
    assert ended_by_kill(second)
    newest = world.status()["incarnation"]
    world.disarm("before-lake-commit.events")
    world.arm("each-read.events", "sleep 0", always=True)
    assert_nothing_lost(world, config, log, keyed)
    third = world.processes[-1]
    third.end()
    assert f"goes on from a checkpoint [lakeward.rounds] checkpoint={newest}" in third.words()
    assert list(spill.glob("lakeward-spill-*")) == []
