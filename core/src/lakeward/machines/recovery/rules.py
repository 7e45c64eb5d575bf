"""In which order restored rows are written, and what of them belongs to a checkpoint meanwhile.

* Nothing is drained before all rows are spilled and all producers are connected; until then checkpoints are refused.
* The worker reads one piece at a time from disk, beside the mailbox thread. A piece counts as delivered with its own
  step alone: `DeliverPiece` puts it into memory and commits it. So at any moment a row is in memory or in the spill's
  rest, never in both, never in neither.
* No piece is read ahead while memory holds `memory_bytes` or more; one piece may go beyond.
* A channel ends with its sentinel, once: behind its last piece, also where it had none. It is in recovery until the
  sentinel is consumed. Live rows wait for the sentinels of all channels, as splits are given out anew: live rows of a
  key may come through any channel.
* A checkpoint's snapshot puts a marker into each channel that is in recovery, and into no other. Its content are the
  pieces before the marker, then the rest of the spill. The marker goes with the content. Markers of older checkpoints,
  whose content nobody wanted, are dropped there, or by the writer that comes to them.
* A marker that is missing where it has to be fails the checkpoint, loudly. A checkpoint that has ended is late, not
  illegal: it changes nothing.
"""

from __future__ import annotations

from lakeward.machines.machine import Rule, Rules
from lakeward.machines.recovery.messages import (
    AcceptCheckpoints,
    CheckpointRequested,
    ContentRequested,
    DeliverPiece,
    DropSnapshot,
    FailMarkerMissing,
    FinishRecovery,
    KeepPieces,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    ReadPiece,
    RecoveryCommand,
    RecoveryStopped,
    RefuseCheckpoint,
    RowsSpilled,
    SnapshotAborted,
    SnapshotSpill,
    SnapshotStarted,
    SpillEnded,
    WakeWriter,
    WritePiece,
)
from lakeward.machines.recovery.state import HeldPiece, RecoveryPhase, RestoredRows

NOT_READY, DRAINING = RecoveryPhase.NOT_READY, RecoveryPhase.DRAINING
NONE, STOPPED = RecoveryPhase.NONE, RecoveryPhase.STOPPED
Commands = tuple[RecoveryCommand, ...]

# --- conditions -----------------------------------------------------------------------------------------------------


def is_spilled_last(rows: RestoredRows, event: RowsSpilled) -> bool:
    """All producers are connected already."""
    return is_spilled_first(rows, event) and rows.connected


def is_spilled_first(rows: RestoredRows, _: RowsSpilled) -> bool:
    """Nobody has said so before."""
    return not rows.spilled


def is_connected_last(rows: RestoredRows, event: ProducersConnected) -> bool:
    """All rows are spilled already."""
    return is_connected_first(rows, event) and rows.spilled


def is_connected_first(rows: RestoredRows, _: ProducersConnected) -> bool:
    """Nobody has said so before."""
    return not rows.connected


def is_next_piece(rows: RestoredRows, event: PieceRead) -> bool:
    """It was asked for, and its channel has not ended."""
    return rows.reading and rows.draining <= event.channel < rows.channels


def was_asked_for(rows: RestoredRows, _: SpillEnded) -> bool:
    """A piece was asked for."""
    return rows.reading


def can_take(rows: RestoredRows, _: PieceRequested) -> bool:
    """There is something to take."""
    return rows.can_take


def is_drained(rows: RestoredRows, _: PieceRequested) -> bool:
    """Nothing but sentinels and old markers is left."""
    return rows.can_take and rows.spill_ended and rows.held == 0


def is_newest(rows: RestoredRows, event: SnapshotStarted) -> bool:
    """Neither it nor a newer one has started or was aborted."""
    return event.checkpoint > rows.latest


def has_snapshot(rows: RestoredRows, event: ContentRequested) -> bool:
    """Its snapshot has started, and nobody has asked for its content."""
    return rows.snapshot == event.checkpoint


# --- what is done ---------------------------------------------------------------------------------------------------


def note_spilled(rows: RestoredRows, _: RowsSpilled) -> Commands:
    """Wait for the producers."""
    rows.spilled = True
    return ()


def note_connected(rows: RestoredRows, _: ProducersConnected) -> Commands:
    """Wait for the rows."""
    rows.connected = True
    return ()


def begin(rows: RestoredRows, _: RowsSpilled | ProducersConnected) -> Commands:
    """Drain, and take checkpoints."""
    rows.spilled = rows.connected = True
    return (AcceptCheckpoints(), *read_on(rows))


