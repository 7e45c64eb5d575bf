"""When a consumer of an exchange takes its snapshot, and which batches belong to it.

One subtask consumes one channel from each producer, itself included. A checkpoint cuts every channel at its barrier.

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
* A newer checkpoint supersedes an older one. What ended, in any way, does not start again: a mark of it is late, not
  illegal, and changes nothing.
* Marks of one channel come in order, and no batch comes before a mark that was sent before it. A mark that breaks this
  costs its checkpoint: a cut that is not right is never made.

One step may make several moves: the last barrier starts the alignment of a single channel, aligns it, and ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lakeward.machines.exchange import messages as m
from lakeward.machines.machine import Machine, MachineState, Rule, Rules, UndoDict

if TYPE_CHECKING:
    from collections.abc import Iterable

# --- what is known of the channels of a consumer --------------------------------------------------------------------


class AlignmentPhase(MachineState):
    """Where a consumer stands with its channels' barriers."""

    IDLE = "idle"
    """No checkpoint runs here."""
    ALIGNING = "aligning"
    """A barrier, or the trigger, has come; the writer's snapshot is not taken. A channel stops at its barrier."""
    COLLECTING = "collecting"
    """The snapshot is taken, before all barriers: batches before a barrier are kept as they arrive."""
    ENDED = "ended"
    """Every channel has ended and all of it was consumed; a checkpoint has nothing to wait for but its trigger."""


class InputChannel(NamedTuple):
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
        """Whether it is consumed up to its barrier."""
        return self.border is not None and self.consumed >= self.border

    @property
    def collected(self) -> bool:
        """Whether all that lies before its barrier has arrived, or its producer keeps it."""
        return self.share is not None and self.received >= self.share

    @property
    def drained(self) -> bool:
        """Whether it has ended and all of it was consumed."""
        return self.end is not None and self.consumed == self.end


class RunningCheckpoint(NamedTuple):
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


class InputChannels(Machine[m.AlignmentEvent, m.AlignmentCommand]):
    """All channels of one consumer, and the checkpoint that runs here."""

    def __init__(self, channels: int, *, aligned_timeout_s: float, unaligned: bool) -> None:
        """Start with nothing received from `channels` producers, 1 or more.

        `aligned_timeout_s`: seconds since the trigger after which a checkpoint is no longer aligned; 0: at once.
        `unaligned`: whether a checkpoint may be unaligned at all.
        """
        super().__init__()
        self.timeout_s = aligned_timeout_s
        self.unaligned = unaligned
        self.phase: AlignmentPhase = AlignmentPhase.IDLE
        self.channels = UndoDict[int, InputChannel](self.undo, dict.fromkeys(range(channels), InputChannel()))
        self.running: RunningCheckpoint | None = None
        self.latest = 0
        """The newest checkpoint that ended here, in any way."""
        self.ended = False
        """`ChannelsEnded` was returned."""

    @property
    def detail(self) -> str:
        """Which checkpoint runs, for errors."""
        return f", checkpoint {self.checkpoint}, newest that ended {self.latest}"

    @property
    def checkpoint(self) -> int | None:
        """The running checkpoint, None for none."""
        return None if self.running is None else self.running.number

    @property
    def deadline(self) -> float | None:
        """When `TimeoutChecked` is due, in seconds on the subtask's clock; None while nothing depends on the time."""
        if self.running is None or self.running.since is None or self.phase is not AlignmentPhase.ALIGNING:
            return None
        return self.running.since + self.timeout_s if self.may_switch else None

    @property
    def may_switch(self) -> bool:
        """Whether the running checkpoint may be unaligned."""
        return self.unaligned and self.running is not None and not self.running.close_files

    def may_consume(self, channel: int) -> bool:
        """Return whether the writer may take the next batch of a channel: one is there, and no barrier is before it."""
        found = self.channels[channel]
        return found.consumed < found.received and not found.blocked

    def may_start(self, checkpoint: int) -> bool:
        """Return whether a trigger of this checkpoint counts: neither it nor a newer one ended, and none newer runs."""
        return checkpoint > self.latest and (self.running is None or checkpoint >= self.running.number)

    def received(self, channel: int) -> int:
        """Return the sequence of the batch of a channel that arrives next."""
        return self.channels[channel].received

    def consumed(self, channel: int) -> int:
        """Return the sequence of the batch of a channel that the writer takes next."""
        return self.channels[channel].consumed


IDLE, ALIGNING = AlignmentPhase.IDLE, AlignmentPhase.ALIGNING
COLLECTING, ENDED = AlignmentPhase.COLLECTING, AlignmentPhase.ENDED
Commands = tuple[m.AlignmentCommand, ...]
Mark = m.BarrierReceived | m.OvertakenReceived | m.CheckpointTriggered

