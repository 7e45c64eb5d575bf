"""An exchange whose processes are killed at each step of its life: what is armed, and the tables that it happens to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.tables import AnyTable
    from lakeward_e2e.world import World

PHASES = {
    "connecting": ("opening", "gathering", "connecting", "connected"),
    "sending": ("sending", "received"),
    "checkpoint": (
        "sent-Barrier",
        "aligning",
        "sent-Overtaken",
        "received-kept",
        "overtaken-kept",
        "segment-written",
        "acknowledged",
        "before-complete",
    ),
    "end": ("sent-EndOfChannel", "files-closed", "done", "before-lake-commit", "after-lake-commit"),
    "restore": ("completed-unaligned", "read-back", "restored"),
}
"""Points of an exchange's life, in order; `lakeward_faulty.exchange` and `lakeward_faulty.driver` say what each is.

Of a table that was killed at the first point of a restore, the next launch comes to the others.
"""
STEPS = tuple(point for points in PHASES.values() for point in points)
VICTIMS = {"worker": "kill-worker", "executor": "kill-executor", "driver": "kill-driver", "jvm": "kill-jvm"}
"""What does it; with a local master the executor is the driver's JVM."""
_END_THE_SERVICE = {VICTIMS["driver"], VICTIMS["jvm"]}
DAEMON = {"spark.python.daemon.module": "lakeward_faulty.daemon"}
"""Spark configuration that gives subtasks these points."""
LAYOUT = 'lake_partition = ["bucket(4, id)"]'
ROWS = 600
WRITE_S = 0.06
_LOOK_S = 0.2
MANY_ROWS = 1800
SLOW_WRITE_S = 0.2
"""So many rows are read for seconds, and written so slowly that the checkpoints that begin meanwhile overtake some."""

Kills = dict[str, str]
"""By point: the action."""


def exchanging_tables(
    world: World, log: str = "events", keyed: str = "orders", *, write_s: float = WRITE_S
) -> tuple[LogTable, KeyTable]:
    """Return an append-only table, and one that is partitioned by its key: slow to read, and slower to write."""
    tables = LogTable(world.store, log), KeyTable(world.store, keyed)
    for table in tables:
        world.arm(f"each-read.{table.path.table}", "sleep 0.1", always=True)
    slow_down(world, *tables, write_s=write_s)
    return tables


def slow_down(world: World, *tables: AnyTable, write_s: float = WRITE_S) -> None:
    """Let each write of tables take some seconds from now on."""
    for table in tables:
        world.arm(f"each-write.{table.path.table}", f"sleep {write_s}", always=True)


def exchange_sections(*tables: AnyTable, rounds: int = 1, aligned_timeout_s: float = 0.0) -> dict[str, Any]:
    """Return sections of a configuration, see `World.configure`. A round alone has all slots."""
    return {
        "tables": {table.path.table: LAYOUT for table in tables},
        "service_keys": {"rounds": rounds, "fence_s": 10},
        "heartbeat_timeout_s": 20,
        "checkpoint_keys": {"interval_s": 0.2, "pause_s": 0.05, "aligned_timeout_s": aligned_timeout_s},
    }


def configured(world: World, *tables: AnyTable) -> Path:
    """Write a configuration with a local master of three slots."""
    conf = "{ " + ", ".join(f'"{key}" = "{text}"' for key, text in DAEMON.items()) + " }"
    return world.configure(master="local[3]", spark_keys={"conf": conf}, **exchange_sections(*tables))


def kills_at(table: AnyTable, points: Iterable[str], victim: str) -> Kills:
    """Return what kills a victim at each of the points of a table's rounds."""
    return {f"{point}.{table.path.table}": VICTIMS[victim] for point in points}


def kill_at_each(
    world: World, config: Path, kills: Mapping[str, str], *tables: AnyTable, rows: int = ROWS
) -> list[ServiceProcess]:
    """Kill at all points, one after the other, each time as soon as one of them is reached; go on each time.

    A round that ends before all its points were reached is followed by another one. What is killed is named by the
    point: the process that reached it, or one that it depends on, so the step is reached for certain.

    Args:
        world: where.
        config: of the service, which is started, and started again whenever it ended.
        kills: by point: the action.
        tables: filled whenever all rows are in the lake.
        rows: how many then: no checkpoint begins once all of them are read.

    Returns:
        All services, in the order of their starts; where each kill ends one, all of them have ended.
    """
    for point, action in kills.items():
        world.arm(point, action)
    services: list[ServiceProcess] = []

    def fired() -> int:
        return sum(map(world.fired, kills))

    def reached_more(than: int) -> bool:
        alive = bool(services) and services[-1].alive
        if fired() > than:  # asked after `alive`: a point is taken before its kill
            return True
        if not alive:
            assert len(services) <= len(kills), f"a service ended without a kill: {services[-1].words()}"
            services.append(world.serve(config))
        return reached_all(world, kills, *tables, rows=rows) or fired() > than

    for number in range(len(kills)):
        try:
            wait_until(
                partial(reached_more, number),
                f"point {number + 1} of {len(kills)} to be reached",
                2 * LIMIT_S,
                _LOOK_S,
            )
        except AssertionError as error:
            left = [point for point in kills if not world.fired(point)]
            message = f"never reached: {left}; {services[-1].words()}"
            raise AssertionError(message) from error
    if set(kills.values()) <= _END_THE_SERVICE:
        services[-1].ended()
    return services


def kill_in_order(world: World, config: Path, kills: Mapping[str, str], *tables: AnyTable) -> list[ServiceProcess]:
    """Kill at each early point, then at each point of the end, as `kill_at_each` does.

    Args:
        world: where.
        config: of the service.
        kills: by point: the action.
        tables: filled whenever all rows are in the lake.

    Returns:
        All services, in the order of their starts.
    """
    services: list[ServiceProcess] = []
    for write_s, rows, late in ((SLOW_WRITE_S, MANY_ROWS, False), (WRITE_S, ROWS, True)):
        some = {point: kills[point] for point in kills if (point.partition(".")[0] in PHASES["end"]) is late}
        if not some:
            continue
        slow_down(world, *tables, write_s=write_s)
        services += kill_at_each(world, config, some, *tables, rows=rows)
    return [*dict.fromkeys(services)]


def reached_all(world: World, points: Iterable[str], *tables: AnyTable, rows: int = ROWS) -> bool:
    """Return whether all points were reached; if not, fill the tables once all their rows are in the lake."""
    if all(world.fired(point) for point in points):
        return True
    if world.same(*tables):
        for table in tables:
            table.load(rows)
    return False


def assert_nothing_lost(world: World, config: Path, *tables: AnyTable) -> None:
    """Wait until the lake holds each row once, and nothing else is left."""
    world.serve(config)
    world.until_same(*tables)
    world.until_clean(*tables)
    world.until_no_checkpoints()
