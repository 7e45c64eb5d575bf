"""Mutants of the machines of an exchange: the alignment, and the producer's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.exchange import ALIGNMENT, OUTPUT, BarrierAlignment, OutputQueue, alignment, output_queue
from lakeward.machines.exchange.alignment import ALIGNING, ANY, COLLECTING, QUIET
from lakeward.machines.exchange.messages import (
    AlignmentCommand,
    AlignmentEvent,
    BarrierAborted,
    BarrierRequested,
    BatchesWritten,
    BatchReceived,
    BlockChannel,
    ChannelsEnded,
    ChannelsMoved,
    CheckpointTriggered,
    InputComplete,
    KeepBatches,
    OutputCommand,
    OutputEvent,
    PersistBatches,
    SendMark,
    TakeWriterSnapshot,
    UnblockChannel,
)
from lakeward.machines.machine import Rule
from lakeward.model.exchange import Barrier, Overtaken
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    from lakeward.machines.exchange.alignment import AlignmentPhase, InputChannels
    from lakeward.machines.exchange.output_queue import OutputChannel

Commands = tuple[AlignmentCommand, ...]
OutputCommands = tuple[OutputCommand, ...]


class BlocksNothing(BarrierAlignment):
    """Mutant: a channel goes on behind its barrier while the others are waited for."""

    def block(self, event: AlignmentEvent, before: AlignmentPhase) -> Commands:
        """Stop nothing."""
        del event, before
        return ()


class BlocksForEver(BarrierAlignment):
    """Mutant: a channel that was stopped is never let go."""

    def step(self, event: AlignmentEvent) -> Commands:
        """Let nothing go."""
        commands = super().step(event)
        for command in commands:
            if isinstance(command, UnblockChannel):
                self.channels[command.channel] = self.channels[command.channel]._replace(blocked=True)
        return tuple(command for command in commands if not isinstance(command, UnblockChannel))


class TakesTooEarly(BarrierAlignment):
    """Mutant: an alignment is over with the first barrier."""

    def progress(self, event: AlignmentEvent) -> Commands:
        """Take all for aligned."""
        if self.running is not None and any(channel.barrier is not None for channel in self.channels.values()):
            for at, channel in self.channels.items():
                if channel.barrier is None:
                    self.channels[at] = channel._replace(barrier=channel.consumed)
        return super().progress(event)


def _switches(inputs: InputChannels, event: ChannelsMoved) -> bool:
    """Return whether that is what the rules would do."""
    stays = alignment.has_trouble(inputs, event) or alignment.is_aligned(inputs, event)
    return not stays and alignment.is_overdue(inputs, event)


def _switch_alone(inputs: InputChannels, event: ChannelsMoved) -> Commands:
    return tuple(one for one in alignment.switch(inputs, event) if not isinstance(one, PersistBatches))


class KeepsNothingThatWasReceived(BarrierAlignment):
    """Mutant: batches that wait for the writer at an unaligned snapshot are forgotten."""

    rules = with_rules(ALIGNMENT, Rule(ALIGNING, ChannelsMoved, when=_switches, to=COLLECTING, do=_switch_alone))


def _keep_nothing(inputs: InputChannels, event: BatchReceived) -> Commands:
    alignment.keep(inputs, event)
    return ()


class KeepsNothingThatComesLater(BarrierAlignment):
    """Mutant: batches that arrive before their barrier, after the snapshot, are forgotten."""

    rules = with_rules(
        ALIGNMENT, Rule(COLLECTING, BatchReceived, when=alignment.is_next_of_checkpoint, do=_keep_nothing)
    )


def _is_behind(inputs: InputChannels, event: BatchReceived) -> bool:
    return alignment.is_next(inputs, event) and not alignment.is_next_of_checkpoint(inputs, event)


def _keep_too_much(inputs: InputChannels, event: BatchReceived) -> Commands:
    assert inputs.running is not None
    alignment.receive(inputs, event)
    return (PersistBatches(inputs.running.number, event.channel, event.sequence, event.sequence + 1),)


class KeepsWhatIsBehindTheBarrier(BarrierAlignment):
    """Mutant: it goes on keeping until all channels are collected."""

    rules = with_rules(ALIGNMENT, Rule(COLLECTING, BatchReceived, when=_is_behind, do=_keep_too_much))


class KeepsWhatItsProducerKeeps(BarrierAlignment):
    """Mutant: it does not hear what was overtaken, but for the switch."""

    def progress(self, event: AlignmentEvent) -> Commands:
        """Forget it."""
        for at, channel in self.channels.items():
            if channel.barrier is not None:
                self.channels[at] = channel._replace(overtaken=None)
        return super().progress(event)


class KeepsTwice(BarrierAlignment):
    """Mutant: what is received is kept once more with the snapshot of the next event."""

    def step(self, event: AlignmentEvent) -> Commands:
        """Keep it once more."""
        commands = super().step(event)
        kept = [one for one in commands if isinstance(one, PersistBatches)]
        return (*kept, *commands) if isinstance(event, BatchReceived) else commands


def _switch_and_complete(inputs: InputChannels, event: ChannelsMoved) -> Commands:
    commands = alignment.switch(inputs, event)
    for at, channel in inputs.channels.items():
        share = channel.received if channel.share is None else channel.share
        inputs.channels[at] = channel._replace(overtaken=min(channel.received, share))
    return commands


class CompletesWithoutTheRest(BarrierAlignment):
    """Mutant: an unaligned checkpoint is complete with its snapshot."""

    rules = with_rules(ALIGNMENT, Rule(ALIGNING, ChannelsMoved, when=_switches, to=COLLECTING, do=_switch_and_complete))


class CompletesWithTheLastBarrier(BarrierAlignment):
    """Mutant: batches before a barrier that have not arrived are not waited for."""

    def progress(self, event: AlignmentEvent) -> Commands:
        """Wait for nothing."""
        if self.phase is COLLECTING and all(channel.border is not None for channel in self.channels.values()):
            for at, channel in self.channels.items():
                self.channels[at] = channel._replace(overtaken=min(channel.received, channel.share or 0))
        return super().progress(event)


class ForgetsTheEnd(BarrierAlignment):
    """Mutant: a channel that has ended is waited for, and never tells that all have ended."""

    def step(self, event: AlignmentEvent) -> Commands:
        """Tell nobody."""
        return tuple(one for one in super().step(event) if not isinstance(one, ChannelsEnded))


class TakesTheEndForAligned(BarrierAlignment):
    """Mutant: a channel that has ended counts as aligned though batches wait in it."""

    def progress(self, event: AlignmentEvent) -> Commands:
        """Take it for consumed meanwhile."""
        consumed = {at: channel.consumed for at, channel in self.channels.items()}
        for at, channel in self.channels.items():
            if channel.end is not None and self.phase is ALIGNING:
                self.channels[at] = channel._replace(consumed=channel.end)
        commands = super().progress(event)
        for at, channel in self.channels.items():
            self.channels[at] = channel._replace(consumed=consumed[at])
        return commands


class GoesOnWithTheOlder(BarrierAlignment):
    """Mutant: a newer checkpoint waits until the older one is over, which never is."""

    def may_start(self, checkpoint: int) -> bool:
        """See `BarrierAlignment`."""
        return super().may_start(checkpoint) and (self.running is None or checkpoint == self.running.number)


class StartsWhatHasEnded(BarrierAlignment):
    """Mutant: it remembers no checkpoint that was aborted."""

    rules = with_rules(ALIGNMENT, Rule(QUIET, BarrierAborted))


class IgnoresAborts(BarrierAlignment):
    """Mutant: what is aborted goes on being waited for."""

    rules = with_rules(ALIGNMENT, Rule(ANY, BarrierAborted))


class NeverSwitches(BarrierAlignment):
    """Mutant: it waits for as long as it takes, also where a peer keeps what it waits for."""

    rules = with_rules(ALIGNMENT, Rule(ALIGNING, ChannelsMoved, when=_switches))


class SwitchesWhatClosesFiles(BarrierAlignment):
    """Mutant: a checkpoint that closes files is unaligned, too."""

    def step(self, event: AlignmentEvent) -> Commands:
        """Take it for one that closes none."""
        if isinstance(event, CheckpointTriggered):
            event = CheckpointTriggered(now=event.now, checkpoint=event.checkpoint)
        return super().step(event)


class AlignsBeforeItsTrigger(BarrierAlignment):
    """Mutant: all barriers are enough; its readers' state is from another moment."""

    def progress(self, event: AlignmentEvent) -> Commands:
        """Take it for triggered."""
        if self.running is not None:
            self.running = self.running._replace(triggered=True)
        return super().progress(event)