# --- what comes in a channel ----------------------------------------------------------------------------------------


def is_next(inputs: InputChannels, event: m.BatchReceived) -> bool:
    """The batch is the next one of its channel, which has not ended."""
    channel = inputs.channels.get(event.channel)
    return channel is not None and event.sequence == channel.received and event.sequence != channel.end


def is_next_of_checkpoint(inputs: InputChannels, event: m.BatchReceived) -> bool:
    """It lies before the barrier, and its producer does not keep it."""
    if not is_next(inputs, event):
        return False
    share = inputs.channels[event.channel].share
    return share is None or event.sequence < share


def may_be_taken(inputs: InputChannels, event: m.BatchConsumed) -> bool:
    """It is the oldest batch of a channel that is not stopped."""
    channel = inputs.channels.get(event.channel)
    return channel is not None and event.sequence == channel.consumed and inputs.may_consume(event.channel)


def ends_channel(inputs: InputChannels, event: m.EndReceived) -> bool:
    """It is the first end of its channel, behind all that came."""
    channel = inputs.channels.get(event.channel)
    return (
        channel is not None and channel.end is None and event.first_after >= max(channel.received, channel.barrier or 0)
    )


def receive(inputs: InputChannels, event: m.BatchReceived) -> Commands:
    """Count it."""
    channel = inputs.channels[event.channel]
    inputs.channels[event.channel] = channel._replace(received=channel.received + 1)
    return ()


def keep(inputs: InputChannels, event: m.BatchReceived) -> Commands:
    """Count it, and keep it for the checkpoint."""
    channel = inputs.channels[event.channel]
    end = channel.received + 1
    inputs.channels[event.channel] = channel._replace(received=end, kept=end)
    return (m.PersistBatches(_running(inputs).number, event.channel, event.sequence, end),)


def consume(inputs: InputChannels, event: m.BatchConsumed) -> Commands:
    """Count it."""
    channel = inputs.channels[event.channel]
    inputs.channels[event.channel] = channel._replace(consumed=channel.consumed + 1)
    return ()


def note_end(inputs: InputChannels, event: m.EndReceived) -> Commands:
    """Expect nothing more."""
    inputs.channels[event.channel] = inputs.channels[event.channel]._replace(end=event.first_after)
    return ()


# --- marks ----------------------------------------------------------------------------------------------------------


def is_late(inputs: InputChannels, event: Mark) -> bool:
    """Its checkpoint has ended, or a newer one runs."""
    return _has_channel(inputs, event) and not inputs.may_start(event.checkpoint)


def is_of_newer(inputs: InputChannels, event: Mark) -> bool:
    """It is the first of a checkpoint that is newer than all that ended or run here."""
    return event.checkpoint != inputs.checkpoint and inputs.may_start(event.checkpoint) and _fits(inputs, event)


def is_of_running(inputs: InputChannels, event: Mark) -> bool:
    """It is of the running checkpoint, and says nothing else than before."""
    return event.checkpoint == inputs.checkpoint and inputs.may_start(event.checkpoint) and _fits(inputs, event)


def _has_channel(inputs: InputChannels, event: Mark) -> bool:
    return isinstance(event, m.CheckpointTriggered) or event.channel in inputs.channels


def _fits(inputs: InputChannels, event: Mark) -> bool:
    """Return whether a mark lies within its channel, at the place that it was said to have."""
    if isinstance(event, m.CheckpointTriggered):
        return True
    if event.channel not in inputs.channels:
        return False
    channel, current = inputs.channels[event.channel], event.checkpoint == inputs.checkpoint
    if isinstance(event, m.BarrierReceived):
        place, marked, border = event.first_after, channel.barrier, channel.end
    else:
        place, marked, border = event.first, channel.overtaken, channel.border if current else channel.end
    return (border is None or place <= border) and (not current or marked in {None, place})


def start(inputs: InputChannels, event: Mark) -> Commands:
    """Start its checkpoint."""
    inputs.running = RunningCheckpoint(event.checkpoint)
    return note(inputs, event)


def supersede(inputs: InputChannels, event: Mark) -> Commands:
    """Start its checkpoint in the place of the older one."""
    return (*_end(inputs, f"superseded by {event.checkpoint}"), *start(inputs, event))


