"""Restored rows on local disks: a worker reads back and spills those that are ours, then reads pieces of the spill."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.storage.spill import SpillWriter
from lakeward.storage.spill_disk import spark_directories
from lakeward.storage.spill_reader import SpillReader
from lakeward.subtask.exchange.items import PieceRestored, SpillSealed
from lakeward.subtask.exchange.restoring import rows_of
from lakeward.subtask.exchange.spilled_rows import PieceWriter, RowPlace, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward.model.events import DeployRecovery
    from lakeward.model.exchange import ExchangeState
    from lakeward.ports import CheckpointStore
    from lakeward.storage.spill import SpillFiles
    from lakeward.subtask.exchange.routing import Routing
    from lakeward.subtask.exchange.spilled_rows import OwnSegments, SpilledPiece
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.ports import SubtaskPorts


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


class SpillDrain:
    """The spill of one recovery: what is read from it, and up to where it is delivered.

    Called by the mailbox thread; the worker posts `SpillSealed`, then `PieceRestored` for each `read_next`.
    """

    def __init__(
        self, source: RestoredSource, deploy: DeployRecovery, ports: SubtaskPorts, mailbox: Mailbox, own: OwnSegments
    ) -> None:
        self._mailbox = mailbox
        self._spilling = _Spilling(source, deploy, ports, own)
        self._files: SpillFiles | None = None
        self._reader: SpillReader | None = None
        self._pieces: Iterator[SpilledPiece] = iter(())
        self.read: SpilledPiece | None = None
        """What the worker has read, until it is delivered."""
        self._committed = RowPlace(0, 0, 0, 0)
        """Where the first row is that was not delivered."""
        self._worker = ports.executor.worker(name="restore-rows")
        self._worker.submit(self._spill)

    @property
    def size_bytes(self) -> int:
        """Bytes of all pieces, as they lie on disk; 0 while rows are read back."""
        return self._spilling.size_bytes

    @property
    def spill_bytes(self) -> int:
        """Bytes that are on disk now."""
        files = self._files
        return 0 if files is None or files.deleted else files.size_bytes

    @property
    def rest(self) -> tuple[RowPlace, int] | None:
        """Where the first row is that was not delivered, and how many bytes lie behind it; None before `begin`."""
        return None if self._reader is None else (self._committed, self._reader.undelivered_bytes)

    def begin(self) -> None:
        """Begin to drain: everything is spilled."""
        self._files = self._spilling.files
        if self._files is not None:
            self._reader = SpillReader(self._files)
            self._pieces = pieces(self._reader.read)

    def read_next(self) -> None:
        """Have the next piece read."""
        self._worker.submit(self._read_piece)

    def deliver(self) -> SpilledPiece | None:
        """Return the piece that was read: it is in memory from now on, and no longer in the spill's rest."""
        piece, self.read = self.read, None
        if piece is not None and self._reader is not None:
            self._commit(self._reader, piece)
        return piece

    def release(self) -> None:
        """Delete the spill, and let the worker's thread end: everything is written."""
        if self._reader is not None and self._files is not None:
            self._reader.close()
            self._files.release()
        self._worker.stop(0.0)

    def close(self, timeout_s: float) -> None:
        """Stop, and delete what is on disk; calling it twice is harmless."""
        self._spilling.stop()
        self._worker.stop(timeout_s)
        if self._files is not None:
            self._files.close()

    def _commit(self, reader: SpillReader, piece: SpilledPiece) -> None:
        reader.commit(piece.end)
        self._committed = piece.after

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
            item = PieceRestored(next(self._pieces, None))
        except Exception as error:  # noqa: BLE001 - as above
            item = PieceRestored(None, error)
        self._mailbox.put(item)


class _Spilling:
    """Reads back and spills, on the worker; stopped by the mailbox thread."""

    def __init__(self, source: RestoredSource, deploy: DeployRecovery, ports: SubtaskPorts, own: OwnSegments) -> None:
        self._source = source
        self._own = own
        self._piece_bytes = ports.exchange_limits.restored_bytes
        directories = deploy.spill_dirs or spark_directories()
        self._writer = SpillWriter(directories, quota_bytes=deploy.spill_quota_bytes, disk=ports.spill_disk)
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
