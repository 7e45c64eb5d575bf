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

from msgspec import Struct

from lakeward.machines.machine import Machine, MachineState, Rule, Rules, UndoDict

# --- events: what the worker that reads back, the writer and the checkpoints report ----------------------------------


class _OfCheckpoint(Struct, frozen=True):
    checkpoint: int


class RowsSpilled(Struct, frozen=True):
    """Everything that was restored is read back; what is ours is sealed on local disks."""


class ProducersConnected(Struct, frozen=True):
    """Every producer has opened its channel to this subtask."""


class PieceRead(Struct, frozen=True):
    """The piece that `ReadPiece` asked for was read from disk. It is not delivered before this step."""

    channel: int
    size_bytes: int


class SpillEnded(Struct, frozen=True):
    """There was no further piece on disk."""


class PieceRequested(Struct, frozen=True):
    """The writer takes the oldest piece in memory; only where `can_take`."""


class CheckpointRequested(_OfCheckpoint, frozen=True):
    """The coordinator triggered this subtask."""


class SnapshotStarted(_OfCheckpoint, frozen=True):
    """The checkpoint's cut is now: whatever the writer has not taken is to be in it."""


class ContentRequested(_OfCheckpoint, frozen=True):
    """The checkpoint wants what is in memory. The writer has taken nothing since its `SnapshotStarted`."""


class SnapshotAborted(_OfCheckpoint, frozen=True):
    """A checkpoint will not be. Allowed for any number, also twice."""


class RecoveryStopped(Struct, frozen=True):
    """The subtask ends, or the recovery failed: nothing more is drained."""


RecoveryEvent = (
    RowsSpilled
    | ProducersConnected
    | PieceRead
    | SpillEnded
    | PieceRequested
    | CheckpointRequested
    | SnapshotStarted
    | ContentRequested
    | SnapshotAborted
    | RecoveryStopped
)

# --- commands: what the subtask does, in this order -----------------------------------------------------------------


class AcceptCheckpoints(Struct, frozen=True):
    """Tell the coordinator that all channels are open: from now on checkpoints are taken, and splits are read."""


class ReadPiece(Struct, frozen=True):
    """Have the worker read the next piece; only one is asked for at a time."""


class DeliverPiece(Struct, frozen=True):
    """Put the piece that was read behind those in memory, and commit it in the spill: both, or neither."""

    channel: int


class WakeWriter(Struct, frozen=True):
    """Something can be taken, or nothing will come any more: let the writer look."""


class WritePiece(Struct, frozen=True):
    """Give the writer the oldest piece in memory, which is of this channel."""

    channel: int


class RefuseCheckpoint(_OfCheckpoint, frozen=True):
    """Decline the checkpoint as not ready: that is not counted as a failure."""


class SnapshotSpill(_OfCheckpoint, frozen=True):
    """Keep what is not committed in the spill for the checkpoint. Nothing is copied."""


class KeepPieces(_OfCheckpoint, frozen=True):
    """Keep the oldest `count` pieces of a channel that are in memory for the checkpoint; they are before its spill."""

    channel: int
    count: int


class FailMarkerMissing(_OfCheckpoint, frozen=True):
    """The checkpoint has no border in a channel that is in recovery: fail it for that, and count it. It is a bug."""

    channel: int


class DropSnapshot(_OfCheckpoint, frozen=True):
    """Give the spill back that was kept for the checkpoint."""


class FinishRecovery(Struct, frozen=True):
    """Everything that was restored is written: give all producers credit, let live rows pass, and delete the spill."""


RecoveryCommand = (
    AcceptCheckpoints
    | ReadPiece
    | DeliverPiece
    | WakeWriter
    | WritePiece
    | RefuseCheckpoint
    | SnapshotSpill
    | KeepPieces
    | FailMarkerMissing
    | DropSnapshot
    | FinishRecovery
)


class RecoveryPhase(MachineState):
    """How far a subtask is with what was restored."""

    NOT_READY = "not_ready"
    """Rows are read back, or channels are opened: no checkpoint can be taken."""
    DRAINING = "draining"
    """Restored rows are written, ahead of all live ones; a checkpoint holds what is not written yet."""
    NONE = "none"
    """Everything restored is written: there is nothing to add to a checkpoint."""
    STOPPED = "stopped"
    """It failed, or the subtask ends."""


class HeldPiece(Struct, frozen=True):
    """A batch of restored rows in memory."""

    size_bytes: int


class Marker(_OfCheckpoint, frozen=True):
    """The cut of a checkpoint."""


