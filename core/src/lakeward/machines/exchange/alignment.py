"""Decides when a consumer of an exchange takes its snapshot, and which batches belong to it. Pure.

One subtask consumes one channel from each producer, itself included. A checkpoint cuts every channel at its barrier.

Rules
* A channel is aligned when it is consumed up to its barrier's `first_after`; there it stops until the others are as
  well. Then the writer's snapshot is taken, and all go on. A channel that ended counts as aligned at its end.
* If that takes longer than `aligned_timeout_s` since the trigger, or a peer says so by `Overtaken`, the snapshot is
  taken at once. Batches that were received, not consumed and lie before the barrier are kept with it, and so is what
  still arrives before the barrier; the channels go on meanwhile. Where a producer keeps batches itself, the consumer's
  share ends there.
* A trigger that meets a recovery does not wait for the alignment: no channel goes on before the restored rows are
  written.
* The snapshot is never taken before the subtask's own trigger: only that says whether the checkpoint closes files.
  One that does is never unaligned.
* A newer checkpoint supersedes an older one. What ended, in any way, does not start again.
* Marks of one channel come in order, and no batch comes before a mark that was sent before it. A mark that breaks this
  costs its checkpoint: a cut that is not right is never made.
* `TRANSITIONS` gives the next state; every state is looked up there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from lakeward.machines.exchange.commands import (
    AlignmentCommand,
    BlockChannel,
    CancelCheckpoint,
    ChannelsEnded,
    InputComplete,
    PersistBatches,
    TakeWriterSnapshot,
    UnblockChannel,
)
from lakeward.machines.exchange.events import (
    AlignmentEvent,
    BarrierAborted,
    BarrierReceived,
    BatchConsumed,
    BatchReceived,
    CheckpointTriggered,
    EndReceived,
    OvertakenReceived,
    TimeoutChecked,
)
from lakeward.machines.exchange.transitions import TRANSITIONS, AlignmentGuard, AlignmentPhase
from lakeward.machines.machine_state import next_state

if TYPE_CHECKING:
    from collections.abc import Iterable

_G = AlignmentGuard
_IDLE, _ALIGNING = AlignmentPhase.IDLE, AlignmentPhase.ALIGNING
_COLLECTING, _ENDED = AlignmentPhase.COLLECTING, AlignmentPhase.ENDED


@dataclass(slots=True)
class _Channel:
    """What is known of one channel; all numbers are sequences of batches."""

    received: int = 0
    """The next that arrives."""
    consumed: int = 0
    """The next that the writer takes."""
    end: int | None = None
    """The first after its last batch, once it has ended."""
    barrier: int | None = None
    """The first after the running checkpoint's barrier."""
    overtaken: int | None = None
    """The first that its producer keeps for the running checkpoint."""
    kept: int = 0
    """While collecting: the first that is not kept, nor consumed before the snapshot."""
    blocked: bool = False

    @property
    def border(self) -> int | None:
        """The first batch after the running checkpoint, None while it is not known."""
        return self.end if self.barrier is None else self.barrier

    @property
    def share(self) -> int | None:
        """The first batch that is not the consumer's to keep, None while it is not known."""
        return self.border if self.overtaken is None else self.overtaken

    @property
    def aligned(self) -> bool:
        return self.border is not None and self.consumed >= self.border

    @property
    def collected(self) -> bool:
        return self.share is not None and self.received >= self.share

    @property
    def drained(self) -> bool:
        return self.end is not None and self.consumed == self.end


@dataclass(slots=True)
class _Checkpoint:
    """The running checkpoint."""

    number: int
    since: float | None = None
    """When it was triggered, on the subtask's own clock."""
    triggered: bool = False
    close_files: bool = False
    at_once: bool = False
    """No channel goes on before restored rows are written."""
    overtaken: bool = False
    """A peer does not align it."""
    trouble: str = ""
    """Why no right cut can be made of it."""


