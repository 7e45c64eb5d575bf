"""A source that refuses, fails and hands out again plays against the machine `rounds`; three mutants must die."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as play

from lakeward.machines.rounds import (
    AcquireLeases,
    CommitRound,
    Committed,
    Drained,
    EndRound,
    FinishRoundEarly,
    Forget,
    HeartbeatAnswered,
    HeartbeatFailed,
    JobStarted,
    LaunchJob,
    Leased,
    Opened,
    OpenRound,
    PauseRequested,
    Resumed,
    ResumeRequested,
    RoundFailed,
    RoundFenced,
    Rounds,
    RoundsCommand,
    RoundsEvent,
    SendHeartbeat,
    SnapshotsGone,
    SplitsFailing,
    Stopped,
    StopRequested,
    StopTimedOut,
    TableGone,
    TableStatus,
    TargetReached,
    Targets,
    Tick,
)
from lakeward.machines.rounds import Phase as TablePhase
from lakeward.model.settings import ServiceSettings
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment
from lakeward_mutants.rounds import (
    commits_on_any_heartbeat,
    counts_a_renewal_from_its_answer,
    forgets_to_renew_what_rests,
    keeps_what_is_refused,
    opens_the_latest_deadline_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow


TABLES = range(1, 6)
POLICY = ServiceSettings(rounds=2, renew_s=10, fence_s=25, max_round_s=40, yield_s=12, backoff_most_s=20)
STAGES = {"opening": TablePhase.OPENING, "leasing": TablePhase.LEASING, "running": TablePhase.RUNNING}
STAGES["committing"] = TablePhase.COMMITTING
table_ids = st.sampled_from(TABLES)


def path(table_id: int) -> TablePath:
    """Each table id has a name."""
    return TablePath("db", f"t{table_id}")


class SourceAndShell(RuleBasedStateMachine):
    """What the source has assigned and what the shell is doing, kept from commands alone."""

    def __init__(self) -> None:
        """Start at 0 seconds with nothing."""
        super().__init__()
        self.now = 0.0
        self.epochs = dict.fromkeys(TABLES, 0)
        self.assigned: dict[int, TableAssignment] = {}
        self.renewed: dict[int, float] = {}
        self.stage: dict[int, str] = {}
        self.finishing_early: set[int] = set()
        self.started: set[int] = set()
        self.request: HeartbeatRequest | None = None
        self.sent_at = 0.0
        self.stopped = 0
        self.sound = True
        self.seen_opening: set[int] = set()
        self.paused_until: dict[int, float] = {}

    @initialize(once=st.booleans())
    def start(self, once: bool) -> None:
        """Serve for ever, or until two tables have reached their targets."""
        self.rounds = Rounds(POLICY, once=once, once_attempts=2)
        self.once = once
        if once:
            self.feed(Targets(now=self.now, paths=frozenset({path(1), path(2)})))
        self.feed(Tick(now=self.now))

    def feed(self, event: RoundsEvent) -> None:
        """Take an event, check each command in its turn."""
        self.sound = False
        for command in self.rounds.step(event):
            assert not self.stopped, f"{command} after Stopped"
            self.obey(command)
        self.sound = True

    def obey(self, command: RoundsCommand) -> None:
        """Do what the shell would do, and check that it may."""
        match command:
            case SendHeartbeat():
                self.check_heartbeat(command.request)
            case OpenRound():
                assert self.assigned[command.assignment.table_id] == command.assignment
                self.enter(command.assignment.table_id, None, "opening")
            case AcquireLeases():
                self.enter(command.table_id, "opening", "leasing")
            case LaunchJob():
                assert self.stage[command.table_id] in ("opening", "leasing")
                self.stage[command.table_id] = "running"
            case FinishRoundEarly():
                assert self.stage[command.table_id] == "running"
                assert command.table_id not in self.finishing_early, "told twice to finish early"
                self.finishing_early.add(command.table_id)
            case CommitRound():
                assert self.stage[command.table_id] in ("opening", "running", "drained")
                assert self.now - self.renewed[command.table_id] < POLICY.fence_s, "committed on an old heartbeat"
                self.stage[command.table_id] = "committing"
            case EndRound():
                self.end(command)
            case Forget():
                assert command.table_id not in self.stage, "forgotten with an open round"
                del self.assigned[command.table_id]
            case Stopped():
                assert not self.assigned
                assert self.request is None
                self.stopped += 1

    def end(self, command: EndRound) -> None:
        """Close the round; a stale one goes on at once, whatever waits."""
        if command.outcome == "stale":
            self.seen_opening.add(command.table_id)
        del self.stage[command.table_id]
        self.finishing_early.discard(command.table_id)
        self.started.discard(command.table_id)

    def enter(self, table_id: int, before: str | None, stage: str) -> None:
        """Move a round that the shell works on."""
        assert self.stage.get(table_id) == before
        self.stage[table_id] = stage

    def check_heartbeat(self, request: HeartbeatRequest) -> None:
        """One at a time; each assigned table is renewed or reported, once, under its epoch."""
        assert self.request is None, "two heartbeats under way"
        named = [(epoch.table_id, epoch.epoch) for epoch in (*request.renewed, *request.finished, *request.failed)]
        assert sorted(named) == sorted((assignment.table_id, assignment.epoch) for assignment in self.assigned.values())
        assert not {epoch.table_id for epoch in (*request.finished, *request.failed)} & self.stage.keys()
        assert not (request.request and self.rounds.stopping)
        self.request, self.sent_at = request, self.now

    def assign(self, table_id: int) -> TableAssignment:
        """The source gives a table a new epoch, and it is assigned."""
        self.epochs[table_id] += 1
        assignment = TableAssignment(path(table_id), table_id, self.epochs[table_id], 0, 10.0 * table_id)
        self.assigned[table_id] = assignment
        return assignment

    @rule(seconds=st.sampled_from((0.5, 3.0, 11.0, 30.0)))
    def time_passes(self, seconds: float) -> None:
        """A tick, not always on time."""
        self.now += seconds
        self.feed(Tick(now=self.now))

    def the_clock_is_on_time(self) -> None:
        """A tick exactly when the machine asked for one."""
        if self.rounds.next_due is not None:
            self.now = max(self.now, self.rounds.next_due)
            self.feed(Tick(now=self.now))

    @rule(turn=st.integers(0, 9), table_id=table_ids, well=st.integers(0, 15), flag=st.booleans())
    def work_goes_on(self, turn: int, table_id: int, well: int, flag: bool) -> None:
        """What happens most: one rule, so that no run is without it."""
        self.work(turn, table_id, well, flag=flag)

    def work(self, turn: int, table_id: int, well: int, *, flag: bool) -> None:
        """A heartbeat's answer, a round's answer, or time."""
        if self.request is not None and turn < 3:
            refused = {table_id: list(Refusal)[well % 4]} if turn == 0 and flag else {}
            self.heartbeat_answered(table_id if well else None, refused)
        elif self.stage and turn < 8:
            open_rounds = sorted(self.stage)
            self.the_shell_answers(open_rounds[table_id % len(open_rounds)], well, flag=flag)
        else:
            self.the_clock_is_on_time()

    @rule(turn=st.integers(0, 9), table_id=table_ids, well=st.integers(0, 15), flag=st.booleans())
    def work_goes_on_and_on(self, turn: int, table_id: int, well: int, flag: bool) -> None:
        """The same once more, so that it is drawn twice as often."""
        self.work(turn, table_id, well, flag=flag)

    def heartbeat_answered(self, wanted: int | None, refuse: dict[int, Refusal]) -> None:
        """Some may be refused; a free table may be assigned."""
        request, self.request = self.request, None
        assert request is not None
        renewed = {epoch.table_id: epoch for epoch in request.renewed}
        lost = {table_id for table_id in refuse if table_id in renewed}
        free = wanted is not None and (wanted in lost or wanted not in self.assigned)
        before, now_assigned = dict(self.assigned), dict(self.assigned)
        for table_id, epoch in renewed.items():
            if table_id not in lost and table_id in self.assigned and self.assigned[table_id].epoch == epoch.epoch:
                self.renewed[table_id] = self.sent_at
        assignment = None
        if request.request and free and wanted is not None:
            assignment = self.assign(wanted)
            now_assigned[wanted] = assignment
            self.assigned = before
        self.sound = False
        commands = self.rounds.step(
            HeartbeatAnswered(
                now=self.now,
                request=request,
                response=HeartbeatResponse(0, assignment, {key: refuse[key] for key in lost}),
            )
        )
        entered = assignment is None
        for command in commands:
            if not entered and assignment is not None and isinstance(command, OpenRound | SendHeartbeat):
                self.assigned[assignment.table_id], self.renewed[assignment.table_id] = assignment, self.sent_at
                entered = True
            self.obey(command)
        if not entered and assignment is not None:
            self.assigned[assignment.table_id], self.renewed[assignment.table_id] = assignment, self.sent_at
        for table_id in lost:
            known = self.assigned.get(table_id)
            assert known is None or known is assignment or known.epoch != renewed[table_id].epoch, "refused but kept"
        self.sound = True

    @precondition(lambda self: self.request is not None)
    @rule()
    def heartbeat_failed(self) -> None:
        """Nothing counts as renewed."""
        self.request = None
        self.feed(HeartbeatFailed(now=self.now, cause="no answer"))

    def the_shell_answers(self, table_id: int, well: int, *, flag: bool) -> None:
        """Mostly well; `flag` is leases, finished early, caught up, permanent or lost."""
        stage = self.stage[table_id]
        if stage == "drained":
            return
        if well == 0:
            self.feed(RoundFailed(now=self.now, table_id=table_id, reason="no", permanent=flag))
        elif well == 1:
            self.feed(RoundFenced(now=self.now, table_id=table_id, reason="no", lost=flag))
        elif well == 2 and stage in ("leasing", "running"):
            self.feed(SnapshotsGone(now=self.now, table_id=table_id, reason="gone"))
        elif well == 3 and stage == "running":
            self.feed(SplitsFailing(now=self.now, table_id=table_id, failing=flag))
        else:
            self.answer_well(table_id, stage, splits=well % 2, flag=flag)

    def answer_well(self, table_id: int, stage: str, *, splits: int, flag: bool) -> None:
        """Give the answer that the stage waits for."""
        now = self.now
        if stage == "opening":
            self.feed(Opened(now=now, table_id=table_id, splits=splits, leases=flag))
            self.stage.update({table_id: "drained"} if self.phase(table_id) is TablePhase.SETTLING else {})
        elif stage == "leasing":
            self.feed(Leased(now=now, table_id=table_id))
        elif stage == "running" and splits and table_id not in self.started:
            self.started.add(table_id)
            self.feed(JobStarted(now=now, table_id=table_id))
        elif stage == "running":
            self.stage[table_id] = "drained"
            self.feed(Drained(now=now, table_id=table_id, finished_early=flag, failing="no" if flag else ""))
        else:
            self.feed(Committed(now=now, table_id=table_id, caught_up=flag))

    @rule(table_id=table_ids, kind=st.integers(0, 6))
    def a_late_answer(self, table_id: int, kind: int) -> None:
        """About a round that is no more: nothing may come of it."""
        if table_id in self.stage:
            return
        before = self.rounds.tables
        late: RoundsEvent = (
            Opened(now=self.now, table_id=table_id, splits=1, leases=True),
            Leased(now=self.now, table_id=table_id),
            JobStarted(now=self.now, table_id=table_id),
            SnapshotsGone(now=self.now, table_id=table_id, reason="gone"),
            Drained(now=self.now, table_id=table_id, finished_early=False),
            Committed(now=self.now, table_id=table_id, caught_up=True),
            RoundFailed(now=self.now, table_id=table_id, reason="late", permanent=True),
        )[kind]
        self.feed(late)
        assert self.rounds.tables == before

    @rule(table_id=table_ids)
    def dropped(self, table_id: int) -> None:
        """It leaves; the others stay where they are, but for one that is opened in its place."""
        before = {status.assignment.table_id: status.phase for status in self.rounds.tables}
        stopping = self.rounds.stopping
        self.feed(TableGone(now=self.now, table_id=table_id))
        assert self.phase(table_id) is TablePhase.ABSENT
        for other, phase in before.items():
            if other != table_id and stopping == self.rounds.stopping and phase is not TablePhase.WAITING:
                assert self.phase(other) is phase

    @rule(table_id=table_ids, pause=st.booleans())
    def a_person_asks(self, table_id: int, pause: bool) -> None:
        """Pause or resume."""
        self.feed((PauseRequested if pause else ResumeRequested)(now=self.now, path=path(table_id)))

    @precondition(lambda self: not self.stopped)
    @rule(table_id=table_ids)
    def an_old_epoch_is_resumed(self, table_id: int) -> None:
        """Under a newer epoch than the one assigned, if any."""
        assignment = self.assign(table_id)
        self.renewed[table_id] = self.now
        self.feed(Resumed(now=self.now, assignments=(assignment,)))

    @precondition(lambda self: self.once)
    @rule(table_id=table_ids)
    def a_target_is_reached(self, table_id: int) -> None:
        """Also one that nobody waits for."""
        self.feed(TargetReached(now=self.now, path=path(table_id)))

    @precondition(lambda self: len(self.assigned) > 3)
    @rule(time_out=st.booleans())
    def stop(self, time_out: bool) -> None:
        """Ask, or give up what is open."""
        if not time_out:
            self.feed(StopRequested(now=self.now))
        elif self.rounds.stopping:
            self.feed(StopTimedOut(now=self.now))

    def phase(self, table_id: int) -> TablePhase:
        """Where a table stands."""
        phases = {status.assignment.table_id: status.phase for status in self.rounds.tables}
        return phases.get(table_id, TablePhase.ABSENT)

    @property
    def working(self) -> int:
        """Open rounds but those that commit or wait to: they leave their place to others."""
        return sum(stage not in ("drained", "committing") for stage in self.stage.values())

    @invariant()
    def the_machine_agrees(self) -> None:
        """What is assigned, which rounds are open, and how many."""
        if not hasattr(self, "rounds"):
            return
        assert {status.assignment.table_id: status.assignment for status in self.rounds.tables} == self.assigned
        assert self.working <= POLICY.rounds
        for table_id, stage in self.stage.items():
            assert self.phase(table_id) is STAGES.get(stage, TablePhase.SETTLING)

    @invariant()
    def no_table_with_a_later_deadline_was_opened_first(self) -> None:
        """As many rounds run as may, and the one that waits longest is next."""
        if not hasattr(self, "rounds"):
            return
        for status in self.rounds.tables:
            if status.retry_at is not None:
                self.paused_until[status.assignment.table_id] = status.retry_at
            elif status.phase in (TablePhase.PAUSED, TablePhase.SUSPENDED) or status.attempt <= (
                0 if status.phase is TablePhase.WAITING else 1
            ):
                self.paused_until.pop(status.assignment.table_id, None)
        waiting = [self.turn(status) for status in self.rounds.tables if status.phase is TablePhase.WAITING]
        assert not waiting or self.working == POLICY.rounds
        just_opened = [
            self.turn(status)
            for status in self.rounds.tables
            if status.phase is TablePhase.OPENING and status.assignment.table_id not in self.seen_opening
        ]
        assert not waiting or not just_opened or max(just_opened) <= min(waiting)
        self.seen_opening = {
            status.assignment.table_id for status in self.rounds.tables if status.phase is TablePhase.OPENING
        }

    def turn(self, status: TableStatus) -> float:
        """When a table is due, or when its last failure lets it be tried again, whichever is later."""
        return max(status.deadline, self.paused_until.get(status.assignment.table_id, status.deadline))

    @invariant()
    def nothing_is_overdue(self) -> None:
        """What is due now was done; what is due later is known."""
        if hasattr(self, "rounds") and not self.stopped:
            due = self.rounds.next_due
            assert due is None or due > self.now
            assert due is not None or self.request is not None or self.stage
            # A tick before that does nothing.
            assert copy.deepcopy(self.rounds).step(Tick(now=self.now)) == ()

    def teardown(self) -> None:
        """A stop ends, once, whatever state it found."""
        if not self.sound or not hasattr(self, "rounds"):
            return
        self.feed(StopRequested(now=self.now))
        for _ in range(40):
            if self.request is not None:
                self.heartbeat_answered_well()
            for table_id, stage in list(self.stage.items()):
                if stage != "drained":
                    self.answer_well(table_id, stage, splits=1, flag=True)
            self.the_clock_is_on_time()
        assert self.stopped == 1

    def heartbeat_answered_well(self) -> None:
        """Nothing refused, nothing assigned."""
        request, self.request = self.request, None
        assert request is not None
        for epoch in request.renewed:
            if epoch.table_id in self.assigned and self.assigned[epoch.table_id].epoch == epoch.epoch:
                self.renewed[epoch.table_id] = self.sent_at
        self.feed(HeartbeatAnswered(now=self.now, request=request, response=HeartbeatResponse(0, None, {})))


HEALTH = (HealthCheck.too_slow, HealthCheck.filter_too_much)
QUICK = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=HEALTH,
)
# What is tried depends on every module that is loaded: wide margins, for a hunt ends where it finds something.
HUNT = settings(QUICK, max_examples=5000, phases=[Phase.generate], print_blob=False)


def test_the_machine_holds_every_invariant() -> None:
    """After every step of a source and a shell that do anything they may."""
    play(SourceAndShell, settings=QUICK)


@pytest.mark.parametrize(
    "mutate",
    [
        commits_on_any_heartbeat,
        forgets_to_renew_what_rests,
        keeps_what_is_refused,
        opens_the_latest_deadline_first,
        counts_a_renewal_from_its_answer,
    ],
    ids=lambda mutate: mutate.__name__,
)
@pytest.mark.mutant
def test_a_mutant_dies(mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same game finds it."""
    mutate(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        play(SourceAndShell, settings=HUNT)
