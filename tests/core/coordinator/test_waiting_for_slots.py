"""A round that Spark gives no slot says so: in status, progress and metrics at once, in the log once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lakeward.coordinator.rounds.subtasks import PATIENCE_S, SlotWatch
from lakeward.coordinator.service import stop
from lakeward.observe.metrics import ServiceMetrics
from lakeward_service_kit.rounds import IdleJobs

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from lakeward.model.jobs import JobSpec, UpkeepJob
    from lakeward.model.status import ServiceReport
    from lakeward_service_kit.service_world import World

MESSAGE = "waiting for Spark: 0 of 2 slots"


class NoSlots(IdleJobs):
    """A cluster without workers; what is cancelled there has ended."""

    slots = 3
    """One is kept free for another round."""

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        super().launch(job, on_done)
        self._on_done = on_done

    def cancel(self, job: JobSpec | UpkeepJob) -> None:
        super().cancel(job)
        self._on_done("cancelled")


def test_a_round_without_slots_says_what_it_waits_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "_LEAVE_S", 0.1)  # subtasks that never start never end
    path = world.table("log", buckets=4)
    world.load(path, 0, 10)
    seen: list[ServiceReport] = []

    def stop_once_it_waits(report: ServiceReport) -> None:
        seen.append(report)
        if any(table.message for table in report.tables):
            service.stop()
            service.stop()

    service = world.service(on_report=stop_once_it_waits, jobs=NoSlots())
    asyncio.run(service.serve())
    waiting = next(report for report in seen if any(table.message for table in report.tables))
    (table,) = waiting.tables
    assert table.message == MESSAGE
    metrics = ServiceMetrics()
    metrics.update(waiting)
    figures = [
        metrics.registry.get_sample_value(name, {"table": str(path)})
        for name in ("lakeward_slots", "lakeward_slots_asked")
    ]
    assert figures == [0, 2]


def test_waiting_is_warned_of_once_until_a_slot_was_there() -> None:
    watch = SlotWatch()
    watch.launched(8, now=0.0)
    warned = []
    for now in range(100):
        watch.update(1 if now == 50 else 0, float(now))
        if watch.should_warn(float(now)):
            warned.append(now)
    assert warned == [PATIENCE_S, 51 + PATIENCE_S]
    assert watch.message == "waiting for Spark: 0 of 8 slots"
    watch.update(3, 100.0)
    assert watch.message == ""
