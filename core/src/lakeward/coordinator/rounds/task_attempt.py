"""One attempt of a subtask as the coordinator sees it: its channel, the gateway in front of it, its connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakeward.machines.checkpoints.gateway import AbortFor, CloseFor, Gateway, MessageReceived, OpenFor, Pass
from lakeward.machines.driver import MachineDriver
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import Heartbeat
from lakeward.model.status import SubtaskReport

if TYPE_CHECKING:
    from lakeward.machines.checkpoints.gateway import GatewayCommand, GatewayEvent
    from lakeward.model.events import AnyEvent, Envelope, Progress
    from lakeward.ports import Connection


@dataclass(slots=True)
class TaskAttempt:
    """One attempt. `seen` is when it last sent anything, in seconds; `done` is whether it has sent `SubtaskDone`."""

    key: ChannelKey
    connection: Connection | None
    seen: float
    gateway: Gateway = field(default_factory=Gateway)
    progress: Progress | None = None
    done: bool = False
    wrote_last: bool = False
    """Whether it writes nothing more: it has said that it is done, or has failed, or its task has returned."""
    host: str = ""
    splits_done: int = 0
    rows_done: int = 0
    bytes_done: int = 0
    """Of its finished splits: rows and bytes read."""
    counted: tuple[int, int] = (0, 0)
    """Data events received from it and acknowledged by it, as last passed to the checkpoints."""
    channel: Channel = field(init=False)
    _driver: MachineDriver[GatewayEvent, GatewayCommand] = field(init=False)

    def __post_init__(self) -> None:
        self.channel = Channel(self.key, "down")
        self._driver = MachineDriver(self.gateway)

    @property
    def number(self) -> int:
        """The attempt's number, given by the coordinator."""
        return self.key.task_attempt

    @property
    def sent(self) -> int:
        """Sequence number of the last data event that was sent to it."""
        return self.channel.sent

    def finish_split(self, split_id: str, rows: int, read_bytes: int | None = None) -> None:
        """Count a finished split and the rows read of it; its progress is not counted any more.

        `read_bytes`: read of it; None where the finish does not say, then those that were reported last.
        """
        self.splits_done += 1
        self.rows_done += rows
        reported = self.progress if self.progress is not None and self.progress.split_id == split_id else None
        if read_bytes is None:
            read_bytes = reported.size_bytes if reported is not None else 0
        self.bytes_done += read_bytes
        if reported is not None:
            self.progress = replace(reported, split_id="", rows=0, size_bytes=0, offset=0)

    def report(self, now: float) -> SubtaskReport:
        """Describe the subtask for people; `now` is in seconds on the clock of `seen`."""
        progress = self.progress
        return SubtaskReport(
            subtask=self.key.subtask,
            attempt=self.number,
            host=self.host,
            state=self._state(),
            split=progress.split_id if progress is not None else "",
            splits_done=self.splits_done,
            rows=self.rows_done + (progress.rows if progress is not None else 0),
            size_bytes=self.bytes_done + (progress.size_bytes if progress is not None else 0),
            seen_s=round(max(0.0, now - self.seen), 1),
        )

    def send(self, event: AnyEvent) -> None:
        """Send an event. A data event waits while the gateway is closed."""
        self._step(MessageReceived(event))

    def receive(self, envelope: Envelope) -> AnyEvent | None:
        """Return the event of a received envelope, None for a duplicate. Raises as `Channel.receive`."""
        return self.channel.receive(envelope)

    def acknowledge(self) -> None:
        """Acknowledge what was received so far; also a sign of life."""
        self.send(Heartbeat(acked=self.channel.received))

    def close_gateway(self, checkpoint: int) -> None:
        """Hold data events back."""
        self._step(CloseFor(checkpoint))

    def open_gateway(self, checkpoint: int) -> None:
        """Let data events out again: the subtask has taken its snapshot."""
        self._step(OpenFor(checkpoint))

    def end_checkpoint(self, checkpoint: int) -> None:
        """Let data events out again: the checkpoint has completed or was aborted."""
        self._step(AbortFor(checkpoint))

    def reconnect(self, connection: Connection, now: float) -> None:
        """Continue over another connection: send again what was not acknowledged."""
        self.connection = connection
        self.seen = now
        self.acknowledge()
        for envelope in self.channel.unacked():
            connection.send(envelope)

    def drop(self) -> None:
        """Close the attempt's connection."""
        if self.connection is not None:
            self.connection.close()

    def _state(self) -> str:
        if self.done:
            return "finished"
        if self.connection is None:
            return "disconnected"
        return "reading" if self.progress is not None and self.progress.split_id else "waiting"

    def _step(self, event: GatewayEvent) -> None:
        for command in self._driver.step(event):
            if isinstance(command, Pass):
                envelope = self.channel.send(command.event)
                if self.connection is not None:
                    self.connection.send(envelope)
