"""A round's job by itself: who registers, who is replaced, and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from lakeward.coordinator.checkpoints.contents import CheckpointContents
from lakeward.coordinator.rounds.checkpoints import CheckpointPlan
from lakeward.coordinator.rounds.plan import JobPlan
from lakeward.coordinator.rounds.task_attempt import TaskAttempt
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.backoff import NO_PAUSES, RetryPauses
from lakeward.model.events import (
    NOT_READY,
    AckClose,
    AnyEvent,
    AssignSplits,
    Close,
    DeclineCheckpoint,
    Deploy,
    Failed,
    Heartbeat,
    Register,
    RequestSplit,
    SplitFinished,
    TriggerCheckpoint,
)
from lakeward.model.jobs import JobSpec
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.settings import CheckpointSettings
from lakeward_service_kit.checkpoint_values import reference, round_snapshot, subtask_snapshot
from lakeward_service_kit.round_world import SpokenRound
from lakeward_service_kit.rounds import IdleJobs, RecordingConnection
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.checkpoints import BlockedEvent

PART = structs.replace(round_snapshot(reference()), finished=())
WORD = subtask_snapshot(subtask=1, attempt=7).blocked[0]


def deploy(attempt: int) -> Deploy:
    return Deploy(
        attempt=attempt,
        table=b"",
        source="",
        source_task=b"",
        lake="",
        lake_task=b"",
        fence_s=16.0,
        progress_s=1.0,
    )


def spec(launch: int, subtasks: int) -> JobSpec:
    return JobSpec("svc/7-3-2", launch, subtasks, "", "", "", "localhost", 1, b"", 16.0)


@pytest.fixture
def clock() -> FakeClock:
    """The service's clock."""
    return FakeClock()


@pytest.fixture
def restored(clock: FakeClock) -> SpokenRound:
    """A round that goes on from a checkpoint, with a finish that is to be sent again; launched."""
    job = round_of(clock, IdleJobs())
    job.launch()
    return job


def round_of(clock: FakeClock, jobs: IdleJobs, retries: RetryPauses = NO_PAUSES) -> SpokenRound:
    state = CheckpointContents.of(PART, [subtask_snapshot(subtask=1, attempt=7)])
    checkpoints = CheckpointPlan(CheckpointSettings(interval_s=30.0), reference(), 1)
    enumeration = state.enumeration()
    plan = JobPlan("svc/7-3-2", enumeration, deploy, spec, 2, 3, 60.0, 5.0, checkpoints, state, retries=retries)
    return SpokenRound(plan, jobs, clock)


def told(job: SpokenRound, subtask: int = 0) -> list[BlockedEvent]:
    """Register an attempt; return the finishes that it is told to send again."""
    connection = RecordingConnection()
    assert job.on_connect(Register(subtask=subtask, host="here", pid=1, attempt=None), connection) is not None
    first = connection.sent[0].event
    assert isinstance(first, Deploy)
    return first.restored


def test_the_first_attempt_is_given_what_is_to_be_sent_again_and_another_subtask_is_not(restored: SpokenRound) -> None:
    assert told(restored) == [WORD]
    assert told(restored, subtask=1) == []


def test_what_a_living_attempt_had_to_send_again_counts_once_another_one_has_replaced_it(restored: SpokenRound) -> None:
    assert told(restored) == [WORD]
    assert restored.job.progress.results == {}
    assert told(restored) == []
    assert [*restored.job.progress.results.values()] == [WORD.result]


def test_a_job_says_once_that_it_has_started_however_many_subtasks_are_deployed(restored: SpokenRound) -> None:
    assert restored.started == 0
    told(restored)
    told(restored, subtask=1)
    told(restored)
    assert restored.started == 1


class Talker:
    """An attempt of a subtask that says what the test wants said."""

    def __init__(self, job: SpokenRound, subtask: int = 0) -> None:
        self.job, self.connection = job, RecordingConnection()
        key = job.on_connect(Register(subtask=subtask, host="here", pid=1, attempt=None), self.connection)
        assert key is not None
        self.key: ChannelKey = key
        self._up = Channel(key, "up")

    def say(self, event: AnyEvent) -> None:
        self.job.on_message(self.key, self.connection, self._up.send(event))

    def asked(self) -> AssignSplits:
        """Ask for a split; return what it is given."""
        self.say(RequestSplit())
        return next(one.event for one in self.connection.sent if isinstance(one.event, AssignSplits))


