"""A round's job by itself: who registers, who is replaced, and what they are told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakeward.checkpoint.checkpoints import CheckpointFiles
from lakeward.checkpoint.store import SmallFiles
from lakeward.coordinator.checkpointing import CheckpointPlan
from lakeward.coordinator.contents import Contents
from lakeward.coordinator.job import RoundJob
from lakeward.coordinator.job_plan import JobPlan
from lakeward.machines.checkpoint_schedule import CheckpointPolicy
from lakeward.model.events import Deploy, Register
from lakeward.model.jobs import JobSpec
from lakeward.testing.checkpoint_values import reference, round_snapshot, subtask_snapshot
from lakeward.testing.clock import FakeClock
from lakeward.testing.rounds import IdleJobs, RecordingConnection, SilentRound

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.checkpoints import BlockedEvent

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
def restored(tmp_path: Path) -> RoundJob:
    """A job of a round that goes on from a checkpoint, with a finish that is to be sent again; launched."""
    clock = FakeClock()
    part = replace(round_snapshot(reference()), finished=())
    contents = Contents.of(part, [subtask_snapshot(subtask=1, attempt=7)])
    store = CheckpointFiles(SmallFiles(str(tmp_path)), clock)
    checkpoints = CheckpointPlan(
        CheckpointPolicy(interval_s=30.0), store, str(tmp_path), reference(), 1, 2, lambda _what, _work, _done: None
    )
    enumeration = contents.enumeration()
    plan = JobPlan("svc/7-3-2", enumeration, deploy, spec, 2, 3, 60.0, checkpoints, restored=contents)
    job = RoundJob(plan, IdleJobs(), clock, SilentRound(part))
    job.launch(lambda work: work())
    return job


def told(job: RoundJob, subtask: int = 0) -> list[BlockedEvent]:
    """Register an attempt; return the finishes that it is told to send again."""
    connection = RecordingConnection()
    assert job.attend(Register(subtask=subtask, host="here", pid=1, attempt=None), connection) is not None
    first = connection.sent[0].event
    assert isinstance(first, Deploy)
    return first.restored


def test_the_first_attempt_is_given_what_is_to_be_sent_again_and_another_subtask_is_not(restored: RoundJob) -> None:
    assert told(restored) == [WORD]
    assert told(restored, subtask=1) == []


def test_the_attempt_that_replaces_a_living_one_is_given_what_that_had_to_send_again(restored: RoundJob) -> None:
    assert told(restored) == [WORD]
    assert told(restored) == [WORD]
