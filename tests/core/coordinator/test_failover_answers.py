"""Each answer of a lease backend to each kind of failover, in a whole service; and how often it is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Failover, FailoverAction, FailoverAnswer, FailoverKind, Lease, Protection
from lakeward.model.tables import TableBucket
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.held_source import FAIL, HeldSource
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import PlainBackend
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.coordinator.service.service import Service
    from lakeward.model.jobs import JobSpec
    from lakeward.model.status import RoundReport
    from lakeward_service_kit.service_world import World

ROWS = 120


class Answering(PlainBackend):
    """Answers one kind of failover as it is told to; counts what it is asked."""

    def __init__(self, kind: FailoverKind, action: FailoverAction) -> None:
        super().__init__()
        self.kind = kind
        self.action = action
        self.asked: Counter[FailoverKind] = Counter()
        self.acquired: list[Mapping[TableBucket, int]] = []

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See `LeaseSpec`."""
        self.acquired.append(snapshots)
        return super().acquire(lease, snapshots)

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        """See `LeaseSpec`."""
        self.asked[failover.kind] += 1
        answer = super().on_failover(lease, failover)
        return replace(answer, action=self.action) if failover.kind is self.kind else answer


@pytest.mark.parametrize("action", FailoverAction, ids=lambda action: action.value)
def test_a_reader_that_fails_keeps_releases_or_acquires_as_the_backend_says(
    world: World, action: FailoverAction
) -> None:
    backend = Answering(FailoverKind.READER, action)
    service = _service(world, backend)
    keyed, gate = next(iter(world.store.tables())).path, world.directory / "gate"

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(lambda: world.container.leases().held_leases.held and any(r.rows for r in _live(world)))
        gate.write_text(FAIL, encoding="utf-8")
        await until(lambda: backend.asked[FailoverKind.READER])
        gate.unlink()
        await until(lambda: "committed" in world.outcomes(keyed))
        service.stop()
        await serving

    asyncio.run(run())
    assert sorted(row["id"] for row in world.lake.read(keyed, key="id")) == list(range(ROWS))
    stale = [report.reason for report in world.rounds if report.outcome == "stale"]
    assert bool(stale) is (action is FailoverAction.RELEASE)
    assert all("released snapshot" in reason and "after a failure (reader)" in reason for reason in stale)
    generations = {lease_id for hook, lease_id in backend.calls if hook == "acquire"}
    assert (len(generations) > 1) is (action is FailoverAction.ACQUIRE)
    assert backend.asked[FailoverKind.COORDINATOR] == 1
    assert backend.asked[FailoverKind.READER] >= 1


class LosingJobs(ThreadJobs):
    """Its newest job can be lost as a whole, as with its executors; its tasks live on and do not know."""

    def __init__(self) -> None:
        super().__init__(run_subtask, slots=3)
        self.lose: Callable[[], None] = lambda: None

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """See `lakeward.ports.Jobs`."""
        self.lose = lambda: on_done("its executors are gone")
        super().launch(job, on_done)


@pytest.mark.parametrize("action", FailoverAction, ids=lambda action: action.value)
def test_a_job_that_is_launched_again_keeps_releases_or_acquires_as_the_backend_says(
    world: World, action: FailoverAction
) -> None:
    backend, jobs = Answering(FailoverKind.JOB, action), LosingJobs()
    service = _service(world, backend, jobs)
    keyed, gate = next(iter(world.store.tables())).path, world.directory / "gate"

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(lambda: world.container.leases().held_leases.held and any(r.rows for r in _live(world)))
        world.load(keyed, 0, ROWS, change="update")
        world.store.snapshot(keyed)
        jobs.lose()
        await until(lambda: backend.asked[FailoverKind.JOB])
        gate.unlink()
        await until(lambda: "committed" in world.outcomes(keyed))
        service.stop()
        await serving

    asyncio.run(run())
    assert sorted(row["id"] for row in world.lake.read(keyed, key="id")) == list(range(ROWS))
    stale = [report.reason for report in world.rounds if report.outcome == "stale"]
    assert bool(stale) is (action is FailoverAction.RELEASE)
    assert all("released snapshot" in reason and "after a failure (job)" in reason for reason in stale)
    newer = {TableBucket(1, None, 0): 1, TableBucket(1, None, 1): 1}
    assert (newer in backend.acquired) is (action is FailoverAction.RELEASE), "the whole table, or nothing, afresh"
    generations = {lease_id for hook, lease_id in backend.calls if hook == "acquire"}
    assert (len(generations) > 1) is (action is FailoverAction.ACQUIRE)
    assert backend.asked == {FailoverKind.COORDINATOR: 1, FailoverKind.JOB: 1}


@pytest.mark.parametrize("action", FailoverAction, ids=lambda action: action.value)
def test_a_restart_takes_over_unless_the_backend_releases(world: World, action: FailoverAction) -> None:
    backend = Answering(FailoverKind.COORDINATOR, action)
    first = _service(world, backend)

    async def killed() -> None:
        serving = asyncio.create_task(first.serve())
        await until(lambda: any(r.rows for r in _live(world)))
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(killed())
    (old,) = world.store.leases()
    (world.directory / "gate").unlink()
    backend.calls.clear()
    second = _service(world, backend, gate=False)
    held: list[int] = []

    async def restarted() -> None:
        serving = asyncio.create_task(second.serve())
        await until(lambda: second.state == "serving")
        held.append(len(world.container.leases().held_leases.held))
        await until(lambda: ("drop", old.lease_id) in backend.calls)
        second.stop()
        await serving

    asyncio.run(restarted())
    assert backend.asked[FailoverKind.COORDINATOR] == 2
    assert ("drop", old.lease_id) in backend.calls
    first_call = next(hook for hook, _ in backend.calls if hook in {"acquire", "drop"})
    assert first_call == ("drop" if action is FailoverAction.RELEASE else "acquire")


def _live(world: World) -> list[RoundReport]:
    tables = world.reports[-1].tables if world.reports else ()
    return [table.round for table in tables if table.round is not None]


def _service(world: World, backend: Answering, jobs: ThreadJobs | None = None, *, gate: bool = True) -> Service:
    if not world.store.tables():
        keyed = world.table("keyed", key=True)
        world.load(keyed, 0, ROWS)
        world.store.snapshot(keyed)
    place = world.directory / "gate"
    if gate:
        place.touch()
    source = HeldSource(EmbeddedStore.open(world.store.root), place, 2)
    return world.service(
        source=source,
        source_type="held",
        jobs=jobs or ThreadJobs(run_subtask, slots=3),
        backend=LeaseBackend("plain", backend),
        backoff_first_s=0.3,
        backoff_most_s=0.3,
    )
