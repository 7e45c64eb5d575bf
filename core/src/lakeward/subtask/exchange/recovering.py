"""The recovery of one subtask: restored rows are read back, spilled, and drained to the writer ahead of live rows.

The worker reads checkpoint and spill; everything else happens on the mailbox thread, by the machine `recovery`.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.machines.driver import MachineDriver
from lakeward.machines.recovery import (
    ContentRequested,
    DeliverPiece,
    DropSnapshot,
    FinishRecovery,
    KeepPieces,
    PieceRead,
    PieceRequested,
    ReadPiece,
    Recovery,
    RecoveryPhase,
    RecoveryStopped,
    RowsSpilled,
    SnapshotSpill,
    SnapshotStarted,
    SpillEnded,
    WritePiece,
)
from lakeward.storage.spill import SpillWriter
from lakeward.storage.spill_disk import spark_directories
from lakeward.storage.spill_reader import SpillReader
from lakeward.subtask.exchange.items import PieceRestored, SpillSealed
from lakeward.subtask.exchange.restoring import rows_of
from lakeward.subtask.exchange.spilled_rows import (
    OwnSegments,
    PieceWriter,
    RecoveredRest,
    RowPlace,
    channels_of,
    pieces,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward.machines.recovery import RecoveryCommand, RecoveryEvent
    from lakeward.model.events import DeployRecovery
    from lakeward.model.exchange import ExchangeState
    from lakeward.ports import CheckpointStore
    from lakeward.storage.spill import SpillFiles
    from lakeward.subtask.exchange.routing import Routing
    from lakeward.subtask.exchange.spilled_rows import RestoredChannel, SpilledPiece
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.parts import SubtaskParts


@dataclass(frozen=True, slots=True)
class RestoredSource:
    """Where restored rows come from, and which of them are ours. All of it is called on the worker alone."""

    states: Sequence[ExchangeState]
    subtask: int
    subtasks: int
    """How many there are now."""
    open_store: Callable[[], CheckpointStore]
    routing: Callable[[], Routing]
    """Makes a routing of its own: the one of the mailbox thread is not to be shared."""


class RowsRecovery:
    """The recovery of one subtask. Called by the mailbox thread."""

    def __init__(
        self,
        source: RestoredSource,
        deploy: DeployRecovery,
        parts: SubtaskParts,
        mailbox: Mailbox,
        execute: Callable[[RecoveryCommand], None],
    ) -> None:
        """Start to read back; the worker posts in the mailbox.

        `execute` executes what concerns others: the coordinator, the writer, the channels.
        """
        self._execute_outside = execute
        self._mailbox = mailbox
        self.channels: tuple[RestoredChannel, ...] = channels_of(source.states)
        self._machine = Recovery(len(self.channels), memory_bytes=deploy.memory_bytes)
        self._driver = MachineDriver(self._machine, self._execute)
        self._reader: SpillReader | None = None
        self._pieces: Iterator[SpilledPiece] | None = None
        self._read: SpilledPiece | None = None
        """What the worker has read; delivered in the same step."""
        self._memory: deque[SpilledPiece] = deque()
        self._taken: list[SpilledPiece] = []
        self._own = OwnSegments(source.subtask, source.subtasks, self.channels)
        self._committed = RowPlace(0, 0, 0, 0)
        """Where the first row is that was not delivered."""
        self._snapshot: tuple[RowPlace, int] | None = None
        """That place at the cut of a checkpoint, and the bytes of the spill behind it."""
        self._kept: list[SpilledPiece] = []
        self._worker = parts.executor.worker(name="restore-rows")
        self._spilling = _Spilling(source, deploy, parts, self._own)
        self._files: SpillFiles | None = None
        self._written_bytes = 0
        self._worker.submit(self._spill)

    @property
    def phase(self) -> RecoveryPhase:
        """How far it is."""
        return self._machine.phase

    @property
    def done(self) -> bool:
        """Whether everything restored is written: live rows may pass."""
        return self._machine.phase is RecoveryPhase.NONE

    @property
    def connected(self) -> bool:
        """Whether it knows that all producers are connected."""
        return self._machine.connected

    @property
    def can_take(self) -> bool:
        """Whether `write_next` has something to do."""
        return self._machine.can_take

    @property
    def written_bytes(self) -> int:
        """Bytes that the writer has taken, as they lay on disk."""
        return self.total_bytes if self.done else self._written_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes to be written, as they lie on disk; 0 while rows are read back."""
        return self._spilling.size_bytes

    @property
    def spill_bytes(self) -> int:
        """Bytes that are on disk now."""
        files = self._files
        return 0 if files is None or files.deleted else files.size_bytes

    def post(self, event: RecoveryEvent) -> None:
        """Step the machine."""
        self._driver.post(event)

    def sealed(self, item: SpillSealed) -> None:
        """Go on once everything is spilled.

        Raises:
            Exception: why it could not be.
        """
        if item.error is not None:
            raise item.error
        self._files = self._spilling.files
        if self._files is not None:
            self._reader = SpillReader(self._files)
            self._pieces = pieces(self._reader.read)
        self.post(RowsSpilled())

    def restored(self, item: PieceRestored) -> None:
        """Take what the worker has read.

        Raises:
            Exception: why it could not be read.
        """
        if item.error is not None:
            raise item.error
        self._read = item.piece
        self.post(SpillEnded() if item.piece is None else PieceRead(item.piece.channel, item.piece.size_bytes))

    def write_next(self, write: Callable[[pa.RecordBatch, bool], None]) -> None:
        """Give the writer the next piece, if there is one; then look whether that was all.

        `write` takes a batch, and whether a writer had counted it.
        """
        if not self._machine.can_take:
            return
        self.post(PieceRequested())
        for piece in self._taken:
            write(piece.records, self.channels[piece.channel].counted)
            self._written_bytes += piece.size_bytes
        self._taken.clear()

    def keep(self, checkpoint: int) -> RecoveredRest | None:
        """Return what a checkpoint whose cut is now holds of the recovery; None where there is nothing to hold."""
        self._kept = []
        self.post(SnapshotStarted(checkpoint))
        self.post(ContentRequested(checkpoint))
        kept, self._kept = self._kept, []
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            return None
        place, spill_bytes = snapshot
        return RecoveredRest(self._own.left(kept[0].first if kept else place), spill_bytes)

    def close(self, timeout_s: float) -> None:
        """Stop, and delete what is on disk; calling it twice is harmless."""
        self.post(RecoveryStopped())
        self._spilling.stop()
        self._worker.stop(timeout_s)
        if self._files is not None:
            self._files.close()

    # --- what the machine commands ------------------------------------------------------------------------------

    def _execute(self, command: RecoveryCommand, _: RecoveryEvent) -> None:
        match command:
            case ReadPiece():
                self._worker.submit(self._read_piece)
            case DeliverPiece() if self._read is not None and self._reader is not None:
                piece, self._read = self._read, None
                self._memory.append(piece)
                self._commit(self._reader, piece)
            case WritePiece():
                self._taken.append(self._memory.popleft())
            case SnapshotSpill() if self._reader is not None:
                self._snapshot = (self._committed, self._reader.undelivered_bytes)
            case KeepPieces():
                held = [piece for piece in self._memory if piece.channel == command.channel]
                self._kept += held[: command.count]
            case DropSnapshot():
                self._snapshot = None
            case FinishRecovery():
                self._release()
                self._execute_outside(command)
            case _:
                self._execute_outside(command)

    def _commit(self, reader: SpillReader, piece: SpilledPiece) -> None:
        reader.commit(piece.end)
        self._committed = piece.after

    def _release(self) -> None:
        """Delete the spill, and let the worker's thread end."""
        if self._reader is not None and self._files is not None:
            self._reader.close()
            self._files.release()
        self._worker.stop(0.0)

    # --- on the worker ------------------------------------------------------------------------------------------

    def _spill(self) -> None:
        error: Exception | None = None
        try:
            self._spilling.run()
        except Exception as raised:  # noqa: BLE001 - handed over whole to the mailbox thread, which raises it
            error = raised
        self._mailbox.put(SpillSealed(error))

    def _read_piece(self) -> None:
        try:
            found = self._pieces
            item = PieceRestored(None if found is None else next(found, None))
        except Exception as error:  # noqa: BLE001 - as above
            item = PieceRestored(None, error)
        self._mailbox.put(item)


