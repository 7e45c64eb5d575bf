"""Mutants of the machine `recovery`: each puts one known bug of recoveries back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.recovery import Recovery, RecoveryGuard, RecoveryPhase
from lakeward.machines.recovery.commands import (
    AcceptCheckpoints,
    DropSnapshot,
    FailMarkerMissing,
    FinishRecovery,
    KeepPieces,
    ReadPiece,
    RefuseCheckpoint,
    SnapshotSpill,
    WakeWriter,
)
from lakeward.machines.recovery.events import ProducersConnected, RowsSpilled, SpillEnded

if TYPE_CHECKING:
    from lakeward.machines.recovery.commands import RecoveryCommand
    from lakeward.machines.recovery.events import RecoveryEvent
    from lakeward.machines.recovery.recovery import _Channel


class Bug1KeepsWhatIsInMemoryTwice(Recovery):
    """Mutant: what is in memory is kept with the snapshot, and once more with the content."""

    def _content(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        commands = super()._content(checkpoint)
        return (*commands, *(one for one in commands if isinstance(one, KeepPieces)))


class Bug2MarksWhatIsNotDrained(Recovery):
    """Mutant: a channel gets its marker by the place of the drain, not because it is in recovery."""

    def _mark(self, channel: _Channel, checkpoint: int) -> None:
        if not channel.ended:
            super()._mark(channel, checkpoint)


class Bug3WakesNobodyForSentinels(Recovery):
    """Mutant: the end of the spill wakes nobody."""

    def _end(self) -> tuple[RecoveryCommand, ...]:
        return tuple(one for one in super()._end() if not isinstance(one, WakeWriter))


class Bug3EndsNoChannelWithoutRows(Recovery):
    """Mutant: a channel without a piece gets no sentinel."""

    def _end_channels(self, before: int) -> None:
        ended = self._draining
        super()._end_channels(before)
        for channel in self._channels[ended:before]:
            if len(channel.queue) == 1:
                channel.queue.clear()


class Bug4DrainsBeforeAllAreConnected(Recovery):
    """Mutant: what is spilled is drained at once."""

    def _guard(self, event: RecoveryEvent) -> RecoveryGuard:
        if isinstance(event, RowsSpilled):
            self._connected = True
        elif isinstance(event, ProducersConnected) and self._phase is RecoveryPhase.NOT_READY:
            self._connected = False
        return super()._guard(event)


class Bug5AcceptsBeforeItIsReady(Recovery):
    """Mutant: checkpoints are taken once all are connected, though rows are still read back."""

    def _begin(self, guard: RecoveryGuard) -> tuple[RecoveryCommand, ...]:
        commands = super()._begin(guard)
        return commands if commands or not self._connected else (AcceptCheckpoints(),)


class Bug6IsDoneOnceTheSpillEnds(Recovery):
    """Mutant: with the end of the spill there is nothing more for checkpoints, whatever memory holds."""

    def _content(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        commands = super()._content(checkpoint)
        return () if self._spill_ended else commands


class Bug8ReadsNoMoreOnceMemoryWasFull(Recovery):
    """Mutant: a piece that the writer takes makes no room."""

    def _take(self, guard: RecoveryGuard) -> tuple[RecoveryCommand, ...]:
        before = self._reading
        commands = super()._take(guard)
        if any(isinstance(one, ReadPiece) for one in commands):
            self._reading = before
        return tuple(one for one in commands if not isinstance(one, ReadPiece))


class Bug10FinishesWithTheFirstChannel(Recovery):
    """Mutant: live rows pass once a first channel has no more."""

    def _take(self, guard: RecoveryGuard) -> tuple[RecoveryCommand, ...]:
        before = self._taking
        commands = super()._take(guard)
        return (*commands, FinishRecovery()) if before == 0 < self._taking else commands


class Bug13ReadsAllAhead(Recovery):
    """Mutant: memory has no limit."""

    def _read_on(self) -> tuple[RecoveryCommand, ...]:
        limit, self._memory_bytes = self._memory_bytes, 1 << 60
        commands = super()._read_on()
        self._memory_bytes = limit
        return commands


class Bug15DropsNoSnapshotOfAnAbortedCheckpoint(Recovery):
    """Mutant: the spill that is kept for an aborted checkpoint stays for ever."""

    def _abort(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        return tuple(one for one in super()._abort(checkpoint) if not isinstance(one, DropSnapshot))


class Bug23KeepsTheOlderSnapshot(Recovery):
    """Mutant: a newer checkpoint goes on with the snapshot of an older one."""

    def _start(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        if self._snapshot is not None:
            self._latest = self._snapshot = checkpoint
            return ()
        return super()._start(checkpoint)


class Bug24HidesAMissingMarker(Bug2MarksWhatIsNotDrained):
    """Mutant: a missing marker is declined as not ready, which nobody counts."""

    def _content(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        hidden = (RefuseCheckpoint(checkpoint), DropSnapshot(checkpoint))
        commands = super()._content(checkpoint)
        return hidden if any(isinstance(one, FailMarkerMissing) for one in commands) else commands


class KeepsWhatCameBehindTheMarker(Recovery):
    """Mutant: the content is all of memory, also what the spill's snapshot has."""

    def _collect(self, channel: _Channel, checkpoint: int) -> int | None:
        held = sum(hasattr(one, "size_bytes") for one in channel.queue)
        found = super()._collect(channel, checkpoint)
        return None if found is None else held


class KeepsNoSpill(Recovery):
    """Mutant: a checkpoint holds of the recovery what memory holds."""

    def _start(self, checkpoint: int) -> tuple[RecoveryCommand, ...]:
        return tuple(one for one in super()._start(checkpoint) if not isinstance(one, SnapshotSpill))


class TrustsOldMarkers(Recovery):
    """Mutant: the marker of an aborted checkpoint is taken for that of the running one."""

    def _collect(self, channel: _Channel, checkpoint: int) -> int | None:
        markers = [one for one in channel.queue if hasattr(one, "checkpoint")]
        for one in markers[1:]:
            channel.queue.remove(one)
        return super()._collect(channel, markers[0].checkpoint if markers else checkpoint)


class FinishesTwice(Recovery):
    """Mutant: the end of the spill finishes, and so does the last sentinel."""

    def step(self, event: RecoveryEvent) -> tuple[RecoveryCommand, ...]:
        """See `Recovery`."""
        commands = super().step(event)
        return (*commands, FinishRecovery()) if isinstance(event, SpillEnded) else commands


class RefusesWhileItDrains(Recovery):
    """Mutant: checkpoints wait until all is drained."""

    def step(self, event: RecoveryEvent) -> tuple[RecoveryCommand, ...]:
        """See `Recovery`."""
        commands = super().step(event)
        checkpoint = getattr(event, "checkpoint", None)
        draining = self._phase is RecoveryPhase.DRAINING and type(event).__name__ == "CheckpointRequested"
        return (RefuseCheckpoint(checkpoint),) if draining and checkpoint is not None else commands