class BarrierAlignment:
    """The alignment of one subtask's channels."""

    def __init__(self, channels: int, *, aligned_timeout_s: float, unaligned: bool) -> None:
        """Start with nothing received.

        Args:
            channels: how many producers there are, 1 or more.
            aligned_timeout_s: seconds since the trigger after which a checkpoint is no longer aligned; 0: at once.
            unaligned: whether a checkpoint may be unaligned at all.
        """
        self._channels = [_Channel() for _ in range(channels)]
        self._timeout_s = aligned_timeout_s
        self._unaligned = unaligned
        self._phase = _IDLE
        self._running: _Checkpoint | None = None
        self._latest = 0
        """The newest checkpoint that ended here, in any way."""
        self._ended = False
        """`ChannelsEnded` was returned."""
        self._moved = False
        """The current step looked up a state."""

    @property
    def phase(self) -> AlignmentPhase:
        """The machine's state."""
        return self._phase

    @property
    def checkpoint(self) -> int | None:
        """The running checkpoint, None for none."""
        return None if self._running is None else self._running.number

    @property
    def latest(self) -> int:
        """The newest checkpoint that ended here, in any way; 0 for none."""
        return self._latest

    @property
    def deadline(self) -> float | None:
        """When `TimeoutChecked` is due, in seconds on the subtask's clock; None while nothing depends on the time."""
        running = self._running
        if running is None or running.since is None or self._phase is not _ALIGNING or not self._may_switch(running):
            return None
        return running.since + self._timeout_s

    def may_consume(self, channel: int) -> bool:
        """Return whether the writer may take the next batch of a channel: one is there, and no barrier is before it.

        Args:
            channel: its producer.
        """
        found = self._channels[channel]
        return found.consumed < found.received and not found.blocked

    def may_start(self, checkpoint: int) -> bool:
        """Return whether a trigger of this checkpoint counts: neither it nor a newer one ended, and none newer runs.

        Args:
            checkpoint: its number.
        """
        return checkpoint > self._latest and (self._running is None or checkpoint >= self._running.number)

    def received(self, channel: int) -> int:
        """Return the sequence of the batch of a channel that arrives next."""
        return self._channels[channel].received

    def consumed(self, channel: int) -> int:
        """Return the sequence of the batch of a channel that the writer takes next."""
        return self._channels[channel].consumed

    def step(self, event: AlignmentEvent) -> tuple[AlignmentCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        if not self._allowed(event):
            self._move(event, _G.NOT_ALLOWED)
        before = self._phase
        self._moved = False
        commands = [*self._take(event), *self._progress(event)]
        commands += self._block(event, before)
        if not self._ended and isinstance(event, BatchConsumed | EndReceived):
            self._ended = self._channels[event.channel].drained and all(channel.drained for channel in self._channels)
            if self._ended:
                commands.append(ChannelsEnded())
        if self._phase is _IDLE and self._ended:
            self._move(event, _G.DRAINED)
        elif not self._moved:
            self._move(event, _G.UNCHANGED)
        return tuple(commands)

    def _move(self, event: AlignmentEvent, guard: AlignmentGuard) -> None:
        detail = f", checkpoint {self.checkpoint}, newest that ended {self._latest}"
        self._phase = next_state("alignment", TRANSITIONS, self._phase, event, guard, detail=detail)
        self._moved = True

    # --- what an event says ---------------------------------------------------------------------------------

    def _allowed(self, event: AlignmentEvent) -> bool:
        """Return whether an event fits to the ones before it; nothing is changed."""
        if isinstance(event, CheckpointTriggered | BarrierAborted | TimeoutChecked):
            return True
        if not 0 <= event.channel < len(self._channels):
            return False
        channel = self._channels[event.channel]
        match event:
            case BatchReceived():
                allowed = event.sequence == channel.received and event.sequence != channel.end
            case BatchConsumed():
                allowed = event.sequence == channel.consumed and self.may_consume(event.channel)
            case EndReceived():
                allowed = channel.end is None and event.first_after >= max(channel.received, channel.barrier or 0)
            case BarrierReceived():
                marked = channel.barrier if event.checkpoint == self.checkpoint else None
                inside = channel.end is None or event.first_after <= channel.end
                allowed = not self.may_start(event.checkpoint) or (inside and marked in {None, event.first_after})
            case OvertakenReceived():
                current = event.checkpoint == self.checkpoint
                marked = channel.overtaken if current else None
                border = channel.border if current else channel.end
                inside = border is None or event.first <= border
                allowed = not self.may_start(event.checkpoint) or (inside and marked in {None, event.first})
            case _:
                assert_never(event)
        return allowed

    def _take(self, event: AlignmentEvent) -> tuple[AlignmentCommand, ...]:
        """Note what an event says, and start its checkpoint if that is new."""
        match event:
            case BatchReceived():
                return self._receive(event)
            case BatchConsumed():
                self._channels[event.channel].consumed += 1
            case EndReceived():
                self._channels[event.channel].end = event.first_after
            case BarrierReceived() | OvertakenReceived() | CheckpointTriggered():
                return self._mark(event) if self.may_start(event.checkpoint) else ()
            case BarrierAborted():
                return self._abort(event)
            case TimeoutChecked():
                pass
            case _:
                assert_never(event)
        return ()

    def _receive(self, event: BatchReceived) -> tuple[AlignmentCommand, ...]:
        channel = self._channels[event.channel]
        channel.received += 1
        kept = channel.share is None or event.sequence < channel.share
        if self._phase is not _COLLECTING or self._running is None or not kept:
            return ()
        channel.kept = channel.received
        return (PersistBatches(self._running.number, event.channel, event.sequence, channel.received),)

    def _mark(self, event: BarrierReceived | OvertakenReceived | CheckpointTriggered) -> tuple[AlignmentCommand, ...]:
        commands: tuple[AlignmentCommand, ...] = ()
        running = self._running
        if running is None or event.checkpoint > running.number:
            commands = () if running is None else (self._cancelled(running, f"superseded by {event.checkpoint}"),)
            self._move(event, _G.STARTED)
            self._running = running = _Checkpoint(event.checkpoint)
        since = event.now
        match event:
            case CheckpointTriggered():
                since -= event.age_s
                running.close_files = running.close_files if running.triggered else event.close_files
                running.at_once = running.at_once or event.at_once
                running.triggered = True
            case BarrierReceived():
                since -= event.age_s
                self._channels[event.channel].barrier = event.first_after
                self._check(running, event.channel, event.first_after)
            case OvertakenReceived():
                running.overtaken = True
                self._channels[event.channel].overtaken = event.first
                self._check(running, event.channel, event.first)
            case _:
                assert_never(event)
        running.since = since if running.since is None else min(running.since, since)
        return commands

    def _check(self, running: _Checkpoint, channel: int, border: int) -> None:
        """Note that a cut is not right: what follows it was consumed, or kept, before it was known."""
        found = self._channels[channel]
        if border < (found.kept if self._phase is _COLLECTING else found.consumed):
            running.trouble = f"a mark of channel {channel} came after batches that follow it"

    def _abort(self, event: BarrierAborted) -> tuple[AlignmentCommand, ...]:
        self._latest = max(self._latest, event.checkpoint)
        running = self._running
        if running is None or running.number > event.checkpoint:
            return ()
        self._move(event, _G.CANCELLED)
        return (self._cancelled(running, "aborted"),)

    # --- what follows -----------------------------------------------------------------------------------------

    def _progress(self, event: AlignmentEvent) -> list[AlignmentCommand]:
        """Take the running checkpoint as far as it gets."""
        running = self._running
        if running is None:
            return []
        if running.overtaken and not self._may_switch(running):
            running.trouble = "a peer does not align a checkpoint that has to be aligned"
        if running.trouble:
            self._move(event, _G.CANCELLED)
            return [self._cancelled(running, running.trouble, decline=True)]
        commands: list[AlignmentCommand] = []
        if self._phase is _ALIGNING and running.triggered:
            if all(channel.aligned for channel in self._channels):
                self._move(event, _G.ALIGNED)
                self._forget(running)
                return [TakeWriterSnapshot(running.number, unaligned=False), InputComplete(running.number)]
            if self._overdue(event, running):
                self._move(event, _G.SWITCHED)
                commands += self._switch(running)
        if self._phase is _COLLECTING and all(channel.collected for channel in self._channels):
            self._move(event, _G.COLLECTED)
            self._forget(running)
            commands.append(InputComplete(running.number))
        return commands

    def _switch(self, running: _Checkpoint) -> list[AlignmentCommand]:
        """Cut at what is consumed, and keep what was received and lies before each barrier."""
        commands: list[AlignmentCommand] = [TakeWriterSnapshot(running.number, unaligned=True)]
        for number, channel in enumerate(self._channels):
            end = channel.received if channel.share is None else min(channel.received, channel.share)
            if channel.consumed < end:
                commands.append(PersistBatches(running.number, number, channel.consumed, end))
            channel.kept = max(channel.consumed, end)
        return commands

    def _may_switch(self, running: _Checkpoint) -> bool:
        return self._unaligned and not running.close_files

    def _overdue(self, event: AlignmentEvent, running: _Checkpoint) -> bool:
        if not self._may_switch(running):
            return False
        if running.overtaken or running.at_once:
            return True
        if running.since is None or not isinstance(event, BarrierReceived | CheckpointTriggered | TimeoutChecked):
            return False
        return event.now >= running.since + self._timeout_s

    def _cancelled(self, running: _Checkpoint, reason: str, *, decline: bool = False) -> CancelCheckpoint:
        self._forget(running)
        return CancelCheckpoint(running.number, reason, decline)

    def _forget(self, running: _Checkpoint) -> None:
        self._latest = max(self._latest, running.number)
        self._running = None
        for channel in self._channels:
            channel.barrier, channel.overtaken, channel.kept = None, None, 0

    def _block(self, event: AlignmentEvent, before: AlignmentPhase) -> list[AlignmentCommand]:
        """Stop channels that have come to their barrier, and let those go on whose checkpoint has ended."""
        if self._phase is not _ALIGNING and before is not _ALIGNING:
            return []
        concerned: Iterable[int] = range(len(self._channels))
        if isinstance(event, BatchReceived | BatchConsumed) and self._phase is before:
            concerned = (event.channel,)
        commands: list[AlignmentCommand] = []
        for number in concerned:
            channel = self._channels[number]
            limit = channel.barrier if channel.overtaken is None else channel.overtaken
            blocked = self._phase is _ALIGNING and limit is not None and channel.consumed >= limit
            if blocked is not channel.blocked:
                channel.blocked = blocked
                commands.append(BlockChannel(number) if blocked else UnblockChannel(number))
        return commands
