"""What a service reports while it runs, and leaves in its status file when it has ended."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakeward.coordinator.rounds.task_attempt import TaskAttempt
from lakeward.errors import SchemaMismatchError
from lakeward.machines.rounds import HeartbeatAnswered, SendHeartbeat, Tick
from lakeward.machines.transport.channel import ChannelKey
from lakeward.model.events import Progress
from lakeward.model.tiering import HeartbeatResponse, TableAssignment
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from lakeward.model.identity import Incarnation
    from lakeward.model.results import CommitOutcome, CommitRequest, LakeHead
    from lakeward.model.status import ServiceReport, SubtaskReport
    from lakeward.model.tables import TableSpec
    from lakeward_service_kit.service_world import World


def test_a_stopped_service_advertises_no_spark_page(world: World) -> None:
    world.once(spark_ui="http://spark:4040")
    assert {report.spark_ui for report in world.reports if report.state != "stopped"} <= {"http://spark:4040"}
    assert (world.reports[-1].state, world.reports[-1].spark_ui) == ("stopped", None)


def test_a_committed_round_says_what_the_lake_lacks_after_it(world: World) -> None:
    """The service's newest report may be of the time before the commit."""
    path = world.table("log")
    world.load(path, 0, 10)
    world.once()
    assert [(report.outcome, report.lag_rows) for report in world.rounds] == [("committed", 0)]


def test_a_report_that_takes_long_is_made_less_often(world: World) -> None:
    """A report of hundreds of tables would otherwise be most of what an idle service does."""
    world.clock = clock = FakeClock()
    made: list[float] = []

    def publish(_: ServiceReport) -> None:
        clock.advance(takes_s[-1])
        made.append(clock.now())

    reporter = world.service_container(on_report=publish).reporter()
    takes_s, reports = [0.0], []
    for longer_s in (0.0, 0.04, 1.0):
        takes_s.append(longer_s)
        reporter.report(force=True)
        made.clear()
        for _ in range(120):
            clock.advance(0.5)
            reporter.report()
        reports.append(len(made))
    assert reports == [120, 30, 15]


def test_a_suspended_table_keeps_its_message_after_the_service_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.table("log")
    world.load(path, 0, 10)

    def refuse(*_: object) -> None:
        message = "column 'id': expected bigint, found string"
        raise SchemaMismatchError(message)

    monkeypatch.setattr(world.lake, "open_table", refuse)

    def stop_once_suspended(report: ServiceReport) -> None:
        world.reports.append(report)
        if any(table.status == "suspended" for table in report.tables):
            service.stop()

    service = world.service(on_report=stop_once_suspended)
    asyncio.run(service.serve())
    (table,) = world.reports[-1].tables
    assert world.reports[-1].state == "stopped"
    assert (table.status, table.message) == ("suspended", "column 'id': expected bigint, found string")


