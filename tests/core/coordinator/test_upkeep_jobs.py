"""Jobs of upkeep run beside rounds: in free slots, below every round, and whatever happens, every row stays once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import LakeError, OutcomeUnknownError
from lakeward.model.jobs import UpkeepJob
from lakeward.subtask.run import run_subtask
from lakeward.subtask.upkeep import do_upkeep
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import World
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.service.service import Service
    from lakeward.model.status import UpkeepReport
    from lakeward.model.tables import TablePath


class GatedJobs(ThreadJobs):
    """Each task of upkeep waits until it may go on; one that is cancelled fails."""

    def __init__(self, slots: int = 4) -> None:
        super().__init__(run_subtask, slots=slots)
        self.begun, self.go_on, self.killed = threading.Event(), threading.Event(), threading.Event()
        self.do_upkeep = self._wait

    def _wait(self, order: bytes, attempt: int) -> str:
        self.begun.set()
        self.go_on.wait(LIMIT_S)
        if self.killed.is_set():
            self.killed.clear()
            self.go_on.clear()
            message = "cancelled"
            raise LakeError(message)
        return do_upkeep(order, attempt)

    def cancel(self, job: object) -> None:
        if isinstance(job, UpkeepJob):
            self.cancelled.append(job)
            self.killed.set()
            self.go_on.set()


@pytest.fixture
def world(world: World) -> World:
    """A lake that merges three files of a table."""
    world.lake = FolderLake(world.directory / "lake", merge_from=3)
    return world


async def serve(service: Service, steps: Callable[[], object]) -> None:
    """Serve until what a test does is done."""
    serving = asyncio.create_task(service.serve())
    await steps()  # type: ignore[misc]
    service.stop()
    await serving


def reported(world: World, path: TablePath) -> UpkeepReport | None:
    """What the newest report says of a table's upkeep."""
    return next((one.upkeep for one in world.reports[-1].tables if one.path == str(path)), None)


def live_files(world: World, path: TablePath) -> int:
    """How many files hold the rows of a table."""
    head = world.lake.head(path)
    assert head is not None
    return head.files or 0


def ids(world: World, path: TablePath) -> list[int]:
    """The ids of all rows in the lake."""
    return sorted(row["id"] for row in world.lake.read(path))


def unnamed(world: World, path: TablePath) -> set[str]:
    """The files of a table that no snapshot of it names."""
    on_disk = world.lake.files_on_disk(path)
    return on_disk - world.lake.referenced(path, on_disk)


def tier(world: World, path: TablePath, rounds: int) -> None:
    """Run rounds of ten rows each, without upkeep."""
    merge_from, world.lake.merge_from = world.lake.merge_from, 0
    for _ in range(rounds):
        world.load(path, len(ids(world, path)) if world.lake.head(path) else 0, 10)
        world.once()
    world.lake.merge_from = merge_from


def test_files_are_merged_once_a_round_has_committed_and_the_report_says_so(world: World) -> None:
    log = world.table("log", buckets=1)
    tier(world, log, 4)
    world.load(log, 40, 10)
    world.once()
    assert live_files(world, log) == 1
    assert ids(world, log) == list(range(50))
    report = reported(world, log)
    assert report is not None
    assert (report.state, report.files, report.files_after, report.tasks) == ("committed", 5, 1, 1)
    (table,) = world.reports[-1].tables
    assert table.counts is not None
    assert (table.counts.data_files, table.counts.small_files) == (1, 1)


def test_a_table_whose_upkeep_a_person_asks_for_is_looked_at_at_once(world: World) -> None:
    log = world.table("log", buckets=1)
    tier(world, log, 4)
    merge_from, world.lake.merge_from = world.lake.merge_from, 0
    looked = threading.Event()
    world.lake.at_upkeep = lambda step: looked.set() if step == "planned" else None

    async def steps() -> None:
        world.load(log, 40, 10)
        await until(looked.is_set)
        world.lake.merge_from = merge_from
        world.upkeep = {str(log): 1}
        await until(lambda: live_files(world, log) == 1)

    asyncio.run(serve(world.service(), steps))
    assert ids(world, log) == list(range(50))


def test_a_round_of_the_same_table_opens_and_commits_while_a_job_runs(world: World) -> None:
    log, jobs = world.table("log", buckets=1), GatedJobs()
    tier(world, log, 3)
    service = world.service(jobs=jobs)

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(jobs.begun.is_set)
        report = reported(world, log)
        world.load(log, 40, 10)
        await until(lambda: len(ids(world, log)) == 50)
        assert report is None or report.state == "running"
        jobs.go_on.set()
        await until(lambda: live_files(world, log) == 2)

    asyncio.run(serve(service, steps))
    assert ids(world, log) == list(range(50))


def test_a_round_that_needs_the_slot_of_a_job_gets_it(world: World) -> None:
    log, other, jobs = world.table("log", buckets=1), world.table("other", buckets=1), GatedJobs(slots=1)
    tier(world, log, 3)
    service = world.service(jobs=jobs)

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(jobs.begun.is_set)
        world.load(other, 0, 10)
        await until(lambda: bool(jobs.cancelled))
        await until(lambda: len(ids(world, other) if world.lake.head(other) else ()) == 10)
        jobs.go_on.set()
        await until(lambda: live_files(world, log) == 1)

    asyncio.run(serve(service, steps))
    assert ids(world, log) == list(range(40))
    assert len(jobs.upkeep) > 1


