"""The rules of a subtask's link to the coordinator, written out by hand: what it does next, and what it must not do.

Nothing here is taken from the machine's own table, so a wrong row of that table is a failure here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.link import (
    CloseRequested,
    Connect,
    ConnectionLost,
    Deliver,
    Disconnect,
    EnvelopeReceived,
    HeartbeatRequested,
    LinkCommand,
    LinkEvent,
    LinkMachine,
    LinkPhase,
    PeerRejected,
    ReportLost,
    ReportRejected,
    ReportSettled,
    SendRequested,
    StartRequested,
    Transmit,
)
from lakeward.model.events import (
    AnyEvent,
    Cancel,
    Deploy,
    Envelope,
    Heartbeat,
    NoMoreSplits,
    Open,
    Register,
    RequestSplit,
    SubtaskDone,
)

if TYPE_CHECKING:
    from lakeward.model.events import Direction

ILLEGAL = None
NEW, REGISTERING, CONNECTED = LinkPhase.NEW, LinkPhase.REGISTERING, LinkPhase.CONNECTED
RECONNECTING, CLOSED = LinkPhase.RECONNECTING, LinkPhase.CLOSED
FENCE_S = 10.0
"""All is received at 1: the coordinator is silent for too long after 11."""
DEPLOY = Deploy(attempt=3, table=b"", source="", source_task=b"", lake="", lake_task=b"", fence_s=FENCE_S, progress_s=1)
CANCEL, DONE, CONTROL = Cancel(reason="over"), SubtaskDone(), Open(checkpoint=1)


def envelope(event: AnyEvent, direction: Direction, sequence: int, attempt: int) -> Envelope:
    return Envelope(
        round="svc/1-1-1",
        job_attempt=1,
        subtask=0,
        task_attempt=attempt,
        direction=direction,
        sequence=sequence,
        event=event,
    )


def receives(event: AnyEvent, sequence: int = 0, *, attempt: int = 3) -> EnvelopeReceived:
    return EnvelopeReceived(now=1.0, envelope=envelope(event, "down", sequence, attempt))


def sends(event: AnyEvent) -> SendRequested:
    return SendRequested(now=1.0, event=event)


def breaks(now: float = 1.0) -> ConnectionLost:
    return ConnectionLost(now=now, reason="reset")


def rejected(now: float = 1.0) -> PeerRejected:
    return PeerRejected(now=now, reason="no proof")


def transmits(event: AnyEvent, sequence: int = 0) -> Transmit:
    return Transmit(envelope(event, "up", sequence, 3))


def connects(attempt: int | None, after_s: float) -> Connect:
    register = Register(subtask=0, host="here", pid=1, attempt=attempt)
    return Connect(envelope(register, "up", 0, attempt or 0), after_s)


START, CLOSE, BEAT = StartRequested(now=0.0), CloseRequested(now=1.0), HeartbeatRequested(now=1.0)
ALIVE, SILENT = 11.0, 11.1
DEPLOYED = (START, receives(DEPLOY))
LOST = (*DEPLOYED, breaks())
ACK_0, ACK_1 = receives(Heartbeat(acked=0)), receives(Heartbeat(acked=1))
REFUSED = (START, receives(CANCEL))
GIVEN_UP = (*LOST, breaks(SILENT))


class Row(NamedTuple):
    """A rule: after a story, an event leads to a phase and to commands. Without commands it is illegal."""

    rule: str
    story: tuple[LinkEvent, ...]
    event: LinkEvent
    phase: LinkPhase
    commands: tuple[LinkCommand, ...] | None


ROWS = (
    # --- registering ------------------------------------------------------------------------------------------------
    Row("a link registers at once, without a number", (), START, REGISTERING, (connects(None, 0.0),)),
    Row("a link starts once", (START,), START, REGISTERING, ILLEGAL),
    Row("a link that was closed before it started connects nowhere", (), CLOSE, CLOSED, ()),
    Row("nothing is sent before a link has started", (), sends(RequestSplit()), NEW, ILLEGAL),
    Row("nothing is sent before the deployment", (START,), sends(RequestSplit()), REGISTERING, ILLEGAL),
    Row("there is no heartbeat before the deployment", (START,), BEAT, REGISTERING, ILLEGAL),
    Row("a deployment connects", (START,), receives(DEPLOY), CONNECTED, (Deliver(DEPLOY),)),
    Row("a heartbeat before the deployment is a sign of life and nothing else", (START,), ACK_0, REGISTERING, ()),
    Row(
        "a deployment connects after the coordinator waited for others",
        (START, ACK_0),
        receives(DEPLOY),
        CONNECTED,
        (Deliver(DEPLOY),),
    ),
    Row(
        "an attempt that does not count is told so and stays away",
        (START,),
        receives(CANCEL),
        CLOSED,
        (Disconnect(), Deliver(CANCEL)),
    ),
    Row(
        "an answer to the first registration that is neither ends it",
        (START,),
        receives(NoMoreSplits(), 1),
        CLOSED,
        (Disconnect(), ReportRejected("register: expected Deploy or Cancel, found NoMoreSplits")),
    ),
    Row(
        "whoever proves no secret at the first registration is not the coordinator",
        (START,),
        rejected(),
        CLOSED,
        (ReportRejected("no proof"),),
    ),
    Row("a first connection that fails is tried again after a while", (START,), breaks(), REGISTERING,
        (connects(None, 0.2),)),
    Row("a first registration is given up after the fence time", (START, ACK_0), breaks(SILENT), CLOSED,
        (ReportLost(SILENT - 1.0, "reset"),)),
    Row("a link that is closed while it registers hangs up", (START,), CLOSE, CLOSED, (Disconnect(),)),
    # --- connected --------------------------------------------------------------------------------------------------
    Row("data is numbered and sent", DEPLOYED, sends(RequestSplit()), CONNECTED, (transmits(RequestSplit(), 1),)),
    Row("a control event is sent without a number", DEPLOYED, sends(CONTROL), CONNECTED, (transmits(CONTROL),)),
    Row(
        "what is received is acknowledged before it is delivered",
        DEPLOYED,
        receives(NoMoreSplits(), 1),
        CONNECTED,
        (transmits(Heartbeat(acked=1)), Deliver(NoMoreSplits())),
    ),
    Row(
        "what is received twice is acknowledged again and delivered once",
        (*DEPLOYED, receives(NoMoreSplits(), 1)),
        receives(NoMoreSplits(), 1),
        CONNECTED,
        (transmits(Heartbeat(acked=1)),),
    ),
    Row("a heartbeat says what was received", (*DEPLOYED, receives(NoMoreSplits(), 1)), BEAT, CONNECTED,
        (transmits(Heartbeat(acked=1)),)),
    Row(
        "a gap in the numbers delivers nothing and ends the connection",
        DEPLOYED,
        receives(NoMoreSplits(), 2),
        RECONNECTING,
        (Disconnect(), connects(3, 0.0)),
    ),
    Row(
        "what is for another attempt is not delivered and ends the connection",
        DEPLOYED,
        receives(NoMoreSplits(), 1, attempt=2),
        RECONNECTING,
        (Disconnect(), connects(3, 0.0)),
    ),
    Row(
        "an acknowledgement of what was never sent ends the connection",
        DEPLOYED,
        ACK_1,
        RECONNECTING,
        (Disconnect(), connects(3, 0.0)),
    ),
    Row("an order to cancel is delivered, and the link stays", DEPLOYED, receives(CANCEL), CONNECTED,
        (Deliver(CANCEL),)),
    Row("a link starts not again while it is connected", DEPLOYED, START, CONNECTED, ILLEGAL),
    Row("who is done and has nothing unacknowledged is settled", DEPLOYED, sends(DONE), CONNECTED,
        (transmits(DONE), ReportSettled())),
    Row(
        "who is done is not settled while data is not acknowledged",
        (*DEPLOYED, sends(RequestSplit())),
        sends(DONE),
        CONNECTED,
        (transmits(DONE),),
    ),
    Row(
        "an acknowledgement of less than all settles nothing",
        (*DEPLOYED, sends(RequestSplit()), sends(RequestSplit()), sends(DONE)),
        ACK_1,
        CONNECTED,
        (),
    ),
    Row(
        "the last acknowledgement settles who is done",
        (*DEPLOYED, sends(RequestSplit()), sends(DONE)),
        ACK_1,
        CONNECTED,
        (ReportSettled(),),
    ),
    Row("acknowledgements settle nobody who is not done", (*DEPLOYED, sends(RequestSplit())), ACK_1, CONNECTED, ()),
    # --- the connection is lost -------------------------------------------------------------------------------------
    Row("a lost connection is replaced at once, for the same attempt", DEPLOYED, breaks(ALIVE), RECONNECTING,
        (connects(3, 0.0),)),
    Row("a reconnect that fails is tried again after a while", LOST, breaks(ALIVE), RECONNECTING,
        (connects(3, 0.2),)),
    Row("whoever proves no secret at a reconnect is asked again after a while", LOST, rejected(ALIVE), RECONNECTING,
        (connects(3, 0.2),)),
    Row("a peer that is rejected while it is connected is replaced at once", DEPLOYED, rejected(), RECONNECTING,
        (connects(3, 0.0),)),
    Row("a subtask stops whose connection breaks after the fence time", DEPLOYED, breaks(SILENT), CLOSED,
        (ReportLost(SILENT - 1.0, "reset"),)),
    Row("a subtask stops whose coordinator is away for the fence time", LOST, breaks(SILENT), CLOSED,
        (ReportLost(SILENT - 1.0, "reset"),)),
    Row("a subtask stops where another one answers for the fence time", LOST, rejected(SILENT), CLOSED,
        (ReportLost(SILENT - 1.0, "no proof"),)),
    Row("a subtask stops whose peer is rejected after the fence time", DEPLOYED, rejected(SILENT), CLOSED,
        (ReportLost(SILENT - 1.0, "no proof"),)),
    Row("data waits while the connection is down", LOST, sends(RequestSplit()), RECONNECTING, ()),
    Row("a heartbeat is dropped while the connection is down", LOST, BEAT, RECONNECTING, ()),
    Row("nobody who is done while the connection is down is settled before that was sent",
        LOST, sends(DONE), RECONNECTING, ()),
    Row("who was done while the connection was down says so once it is back, and is settled",
        (*LOST, sends(DONE)), ACK_0, CONNECTED, (transmits(DONE), ReportSettled())),
    Row("nobody who is done while the connection is down is settled with data that waits",
        (*LOST, sends(RequestSplit())), sends(DONE), RECONNECTING, ()),
    Row(
        "a control event is dropped while the connection is down",
        (*LOST, sends(CONTROL)),
        ACK_0,
        CONNECTED,
        (),
    ),
    Row(
        "data that is not acknowledged is sent again in order, under its numbers",
        (*DEPLOYED, sends(RequestSplit()), breaks(), sends(RequestSplit())),
        ACK_0,
        CONNECTED,
        (transmits(RequestSplit(), 1), transmits(RequestSplit(), 2)),
    ),
    Row(
        "data that was acknowledged is not sent again",
        (*DEPLOYED, sends(RequestSplit()), sends(RequestSplit()), ACK_1, breaks()),
        ACK_1,
        CONNECTED,
        (transmits(RequestSplit(), 2),),
    ),
    Row(
        "what says that a subtask is done is sent again, behind its data",
        (*DEPLOYED, sends(RequestSplit()), sends(DONE), breaks()),
        ACK_0,
        CONNECTED,
        (transmits(RequestSplit(), 1), transmits(DONE)),
    ),
    Row("an attempt that no longer counts is told so at a reconnect", LOST, receives(CANCEL), CLOSED,
        (Disconnect(), Deliver(CANCEL))),
    Row("a link that is closed while it reconnects hangs up", LOST, CLOSE, CLOSED, (Disconnect(),)),
    # --- closed -----------------------------------------------------------------------------------------------------
    Row("a link that is closed hangs up", DEPLOYED, CLOSE, CLOSED, (Disconnect(),)),
    Row("what arrives after the close is not delivered", (*DEPLOYED, CLOSE), receives(NoMoreSplits(), 1), CLOSED, ()),
    Row("what is sent after the close goes nowhere", (*DEPLOYED, CLOSE), sends(RequestSplit()), CLOSED, ()),
    Row("there is no heartbeat after the close", (*DEPLOYED, CLOSE), BEAT, CLOSED, ()),
    Row("a connection that breaks after the close is not replaced", (*DEPLOYED, CLOSE), breaks(), CLOSED, ()),
    Row("a peer that is rejected after the close is not reported", (*DEPLOYED, CLOSE), rejected(), CLOSED, ()),
    Row("a link that is closed does not start again", (*DEPLOYED, CLOSE), START, CLOSED, ILLEGAL),
    Row("who was refused does not register again", REFUSED, breaks(), CLOSED, ()),
    Row("who has stopped is not deployed again", GIVEN_UP, receives(DEPLOY), CLOSED, ()),
    Row("a link is closed twice without harm", (*DEPLOYED, CLOSE), CLOSE, CLOSED, ()),
)  # fmt: skip


def observed(machine: LinkMachine) -> tuple[object, ...]:
    """All that a link shows."""
    return (machine.phase, machine.sent, machine.silent_s(1.0), machine.unanswered_s(1.0))


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_a_link_keeps_this_rule(row: Row) -> None:
    machine = LinkMachine("svc/1-1-1", 1, Register(subtask=0, host="here", pid=1), FENCE_S)
    for event in row.story:
        machine.step(event)
    if row.commands is ILLEGAL:
        before = observed(machine)
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
        assert observed(machine) == before
    else:
        assert machine.step(row.event) == row.commands
    assert machine.phase is row.phase