def _keep_and_switch(inputs: InputChannels, event: ChannelsMoved) -> Commands:
    commands = alignment.switch(inputs, event)
    return tuple(sorted(commands, key=lambda one: isinstance(one, TakeWriterSnapshot)))


class KeepsBeforeItTakes(BarrierAlignment):
    """Mutant: the snapshot comes after what is kept with it."""

    rules = with_rules(ALIGNMENT, Rule(ALIGNING, ChannelsMoved, when=_switches, to=COLLECTING, do=_keep_and_switch))


class BlocksWhatIsFree(BarrierAlignment):
    """Mutant: a channel stops when its barrier arrives, with batches before it."""

    def step(self, event: AlignmentEvent) -> Commands:
        """Stop all that have a barrier."""
        commands = super().step(event)
        if self.phase is not ALIGNING:
            return commands
        more: list[AlignmentCommand] = []
        for at, channel in self.channels.items():
            if channel.barrier is not None and not channel.blocked:
                self.channels[at] = channel._replace(blocked=True)
                more.append(BlockChannel(at))
        return (*commands, *more)


class CompletesTwice(BarrierAlignment):
    """Mutant: it says that it is whole before its snapshot."""

    def step(self, event: AlignmentEvent) -> Commands:
        """Say so first."""
        commands = super().step(event)
        return tuple(sorted(commands, key=lambda one: not isinstance(one, InputComplete)))


