"""A launch with tasks that come, fail and come again plays against the machine `gang`."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as play

from lakeward.errors import IllegalEventError
from lakeward.machines.gang import (
    AllWritten,
    DeployMembers,
    EndLaunch,
    GangEvent,
    GangMachine,
    GangPhase,
    MemberConnected,
    MemberFinished,
    MemberLost,
    MemberRegistered,
    RefuseMember,
)
from lakeward_mutants.gangs import (
    AdmitsLateMembers,
    BelievesAnEarlyEnd,
    DeploysBeforeAllAreThere,
    EndsTheLaunchTwice,
    EndsWithTheFirstWriter,
    ForgetsToDeployOne,
    KeepsTheLaunchAfterALoss,
    ListensToStrangers,
    RemembersWhoLeft,
    TakesCheckpointsAtOnce,
)

SIZE = 3
subtasks = st.integers(0, SIZE - 1)


class Launch(RuleBasedStateMachine):
    """Knows who was deployed, connected and finished, by what it did itself."""

    machine: type[GangMachine] = GangMachine

    def __init__(self) -> None:
        super().__init__()
        self.gang = self.machine(SIZE)
        self.number = 0
        self.waiting: dict[int, int] = {}
        self.replaced: set[int] = set()
        self.deployed: dict[int, int] = {}
        self.connected: set[int] = set()
        self.finished: set[int] = set()
        self.read = self.ended = self.written = False

    def feed(self, event: GangEvent) -> None:
        for command in self.gang.step(event):
            match command:
                case DeployMembers():
                    assert not self.deployed
                    assert dict(command.members) == self.waiting
                    assert len(self.waiting) == SIZE
                    self.deployed = dict(command.members)
                case RefuseMember():
                    assert self.deployed.get(command.subtask) != command.attempt
                case EndLaunch():
                    assert not self.ended
                    assert not self.written
                    self.ended = True
                case AllWritten():
                    assert not self.ended
                    assert self.read
                    assert self.finished == self.connected == {*range(SIZE)}
                    self.written = True

    @rule(subtask=subtasks)
    def registers(self, subtask: int) -> None:
        self.number += 1
        before, over = bool(self.deployed), self.ended or self.written
        if not before and not over:
            self.replaced |= {subtask} & self.waiting.keys()
            self.waiting[subtask] = self.number
        self.feed(MemberRegistered(subtask=subtask, attempt=self.number))
        assert self.ended is (over or before) or self.written
        assert self.gang.is_member(subtask, self.number) is not (before or over)

    @precondition(lambda self: not self.deployed)
    @rule()
    def all_register(self) -> None:
        for subtask in {*range(SIZE)} - {*self.waiting}:
            self.registers(subtask)

    @precondition(lambda self: self.deployed)
    @rule()
    def all_connect(self) -> None:
        for subtask in range(SIZE):
            self.connects(subtask)

    @rule(subtask=subtasks)
    def loses(self, subtask: int) -> None:
        members = self.deployed or self.waiting
        if subtask not in members:
            return
        number = members[subtask]
        ends = self.ended or bool(self.deployed) or subtask in self.replaced
        if not ends:
            del self.waiting[subtask]
        self.feed(MemberLost(subtask=subtask, attempt=number, reason="gone"))
        assert self.ended is ends or self.written

    @precondition(lambda self: self.deployed)
    @rule(subtask=subtasks)
    def connects(self, subtask: int) -> None:
        self.connected |= set() if self.ended else {subtask}
        self.feed(MemberConnected(subtask=subtask, attempt=self.deployed[subtask]))

    @rule()
    def reads_everything(self) -> None:
        self.read = True

    @precondition(lambda self: self.deployed)
    @rule(subtask=subtasks)
    def finishes(self, subtask: int) -> None:
        legal = self.ended or self.written or (self.read and len(self.connected) == SIZE)
        try:
            self.finished |= {subtask} if legal and not self.ended else set()
            self.feed(MemberFinished(subtask=subtask, attempt=self.deployed[subtask], all_read=self.read))
        except IllegalEventError:
            assert not legal
        else:
            assert legal

    @rule(subtask=subtasks, event=st.sampled_from([MemberConnected, MemberLost, MemberFinished]))
    def speaks_late(self, subtask: int, event: type[GangEvent]) -> None:
        """An attempt that was never a member, or is none any more, changes nothing."""
        more = {MemberLost: {"reason": "gone"}, MemberFinished: {"all_read": True}}.get(event, {})
        before = self.gang.phase
        assert self.gang.step(event(subtask=subtask, attempt=-1, **more)) == ()  # type: ignore[arg-type] # by its kind
        assert self.gang.phase is before

    @invariant()
    def phase_is_what_happened(self) -> None:
        expected = GangPhase.GATHERING
        if self.written:
            expected = GangPhase.WRITTEN
        elif self.ended:
            expected = GangPhase.BROKEN
        elif self.deployed:
            all_in = len(self.connected) == SIZE
            expected = GangPhase.EXCHANGING if all_in else GangPhase.CONNECTING
        assert self.gang.phase is expected


QUICK = settings(max_examples=150, stateful_step_count=30, deadline=None, derandomize=True, database=None)
HUNT = settings(QUICK, max_examples=3000, phases=[Phase.generate], print_blob=False)


def test_the_machine_holds_every_invariant() -> None:
    """Whatever comes and goes: all are deployed together, and nothing is called written that may be lost."""
    play(Launch, settings=QUICK)


@pytest.mark.parametrize(
    "mutant",
    [
        AdmitsLateMembers,
        BelievesAnEarlyEnd,
        DeploysBeforeAllAreThere,
        EndsTheLaunchTwice,
        EndsWithTheFirstWriter,
        ForgetsToDeployOne,
        KeepsTheLaunchAfterALoss,
        ListensToStrangers,
        RemembersWhoLeft,
        TakesCheckpointsAtOnce,
    ],
)
@pytest.mark.mutant
def test_a_mutant_dies(mutant: type[GangMachine]) -> None:
    """The same game finds it."""
    game = type(f"{mutant.__name__}Game", (Launch,), {"machine": mutant})
    with pytest.raises(AssertionError):
        play(game, settings=HUNT)