def note(inputs: InputChannels, event: Mark) -> Commands:
    """Note what it says."""
    running, since = _running(inputs), event.now
    if isinstance(event, m.CheckpointTriggered):
        since -= event.age_s
        running = running._replace(
            close_files=running.close_files if running.triggered else event.close_files,
            at_once=running.at_once or event.at_once,
            triggered=True,
        )
    elif isinstance(event, m.BarrierReceived):
        since -= event.age_s
        inputs.channels[event.channel] = inputs.channels[event.channel]._replace(barrier=event.first_after)
        running = _checked(inputs, running, event.channel, event.first_after)
    else:
        inputs.channels[event.channel] = inputs.channels[event.channel]._replace(overtaken=event.first)
        running = _checked(inputs, running._replace(overtaken=True), event.channel, event.first)
    inputs.running = running._replace(since=since if running.since is None else min(running.since, since))
    return ()


def _checked(inputs: InputChannels, running: RunningCheckpoint, channel: int, border: int) -> RunningCheckpoint:
    """Note that a cut is not right: what follows it was consumed, or kept, before it was known."""
    found = inputs.channels[channel]
    if border >= (found.kept if inputs.phase is COLLECTING else found.consumed):
        return running
    return running._replace(trouble=f"a mark of channel {channel} came after batches that follow it")


# --- the end of a checkpoint ----------------------------------------------------------------------------------------


def ends_running(inputs: InputChannels, event: m.BarrierAborted) -> bool:
    """The running checkpoint, or a newer one, will not be."""
    return _running(inputs).number <= event.checkpoint


def note_aborted(inputs: InputChannels, event: m.BarrierAborted) -> Commands:
    """Never start it."""
    inputs.latest = max(inputs.latest, event.checkpoint)
    return ()


def abort(inputs: InputChannels, event: m.BarrierAborted) -> Commands:
    """Drop what was collected."""
    note_aborted(inputs, event)
    return _end(inputs, "aborted")


def has_trouble(inputs: InputChannels, _: m.ChannelsMoved) -> bool:
    """No right cut can be made, or a peer does not align what has to be aligned."""
    running = _running(inputs)
    return bool(running.trouble) or (running.overtaken and not inputs.may_switch)


def decline(inputs: InputChannels, _: m.ChannelsMoved) -> Commands:
    """Drop what was collected, and tell the coordinator."""
    running = _running(inputs)
    alone = running.overtaken and not inputs.may_switch
    reason = "a peer does not align a checkpoint that has to be aligned" if alone else running.trouble
    return _end(inputs, reason, decline=True)


def is_aligned(inputs: InputChannels, _: m.ChannelsMoved) -> bool:
    """The subtask was triggered, and each channel is consumed up to its barrier, or ended."""
    return _running(inputs).triggered and all(channel.aligned for channel in inputs.channels.values())


def take_aligned(inputs: InputChannels, _: m.ChannelsMoved) -> Commands:
    """Cut at the barriers."""
    number = _forget(inputs)
    return (m.TakeWriterSnapshot(number, unaligned=False), m.InputComplete(number))


def is_overdue(inputs: InputChannels, event: m.ChannelsMoved) -> bool:
    """The subtask was triggered, and the time for the alignment is over, or a peer says that it is."""
    running = _running(inputs)
    if not running.triggered or not inputs.may_switch:
        return False
    if running.overtaken or running.at_once:
        return True
    return event.now is not None and running.since is not None and event.now >= running.since + inputs.timeout_s


def switch(inputs: InputChannels, _: m.ChannelsMoved) -> Commands:
    """Cut at what is consumed, and keep what was received and lies before each barrier."""
    number = _running(inputs).number
    kept: list[m.AlignmentCommand] = []
    for at, channel in inputs.channels.items():
        end = channel.received if channel.share is None else min(channel.received, channel.share)
        if channel.consumed < end:
            kept.append(m.PersistBatches(number, at, channel.consumed, end))
        inputs.channels[at] = channel._replace(kept=max(channel.consumed, end))
    return (m.TakeWriterSnapshot(number, unaligned=True), *kept)


def is_collected(inputs: InputChannels, _: m.ChannelsMoved) -> bool:
    """All that lies before each barrier has arrived, or its producer keeps it."""
    return all(channel.collected for channel in inputs.channels.values())


def complete(inputs: InputChannels, _: m.ChannelsMoved) -> Commands:
    """Wait for nothing more."""
    return (m.InputComplete(_forget(inputs)),)


def tell_ended(inputs: InputChannels, _: m.ChannelsDrained) -> Commands:
    """Say so, once."""
    inputs.ended = True
    return (m.ChannelsEnded(),)


def _running(inputs: InputChannels) -> RunningCheckpoint:
    """Return the checkpoint that runs in a busy phase."""
    return cast("RunningCheckpoint", inputs.running)


