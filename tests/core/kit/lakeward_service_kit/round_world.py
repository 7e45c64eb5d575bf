"""A round whose job the test has planned; what it wants done is executed at once, and noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.coordinator.commits.fence import CommitFence
from lakeward.coordinator.effects.store import Storing
from lakeward.coordinator.rounds import effects as wanted
from lakeward.coordinator.rounds.context import RoundContext
from lakeward.coordinator.rounds.effects import Effect, EffectDone, EffectFailed, Plan
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.round import LaunchGone, Round, RoundTick
from lakeward.errors import LakewardError
from lakeward.machines.launches import LaunchPhase
from lakeward.machines.rounds import Drained, EndRound, FinishRoundEarly, JobStarted, RoundFailed, SplitsFailing
from lakeward.model.results import LakeHead
from lakeward.model.settings import ServiceSettings
from lakeward.model.tiering import TableAssignment
from lakeward_service_kit.checkpoint_values import FIRST, PATH, reference, round_snapshot
from lakeward_testing.lake_tables import log_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.rounds.checkpoints import RoundCheckpoints
    from lakeward.coordinator.rounds.job import Job
    from lakeward.coordinator.rounds.plan import JobPlan
    from lakeward.machines.transport.channel import ChannelKey
    from lakeward.model.events import Envelope, Register
    from lakeward.model.jobs import JobSpec
    from lakeward.ports import CheckpointStore, Clock, Connection, Jobs


class SpokenRound:
    """A round and its surroundings; `events` says what it told them, in words."""

    def __init__(self, plan: JobPlan, jobs: Jobs, clock: Clock, store: CheckpointStore | None = None) -> None:
        """Plan the round; it is launched by `launch`. Without a store, checkpoints are never stored."""
        assignment = TableAssignment(PATH, 7, 3, 0, 1.0)
        facts = RoundFacts(assignment, round_snapshot(reference()).round_id, clock.wall_ms())
        head = LakeHead(PATH, 7, "", None, None, None, None)
        facts.start_from(RoundContext(log_table(), head, {}, (), plan.enumeration))
        self.round = Round(facts, clock, CommitFence(clock, ServiceSettings()))
        self.events: list[str] = []
        self.started = 0
        """So often it was told that the job has started."""
        self.slots: Callable[[], int] = lambda: plan.slots
        self.pending: list[Callable[[], None]] = []
        """Answers of the store, and of the count of slots, that wait to be given."""
        self.hold_answers = False
        """Of the store."""
        self.hold_slots = False
        self._plan = plan
        self._jobs = jobs
        self._storing = None if store is None else Storing(store, FIRST, _NoLease())  # type: ignore[arg-type] # what it needs
        self._aborted = 0
        self._over = False

    def make_step_due(self, *, due: bool) -> None:
        """Let the next checkpoint be one of which a step is to be committed, or not."""
        self.round.facts.stepped_at = float("-inf") if due else None

    @property
    def job(self) -> Job:
        """The parts of the round."""
        assert self.round.job is not None
        return self.round.job

    @property
    def checkpoints(self) -> RoundCheckpoints:
        return self.job.checkpoints

    @property
    def launched(self) -> JobSpec | None:
        return self.job.launched

    def launch(self) -> None:
        """Let it have its job."""
        facts = self.round.facts
        assert facts.context is not None
        plan = Plan(facts.assignment, facts.round_id, facts.context, None)
        self.take(EffectDone(plan, (None, self._plan)))

    def take(self, *events: object) -> None:
        """Give it events, and execute what follows."""
        self._execute(self.round.process(*events))

    def on_connect(self, register: Register, connection: Connection) -> ChannelKey | None:
        key, effects = self.round.connect(register, connection)
        self._execute(effects)
        return key

    def on_message(self, key: ChannelKey, connection: Connection, envelope: Envelope) -> None:
        self._execute(self.round.receive(key, connection, envelope))

    def on_disconnect(self, key: ChannelKey, connection: Connection) -> None:
        self._execute(self.round.disconnect(key, connection))

    def tick(self) -> None:
        self.take(RoundTick())

    def finish_early(self) -> None:
        self.take(FinishRoundEarly(7, "asked to"))

    def cancel(self) -> None:
        """End the round."""
        self.take(EndRound(7, "failed"))

    # --- what it wants done -----------------------------------------------------------------------------------

    def _execute(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            self._execute_one(effect)
        self._look()

    def _execute_one(self, effect: Effect) -> None:
        match effect:
            case wanted.Tell():
                self._told(effect.event)
            case wanted.StartLaunch():
                self._jobs.launch(effect.spec, lambda reason: self.take(LaunchGone(effect.spec, reason)))
            case wanted.StopLaunch():
                self._jobs.cancel(effect.spec)
            case wanted.CompleteCheckpoint() if self._storing is not None:
                storing = self._storing
                self._later(effect, lambda: storing.complete(effect, None), hold=self.hold_answers)
            case wanted.CountFreeSlots():
                self._later(effect, self.slots, hold=self.hold_slots)
            case wanted.Commit():
                self.take(EffectDone(effect, None))
            case _:
                self.events += _in_words(effect)

    def _later(self, effect: Effect, work: Callable[[], object], *, hold: bool) -> None:
        def answer() -> None:
            try:
                found = work()
            except LakewardError as error:
                self.take(EffectFailed(effect, error))
            else:
                self.take(EffectDone(effect, found))

        if hold:
            self.pending.append(answer)
        else:
            answer()

    def _told(self, event: Any) -> None:  # noqa: ANN401 - any event of all tables' machine
        match event:
            case JobStarted():
                self.started += 1
            case SplitsFailing():
                self.events.append("splits fail again" if event.failing else "no split fails any more")
            case Drained():
                left_out = f", left out: {event.failing}" if event.failing else ""
                self.events.append(f"drained, finished early {event.finished_early}{left_out}")
            case RoundFailed():
                how = "lost its checkpoint" if event.checkpoint_lost else f"failed, permanent {event.permanent}"
                self.events.append(f"{how}: {event.reason}")
            case _:
                pass

    def _look(self) -> None:
        facts = self.round.facts
        if facts.aborted != self._aborted:
            self._aborted = facts.aborted
            number, _, reason = facts.abort_reason.partition(": ")
            self.events.append(f"{number} aborted: {reason}")
        if not self._over and self.round.job is not None and self.job.launches.phase is LaunchPhase.ENDED:
            self._over = True
            self.events.append("over")


def _in_words(effect: Effect) -> list[str]:
    match effect:
        case wanted.LoseSnapshots():
            return [f"lost {len(effect.gone)} snapshots: {effect.why}"]
        case wanted.LookForTable():
            return ["lost its table"]
        case wanted.TellBackend():
            one = effect.failover
            return [f"{len(one.returned)} splits back from attempt {one.attempt} ({one.kind.value})"]
        case wanted.Discard():
            return [f"{len(effect.files)} files rejected"]
        case wanted.KeepCheckpoint():
            return ["a checkpoint is whole"]
        case _:
            return []


class _NoLease:
    """Leases nothing."""

    def lease_copy(self) -> None:
        """Have none."""
