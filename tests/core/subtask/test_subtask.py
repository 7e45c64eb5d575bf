"""A subtask from its registration to its end, with the test in the coordinator's place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lakeward.errors import FencedError, TableError
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import (
    AnyEvent,
    Cancel,
    Deploy,
    Failed,
    Heartbeat,
    NoMoreSplits,
    Register,
    RequestSplit,
    SubtaskDone,
)
from lakeward.model.jobs import JobSpec, SubtaskPlace
from lakeward.model.wire import pack_table
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.run import real_ports
from lakeward.subtask.subtask import Subtask
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import PATH, log_table

if TYPE_CHECKING:
    from lakeward.hooks.plugins import SourcePlugin
    from lakeward.model.events import Envelope
    from lakeward.ports import Address, Listener, Receiver

FENCE_S = 16.0
JOB = JobSpec("svc/1-1-1", 1, 1, "", "", "", "localhost", 1, b"", FENCE_S)


class Coordinator:
    """See `lakeward.ports.Transport` and `Connection`: keeps what is sent, and answers what the test says."""

    def __init__(self) -> None:
        self.sent: list[AnyEvent] = []
        self.receiver: Receiver | None = None
        self._channel = Channel(ChannelKey("svc/1-1-1", 1, 0, 1), "down")

    async def listen(self, address: Address, receiver: Receiver) -> Listener:
        raise NotImplementedError

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> Coordinator:
        self.receiver = receiver
        self.send(first)
        return self

    def send(self, envelope: Envelope) -> None:
        self.sent.append(envelope.event)

    def close(self) -> None:
        return

    def answer(self, event: AnyEvent) -> None:
        assert self.receiver is not None
        self.receiver.on_message(self, self._channel.send(event))

    def refuse(self) -> None:
        assert self.receiver is not None
        self.receiver.on_disconnect(self, ConnectionRefusedError("nobody listens"))


class Reader:
    """A source in a subtask that is asked for nothing."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def reader(self, *_: object) -> Reader:
        if self._error is not None:
            raise self._error
        return self

    def close(self) -> None:
        return


class Attempt:
    """One attempt, turned by the test."""

    def __init__(self, error: Exception | None = None) -> None:
        self.coordinator, self.clock, self.mailbox = Coordinator(), FakeClock(), Mailbox()
        source = cast("SourcePlugin", Reader(error))
        parts = replace(real_ports(), transport=self.coordinator, clock=self.clock, source=lambda _: source)
        self.subtask = Subtask(SubtaskPlace(JOB, 0, 0), parts, self.mailbox)
        self.subtask.start()

    def deploy(self) -> Attempt:
        table = pack_table(replace(log_table(), path=PATH, table_id=7))
        options: dict[str, Any] = {"source": "", "source_task": b"", "lake": "", "lake_task": b"", "progress_s": 1.0}
        self.coordinator.answer(Deploy(attempt=1, table=table, fence_s=FENCE_S, **options))
        self.turns()
        return self

    def turns(self) -> None:
        """Do what is in the mailbox, and then one turn without an item."""
        while (item := self.mailbox.get(0.0)) is not None:
            self.subtask.turn(item)
        if not self.subtask.ended:
            self.subtask.turn(None)

    def said(self) -> list[AnyEvent]:
        """What was sent but for registrations and heartbeats."""
        return [one for one in self.coordinator.sent if not isinstance(one, Register | Heartbeat)]


def test_a_subtask_that_is_deployed_asks_for_a_split() -> None:
    assert Attempt().deploy().said() == [RequestSplit()]


def test_a_subtask_that_reaches_nobody_stops_with_the_reason() -> None:
    attempt = Attempt()
    attempt.coordinator.refuse()
    attempt.clock.advance(FENCE_S + 1)
    attempt.coordinator.refuse()
    attempt.turns()
    assert isinstance(attempt.subtask.error, FencedError)
    assert "not reached for 16 s: nobody listens" in str(attempt.subtask.error)


def test_a_subtask_that_is_waited_for_waits_for_longer_than_its_fence_time() -> None:
    attempt = Attempt()
    for _ in range(4):
        attempt.coordinator.answer(Heartbeat(acked=0))
        attempt.clock.advance(FENCE_S - 1)
        attempt.turns()
    assert attempt.subtask.error is None
    assert attempt.deploy().said() == [RequestSplit()]


def test_a_subtask_that_was_waited_for_stops_when_its_coordinator_says_nothing_any_more() -> None:
    """A paused coordinator, and one whose machine is gone, leave the connection open."""
    attempt = Attempt()
    attempt.coordinator.answer(Heartbeat(acked=0))
    attempt.clock.advance(FENCE_S + 1)
    attempt.turns()
    assert isinstance(attempt.subtask.error, FencedError)
    assert "silent for 17 s" in str(attempt.subtask.error)


def test_a_subtask_stops_whose_coordinator_answers_no_heartbeat() -> None:
    """A paused coordinator keeps its connections; its successor sweeps what is written from now on."""
    attempt = Attempt().deploy()
    for _ in range(4):
        attempt.clock.advance(FENCE_S / 2)
        attempt.turns()
    assert isinstance(attempt.subtask.error, FencedError)
    assert attempt.subtask.ended
    assert isinstance(attempt.said()[-1], Failed)


def test_a_subtask_goes_on_while_its_heartbeats_are_answered() -> None:
    attempt = Attempt().deploy()
    for _ in range(5):
        attempt.clock.advance(FENCE_S / 2)
        attempt.turns()
        attempt.coordinator.answer(Heartbeat(acked=1))
    assert attempt.subtask.error is None


def test_a_subtask_ends_once_everything_it_sent_is_acknowledged() -> None:
    attempt = Attempt().deploy()
    attempt.coordinator.answer(NoMoreSplits())
    attempt.turns()
    assert attempt.said() == [RequestSplit(), SubtaskDone()]
    assert not attempt.subtask.ended
    attempt.coordinator.answer(Heartbeat(acked=1))
    attempt.turns()
    assert attempt.subtask.outcome == "done"


def test_a_subtask_that_is_cancelled_ends_without_an_error() -> None:
    attempt = Attempt()
    attempt.coordinator.answer(Cancel(reason="this attempt no longer counts"))
    attempt.turns()
    assert (attempt.subtask.outcome, attempt.subtask.error) == ("cancelled", None)


@pytest.mark.parametrize("ends", ["it is cancelled", "nothing happens for a while"])
def test_a_subtask_with_a_permanent_error_stays_until_the_round_has_ended(ends: str) -> None:
    error = TableError("no such column")
    error.permanent = True
    attempt = Attempt(error).deploy()
    assert attempt.said() == [Failed(code=error.code, message="no such column", permanent=True)]
    assert not attempt.subtask.ended
    if ends == "it is cancelled":
        attempt.coordinator.answer(Cancel(reason="the round has ended"))
    else:
        attempt.clock.advance(11.0)
    attempt.turns()
    assert attempt.subtask.outcome == "failed"