def test_the_lag_of_a_table_whose_round_failed_before_it_looked_is_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the round before it left says nothing of the rows that have come since."""
    path = world.table("log")
    world.load(path, 0, 10)
    lags: list[tuple[int | None, float | None]] = []

    def refuse(*_: object) -> None:
        message = "column 'id': expected bigint, found string"
        raise SchemaMismatchError(message)

    def alter_once_tiered(report: ServiceReport) -> None:
        for table in report.tables:
            if table.status == "suspended":
                lags.append((table.lag_rows, table.lag_s))
                service.stop()
            elif table.lag_rows == 0 and table.lag_s == 0 and not lags:
                lags.append((0, 0.0))
                world.load(path, 10, 20)
                monkeypatch.setattr(world.lake, "open_table", refuse)

    async def soon() -> None:
        async with asyncio.timeout(LIMIT_S):
            await service.serve()

    service = world.service(on_report=alter_once_tiered)
    asyncio.run(soon())
    assert lags[:2] == [(0, 0.0), (None, None)]


def test_a_row_that_waits_has_waited_for_longer_in_each_report(world: World) -> None:
    world.clock = clock = FakeClock()
    path = world.table("log")
    reports: list[ServiceReport] = []
    container = world.service_container(on_report=reports.append)
    reporter = container.reporter()
    container.tables().known(1, path).history.note_lag(0.02, clock.wall_ms())
    for _ in range(2):
        clock.advance(15.0)
        reporter.report(force=True)
    assert [report.tables[0].lag_s for report in reports] == [15.02, 30.02]


def test_a_deadline_that_no_round_has_met_is_reported_though_the_table_was_handed_out_again(world: World) -> None:
    world.clock = clock = FakeClock()
    reports: list[ServiceReport] = []
    container = world.service_container(on_report=reports.append)
    rounds, reporter = container.rounds(), container.reporter()
    path = world.table("log")
    commands = rounds.step(Tick(now=clock.now()))
    for epoch in (1, 2):
        (sent,) = [command for command in commands if isinstance(command, SendHeartbeat)]
        answer = HeartbeatResponse(0, TableAssignment(path, 1, epoch, 0, freshness_s=10.0), {})
        commands = rounds.step(HeartbeatAnswered(now=clock.now(), request=sent.request, response=answer))
        reporter.report(force=True)
        clock.advance(30.0)
    assert [report.tables[0].due_ms for report in reports] == [reports[0].written_ms + 10_000] * 2


def test_of_rows_that_a_round_has_found_nobody_says_that_they_came_when_the_last_round_left_none(world: World) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    told, loaded = threading.Event(), threading.Event()
    lags: list[tuple[int, float | None]] = []

    class Waiting(FolderLake):
        """Commits the later rows once the round was reported that found them."""

        def commit(self, request: CommitRequest) -> CommitOutcome:
            if loaded.is_set():
                told.wait(LIMIT_S)
            return super().commit(request)

    def look(report: ServiceReport) -> None:
        for table in report.tables:
            if (table.lag_rows, table.lag_s) == (0, 0.0) and not loaded.is_set():
                loaded.set()
                world.load(path, 10, 20)
            elif loaded.is_set() and table.lag_rows:
                lags.append((table.lag_rows, table.lag_s))
                told.set()
                service.stop()

    async def soon() -> None:
        async with asyncio.timeout(LIMIT_S):
            await service.serve()

    world.lake = Waiting(world.lake.root)
    service = world.service(on_report=look)
    asyncio.run(soon())
    assert lags[0] == (20, None)


def test_a_suspended_table_that_a_person_resumes_is_tried_again(world: World) -> None:
    @dataclass
    class RefusesOnce(FolderLake):
        refused: bool = False

        def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
            if not self.refused:
                self.refused = True
                message = "column 'id': expected bigint, found string"
                raise SchemaMismatchError(message)
            return super().open_table(table, incarnation)

    path = world.table("log")
    world.load(path, 0, 10)
    world.lake = RefusesOnce(world.directory / "lake")
    world.resumed = {str(path): 3}

    def resume_once_suspended(report: ServiceReport) -> None:
        if any(table.status == "suspended" for table in report.tables):
            world.resumed = {str(path): 4}
        if "committed" in world.outcomes(path):
            service.stop()

    async def soon() -> None:
        async with asyncio.timeout(LIMIT_S):
            await service.serve()

    service = world.service(on_report=resume_once_suspended)
    asyncio.run(soon())
    assert world.outcomes(path)[:2] == ["failed", "committed"]


def test_a_table_report_says_what_was_promised_what_was_delivered_and_how_many_files_the_lake_has(world: World) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    began = world.clock.wall_ms()
    world.once()
    last = world.reports[-1]
    (table,) = last.tables
    assert table.freshness_s == 0.2
    assert table.committed_ms is not None
    assert table.complete_ms is not None
    assert began <= table.committed_ms <= last.written_ms
    assert began <= table.complete_ms <= last.written_ms
    assert table.lake_files == len(world.lake.files_on_disk(path))
    assert table.layout == "the layout of the source"
    assert last.started_ms <= began + 1


def test_a_table_is_reported_to_be_as_complete_as_an_earlier_start_left_it_until_its_next_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    world.once()
    (record,) = world.rounds
    assert record.complete_ms is not None
    world.load(path, 10, 10)

    def refuse(*_: object) -> None:
        message = "column 'id': expected bigint, found string"
        raise SchemaMismatchError(message)

    with monkeypatch.context() as refusing:
        refusing.setattr(world.lake, "open_table", refuse)
        world.once(complete_ms={record.table_id: record.complete_ms})
    assert world.reports[-1].tables[0].complete_ms == record.complete_ms
    world.once()
    assert world.reports[-1].tables[0].complete_ms > record.complete_ms


def test_a_running_round_reports_its_subtasks_and_an_ended_one_has_none(world: World) -> None:
    path = world.table("log")
    world.load(path, 0, 10)
    world.once()
    attempt = _attempt(rows=4)
    seen = attempt.report(12.0)
    assert (seen.subtask, seen.state, seen.split, seen.rows, seen.size_bytes, seen.seen_s) == (
        3, "disconnected", "log-0", 4, 40, 2.0,
    )  # fmt: skip
    assert all(table.round is None or not table.round.subtasks for table in world.reports[-1].tables)


def test_a_subtask_is_reported_with_the_bytes_of_splits_too_short_for_a_report_of_their_progress(world: World) -> None:
    seen, told = [], threading.Event()

    class Waiting(FolderLake):
        """Commits once the round was reported whose splits are all finished."""

        def commit(self, request: CommitRequest) -> CommitOutcome:
            told.wait(LIMIT_S)
            return super().commit(request)

    def look(report: ServiceReport) -> None:
        for table in report.tables:
            if table.round is not None and table.round.subtasks and table.round.splits_done == table.round.splits:
                seen.append((sum(one.rows for one in table.round.subtasks), _bytes(table.round.subtasks)))
                told.set()

    world.load(world.table("log"), 0, 10)
    world.lake = Waiting(world.lake.root)
    world.once(progress_s=3600.0, on_report=look)
    rows, read_bytes = seen[0]
    assert rows == 10
    assert read_bytes > 10 * 8


def _bytes(subtasks: tuple[SubtaskReport, ...]) -> int:
    return sum(one.size_bytes for one in subtasks)


def test_a_subtask_counts_the_rows_of_a_finished_split_once() -> None:
    attempt = _attempt(rows=4)
    attempt.finish_split("log-0", 5)
    after = attempt.report(10.0)
    assert (after.splits_done, after.rows, after.size_bytes, after.split) == (1, 5, 40, "")


def test_a_subtask_counts_the_bytes_of_a_split_that_ended_before_it_had_reported_any() -> None:
    attempt = _attempt(rows=4)
    attempt.finish_split("log-0", 5, read_bytes=50)
    attempt.finish_split("log-1", 3, read_bytes=30)
    after = attempt.report(10.0)
    assert (after.splits_done, after.rows, after.size_bytes) == (2, 8, 80)


def test_a_finish_that_does_not_say_its_bytes_counts_those_that_were_reported_last() -> None:
    """A checkpoint does not keep them."""
    attempt = _attempt(rows=4)
    attempt.finish_split("log-0", 5, read_bytes=None)
    assert attempt.report(10.0).size_bytes == 40


def test_the_lease_of_a_running_service_has_an_end(world: World) -> None:
    path = world.table("keyed", key=True)
    world.load(path, 0, 100)
    world.store.snapshot(path)
    world.load(path, 100, 10)

    def leased() -> list[ServiceReport]:
        return [report for report in world.reports if report.leased and report.lease_expires_ms is not None]

    # The round goes on only once it was reported with its lease, however seldom this machine reports.
    world.lake.before_commit = lambda _: wait_until(lambda: bool(leased()), "a report of the lease")
    world.once()
    assert all((report.lease_expires_ms or 0) > report.written_ms for report in leased())
    assert {table.leased for report in leased() for table in report.tables} == {2}


def _attempt(rows: int) -> TaskAttempt:
    """A subtask that was heard of at second 10 and is not connected any more."""
    progress = Progress(split_id="log-0", rows=rows, size_bytes=rows * 10, offset=rows)
    return TaskAttempt(ChannelKey("r", 1, 3, 7), None, 10.0, progress=progress)