def test_what_a_replaced_attempt_has_finished_counts_neither_before_nor_after_its_successors_finish(
    restored: SpokenRound,
) -> None:
    old = Talker(restored)
    (split,) = [one.split for one in old.asked().splits]
    new = Talker(restored)
    assert [one.split for one in new.asked().splits] == [split]
    late, counts = (
        WriteResult(split.split_id, split.bucket, 4000, -1, 10, (LakeFile(name, "data", 10, 10),))
        for name in ("late.parquet", "counts.parquet")
    )
    restored.job.may_have_orphans = False
    old.say(SplitFinished(result=late))
    assert split.split_id not in restored.job.progress.results
    assert restored.job.may_have_orphans
    new.say(SplitFinished(result=counts))
    old.say(SplitFinished(result=late))
    assert restored.job.progress.results[split.split_id].files == counts.files


def with_checkpoint(job: SpokenRound, clock: FakeClock) -> Talker:
    """Start a checkpoint that one subtask takes part in; return this subtask."""
    talker = Talker(job)
    clock.advance(31.0)
    job.tick()
    assert job.checkpoints.running is not None
    return talker


def test_a_checkpoint_that_the_end_of_its_round_aborts_is_no_warning_and_does_not_count(
    restored: SpokenRound, clock: FakeClock
) -> None:
    with_checkpoint(restored, clock)
    with capture_logs() as logs:
        restored.cancel()
    assert [one["log_level"] for one in logs if one["event"] == "checkpoint aborted"] == ["info"]
    assert not [event for event in restored.events if "aborted" in event]


def test_a_checkpoint_that_is_aborted_within_its_round_is_a_warning_and_counts(
    restored: SpokenRound, clock: FakeClock
) -> None:
    with_checkpoint(restored, clock)
    with capture_logs() as logs:
        clock.advance(121.0)
        restored.tick()
    assert [one["log_level"] for one in logs if one["event"] == "checkpoint aborted"] == ["warning"]
    assert [event for event in restored.events if "aborted" in event]


def told_of(talker: Talker, kind: type[AnyEvent]) -> list[AnyEvent]:
    return [one.event for one in talker.connection.sent if isinstance(one.event, kind)]


def test_a_cut_is_triggered_once_the_subtask_has_acknowledged_what_was_sent_to_it(
    restored: SpokenRound, clock: FakeClock
) -> None:
    """What was only sent may never arrive: the split would be neither the subtask's nor the coordinator's."""
    talker = Talker(restored)
    talker.asked()
    clock.advance(31.0)
    restored.tick()
    running = restored.checkpoints.running
    assert running is not None
    talker.say(AckClose(checkpoint=running, sent=1))
    assert told_of(talker, TriggerCheckpoint) == []
    talker.say(Heartbeat(acked=1))
    assert told_of(talker, TriggerCheckpoint) == [TriggerCheckpoint(checkpoint=running)]


def test_a_subtask_that_comes_in_the_midst_of_a_checkpoint_is_held_off_and_told_so(
    restored: SpokenRound, clock: FakeClock
) -> None:
    first = with_checkpoint(restored, clock)
    running = restored.checkpoints.running
    assert running is not None
    late = Talker(restored, subtask=1)
    (deploy_of_it,) = told_of(late, Deploy)
    assert isinstance(deploy_of_it, Deploy)
    assert deploy_of_it.gateway_closed == running
    late.say(RequestSplit())
    assert told_of(late, AssignSplits) == []
    assert told_of(first, Close) == [Close(checkpoint=running)]


def test_a_subtask_that_comes_back_over_another_connection_is_sent_again_what_it_has_not_acknowledged(
    restored: SpokenRound,
) -> None:
    talker = Talker(restored)
    assigned = talker.asked()
    again = RecordingConnection()
    register = Register(subtask=0, host="here", pid=1, attempt=talker.key.task_attempt)
    assert restored.on_connect(register, again) == talker.key
    assert [one.event for one in again.sent if isinstance(one.event, AssignSplits)] == [assigned]