class _Spilling:
    """Reads back and spills, on the worker; stopped by the mailbox thread."""

    def __init__(self, source: RestoredSource, deploy: DeployRecovery, parts: SubtaskParts, own: OwnSegments) -> None:
        self._source = source
        self._own = own
        self._piece_bytes = parts.exchange_limits.restored_bytes
        directories = deploy.spill_dirs or spark_directories()
        self._writer = SpillWriter(directories, quota_bytes=deploy.spill_quota_bytes, disk=parts.spill_disk)
        self._lock = threading.Lock()
        self._stopped = False
        self.files: SpillFiles | None = None
        self.size_bytes = 0

    def stop(self) -> None:
        """Let nothing be left on disk: what is sealed is deleted, and what is being written once that is noticed."""
        with self._lock:
            self._stopped = True
            if self.files is not None:
                self.files.close()

    def run(self) -> None:
        try:
            self._read_all()
            files = self._writer.seal()  # outside of the lock: a disk that hangs must not hold up the end
            with self._lock:
                stopped = self._stopped
                if not stopped:
                    self.files, self.size_bytes = files, files.size_bytes
            if stopped:
                files.close()
        finally:
            self._writer.close()

    def _read_all(self) -> None:
        source, routing, found = self._source, self._source.routing(), PieceWriter(self._writer, self._piece_bytes)
        store = source.open_store()
        for channel, number, segment in self._own.segments():
            for first, records in rows_of(store, segment):
                if self._stopped:
                    return
                mine = routing.places(records, source.subtask, segment.kept)
                found.write(channel, number, mine + first, records.take(pa.array(mine)))
        found.flush()
        self._own.rows = found.rows
