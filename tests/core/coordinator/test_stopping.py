"""A stop is in order in whatever phase of its life a service is."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.commits.committer import TRIES
from lakeward.errors import LakewardError, OutcomeUnknownError, UsageError
from lakeward.storage.service_state import ServiceStateStore
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.coordinator.service.service import Service, ServiceEnd
    from lakeward.model.jobs import JobSpec
    from lakeward.model.results import CommitRequest
    from lakeward.model.tables import TableSpec
    from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse
    from lakeward_service_kit.service_world import World


class HeldSource(EmbeddedSource):
    """Stands still while the tables are listed, which a start with `once` does."""

    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(store)
        self.listing, self.go_on = threading.Event(), threading.Event()

    def tables(self) -> Sequence[TableSpec]:
        self.listing.set()
        self.go_on.wait(LIMIT_S)
        return super().tables()


def stopped_while_starting(
    world: World, source: HeldSource, *, go_on: bool, stop_timeout_s: float = 5.0
) -> tuple[Service, ServiceEnd]:
    """Ask a service to stop in the middle of its start."""
    service = world.service(source=source, once=True, stop_timeout_s=stop_timeout_s)

    async def run() -> ServiceEnd:
        serving = asyncio.create_task(service.serve())
        await until(source.listing.is_set)
        service.stop()
        if go_on:
            source.go_on.set()
        end = await serving
        source.go_on.set()
        return end

    return service, asyncio.run(run())


def test_a_stop_while_the_targets_are_looked_at_is_no_error_and_names_what_was_missed(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    source = HeldSource(EmbeddedStore.open(world.store.root))
    _, end = stopped_while_starting(world, source, go_on=True)
    assert end.failed == ((log, "the service stopped before it was reached"),)
    assert end.started
    assert world.container.rounds().tables == ()


def test_a_start_that_hangs_is_given_up_once_a_stop_is_asked_for(world: World) -> None:
    world.load(world.table("log"), 0, 10)
    source = HeldSource(EmbeddedStore.open(world.store.root))
    service, end = stopped_while_starting(world, source, go_on=False, stop_timeout_s=0.1)
    assert not end.started
    assert service.state == "stopped"


def test_a_start_that_was_given_up_leaves_the_last_starts_state_as_it_was(world: World) -> None:
    world.load(world.table("log"), 0, 10)
    world.once()
    states = ServiceStateStore(SmallFiles(str(world.directory / "state")))
    before = states.load("svc")
    source = HeldSource(EmbeddedStore.open(world.store.root))
    stopped_while_starting(world, source, go_on=False, stop_timeout_s=0.1)
    assert states.load("svc") == before


def test_a_stop_before_the_first_step_ends_the_service(world: World) -> None:
    service = world.service()
    service.stop()
    end = asyncio.run(service.serve())
    assert end.failed == ()
    assert service.state == "stopped"


def test_a_stop_is_reported_at_once_however_soon_it_ends(world: World) -> None:
    service = world.service()

    async def run() -> str:
        serving = asyncio.create_task(service.serve())
        await until(lambda: service.state == "serving" and world.reports)
        service.stop()
        said = world.reports[-1].state
        await serving
        return said

    assert asyncio.run(run()) == "stopping"


def test_a_stop_of_a_service_that_has_ended_changes_nothing(world: World) -> None:
    """A signal may come while everything is closed."""
    service = world.service(once=True)

    async def run() -> str:
        await service.serve()
        service.stop()
        return service.state

    assert asyncio.run(run()) == "stopped"
    assert world.reports[-1].state == "stopped"


class HeldJobs(ThreadJobs):
    """Stands still while the slots are counted, on the thread that plans a job."""

    def __init__(self) -> None:
        self.planning, self.go_on = threading.Event(), threading.Event()
        super().__init__(run_subtask)

    @property
    def slots(self) -> int:
        if threading.current_thread() is not threading.main_thread():
            self.planning.set()
            self.go_on.wait(LIMIT_S)
        return self._slots

    @slots.setter
    def slots(self, slots: int) -> None:
        self._slots = slots


def test_a_stop_while_a_job_is_planned_lets_it_read_nothing(world: World) -> None:
    """The round is running by then, and has no job yet that could be told."""
    log = world.table("log")
    world.load(log, 0, 10)
    jobs = HeldJobs()
    service = world.service(jobs=jobs)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(jobs.planning.is_set)
        service.stop()
        jobs.go_on.set()
        await serving

    asyncio.run(run())
    assert len(world.lake.read(log)) == 0
    world.once()
    assert len(world.lake.read(log)) == 10


class DyingJobs(ThreadJobs):
    """As Spark whose Java process gets the signal as well: it is gone, and its jobs fail."""

    def __init__(self, launched: threading.Event) -> None:
        super().__init__(run_subtask)
        self._dead = threading.Event()
        self._launched = launched

    def gone(self) -> str | None:
        return "Spark's Java process has ended" if self._dead.is_set() else None

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        self._launched.set()
        if self._dead.is_set():
            on_done("connection refused")
            return
        threading.Thread(target=self._die, args=(on_done,), daemon=True).start()

    def die(self) -> None:
        self._dead.set()

    def _die(self, on_done: Callable[[str | None], None]) -> None:
        self._dead.wait(LIMIT_S)
        on_done("connection reset")


@pytest.mark.parametrize("asked_first", [True, False])
def test_a_spark_that_dies_with_the_signal_is_no_failure_of_the_service(world: World, asked_first: bool) -> None:
    """One that dies by itself is: then the service could not go on."""
    world.load(world.table("log"), 0, 10)
    launched = threading.Event()
    jobs = DyingJobs(launched)
    service = world.service(jobs=jobs)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(launched.is_set)
        if asked_first:
            service.stop()
        jobs.die()
        await serving

    if asked_first:
        asyncio.run(run())
    else:
        with pytest.raises(LakewardError, match="Java process has ended"):
            asyncio.run(run())
    assert world.container.rounds().tables == ()


def test_a_wrong_use_inside_the_service_is_not_blamed_on_the_caller(world: World) -> None:
    """Exit code 2 says: fix your command line or your configuration."""
    service = world.service()

    async def misuse() -> None:
        message = "a client must be opened in the process that uses it"
        raise UsageError(message)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(lambda: service.state == "serving")
        world.container.loop().spawn(misuse)
        await serving

    with pytest.raises(LakewardError, match="internal error, the service stopped in order: UsageError") as caught:
        asyncio.run(run())
    assert caught.value.exit_code == 1


class BrokenSource(EmbeddedSource):
    """A plugin with a mistake in it: its heartbeat raises what no source may raise."""

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        raise KeyError(len(beat.renewed))


def test_an_internal_error_that_the_service_waits_behind_ends_it_in_bounded_time(world: World) -> None:
    service = world.service(source=BrokenSource(EmbeddedStore.open(world.store.root)), stop_timeout_s=0.1)

    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            await service.serve()

    with pytest.raises(LakewardError, match="internal error, the service gave up what it had in hand: KeyError"):
        asyncio.run(run())


def test_a_stop_does_not_wait_for_the_pauses_of_a_commit_that_the_lake_does_not_answer(world: World) -> None:
    """It is tried as often as without a stop, but at once."""
    log = world.table("log")
    world.load(log, 0, 10)
    sent: list[CommitRequest] = []

    def lose(request: CommitRequest) -> None:
        sent.append(request)
        message = "no answer"
        raise OutcomeUnknownError(message)

    world.lake.before_commit = lose

    async def run() -> None:
        service = world.service(
            backoff_first_s=100.0, backoff_most_s=100.0, commit_timeout_s=800.0, stop_timeout_s=60.0
        )
        serving = asyncio.create_task(service.serve())
        await until(lambda: len(sent) == 2)  # there is no pause between these two
        service.stop()
        await asyncio.wait_for(serving, LIMIT_S)

    asyncio.run(run())
    assert len(sent) == TRIES
