"""Mutants of the machines of an exchange: the alignment, and the producer's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.exchange.alignment import BarrierAlignment
from lakeward.machines.exchange.commands import (
    BlockChannel,
    ChannelsEnded,
    InputComplete,
    PersistBatches,
    TakeWriterSnapshot,
    UnblockChannel,
)
from lakeward.machines.exchange.events import BarrierAborted, BatchReceived, CheckpointTriggered
from lakeward.machines.exchange.output_queue import KeepBatches, OutputQueue, SendMark
from lakeward.model.exchange import Barrier, Overtaken

if TYPE_CHECKING:
    from lakeward.machines.exchange.alignment import _Channel, _Checkpoint
    from lakeward.machines.exchange.commands import AlignmentCommand
    from lakeward.machines.exchange.events import AlignmentEvent
    from lakeward.machines.exchange.output_queue import BarrierRequested, OutputCommand, OutputEvent


class BlocksNothing(BarrierAlignment):
    """Mutant: a channel goes on behind its barrier while the others are waited for."""

    def _block(self, event: AlignmentEvent, before: object) -> list[AlignmentCommand]:
        del event, before
        return []


class BlocksForEver(BarrierAlignment):
    """Mutant: a channel that was stopped is never let go."""

    def step(self, event: AlignmentEvent) -> tuple[AlignmentCommand, ...]:
        commands = super().step(event)
        for command in commands:
            if isinstance(command, UnblockChannel):
                self._channels[command.channel].blocked = True
        return tuple(command for command in commands if not isinstance(command, UnblockChannel))


class TakesTooEarly(BarrierAlignment):
    """Mutant: an alignment is over with the first barrier."""

    def _progress(self, event: AlignmentEvent) -> list[AlignmentCommand]:
        if self._running is not None and any(channel.barrier is not None for channel in self._channels):
            for channel in self._channels:
                channel.barrier = channel.consumed if channel.barrier is None else channel.barrier
        return super()._progress(event)


class KeepsNothingThatWasReceived(BarrierAlignment):
    """Mutant: batches that wait for the writer at an unaligned snapshot are forgotten."""

    def _switch(self, running: _Checkpoint) -> list[AlignmentCommand]:
        return [one for one in super()._switch(running) if not isinstance(one, PersistBatches)]


class KeepsNothingThatComesLater(BarrierAlignment):
    """Mutant: batches that arrive before their barrier, after the snapshot, are forgotten."""

    def _receive(self, event: BatchReceived) -> tuple[AlignmentCommand, ...]:
        super()._receive(event)
        return ()


class KeepsWhatIsBehindTheBarrier(BarrierAlignment):
    """Mutant: it goes on keeping until all channels are collected."""

    def _receive(self, event: BatchReceived) -> tuple[AlignmentCommand, ...]:
        commands = super()._receive(event)
        if commands or self._running is None or self._phase.value != "collecting":
            return commands
        return (PersistBatches(self._running.number, event.channel, event.sequence, event.sequence + 1),)


class KeepsWhatItsProducerKeeps(BarrierAlignment):
    """Mutant: it does not hear what was overtaken, but for the switch."""

    def _progress(self, event: AlignmentEvent) -> list[AlignmentCommand]:
        for channel in self._channels:
            if channel.barrier is not None:
                channel.overtaken = None
        return super()._progress(event)


class KeepsTwice(BarrierAlignment):
    """Mutant: what is received is kept once more with the snapshot of the next event."""

    def _receive(self, event: BatchReceived) -> tuple[AlignmentCommand, ...]:
        return super()._receive(event) * 2


class CompletesWithoutTheRest(BarrierAlignment):
    """Mutant: an unaligned checkpoint is complete with its snapshot."""

    def _switch(self, running: _Checkpoint) -> list[AlignmentCommand]:
        commands = super()._switch(running)
        for channel in self._channels:
            channel.overtaken = min(channel.received, channel.received if channel.share is None else channel.share)
        return commands


class CompletesWithTheLastBarrier(BarrierAlignment):
    """Mutant: batches before a barrier that have not arrived are not waited for."""

    def _progress(self, event: AlignmentEvent) -> list[AlignmentCommand]:
        if self._phase.value == "collecting" and all(channel.border is not None for channel in self._channels):
            for channel in self._channels:
                channel.overtaken = min(channel.received, channel.share or 0)
        return super()._progress(event)


class ForgetsTheEnd(BarrierAlignment):
    """Mutant: a channel that has ended is waited for, and never tells that all have ended."""

    def step(self, event: AlignmentEvent) -> tuple[AlignmentCommand, ...]:
        return tuple(one for one in super().step(event) if not isinstance(one, ChannelsEnded))


class TakesTheEndForAligned(BarrierAlignment):
    """Mutant: a channel that has ended counts as aligned though batches wait in it."""

    def _progress(self, event: AlignmentEvent) -> list[AlignmentCommand]:
        held: list[tuple[_Channel, int]] = []
        for channel in self._channels:
            if channel.end is not None and self._phase.value == "aligning":
                held.append((channel, channel.consumed))
                channel.consumed = channel.end
        try:
            return super()._progress(event)
        finally:
            for channel, consumed in held:
                channel.consumed = consumed


class GoesOnWithTheOlder(BarrierAlignment):
    """Mutant: a newer checkpoint waits until the older one is over, which never is."""

    def may_start(self, checkpoint: int) -> bool:
        """See `BarrierAlignment`."""
        return super().may_start(checkpoint) and (self._running is None or checkpoint == self._running.number)


class StartsWhatHasEnded(BarrierAlignment):
    """Mutant: it remembers no checkpoint that was aborted."""

    def _abort(self, event: BarrierAborted) -> tuple[AlignmentCommand, ...]:
        if self._running is None:
            return ()
        return super()._abort(event)


class IgnoresAborts(BarrierAlignment):
    """Mutant: what is aborted goes on being waited for."""

    def _abort(self, event: BarrierAborted) -> tuple[AlignmentCommand, ...]:
        del event
        return ()


class NeverSwitches(BarrierAlignment):
    """Mutant: it waits for as long as it takes, also where a peer keeps what it waits for."""

    def _overdue(self, event: AlignmentEvent, running: _Checkpoint) -> bool:
        del event, running
        return False


class SwitchesWhatClosesFiles(BarrierAlignment):
    """Mutant: a checkpoint that closes files is unaligned, too."""

    def _mark(self, event: object) -> tuple[AlignmentCommand, ...]:
        if isinstance(event, CheckpointTriggered):
            event = CheckpointTriggered(now=event.now, checkpoint=event.checkpoint)
        return super()._mark(event)  # type: ignore[arg-type] # an event of the same kind


class AlignsBeforeItsTrigger(BarrierAlignment):
    """Mutant: all barriers are enough; its readers' state is from another moment."""

    def _progress(self, event: AlignmentEvent) -> list[AlignmentCommand]:
        if self._running is not None:
            self._running.triggered = True
        return super()._progress(event)