class SendsWithoutCredit(OutputQueue):
    """Mutant: it sends whatever waits."""

    def has_credit(self, size_bytes: int) -> bool:
        """Ask nobody but who recovers."""
        del size_bytes
        return self.granted


class SendsNothingMore(OutputQueue):
    """Mutant: credit sets nothing going."""

    def step(self, event: OutputEvent) -> OutputCommands:
        """Leave it out."""
        commands = super().step(event)
        return () if isinstance(event, BatchesWritten) else commands


def _send_wrong_barrier(output: OutputChannel, event: BarrierRequested) -> OutputCommands:
    output_queue.send_barrier(output, event)
    output.barrier = Barrier(event.checkpoint, output.sent, event.age_s)
    return (SendMark(output.barrier),)


class ForgetsWhatIsUnderWay(OutputQueue):
    """Mutant: a barrier lies behind what was sent, not behind what was put in."""

    rules = with_rules(
        OUTPUT, Rule(output_queue.ANY, BarrierRequested, when=output_queue.is_newer, do=_send_wrong_barrier)
    )


class KeepsNothing(OutputQueue):
    """Mutant: it says what it keeps, and does not."""

    def step(self, event: OutputEvent) -> OutputCommands:
        """Leave it out."""
        return tuple(one for one in super().step(event) if not isinstance(one, KeepBatches))


class KeepsWhatIsUnderWay(OutputQueue):
    """Mutant: it keeps what it has sent as well, and tells nobody."""

    def step(self, event: OutputEvent) -> OutputCommands:
        """Keep all that is not written."""
        written = min(self.written, 0 if self.barrier is None else self.barrier.first_after)
        return tuple(
            KeepBatches(one.checkpoint, written, one.end) if isinstance(one, KeepBatches) else one
            for one in super().step(event)
        )


class KeepsWhatCameLater(OutputQueue):
    """Mutant: what was put in behind the barrier is kept as well."""

    def step(self, event: OutputEvent) -> OutputCommands:
        """Keep all that waits."""
        return tuple(
            KeepBatches(one.checkpoint, one.first, self.queued) if isinstance(one, KeepBatches) else one
            for one in super().step(event)
        )


class TellsNobody(OutputQueue):
    """Mutant: it keeps what waits, and the consumer keeps it as well."""

    def step(self, event: OutputEvent) -> OutputCommands:
        """Leave it out."""
        return tuple(one for one in super().step(event) if not _tells(one))


class TellsTooLittle(OutputQueue):
    """Mutant: it says that it keeps one batch more than it does."""

    def step(self, event: OutputEvent) -> OutputCommands:
        """Begin one batch earlier."""
        return tuple(
            SendMark(Overtaken(one.mark.checkpoint, max(0, one.mark.first - 1)))
            if isinstance(one, SendMark) and isinstance(one.mark, Overtaken)
            else one
            for one in super().step(event)
        )


def _tells(command: OutputCommand) -> bool:
    return isinstance(command, SendMark) and isinstance(command.mark, Overtaken)


class OvertakesForWhatWasAborted(OutputQueue):
    """Mutant: an abort does not reach it."""

    rules = with_rules(OUTPUT, Rule(output_queue.ANY, BarrierAborted))


ALIGNMENTS = tuple(
    kind
    for kind in [*vars().values()]
    if isinstance(kind, type) and issubclass(kind, BarrierAlignment) and kind is not BarrierAlignment
)
QUEUES = tuple(
    kind
    for kind in [*vars().values()]
    if isinstance(kind, type) and issubclass(kind, OutputQueue) and kind is not OutputQueue
)