def _end(inputs: InputChannels, reason: str, *, decline: bool = False) -> Commands:
    return (m.CancelCheckpoint(_forget(inputs), reason, decline),)


def _forget(inputs: InputChannels) -> int:
    """Return the number of the checkpoint that ran."""
    number, inputs.running = _running(inputs).number, None
    inputs.latest = max(inputs.latest, number)
    for at, channel in inputs.channels.items():
        inputs.channels[at] = channel._replace(barrier=None, overtaken=None, kept=0)
    return number


QUIET, BUSY, ANY = (IDLE, ENDED), (ALIGNING, COLLECTING), (IDLE, ALIGNING, COLLECTING, ENDED)
FLOWING = (IDLE, ALIGNING, COLLECTING)
MARKS = (m.BarrierReceived, m.OvertakenReceived, m.CheckpointTriggered)
ALIGNMENT: Rules[InputChannels, m.AlignmentCommand] = Rules(
    "alignment",
    AlignmentPhase,
    Rule(COLLECTING, m.BatchReceived, when=is_next_of_checkpoint, do=keep),
    Rule(FLOWING, m.BatchReceived, when=is_next, do=receive),
    Rule(FLOWING, m.BatchConsumed, when=may_be_taken, do=consume),
    Rule(FLOWING, m.EndReceived, when=ends_channel, do=note_end),
    Rule(QUIET, MARKS, when=is_of_newer, to=ALIGNING, do=start),
    Rule(BUSY, MARKS, when=is_of_newer, to=ALIGNING, do=supersede),
    Rule(BUSY, MARKS, when=is_of_running, do=note),
    Rule(ANY, MARKS, when=is_late),
    Rule(BUSY, m.BarrierAborted, when=ends_running, to=IDLE, do=abort),
    Rule(ANY, m.BarrierAborted, do=note_aborted),
    Rule(ANY, m.TimeoutChecked),
    # What follows from that:
    Rule(BUSY, m.ChannelsMoved, when=has_trouble, to=IDLE, do=decline),
    Rule(ALIGNING, m.ChannelsMoved, when=is_aligned, to=IDLE, do=take_aligned),
    Rule(ALIGNING, m.ChannelsMoved, when=is_overdue, to=COLLECTING, do=switch),
    Rule(COLLECTING, m.ChannelsMoved, when=is_collected, to=IDLE, do=complete),
    Rule(IDLE, m.ChannelsMoved, when=lambda inputs, _: inputs.ended, to=ENDED),
    Rule(ANY, m.ChannelsMoved),
    Rule(IDLE, m.ChannelsDrained, to=ENDED, do=tell_ended),
    Rule(ALIGNING, m.ChannelsDrained, do=tell_ended),
)


class BarrierAlignment(InputChannels):
    """The alignment of one subtask's channels."""

    rules = ALIGNMENT

    def take(self, event: m.AlignmentEvent) -> Commands:
        """Execute the rule of an event, and all that follows from it."""
        before = self.phase
        commands = super().take(event)
        if before in BUSY or self.phase in BUSY:
            commands += self.progress(event)
            commands += self.block(event, before)
        if not self.ended and isinstance(event, m.BatchConsumed | m.EndReceived):
            drained = self.channels[event.channel].drained and all(one.drained for one in self.channels.values())
            commands += self.follow(m.ChannelsDrained()) if drained else ()
        return commands

    def progress(self, event: m.AlignmentEvent) -> Commands:
        """Take the running checkpoint as far as it gets."""
        now = event.now if isinstance(event, m.BarrierReceived | m.CheckpointTriggered | m.TimeoutChecked) else None
        moved = m.ChannelsMoved(now)
        commands: Commands = ()
        phase = None
        while phase is not self.phase:
            phase = self.phase
            commands += self.follow(moved)
        return commands

    def block(self, event: m.AlignmentEvent, before: AlignmentPhase) -> Commands:
        """Stop channels that have come to their barrier, and let those go on whose checkpoint has ended."""
        if self.phase is not ALIGNING and before is not ALIGNING:
            return ()
        concerned: Iterable[int] = self.channels
        if isinstance(event, m.BatchReceived | m.BatchConsumed) and self.phase is before:
            concerned = (event.channel,)
        commands: list[m.AlignmentCommand] = []
        for at in concerned:
            channel = self.channels[at]
            limit = channel.barrier if channel.overtaken is None else channel.overtaken
            blocked = self.phase is ALIGNING and limit is not None and channel.consumed >= limit
            if blocked is not channel.blocked:
                self.channels[at] = channel._replace(blocked=blocked)
                commands.append(m.BlockChannel(at) if blocked else m.UnblockChannel(at))
        return tuple(commands)
