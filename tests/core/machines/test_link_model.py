"""A coordinator behind a network that loses connections plays against the machine `link`; its mutants must die."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as play

from lakeward.machines.link import (
    RECONNECT_S,
    CloseRequested,
    Connect,
    ConnectionLost,
    Deliver,
    Disconnect,
    EnvelopeReceived,
    HeartbeatRequested,
    LinkEvent,
    LinkMachine,
    LinkPhase,
    ReportLost,
    ReportRejected,
    ReportSettled,
    SendRequested,
    StartRequested,
    Transmit,
)
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.events import (
    AnyEvent,
    AssignSplits,
    Deploy,
    Envelope,
    Heartbeat,
    Open,
    Register,
    RequestSplit,
    SubtaskDone,
)
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket
from lakeward_mutants.links import (
    AcknowledgesNothing,
    DeliversTwice,
    ForgetsThatItIsDone,
    GivesUpAtOnce,
    HurriesToReconnect,
    NeverGivesUp,
    NeverSettles,
    RegistersAsAnotherAttempt,
    SendsNothingAgain,
    SendsWhileItReconnects,
    SettlesTooEarly,
)

FENCE_S = 10.0
ATTEMPT = 3
BUCKET = TableBucket(1, None, 0)
KEY = ChannelKey("svc/1-1-1", 1, 0, ATTEMPT)
DEPLOY = Deploy(
    attempt=ATTEMPT, table=b"", source="", source_task=b"", lake="", lake_task=b"", fence_s=FENCE_S, progress_s=1
)
pauses = st.sampled_from([0.0, 0.1, 3.0, FENCE_S + 1.0])


class Coordinator(RuleBasedStateMachine):
    """The other end, with a channel of its own; what is in flight on a connection is lost with it."""

    machine: type[LinkMachine] = LinkMachine

    def __init__(self) -> None:
        super().__init__()
        self.link = self.machine(KEY.round_name, KEY.job_attempt, Register(subtask=0, host="here", pid=1), FENCE_S)
        self.channel = Channel(KEY, "down")
        self.deployed = False
        self.connecting: Connect | None = None
        """What the subtask waits for, None where it has a connection or wants none."""
        self.connected = False
        self.up: deque[Envelope] = deque()
        self.down: deque[Envelope] = deque()
        self.now = self.heard = 0.0
        self.sent_up = self.sent_down = 0
        self.taken: list[int] = []
        """Numbers of the coordinator's data events that were delivered."""
        self.done = self.done_arrived = False
        self.settled = 0
        self.over = False
        self.feed(StartRequested(now=0.0))

    # --- what the machine commands ---

    def feed(self, event: LinkEvent) -> None:
        """Take an event, check each command in its turn."""
        before = self.link.phase
        for command in self.link.step(event):
            match command:
                case Connect():
                    self.check_connect(command, event, before)
                case Transmit():
                    assert self.connected, "sent while no connection is there"
                    self.up.append(command.envelope)
                case Deliver():
                    self.deliver(command.event)
                case Disconnect():
                    self.drop()
                    self.over = isinstance(event, CloseRequested)
                case ReportSettled():
                    assert self.done
                    assert self.channel.received == self.sent_up, "settled before everything was acknowledged"
                    self.settled += 1
                case ReportLost() | ReportRejected():
                    assert isinstance(command, ReportLost)
                    assert self.now - self.heard > FENCE_S, "given up in time"
                    self.over = True

    def check_connect(self, command: Connect, event: LinkEvent, before: LinkPhase) -> None:
        """It registers as the attempt that it is, at once where it had a connection."""
        register = command.register.event
        assert isinstance(register, Register)
        assert register.attempt == (ATTEMPT if self.deployed else None)
        assert isinstance(event, StartRequested) or self.now - self.heard <= FENCE_S, "goes on though it was silent"
        tried_before = isinstance(event, ConnectionLost) and before is not LinkPhase.CONNECTED
        assert command.after_s == (RECONNECT_S if tried_before else 0.0)
        self.connecting = command

    def deliver(self, event: AnyEvent) -> None:
        """Only once, only in order."""
        if isinstance(event, AssignSplits):
            self.taken += [one.split.stop for one in event.splits if isinstance(one.split, LogSplit)]
            assert self.taken == [*range(1, len(self.taken) + 1)], "out of order, or twice"

    def drop(self) -> None:
        """Nothing that is in flight arrives."""
        self.connected, self.connecting = False, None
        self.up.clear()
        self.down.clear()

    # --- the network and the coordinator ---

    @precondition(lambda self: self.connecting is not None)
    @rule()
    def accepts(self) -> None:
        """The connection is made, and the registration is answered; what was not acknowledged is sent again."""
        self.connecting, self.connected = None, True
        if not self.deployed:
            self.deployed = True
            self.answer(DEPLOY)
            return
        self.answer(Heartbeat(acked=self.channel.received))
        for envelope in self.channel.unacked():
            self.arrive(envelope)

    def answer(self, event: AnyEvent) -> None:
        """Send what has no number and let it arrive."""
        self.arrive(self.channel.send(event))

    def arrive(self, envelope: Envelope) -> None:
        """Let an envelope arrive; a data event is acknowledged at once."""
        if not self.connected:
            return
        self.heard = self.now
        before = len(self.up)
        self.feed(EnvelopeReceived(now=self.now, envelope=envelope))
        if envelope.sequence and self.link.phase is LinkPhase.CONNECTED:
            acked = [one.event.acked for one in list(self.up)[before:] if isinstance(one.event, Heartbeat)]
            assert acked, "not acknowledged at once"

    @precondition(lambda self: self.connecting is not None or self.connected)
    @rule(pause=pauses)
    def loses(self, pause: float) -> None:
        """The connection breaks, or could not be made."""
        self.now += pause
        self.drop()
        self.feed(ConnectionLost(now=self.now, reason="reset"))

    @precondition(lambda self: bool(self.up))
    @rule(number=st.integers(1, 4))
    def takes(self, number: int) -> None:
        """The coordinator takes some of what is in flight; the channel raises where a number is missing."""
        for _ in range(min(number, len(self.up))):
            event = self.channel.receive(self.up.popleft())
            self.done_arrived = self.done_arrived or isinstance(event, SubtaskDone)

    @precondition(lambda self: self.connected)
    @rule()
    def acknowledges(self) -> None:
        """The coordinator says what it has taken."""
        self.answer(Heartbeat(acked=self.channel.received))

    @precondition(lambda self: self.deployed)
    @rule(lost=st.booleans(), twice=st.booleans())
    def assigns(self, lost: bool, twice: bool) -> None:
        """The coordinator sends a data event; with its connection it may be lost, or arrive twice."""
        self.sent_down += 1
        number = self.sent_down
        split = LogSplit(f"b0-{number}", BUCKET, (), number - 1, number)
        envelope = self.channel.send(AssignSplits(splits=[SplitProgress.beginning(split)]))
        if lost:
            if self.connected:
                self.loses(0.0)
            return
        for _ in range(2 if twice else 1):
            self.arrive(envelope)

    # --- the subtask ---

    @precondition(lambda self: self.deployed and not self.done and not self.over)
    @rule(data=st.booleans())
    def sends(self, data: bool) -> None:
        """A data event or a control event."""
        self.sent_up += data
        self.feed(SendRequested(now=self.now, event=RequestSplit() if data else Open(checkpoint=1)))

    @precondition(lambda self: self.deployed and not self.over)
    @rule()
    def beats(self) -> None:
        """A heartbeat."""
        self.feed(HeartbeatRequested(now=self.now))

    @precondition(lambda self: self.deployed and not self.done and not self.over)
    @rule()
    def ends(self) -> None:
        """It has nothing left to do."""
        self.done = True
        self.feed(SendRequested(now=self.now, event=SubtaskDone()))

    @precondition(lambda self: self.settled > 0 and not self.over)
    @rule()
    def closes(self) -> None:
        """It ends its link."""
        self.feed(CloseRequested(now=self.now))

    @precondition(lambda self: self.over)
    @rule(number=st.integers(0, 3))
    def nothing_follows(self, number: int) -> None:
        """Another thread may not know yet that the link is closed."""
        late = (
            HeartbeatRequested(now=self.now),
            SendRequested(now=self.now, event=RequestSplit()),
            ConnectionLost(now=self.now, reason="reset"),
            CloseRequested(now=self.now),
        )
        assert self.link.step(late[number]) == ()

    # --- what holds ---

    @invariant()
    def its_number_is_that_of_the_last_data_event(self) -> None:
        """A gateway counts on it."""
        assert self.over or self.link.sent == self.sent_up

    def teardown(self) -> None:
        """Once the network is well, everything arrives, and the subtask knows."""
        if self.over or self.link.phase is LinkPhase.CLOSED:
            return
        if self.connecting is not None:
            self.accepts()
        if self.connected and self.link.phase is LinkPhase.CONNECTED:
            self.takes_all()
            assert self.channel.received == self.sent_up, "something was lost"
            assert self.taken == [*range(1, self.sent_down + 1)], "something was not delivered"
            if self.done:
                assert self.done_arrived, "the coordinator does not know that it is done"
                self.acknowledges()
                assert self.settled, "the subtask does not know that it is settled"

    def takes_all(self) -> None:
        """What is in flight arrives."""
        if self.up:
            self.takes(len(self.up))


QUICK = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
)
HUNT = settings(QUICK, max_examples=5000, phases=[Phase.generate], print_blob=False)


def test_the_machine_holds_every_invariant() -> None:
    """Whatever the network does, each data event arrives once and in order, both ways."""
    play(Coordinator, settings=QUICK)


@pytest.mark.parametrize(
    "mutant",
    [
        AcknowledgesNothing,
        DeliversTwice,
        ForgetsThatItIsDone,
        GivesUpAtOnce,
        HurriesToReconnect,
        NeverGivesUp,
        NeverSettles,
        RegistersAsAnotherAttempt,
        SendsNothingAgain,
        SendsWhileItReconnects,
        SettlesTooEarly,
    ],
)
@pytest.mark.mutant
def test_a_mutant_dies(mutant: type[LinkMachine]) -> None:
    """The same game finds it."""
    game = type(f"{mutant.__name__}Game", (Coordinator,), {"machine": mutant})
    with pytest.raises(AssertionError):
        play(game, settings=HUNT)
