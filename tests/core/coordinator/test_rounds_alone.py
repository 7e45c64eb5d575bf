"""A round by itself: what it wants done while something of it is under way, and once it is over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from lakeward.coordinator.checkpoints.contents import CheckpointContents, RestoredRound
from lakeward.coordinator.commits.fence import CommitFence
from lakeward.coordinator.commits.round_committer import CommittedRound
from lakeward.coordinator.effects.items import OfRound
from lakeward.coordinator.rounds.checkpoints import CheckpointCompleted, CheckpointPlan, CompletedCheckpoint
from lakeward.coordinator.rounds.context import RoundContext
from lakeward.coordinator.rounds.effects import (
    CleanUp,
    Commit,
    Effect,
    EffectDone,
    OpenTable,
    Plan,
    StartLaunch,
    StopLaunch,
    Tell,
)
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.plan import JobPlan
from lakeward.coordinator.rounds.round import LaunchGone, Round
from lakeward.machines.rounds import (
    CommitRound,
    Committed,
    EndRound,
    LaunchJob,
    RoundFailed,
    SnapshotsGone,
)
from lakeward.model.events import Deploy
from lakeward.model.identity import RoundId
from lakeward.model.jobs import JobSpec, UpkeepJob
from lakeward.model.results import LakeHead
from lakeward.model.settings import CheckpointSettings, ServiceSettings
from lakeward.model.tiering import TableAssignment
from lakeward.storage.round_journal import RoundJournal
from lakeward_service_kit.checkpoint_values import FIRST, PATH, reference, round_snapshot
from lakeward_service_kit.rounds import IdleJobs
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import log_table
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_service_kit.service_world import World

ASSIGNMENT = TableAssignment(PATH, 7, 3, 0, 1.0)
ROUND = RoundId(FIRST, 7, 3, 1)
STATE = CheckpointContents.of(structs.replace(round_snapshot(reference()), finished=()), [])
JOURNAL = RoundJournal.begun(ROUND, PATH, None, None, "w/")
EVERY_S = 5.0


class Alone:
    """A round that has found what it starts from: a checkpoint of which nothing is in the lake."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        fence = CommitFence(self.clock, ServiceSettings())
        fence.begin(ROUND, ASSIGNMENT)
        fence.publish({ASSIGNMENT: self.clock.now() + EVERY_S}, stopping=False)
        self.round = Round(RoundFacts(ASSIGNMENT, ROUND, 0), self.clock, fence)
        table = replace(log_table(), path=PATH, table_id=7)
        context = RoundContext(table, LakeHead(PATH, 7, "", None, None, None, None), {}, (), STATE.enumeration())
        self.round.process(
            EffectDone(OpenTable(ASSIGNMENT), (context, RestoredRound(reference(), STATE, frozenset(), 1)))
        )

    def wants(self, event: object, *kinds: type[Effect]) -> list[Any]:
        """Give it an event; return those that it wants done of some kinds, all without any."""
        return [effect for effect in self.round.process(event) if not kinds or isinstance(effect, kinds)]

    def planned(self, plan: Plan) -> EffectDone:
        """Answer the effect that plans its job."""
        checkpoints = CheckpointPlan(CheckpointSettings(interval_s=30.0), reference(), 1)
        job = JobPlan(
            str(ROUND), STATE.enumeration(), deploy, spec, 2, 3, 60.0, 5.0, checkpoints, STATE, commit_every_s=EVERY_S
        )
        return EffectDone(plan, (JOURNAL, job))


def deploy(attempt: int) -> Deploy:
    return Deploy(
        attempt=attempt, table=b"", source="", source_task=b"", lake="", lake_task=b"", fence_s=16.0, progress_s=1.0
    )


def spec(launch: int, subtasks: int) -> JobSpec:
    return JobSpec(str(ROUND), launch, subtasks, "", "", "", "localhost", 1, b"", 16.0)


@pytest.fixture
def alone() -> Alone:
    """A round whose job is to be planned next."""
    return Alone()


def test_the_last_commit_waits_for_a_step_that_is_under_way_and_leaves_out_what_that_has_committed(
    alone: Alone,
) -> None:
    (plan,) = alone.wants(LaunchJob(7), Plan)
    alone.wants(alone.planned(plan))
    alone.clock.advance(EVERY_S)
    completed = CompletedCheckpoint(reference(2), STATE, 1.0, 100, 0)
    (step,) = alone.wants(CheckpointCompleted(completed), Commit)
    assert step.step
    assert alone.wants(CommitRound(7)) == []
    told = alone.wants(EffectDone(step, CommittedRound(5, JOURNAL, {}, {})), Commit, Tell)
    assert [type(one.event) for one in told] == [Committed]


def test_a_round_that_ends_while_its_job_is_planned_launches_nothing_and_is_cleaned_up_then(alone: Alone) -> None:
    (plan,) = alone.wants(LaunchJob(7), Plan)
    assert alone.wants(EndRound(7, "stale"), CleanUp) == []
    assert [type(one) for one in alone.wants(alone.planned(plan))] == [CleanUp]


def test_a_round_that_ends_cancels_its_launch_and_is_cleaned_up_once_that_is_over(alone: Alone) -> None:
    (plan,) = alone.wants(LaunchJob(7), Plan)
    (launch,) = alone.wants(alone.planned(plan), StartLaunch)
    assert alone.wants(EndRound(7, "failed"), StopLaunch, CleanUp) == [StopLaunch(launch.spec)]
    assert [type(one) for one in alone.wants(LaunchGone(launch.spec, None))] == [CleanUp]


class CancelledJobs(IdleJobs):
    """Launches that run nothing, and end once they are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[JobSpec, Callable[[str | None], None]] = {}

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        super().launch(job, on_done)
        self._ends[job] = on_done

    def cancel(self, job: JobSpec | UpkeepJob) -> None:
        if job in self._ends:
            self._ends.pop(job)("cancelled")


def test_what_a_round_said_before_it_was_over_is_no_matter_of_the_next_one(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 20)
    service = world.service(jobs=CancelledJobs(), stop_timeout_s=0.1)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        tables, loop = world.container.tables(), world.container.loop()
        await until(lambda: any(one.running for one in tables.rounds))
        (one,) = tables.rounds
        now, table_id = world.clock.now(), one.facts.table_id
        loop.put(OfRound(one, SnapshotsGone(now=now, table_id=table_id, reason="gone")))
        loop.put(OfRound(one, RoundFailed(now=now, table_id=table_id, reason="said too late", permanent=False)))
        await until(lambda: any(other.running and other is not one for other in tables.rounds))
        assert world.outcomes(log) == ["stale"]
        service.stop()
        await serving

    asyncio.run(run())
