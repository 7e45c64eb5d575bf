"""Stories of a link whose subtask is attempt 3 once it is deployed."""

from __future__ import annotations

from lakeward.machines.link import (
    CloseRequested,
    ConnectionLost,
    EnvelopeReceived,
    HeartbeatRequested,
    LinkEvent,
    LinkMachine,
    LinkPhase,
    PeerRejected,
    SendRequested,
    StartRequested,
)
from lakeward.machines.transport.channel import ChannelKey
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

FENCE_S = 10.0
KEY = ChannelKey("svc/1-1-1", 1, 0, 3)
DEPLOY = Deploy(attempt=3, table=b"", source="", source_task=b"", lake="", lake_task=b"", fence_s=FENCE_S, progress_s=1)


def new() -> LinkMachine:
    """A link of a subtask that has not started."""
    return LinkMachine("svc/1-1-1", 1, Register(subtask=0, host="here", pid=1), FENCE_S)


def received(event: AnyEvent, now: float = 1.0, sequence: int = 0) -> EnvelopeReceived:
    """What the coordinator sends to attempt 3; data events are given their number by hand."""
    down = Envelope(
        round=KEY.round_name,
        job_attempt=KEY.job_attempt,
        subtask=KEY.subtask,
        task_attempt=KEY.task_attempt,
        direction="down",
        sequence=sequence,
        event=event,
    )
    return EnvelopeReceived(now=now, envelope=down)


def sends(event: AnyEvent) -> SendRequested:
    """The subtask sends."""
    return SendRequested(now=1.0, event=event)


def lost(now: float = 1.0) -> ConnectionLost:
    """The connection breaks."""
    return ConnectionLost(now=now, reason="reset")


START, CLOSE, BEAT = StartRequested(now=0.0), CloseRequested(now=1.0), HeartbeatRequested(now=1.0)
REJECTED = PeerRejected(now=1.0, reason="no proof")
DEPLOYED = (START, received(DEPLOY))
STORIES: tuple[tuple[LinkEvent, ...], ...] = (
    (),
    (START,),
    (START, lost()),
    (START, received(Heartbeat(acked=0))),
    DEPLOYED,
    (*DEPLOYED, sends(RequestSplit())),
    (*DEPLOYED, sends(SubtaskDone())),
    (*DEPLOYED, received(NoMoreSplits(), sequence=1)),
    (*DEPLOYED, lost()),
    (*DEPLOYED, lost(), lost()),
    (*DEPLOYED, sends(RequestSplit()), lost()),
    (*DEPLOYED, lost(), received(Heartbeat(acked=0))),
    (CLOSE,),
    (START, received(Cancel(reason="over"))),
    (*DEPLOYED, CLOSE),
)
TRIED: tuple[LinkEvent, ...] = (
    START,
    CLOSE,
    BEAT,
    REJECTED,
    PeerRejected(now=FENCE_S * 3, reason="no proof"),
    lost(),
    lost(FENCE_S * 3),
    received(DEPLOY),
    received(Cancel(reason="over")),
    received(Heartbeat(acked=0)),
    received(NoMoreSplits(), sequence=1),
    received(NoMoreSplits(), sequence=5),
    sends(RequestSplit()),
    sends(Open(checkpoint=1)),
    sends(SubtaskDone()),
)
ILLEGAL = {
    *((phase, StartRequested) for phase in LinkPhase if phase is not LinkPhase.NEW),
    *((LinkPhase.REGISTERING, event) for event in (SendRequested, HeartbeatRequested)),
    *(
        (LinkPhase.NEW, event)
        for event in (EnvelopeReceived, ConnectionLost, PeerRejected, SendRequested, HeartbeatRequested)
    ),
}