class KeepsBeforeItTakes(BarrierAlignment):
    """Mutant: the snapshot comes after what is kept with it."""

    def _switch(self, running: _Checkpoint) -> list[AlignmentCommand]:
        commands = super()._switch(running)
        return sorted(commands, key=lambda one: isinstance(one, TakeWriterSnapshot))


class BlocksWhatIsFree(BarrierAlignment):
    """Mutant: a channel stops when its barrier arrives, with batches before it."""

    def step(self, event: AlignmentEvent) -> tuple[AlignmentCommand, ...]:
        commands = super().step(event)
        if self._phase.value != "aligning":
            return commands
        more: list[AlignmentCommand] = []
        for number, channel in enumerate(self._channels):
            if channel.barrier is not None and not channel.blocked:
                channel.blocked = True
                more.append(BlockChannel(number))
        return (*commands, *more)


class CompletesTwice(BarrierAlignment):
    """Mutant: it says that it is whole before its snapshot."""

    def step(self, event: AlignmentEvent) -> tuple[AlignmentCommand, ...]:
        commands = super().step(event)
        return tuple(sorted(commands, key=lambda one: not isinstance(one, InputComplete)))


class SendsWithoutCredit(OutputQueue):
    """Mutant: it sends whatever waits."""

    def _send(self) -> tuple[OutputCommand, ...]:
        self._under_way = 0
        window, self._window = self._window, 1 << 30
        try:
            return super()._send()
        finally:
            self._window = window


class SendsNothingMore(OutputQueue):
    """Mutant: credit sets nothing going."""

    def step(self, event: OutputEvent) -> tuple[OutputCommand, ...]:
        return super().step(event) if type(event).__name__ != "BatchesWritten" else (super().step(event), ())[1]


class ForgetsWhatIsUnderWay(OutputQueue):
    """Mutant: a barrier lies behind what was sent, not behind what was put in."""

    def _mark(self, event: BarrierRequested) -> tuple[OutputCommand, ...]:
        super()._mark(event)
        self._barrier = Barrier(event.checkpoint, self._sent, event.age_s)
        return (SendMark(self._barrier),)


class KeepsNothing(OutputQueue):
    """Mutant: it says what it keeps, and does not."""

    def _overtake(self) -> tuple[OutputCommand, ...]:
        return tuple(one for one in super()._overtake() if not isinstance(one, KeepBatches))


class KeepsWhatIsUnderWay(OutputQueue):
    """Mutant: it keeps what it has sent as well, and tells nobody."""

    def _overtake(self) -> tuple[OutputCommand, ...]:
        written = min(self._written, 0 if self._barrier is None else self._barrier.first_after)
        return tuple(
            KeepBatches(one.checkpoint, written, one.end) if isinstance(one, KeepBatches) else one
            for one in super()._overtake()
        )


class KeepsWhatCameLater(OutputQueue):
    """Mutant: what was put in behind the barrier is kept as well."""

    def _overtake(self) -> tuple[OutputCommand, ...]:
        return tuple(
            KeepBatches(one.checkpoint, one.first, self._queued) if isinstance(one, KeepBatches) else one
            for one in super()._overtake()
        )


class TellsNobody(OutputQueue):
    """Mutant: it keeps what waits, and the consumer keeps it as well."""

    def _overtake(self) -> tuple[OutputCommand, ...]:
        return tuple(one for one in super()._overtake() if isinstance(one, KeepBatches))


class TellsTooLittle(OutputQueue):
    """Mutant: it says that it keeps one batch more than it does."""

    def _overtake(self) -> tuple[OutputCommand, ...]:
        return tuple(
            SendMark(Overtaken(one.mark.checkpoint, max(0, one.mark.first - 1)))
            if isinstance(one, SendMark) and isinstance(one.mark, Overtaken)
            else one
            for one in super()._overtake()
        )


class OvertakesForWhatWasAborted(OutputQueue):
    """Mutant: an abort does not reach it."""

    def step(self, event: OutputEvent) -> tuple[OutputCommand, ...]:
        return () if isinstance(event, BarrierAborted) else super().step(event)


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
