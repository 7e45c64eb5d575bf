"""A subtask's side of the checkpoint protocol: its gateway, and when its part of a checkpoint is made.

The receiving thread handles checkpoint messages immediately: it closes and opens the gateway while the mailbox thread
may be in the middle of a batch, so the coordinator does not wait for that batch. Without an exchange, events that the
gateway holds back at the trigger belong to the checkpoint; they are recorded at the trigger. The progress of the splits
may be recorded later, because a position and its files agree at any time: when the mailbox thread takes `MakePart`, it
closes files, records the progress and has the part stored. A split that ends between the trigger and `MakePart` is in
the part as finished. With an exchange the gateway stays closed until the mailbox thread has taken the subtask's own
snapshot.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.machines.checkpoints.gateway import (
    AbortFor,
    CloseFor,
    Gateway,
    GatewayClosed,
    MessageReceived,
    OpenFor,
    Pass,
    Started,
)
from lakeward.machines.driver import MachineDriver
from lakeward.model.checkpoints import Origin, SplitProgress
from lakeward.model.events import (
    AckClose,
    AnyEvent,
    CheckpointAborted,
    CheckpointComplete,
    Close,
    DeclineCheckpoint,
    Deploy,
    Open,
    SplitFinished,
    SubtaskDone,
    TriggerCheckpoint,
)
from lakeward.subtask.part_store import PartStore, PartWritten

if TYPE_CHECKING:
    from lakeward.machines.checkpoints.gateway import GatewayCommand, GatewayEvent, GatewayPhase
    from lakeward.model.checkpoints import BlockedEvent
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.subtask.link import Link
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.ports import SubtaskPorts


CheckpointMessage = Close | TriggerCheckpoint | CheckpointComplete | CheckpointAborted
"""The coordinator's messages about a checkpoint."""


@dataclass(frozen=True, slots=True)
class MakePart:
    """Posted to the mailbox in the order of the triggers: a checkpoint was triggered, and its part must be made.

    `since` is when the trigger came, on the subtask's clock: the mailbox may be busy for a while. `blocked` are the
    events that the gateway held back; with an exchange it is still closed, and they are not known yet.
    """

    checkpoint: int
    close_files: bool = False
    since: float = 0.0
    blocked: tuple[BlockedEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointEnded:
    """Posted to the mailbox of a subtask with an exchange: a checkpoint is complete, or was aborted."""

    checkpoint: int


class Checkpointing:
    """One attempt's gateway and parts. The receiving thread calls `on_message`, the mailbox thread everything else."""

    def __init__(self, place: SubtaskPlace, deploy: Deploy, link: Link, ports: SubtaskPorts, mailbox: Mailbox) -> None:
        """Start with the gateway open or closed, as the coordinator's `Deploy` says."""
        self._origin = Origin(place.job.job_attempt, place.subtask, deploy.attempt, 0)
        self._link = link
        self._clock = ports.clock
        self._mailbox = mailbox
        self._opens_at_trigger = deploy.exchange is None
        self._gateway = Gateway(closed_for=deploy.gateway_closed, restored=deploy.restored)
        self._driver = MachineDriver(self._gateway, self._execute)
        self._lock = threading.RLock()
        """Held while an event passes the gateway and gets its number on the link."""
        self._done = False
        self._taken = 0
        self._answer: PartWritten | None = None
        self._ended: dict[int, list[SplitProgress]] = {}
        """By checkpoint whose part is still to be made: the splits that ended after its trigger."""
        self.store = PartStore(place.subtask, deploy, ports, mailbox)

    @property
    def gateway(self) -> GatewayPhase:
        """The state of the gateway."""
        return self._gateway.phase

    @property
    def holds_events(self) -> bool:
        """Whether the gateway holds events back."""
        with self._lock:
            return bool(self._gateway.held)

    def start(self) -> None:
        """Send restored events again, before anything new."""
        self._step(Started())

    def send(self, event: AnyEvent) -> None:
        """Send an event; a data event waits while the gateway is closed."""
        self._step(MessageReceived(event))

    def finish(self, event: SplitFinished, progress: SplitProgress | None) -> None:
        """Send that a split is finished; `progress` is the result, None if the split cannot be resumed from it."""
        with self._lock:
            if progress is not None:
                for ended in self._ended.values():
                    ended.append(progress)
            self.send(event)

    def send_done(self) -> None:
        """Send `SubtaskDone`: all files are closed; later checkpoint messages are ignored."""
        with self._lock:
            self._done = True
            self._link.send(SubtaskDone())

    def on_message(self, message: CheckpointMessage) -> None:
        """Handle a checkpoint message immediately; answer a repeated message again.

        Raises:
            IllegalEventError: the message is illegal after the ones before it.
        """
        with self._lock:
            if self._done:
                return
            match message:
                case Close():
                    self._step(CloseFor(message.checkpoint))
                case TriggerCheckpoint():
                    self._trigger(message)
                case CheckpointComplete() | CheckpointAborted():
                    self._step(AbortFor(message.checkpoint))
                    if not self._opens_at_trigger:
                        self._mailbox.put_message(CheckpointEnded(message.checkpoint))

    def part_written(self, written: PartWritten) -> None:
        """Send whether a part was stored."""
        with self._lock:
            self._answer = written
        self.send(written.answer)

    def blocked(self) -> tuple[BlockedEvent, ...]:
        """Return the events that the gateway holds back: they belong to the checkpoint that it is closed for."""
        with self._lock:
            return self._gateway.held_as(replace(self._origin, sequence=self._link.sent))

    def open(self, checkpoint: int) -> None:
        """Open the gateway: the state that belongs to the checkpoint is recorded."""
        with self._lock:
            self._step(OpenFor(checkpoint))
            self.send(Open(checkpoint=checkpoint))

    def decline(self, checkpoint: int, reason: str) -> None:
        """Say that there is no part of a checkpoint here."""
        self.part_written(PartWritten(checkpoint, DeclineCheckpoint(checkpoint=checkpoint, reason=reason)))

    def ended_since(self, checkpoint: int) -> list[SplitProgress]:
        """Return the splits that ended after a checkpoint's trigger; those that end from now on are in later parts."""
        with self._lock:
            return self._ended.pop(checkpoint, [])

    def _trigger(self, message: TriggerCheckpoint) -> None:
        checkpoint = message.checkpoint
        if checkpoint <= self._taken:
            if self._answer is not None and self._answer.checkpoint == checkpoint:
                self.send(self._answer.answer)
            return
        self._taken = checkpoint
        blocked: tuple[BlockedEvent, ...] = ()
        if self._opens_at_trigger:
            blocked = self.blocked()
            self._ended[checkpoint] = []
            self.open(checkpoint)
        self._mailbox.put_message(MakePart(checkpoint, message.close_files, self._clock.now(), blocked))

    def _step(self, event: GatewayEvent) -> None:
        with self._lock:
            self._driver.post(event)

    def _execute(self, command: GatewayCommand, _: GatewayEvent) -> None:
        match command:
            case Pass():
                self._link.send(command.event)
            case GatewayClosed():
                self._link.send(AckClose(checkpoint=command.checkpoint, sent=self._link.sent))
