"""Mutants of the machine `recovery`: each puts one known bug of recoveries back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines import recovery
from lakeward.machines.machine import Rule
from lakeward.machines.recovery import (
    RULES,
    AcceptCheckpoints,
    CheckpointRequested,
    ContentRequested,
    DropSnapshot,
    FailMarkerMissing,
    FinishRecovery,
    HeldPiece,
    KeepPieces,
    Marker,
    PieceRequested,
    ProducersConnected,
    ReadPiece,
    Recovery,
    RecoveryCommand,
    RefuseCheckpoint,
    RowsSpilled,
    Sentinel,
    SnapshotAborted,
    SnapshotSpill,
    SnapshotStarted,
    SpillEnded,
    WakeWriter,
)
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    from lakeward.machines.recovery import RecoveryEvent, RestoredRows

NOT_READY, DRAINING = recovery.NOT_READY, recovery.DRAINING
Commands = tuple[RecoveryCommand, ...]


def _without(commands: Commands, kind: type[RecoveryCommand]) -> Commands:
    return tuple(one for one in commands if not isinstance(one, kind))


class Bug1KeepsWhatIsInMemoryTwice(Recovery):
    """Mutant: what is in memory is kept with the snapshot, and once more with the content."""

    def step(self, event: RecoveryEvent) -> Commands:
        """Keep it once more."""
        commands = super().step(event)
        return (*commands, *(one for one in commands if isinstance(one, KeepPieces)))


class Bug2MarksWhatIsNotDrained(Recovery):
    """Mutant: a channel gets its marker by the place of the drain, not because it is in recovery."""

    def mark(self, channel: int, checkpoint: int) -> None:
        """Leave out those that have ended."""
        if channel >= self.draining:
            super().mark(channel, checkpoint)


class Bug3WakesNobodyForSentinels(Recovery):
    """Mutant: the end of the spill wakes nobody."""

    def step(self, event: RecoveryEvent) -> Commands:
        """Wake nobody for it."""
        commands = super().step(event)
        return _without(commands, WakeWriter) if isinstance(event, SpillEnded) else commands


class Bug3EndsNoChannelWithoutRows(Recovery):
    """Mutant: a channel without a piece gets no sentinel."""

    def end_channels(self, before: int) -> None:
        """Take the sentinel out of those that hold nothing else."""
        ended = self.draining
        super().end_channels(before)
        for channel in range(ended, before):
            if self.queues[channel] == (Sentinel(),):
                self.queues[channel] = ()


class Bug4DrainsBeforeAllAreConnected(Recovery):
    """Mutant: what is spilled is drained at once."""

    rules = with_rules(
        RULES, Rule(NOT_READY, RowsSpilled, when=recovery.is_spilled_first, to=DRAINING, do=recovery.begin)
    )


def _accept_early(rows: RestoredRows, event: ProducersConnected) -> Commands:
    recovery.note_connected(rows, event)
    return (AcceptCheckpoints(),)


def _is_first_of_both(rows: RestoredRows, event: ProducersConnected) -> bool:
    return recovery.is_connected_first(rows, event) and not rows.spilled


class Bug5AcceptsBeforeItIsReady(Recovery):
    """Mutant: checkpoints are taken once all are connected, though rows are still read back."""

    rules = with_rules(RULES, Rule(NOT_READY, ProducersConnected, when=_is_first_of_both, do=_accept_early))


class Bug6IsDoneOnceTheSpillEnds(Recovery):
    """Mutant: with the end of the spill there is nothing more for checkpoints, whatever memory holds."""

    def step(self, event: RecoveryEvent) -> Commands:
        """Give no content."""
        commands = super().step(event)
        return () if isinstance(event, ContentRequested) and self.spill_ended else commands


def _write_alone(rows: RestoredRows, event: PieceRequested) -> Commands:
    before = rows.reading
    commands = recovery.write(rows, event)
    rows.reading = before
    return _without(commands, ReadPiece)


def _can_go_on(rows: RestoredRows, event: PieceRequested) -> bool:
    return recovery.can_take(rows, event) and not recovery.is_drained(rows, event)


class Bug8ReadsNoMoreOnceMemoryWasFull(Recovery):
    """Mutant: a piece that the writer takes makes no room."""

    rules = with_rules(RULES, Rule(DRAINING, PieceRequested, when=_can_go_on, do=_write_alone))


class Bug10FinishesWithTheFirstChannel(Recovery):
    """Mutant: live rows pass once a first channel has no more."""

    def step(self, event: RecoveryEvent) -> Commands:
        """Finish."""
        before = self.taking
        commands = super().step(event)
        return (*commands, FinishRecovery()) if before == 0 < self.taking else commands


class Bug13ReadsAllAhead(Recovery):
    """Mutant: memory has no limit."""

    def __init__(self, channels: int, *, memory_bytes: int) -> None:
        """Forget the limit."""
        del memory_bytes
        super().__init__(channels, memory_bytes=1 << 60)


class Bug15DropsNoSnapshotOfAnAbortedCheckpoint(Recovery):
    """Mutant: the spill that is kept for an aborted checkpoint stays for ever."""

    def step(self, event: RecoveryEvent) -> Commands:
        """Keep it."""
        commands = super().step(event)
        return _without(commands, DropSnapshot) if isinstance(event, SnapshotAborted) else commands


def _one_has_started(rows: RestoredRows, _: SnapshotStarted) -> bool:
    return rows.snapshot is not None


def _take_over(rows: RestoredRows, event: SnapshotStarted) -> Commands:
    rows.latest = rows.snapshot = event.checkpoint
    return ()


class Bug23KeepsTheOlderSnapshot(Recovery):
    """Mutant: a newer checkpoint goes on with the snapshot of an older one."""

    rules = with_rules(RULES, Rule(DRAINING, SnapshotStarted, when=_one_has_started, do=_take_over))


class Bug24HidesAMissingMarker(Bug2MarksWhatIsNotDrained):
    """Mutant: a missing marker is declined as not ready, which nobody counts."""

    def step(self, event: RecoveryEvent) -> Commands:
        """Decline it."""
        commands = super().step(event)
        missing = [one for one in commands if isinstance(one, FailMarkerMissing)]
        return (RefuseCheckpoint(missing[0].checkpoint), DropSnapshot(missing[0].checkpoint)) if missing else commands


class KeepsWhatCameBehindTheMarker(Recovery):
    """Mutant: the content is all of memory, also what the spill's snapshot has."""

    def collect(self, channel: int, checkpoint: int) -> int | None:
        """Count all pieces."""
        held = sum(isinstance(one, HeldPiece) for one in self.queues[channel])
        found = super().collect(channel, checkpoint)
        return None if found is None else held


class KeepsNoSpill(Recovery):
    """Mutant: a checkpoint holds of the recovery what memory holds."""

    def step(self, event: RecoveryEvent) -> Commands:
        """Keep nothing of it."""
        return _without(super().step(event), SnapshotSpill)


class TrustsOldMarkers(Recovery):
    """Mutant: the marker of an aborted checkpoint is taken for that of the running one."""

    def collect(self, channel: int, checkpoint: int) -> int | None:
        """Look for the first one alone."""
        first = next((one for one in self.queues[channel] if isinstance(one, Marker)), Marker(checkpoint))
        self.queues[channel] = tuple(one for one in self.queues[channel] if one is first or not isinstance(one, Marker))
        return super().collect(channel, first.checkpoint)


class FinishesTwice(Recovery):
    """Mutant: the end of the spill finishes, and so does the last sentinel."""

    def step(self, event: RecoveryEvent) -> Commands:
        """Finish."""
        commands = super().step(event)
        return (*commands, FinishRecovery()) if isinstance(event, SpillEnded) else commands


class RefusesWhileItDrains(Recovery):
    """Mutant: checkpoints wait until all is drained."""

    rules = with_rules(RULES, Rule(DRAINING, CheckpointRequested, do=recovery.refuse))