def test_the_end_of_an_older_checkpoint_lets_nothing_out_to_a_subtask() -> None:
    connection = RecordingConnection()
    attempt = TaskAttempt(ChannelKey("svc/7-3-2", 1, 0, 1), connection, 0.0)
    attempt.close_gateway(1)
    attempt.close_gateway(2)
    attempt.send(AssignSplits(splits=[]))
    attempt.end_checkpoint(1)
    assert connection.sent == []
    attempt.end_checkpoint(2)
    assert [one.event for one in connection.sent] == [AssignSplits(splits=[])]


@pytest.mark.parametrize(
    ("reason", "counts"), [("marker missing", True), ("the disk is full", True), (NOT_READY, False)]
)
def test_only_a_subtask_that_is_not_ready_declines_a_checkpoint_without_its_counting(
    restored: SpokenRound, clock: FakeClock, reason: str, *, counts: bool
) -> None:
    talker = with_checkpoint(restored, clock)
    for _ in range(CheckpointSettings().tolerated + 1):
        running = restored.checkpoints.running
        assert running is not None
        talker.say(DeclineCheckpoint(checkpoint=running, reason=reason))
        clock.advance(31.0)
        restored.tick()
    assert any(event.startswith("failed") and reason in event for event in restored.events) == counts


class EndingJobs(IdleJobs):
    """Each launch fails as soon as it was made."""

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        super().launch(job, on_done)
        on_done("the task failed")


def test_a_job_that_fails_again_is_launched_again_after_growing_pauses(clock: FakeClock) -> None:
    """The first time at once: a lost executor is nobody's fault."""
    jobs = EndingJobs()
    job = round_of(clock, jobs, RetryPauses(20.0, 60.0))
    job.launch()
    assert len(jobs.launched) == 2
    clock.advance(19.0)
    job.tick()
    assert len(jobs.launched) == 2
    assert job.round.running
    clock.advance(1.5)
    job.tick()
    assert len(jobs.launched) == 3
    assert job.events[-2] == "failed, permanent False: job launched 3 times, the last time: the task failed"


def test_a_round_that_ends_while_its_job_waits_to_be_launched_leaves_nothing_running(clock: FakeClock) -> None:
    jobs = EndingJobs()
    job = round_of(clock, jobs, RetryPauses(10.0, 60.0))
    job.launch()
    job.cancel()
    clock.advance(20.0)
    job.tick()
    assert (len(jobs.launched), job.round.running, job.events[-1]) == (2, False, "over")


FULL = Failed(code="LW-000", message="OSError: [Errno 28] No space left on device", permanent=False)


DAMAGED = Failed(
    code="LW-301", message="00000000-1.arrow: expected checksum 1, found 2, at offset 100", permanent=False
)


def failing(job: SpokenRound, why: Failed = FULL) -> str:
    """Let an attempt fail with what it was assigned; return the split's id."""
    talker = Talker(job)
    (split,) = [one.split for one in talker.asked().splits]
    talker.say(why)
    return split.split_id


def test_a_file_that_is_damaged_is_read_once_more_and_then_waits_for_a_person(restored: SpokenRound) -> None:
    """No further try makes it whole."""
    failing(restored, DAMAGED)
    assert not [event for event in restored.events if event.startswith("failed")]
    failing(restored, DAMAGED)
    assert restored.events[-1] == f"failed, permanent True: {DAMAGED.message}"


def test_another_damage_than_the_last_one_is_not_yet_taken_for_the_same(restored: SpokenRound) -> None:
    failing(restored, FULL)
    failing(restored, DAMAGED)
    assert not [event for event in restored.events if event.startswith("failed")]


def test_a_round_that_finishes_early_while_a_split_fails_says_why_it_is_left_out(restored: SpokenRound) -> None:
    failing(restored)
    assert "No space left on device" in restored.job.waits_for
    failing(restored)
    assert "splits fail again" in restored.events
    restored.finish_early()
    assert restored.job.failing.cause_of(restored.job.splits.skipped).text.endswith("No space left on device")


def test_a_split_that_is_read_at_the_second_try_fails_no_more(restored: SpokenRound) -> None:
    split_id = failing(restored)
    talker = Talker(restored)
    (split,) = [one.split for one in talker.asked().splits]
    assert split.split_id == split_id
    talker.say(SplitFinished(result=WriteResult(split_id, split.bucket, 4000, -1, 10, ())))
    assert restored.job.failing.times(split_id) == 0
    assert "splits fail again" not in restored.events
