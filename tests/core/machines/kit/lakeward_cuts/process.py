"""Both ends of an attempt: the subtask in its process, and the seat that the coordinator keeps for it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from lakeward.machines.checkpoints.gateway import (
    AbortFor,
    CloseFor,
    Gateway,
    GatewayClosed,
    GatewayEvent,
    MessageReceived,
    OpenFor,
    Pass,
    Started,
)
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.checkpoints import BlockedEvent, Origin, PartFile, SplitProgress, SubtaskSnapshot
from lakeward.model.events import (
    DATA_EVENTS,
    AckCheckpoint,
    AckClose,
    AnyEvent,
    AssignSplits,
    CheckpointAborted,
    CheckpointComplete,
    Close,
    Deploy,
    Envelope,
    NoMoreSplits,
    Open,
    RequestSplit,
    SplitFinished,
    SubtaskDone,
    TriggerCheckpoint,
)
from lakeward.model.results import WriteResult
from lakeward.model.settings import CheckpointSettings
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TableBucket

BUCKET = TableBucket(1, None, 0)
SPLITS = {name: LogSplit(name, BUCKET, (), 0, 10) for name in "abcdefghij"}
POLICY = CheckpointSettings(interval_s=3, timeout_s=8, pause_s=0, tolerated=1000)
PATIENCE = 400
"""Turns without a fault within which everything must come to its end."""


@dataclass
class Cut:
    """The coordinator's part."""

    unassigned: set[str]
    finished: set[str]
    pending: dict[str, BlockedEvent]


class Process:
    """An attempt, in its process: what it reads, its gateway, its snapshots that are being stored."""

    def __init__(self, gateway: type[Gateway], key: ChannelKey, deploy: Deploy, up: deque[Envelope]) -> None:
        self.key = key
        self.channel = Channel(key, "up")
        self.gateway = gateway(closed_for=deploy.gateway_closed, restored=deploy.restored)
        self.up = up
        self.work: list[str] = []
        self.writing: list[tuple[int, SubtaskSnapshot]] = []
        self.answer: AckCheckpoint | None = None
        self.taken = 0
        self.asking = False
        self.done_sent = False
        self.sent_events: list[AnyEvent] = [
            SplitFinished(result=one.result, origin=one.origin) for one in deploy.restored
        ]
        self.step(Started())

    def step(self, event: GatewayEvent) -> None:
        for command in self.gateway.step(event):
            match command:
                case Pass():
                    self.up.append(self.channel.send(command.event))
                case GatewayClosed():
                    self.send(AckClose(checkpoint=command.checkpoint, sent=self.channel.sent))

    def send(self, event: AnyEvent) -> None:
        if isinstance(event, DATA_EVENTS):
            self.sent_events.append(event)
        self.step(MessageReceived(event))

    def request(self) -> None:
        self.asking = True
        self.send(RequestSplit())

    def finish(self) -> None:
        self.send(SplitFinished(result=WriteResult(self.work.pop(0), BUCKET, 10, -1, 1, ())))

    def go_on(self) -> None:
        """Do the next thing, without a fault."""
        if self.done_sent:
            return
        if self.writing:
            self.stored()
        if self.work:
            self.finish()
        elif not self.asking:
            self.request()

    def receive(self, event: AnyEvent) -> None:
        match event:
            case AssignSplits():
                self.asking = False
                self.work += [wire.split.split_id for wire in event.splits]
            case NoMoreSplits():
                self.done_sent = True
                self.send(SubtaskDone())
            case Close():
                self.step(CloseFor(event.checkpoint))
            case TriggerCheckpoint():
                self.trigger(event.checkpoint)
            case CheckpointComplete() | CheckpointAborted():
                self.step(AbortFor(event.checkpoint))
            case _:
                pass

    def trigger(self, number: int) -> None:
        if number <= self.taken:
            if self.answer is not None and self.answer.checkpoint == number:
                self.send(self.answer)
            return
        self.taken = number
        me = Origin(self.key.job_attempt, self.key.subtask, self.key.task_attempt, self.channel.sent)
        progress = tuple(SplitProgress(SPLITS[name], 0, (), 0, -1) for name in self.work)
        self.writing.append((number, SubtaskSnapshot(me.subtask, me.task_attempt, progress, self.gateway.held_as(me))))
        self.step(OpenFor(number))
        self.send(Open(checkpoint=number))

    def stored(self) -> None:
        number, snapshot = self.writing.pop(0)
        part = PartFile(snapshot.subtask, snapshot.task_attempt, f"{number}", 1, 1)
        self.answer = AckCheckpoint(checkpoint=number, part=part, snapshot=snapshot)
        self.send(self.answer)


@dataclass
class Peer:
    """The coordinator's end of an attempt, and the connection between them."""

    key: ChannelKey
    channel: Channel
    gateway: Gateway
    process: Process | None = None
    up: deque[Envelope] = field(default_factory=deque)
    down: deque[Envelope] = field(default_factory=deque)
    waiting: bool = False
    restored: tuple[str, ...] = ()
    cut_up: tuple[int, int] = (0, 0)
    """Checkpoint, and the last number before it."""
    cut_down: tuple[int, int] = (0, 0)
    sent_events: list[AnyEvent] = field(default_factory=list)
    received_events: list[AnyEvent] = field(default_factory=list)
    received_below: list[AnyEvent] = field(default_factory=list)