def read_on(rows: RestoredRows) -> Commands:
    """Have the next piece read, if memory has room for it."""
    if rows.reading or rows.spill_ended or rows.held_bytes >= rows.memory_bytes:
        return ()
    rows.reading = True
    return (ReadPiece(),)


def deliver(rows: RestoredRows, event: PieceRead) -> Commands:
    """Put the piece into memory."""
    rows.reading = False
    rows.put(event.channel, HeldPiece(event.size_bytes))
    return (DeliverPiece(event.channel), WakeWriter(), *read_on(rows))


def end_spill(rows: RestoredRows, _: SpillEnded) -> Commands:
    """End all channels."""
    rows.reading, rows.spill_ended = False, True
    rows.end_channels(rows.channels)
    return (WakeWriter(),)


def write(rows: RestoredRows, _: PieceRequested) -> Commands:
    """Give the writer a piece, if it comes to one."""
    piece = rows.take_piece()
    return () if piece is None else (WritePiece(rows.taking), *read_on(rows))


def finish(rows: RestoredRows, _: PieceRequested) -> Commands:
    """Take the last sentinels."""
    rows.take_piece()
    return (*drop(rows), FinishRecovery())


def refuse(_: RestoredRows, event: CheckpointRequested) -> Commands:
    """Decline the checkpoint."""
    return (RefuseCheckpoint(event.checkpoint),)


def start_snapshot(rows: RestoredRows, event: SnapshotStarted) -> Commands:
    """Mark the cut in all channels that are in recovery; it supersedes an older one."""
    dropped = drop(rows)
    rows.latest = rows.snapshot = event.checkpoint
    for channel in range(rows.taking, rows.channels):
        rows.mark(channel, event.checkpoint)
    return (*dropped, SnapshotSpill(event.checkpoint))


def give_content(rows: RestoredRows, event: ContentRequested) -> Commands:
    """Keep what is before the markers."""
    rows.snapshot = None
    counts = {channel: rows.collect(channel, event.checkpoint) for channel in range(rows.taking, rows.channels)}
    for channel, count in counts.items():
        if count is None:
            return (FailMarkerMissing(event.checkpoint, channel), DropSnapshot(event.checkpoint))
    return tuple(KeepPieces(event.checkpoint, channel, count) for channel, count in counts.items() if count)


def abort(rows: RestoredRows, event: SnapshotAborted) -> Commands:
    """Start it no more, and drop what was kept for it or an older one."""
    rows.latest = max(rows.latest, event.checkpoint)
    return drop(rows) if rows.snapshot is not None and rows.snapshot <= event.checkpoint else ()


def stop(rows: RestoredRows, _: RecoveryStopped) -> Commands:
    """Drop what was kept."""
    return drop(rows)


def drop(rows: RestoredRows) -> Commands:
    """Give back what was kept for a checkpoint, if there is one."""
    checkpoint, rows.snapshot = rows.snapshot, None
    return () if checkpoint is None else (DropSnapshot(checkpoint),)


RULES: Rules[RestoredRows, RecoveryCommand] = Rules(
    "recovery",
    RecoveryPhase,
    Rule(NOT_READY, RowsSpilled, when=is_spilled_last, to=DRAINING, do=begin),
    Rule(NOT_READY, RowsSpilled, when=is_spilled_first, do=note_spilled),
    Rule(NOT_READY, ProducersConnected, when=is_connected_last, to=DRAINING, do=begin),
    Rule(NOT_READY, ProducersConnected, when=is_connected_first, do=note_connected),
    Rule(DRAINING, PieceRead, when=is_next_piece, do=deliver),
    Rule(DRAINING, SpillEnded, when=was_asked_for, do=end_spill),
    Rule(DRAINING, PieceRequested, when=is_drained, to=NONE, do=finish),
    Rule(DRAINING, PieceRequested, when=can_take, do=write),
    Rule(DRAINING, SnapshotStarted, when=is_newest, do=start_snapshot),
    Rule(DRAINING, ContentRequested, when=has_snapshot, do=give_content),
    Rule((DRAINING, NONE), (CheckpointRequested, SnapshotStarted, ContentRequested)),
    Rule((NOT_READY, STOPPED), CheckpointRequested, do=refuse),
    Rule((NOT_READY, DRAINING, NONE), SnapshotAborted, do=abort),
    Rule((NOT_READY, DRAINING, NONE), RecoveryStopped, to=STOPPED, do=stop),
    # What the worker had under way, or what is in the mailbox, comes late.
    Rule(STOPPED, (RowsSpilled, ProducersConnected, PieceRead, SpillEnded, SnapshotAborted, RecoveryStopped)),
)


class Recovery(RestoredRows):
    """The recovery of one subtask."""

    rules = RULES