class Sentinel(Struct, frozen=True):
    """Nothing more comes in the channel."""


Item = HeldPiece | Marker | Sentinel


class RestoredRows(Machine[RecoveryEvent, RecoveryCommand]):
    """The channels of one restored checkpoint."""

    def __init__(self, channels: int, *, memory_bytes: int) -> None:
        """Start with nothing read back.

        `channels`: how many the restored checkpoint has, 0 or more; those without a row for us too. `memory_bytes`: of
        pieces in memory, from which on nothing is read ahead; > 0.
        """
        super().__init__()
        self.channels = channels
        self.memory_bytes = memory_bytes
        self.phase: RecoveryPhase = RecoveryPhase.NOT_READY
        self.spilled = self.connected = False
        self.reading = self.spill_ended = False
        self.queues = UndoDict[int, tuple[Item, ...]](self.undo, dict.fromkeys(range(channels), ()))
        """By channel: what is in memory."""
        self.draining = 0
        """The first channel whose sentinel is not put in."""
        self.taking = 0
        """The first channel whose sentinel is not consumed: it and those after it are in recovery."""
        self.held = self.held_bytes = 0
        """Pieces in memory, and their bytes."""
        self.snapshot: int | None = None
        """The checkpoint whose snapshot has started, and whose content nobody has asked for."""
        self.latest = 0
        """The newest checkpoint whose snapshot started, or that was aborted."""

    @property
    def detail(self) -> str:
        """How far it is, for errors."""
        return f", {self.taking} of {self.channels} channels recovered, newest {self.latest}"

    @property
    def can_take(self) -> bool:
        """Whether the writer has something to take: a piece, or what stands before the end."""
        if self.phase is not RecoveryPhase.DRAINING:
            return False
        return bool(self.queues[self.taking]) if self.channels else self.spill_ended

    def in_recovery(self, channel: int) -> bool:
        """Return whether a channel's rows are not all written."""
        return self.phase is RecoveryPhase.DRAINING and channel >= self.taking

    def put(self, channel: int, piece: HeldPiece) -> None:
        """Put a piece into memory; the channels before it end."""
        self.end_channels(channel)
        self.queues[channel] += (piece,)
        self.held += 1
        self.held_bytes += piece.size_bytes

    def end_channels(self, before: int) -> None:
        """Put the sentinel into each channel up to one."""
        for channel in range(self.draining, before):
            self.queues[channel] += (Sentinel(),)
        self.draining = max(self.draining, before)

    def take_piece(self) -> HeldPiece | None:
        """Take what is next, up to one piece. Markers that nobody asked about go without a trace."""
        while self.taking < self.channels and self.queues[self.taking]:
            found, *rest = self.queues[self.taking]
            self.queues[self.taking] = tuple(rest)
            if isinstance(found, HeldPiece):
                self.held -= 1
                self.held_bytes -= found.size_bytes
                return found
            self.taking += isinstance(found, Sentinel)
        return None

    def mark(self, channel: int, checkpoint: int) -> None:
        """Put the marker behind the last piece; the sentinel stays the last."""
        queue = self.queues[channel]
        place = len(queue) - (channel < self.draining)
        self.queues[channel] = (*queue[:place], Marker(checkpoint), *queue[place:])

    def collect(self, channel: int, checkpoint: int) -> int | None:
        """Count the pieces before a checkpoint's marker, and remove it and older ones; None where it is missing."""
        count = 0
        found: int | None = None
        for one in self.queues[channel]:
            if isinstance(one, Marker):
                found = count if one.checkpoint == checkpoint else found
            count += isinstance(one, HeldPiece)
        self.queues[channel] = tuple(one for one in self.queues[channel] if not isinstance(one, Marker))
        return found


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


def can_take(rows: RestoredRows, _: PieceRequested) -> bool:
    """There is something to take."""
    return rows.can_take


def is_drained(rows: RestoredRows, _: PieceRequested) -> bool:
    """Nothing but sentinels and old markers is left."""
    return rows.can_take and rows.spill_ended and rows.held == 0


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
    Rule(DRAINING, SpillEnded, when=lambda rows, _: rows.reading, do=end_spill),
    Rule(DRAINING, PieceRequested, when=is_drained, to=NONE, do=finish),
    Rule(DRAINING, PieceRequested, when=can_take, do=write),
    Rule(DRAINING, SnapshotStarted, when=lambda rows, event: event.checkpoint > rows.latest, do=start_snapshot),
    Rule(DRAINING, ContentRequested, when=lambda rows, event: rows.snapshot == event.checkpoint, do=give_content),
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