def test_a_stop_cancels_a_job_and_leaves_no_file_of_it(world: World) -> None:
    log, jobs = world.table("log", buckets=1), GatedJobs()
    tier(world, log, 3)

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(jobs.begun.is_set)

    asyncio.run(serve(world.service(jobs=jobs), steps))
    assert len(jobs.cancelled) == 1
    assert live_files(world, log) == 4
    assert unnamed(world, log) == set()


class DeafJobs(GatedJobs):
    """A job that is cancelled does not end."""

    def cancel(self, job: object) -> None:
        if isinstance(job, UpkeepJob):
            self.cancelled.append(job)


def test_a_stop_does_not_wait_for_a_job_that_does_not_end(world: World) -> None:
    log, jobs = world.table("log", buckets=1), DeafJobs()
    tier(world, log, 3)

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(jobs.begun.is_set)

    asyncio.run(serve(world.service(jobs=jobs, stop_timeout_s=0.1), steps))
    assert jobs.cancelled
    assert live_files(world, log) == 4
    jobs.go_on.set()
    assert ids(world, log) == list(range(40))


def test_a_job_that_takes_too_long_is_cancelled_and_says_so(world: World) -> None:
    log, jobs = world.table("log", buckets=1), GatedJobs()
    tier(world, log, 3)

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(lambda: (found := reported(world, log)) is not None and found.state == "cancelled")
        report = reported(world, log)
        assert report is not None
        assert report.reason == "it has not ended within 0.1 s"

    asyncio.run(serve(world.service(jobs=jobs, upkeep_timeout_s=0.1), steps))
    assert ids(world, log) == list(range(40))


def test_a_job_whose_table_is_dropped_is_cancelled_and_leaves_no_file(world: World) -> None:
    log, jobs = world.table("log", buckets=1), GatedJobs()
    tier(world, log, 3)

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(jobs.begun.is_set)
        world.store.drop_table(log)
        await until(lambda: bool(jobs.cancelled))
        await until(lambda: unnamed(world, log) == set())

    asyncio.run(serve(world.service(jobs=jobs, forget_every_s=0.1), steps))
    assert live_files(world, log) == 4


def test_a_foreign_compaction_meanwhile_makes_a_job_void_and_the_rows_stay(world: World) -> None:
    log, jobs = world.table("log", buckets=1), GatedJobs()
    tier(world, log, 3)

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(jobs.begun.is_set)
        world.lake.compact_elsewhere(log)
        jobs.go_on.set()
        await until(lambda: (found := reported(world, log)) is not None and found.state == "failed")

    asyncio.run(serve(world.service(jobs=jobs), steps))
    assert ids(world, log) == list(range(40))
    assert live_files(world, log) == 1


@pytest.mark.parametrize("step", ["plan", "planned", "commit", "committed"])
@pytest.mark.parametrize("error", [LakeError, OutcomeUnknownError])
def test_what_is_refused_or_unanswered_at_any_step_loses_no_row_and_is_tried_again(
    world: World, step: str, error: type[Exception]
) -> None:
    log, failed = world.table("log", buckets=1), list[str]()
    tier(world, log, 3)

    def fail_once(at: str) -> None:
        if at == step and not failed:
            failed.append(at)
            raise error(at)

    world.lake.at_upkeep = fail_once

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(lambda: bool(failed) and live_files(world, log) == 1)

    asyncio.run(serve(world.service(jobs=ThreadJobs(run_subtask, slots=4)), steps))
    assert ids(world, log) == list(range(40))
    world.load(log, 40, 10)
    world.once()  # the table's next upkeep knows that what had no answer can land no more
    assert unnamed(world, log) == set()


def test_what_a_lost_job_has_written_and_what_could_not_be_deleted_at_once_is_deleted(world: World) -> None:
    log, jobs, refused = world.table("log", buckets=1), ThreadJobs(run_subtask, slots=4), list[str]()
    tier(world, log, 3)
    listed = world.lake.list_prefix

    def refuse_once(path: TablePath, prefix: str) -> tuple[str, ...]:
        if "upkeep" in prefix and not refused:
            refused.append(prefix)
            raise LakeError(prefix)
        return listed(path, prefix)

    def lose_once(order: bytes, attempt: int) -> str:
        done = do_upkeep(order, attempt)
        if len(jobs.upkeep) == 1:
            message = "its executor died"
            raise LakeError(message)
        return done

    world.lake.list_prefix, jobs.do_upkeep = refuse_once, lose_once  # type: ignore[method-assign]

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(lambda: bool(refused) and live_files(world, log) == 1)

    asyncio.run(serve(world.service(jobs=jobs), steps))
    assert ids(world, log) == list(range(40))
    assert unnamed(world, log) == set()


def test_a_start_that_was_overtaken_commits_nothing_of_its_job(world: World) -> None:
    log, jobs = world.table("log", buckets=1), GatedJobs()
    tier(world, log, 3)

    async def steps() -> None:
        world.load(log, 30, 10)
        await until(jobs.begun.is_set)
        world.load(log, 40, 10)
        later = world.service(jobs=ThreadJobs(run_subtask), once=True)
        world.lake.merge_from = 0
        await later.serve()
        jobs.go_on.set()

    asyncio.run(serve(world.service(jobs=jobs), steps))
    assert ids(world, log) == list(range(50))
    assert live_files(world, log) == 5


def test_a_lake_that_is_to_merge_nothing_has_no_job(world: World) -> None:
    log, jobs = world.table("log", buckets=1), ThreadJobs(run_subtask)
    world.lake.merge_from = 0
    tier(world, log, 3)
    world.load(log, 30, 10)
    world.once(jobs=jobs)
    assert jobs.upkeep == []
    assert live_files(world, log) == 4
