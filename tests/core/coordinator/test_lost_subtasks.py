"""A lost executor costs seconds: what its subtasks read goes to the others, with one warning."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from lakeward.coordinator.rounds.checkpoints import CheckpointPlan
from lakeward.coordinator.rounds.plan import JobPlan
from lakeward.coordinator.rounds.round import LaunchGone
from lakeward.machines.splits import Enumeration
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.backoff import RetryPauses
from lakeward.model.events import AssignSplits, Cancel, Deploy, Failed, Heartbeat, Register, RequestSplit, SubtaskDone
from lakeward.model.jobs import JobSpec
from lakeward.model.settings import CheckpointSettings
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket
from lakeward_service_kit.checkpoint_values import reference
from lakeward_service_kit.round_world import SpokenRound
from lakeward_service_kit.rounds import IdleJobs, RecordingConnection
from lakeward_testing.clock import FakeClock

SUBTASKS = 3
FENCE_S = 16.0
RECONNECT_S = 5.0


class Reader:
    """A subtask that asks for one split."""

    def __init__(self, job: SpokenRound, subtask: int) -> None:
        self.job, self.subtask, self.connection = job, subtask, RecordingConnection()
        key = job.on_connect(Register(subtask=subtask, host="node-1", pid=1, attempt=None), self.connection)
        assert key is not None
        self.key: ChannelKey = key
        self._up = Channel(key, "up")
        job.on_message(key, self.connection, self._up.send(RequestSplit()))

    def lose_connection(self) -> None:
        self.job.on_disconnect(self.key, self.connection)

    def reconnect(self) -> bool:
        register = Register(subtask=self.subtask, host="node-1", pid=1, attempt=self.key.task_attempt)
        self.connection = RecordingConnection()
        return self.job.on_connect(register, self.connection) is not None

    def send_heartbeat(self) -> None:
        self.job.on_message(self.key, self.connection, self._up.send(Heartbeat(acked=1)))

    def fail(self) -> None:
        self.job.on_message(self.key, self.connection, self._up.send(Failed(message="no such file", code="LW-000")))

    def finish(self) -> None:
        self.job.on_message(self.key, self.connection, self._up.send(SubtaskDone()))

    def splits(self) -> list[str]:
        found = [one.event for one in self.connection.sent if isinstance(one.event, AssignSplits)]
        return [wire.split.split_id for event in found for wire in event.splits]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def jobs() -> IdleJobs:
    return IdleJobs()


@pytest.fixture
def job(clock: FakeClock, jobs: IdleJobs) -> SpokenRound:
    """A job of two splits that was launched with three subtasks."""
    log = TableBucket(1, None, 0)
    splits = (LogSplit("b0-0", log, (), 0, 10), LogSplit("b0-10", log, (), 10, 20))
    plan = JobPlan(
        round_name="svc/7-3-2",
        enumeration=Enumeration((*splits, LogSplit("b0-20", log, (), 20, 30)), {}, (), behind=False),
        deploy=lambda attempt: Deploy(
            attempt=attempt,
            table=b"",
            source="",
            source_task=b"",
            lake="",
            lake_task=b"",
            fence_s=FENCE_S,
            progress_s=1.0,
        ),
        spec=lambda launch, subtasks: JobSpec("svc/7-3-2", launch, subtasks, "", "", "", "here", 1, b"", FENCE_S),
        slots=SUBTASKS,
        limit=3,
        silence_s=60.0,
        reconnect_within_s=RECONNECT_S,
        retries=RetryPauses(2.0, 60.0),
        checkpoints=CheckpointPlan(CheckpointSettings(interval_s=0.0), reference(), 1),
    )
    job = SpokenRound(plan, jobs, clock)
    job.launch()
    return job


def test_splits_of_a_lost_executor_go_to_a_subtask_that_waits_and_the_job_goes_on(
    job: SpokenRound, clock: FakeClock, jobs: IdleJobs
) -> None:
    readers = [Reader(job, subtask) for subtask in range(SUBTASKS)]
    for lost in readers[:2]:
        lost.lose_connection()
        clock.advance(0.3)
    with capture_logs() as logs:
        for _ in range(60):
            clock.advance(1.0)
            readers[2].send_heartbeat()
            job.tick()
    assert [one["event"] for one in logs if one["log_level"] == "warning"] == [
        "subtasks lost, their splits are read by others"
    ]
    assert jobs.cancelled == []
    assert {split.split_id for split in job.job.splits.unfinished} == {"b0-0", "b0-10", "b0-20"}
    assert Reader(job, 0).splits() == ["b0-0"], "the next try of the task reads what its first one did not finish"


def test_a_subtask_that_reconnects_in_time_keeps_its_split(job: SpokenRound, clock: FakeClock) -> None:
    reader = Reader(job, 0)
    reader.lose_connection()
    clock.advance(RECONNECT_S - 0.1)
    job.tick()
    assert reader.reconnect()
    clock.advance(RECONNECT_S)
    job.tick()
    assert Reader(job, 1).splits() == ["b0-10"]


def test_a_subtask_that_comes_back_too_late_is_not_taken_again(job: SpokenRound, clock: FakeClock) -> None:
    reader = Reader(job, 0)
    reader.lose_connection()
    clock.advance(RECONNECT_S)
    job.tick()
    assert not reader.reconnect()
    assert Reader(job, 1).splits() == ["b0-0"]


def test_a_retry_that_registers_before_that_replaces_the_lost_one_without_a_warning(
    job: SpokenRound, clock: FakeClock
) -> None:
    first = Reader(job, 0)
    first.lose_connection()
    with capture_logs() as logs:
        second = Reader(job, 0)
        clock.advance(RECONNECT_S)
        job.tick()
    assert second.splits() == first.splits() == ["b0-0"]
    assert not any(isinstance(one.event, Cancel) for one in second.connection.sent)
    assert [one for one in logs if one["log_level"] == "warning"] == []


def test_a_subtask_that_is_connected_and_silent_still_ends_the_launch(
    job: SpokenRound, clock: FakeClock, jobs: IdleJobs
) -> None:
    Reader(job, 0)
    clock.advance(61.0)
    job.tick()
    assert jobs.cancelled == [job.launched]


def test_a_split_that_fails_again_and_again_rests_longer_each_time_while_others_are_read(
    job: SpokenRound, clock: FakeClock
) -> None:
    for _ in range(2):
        reader = Reader(job, 0)
        assert reader.splits() == ["b0-0"]
        reader.fail()
    others = [Reader(job, 1), Reader(job, 2)]
    assert [other.splits() for other in others] == [["b0-10"], ["b0-20"]]
    for rest_s in (2.0, 4.0, 8.0, 10.0, 10.0):
        reader = Reader(job, 0)
        clock.advance(rest_s - 0.1)
        job.tick()
        assert reader.splits() == []
        clock.advance(0.1)
        job.tick()
        assert reader.splits() == ["b0-0"]
        reader.fail()


def test_the_log_names_a_split_that_rests_and_not_one_that_failed_once_meanwhile(job: SpokenRound) -> None:
    with capture_logs() as logs:
        for _ in range(2):
            Reader(job, 0).fail()
        Reader(job, 1).fail()
    (told,) = [one for one in logs if one["event"] == "a split failed again, and rests"]
    assert (told["split"], told["next_try_s"]) == ("b0-0", 2.0)


# --- who may still write once Spark says that the job has ended -----------------------------------------------------


def test_nobody_writes_any_more_once_each_subtask_has_said_its_end(job: SpokenRound) -> None:
    Reader(job, 0).finish()
    Reader(job, 1).fail()
    assert not job.job.may_write


def test_a_subtask_that_has_not_said_its_end_may_write(job: SpokenRound) -> None:
    Reader(job, 0).finish()
    Reader(job, 1)
    assert job.job.may_write


def test_nobody_writes_any_more_once_each_task_has_returned_though_its_last_word_is_on_its_way(
    job: SpokenRound,
) -> None:
    Reader(job, 0)
    assert job.launched is not None
    job.take(LaunchGone(job.launched, None))
    assert not job.job.may_write


def test_an_attempt_that_was_replaced_may_write_for_the_fence_time(job: SpokenRound, clock: FakeClock) -> None:
    Reader(job, 0)
    Reader(job, 0).finish()
    clock.advance(FENCE_S - 0.1)
    assert job.job.may_write
    clock.advance(0.1)
    assert not job.job.may_write


def test_a_subtask_of_an_earlier_launch_may_write_for_the_fence_time(
    job: SpokenRound, clock: FakeClock, jobs: IdleJobs
) -> None:
    """A launch that fails is followed by another one in the same round, under the same prefix."""
    Reader(job, 0)
    assert job.launched is not None
    job.take(LaunchGone(job.launched, "its task failed 4 times"))
    clock.advance(2.0)
    job.tick()
    assert len(jobs.launched) == 2
    Reader(job, 0).finish()
    assert job.job.may_write
    clock.advance(FENCE_S)
    assert not job.job.may_write
