"""Processes of the simulator's world."""

from __future__ import annotations

from random import Random

from lakeward_simulator.scheduler import Process, Scheduler


def test_a_process_that_is_stopped_again_while_it_stands_still_stands_still_once() -> None:
    scheduler = Scheduler(Random(1))  # noqa: S311 - nothing here is a secret
    process = Process(scheduler, "svc#1")
    process.freeze(10.0)
    scheduler.run_until(8.0)
    process.freeze(10.0)
    scheduler.run_until(30.0)
    process.freeze(5.0)
    assert process.slept_s == 18.0
