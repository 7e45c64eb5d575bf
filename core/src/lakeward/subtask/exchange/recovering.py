"""The recovery of one subtask: restored rows are read back, spilled, and drained to the writer ahead of live rows.

The worker reads checkpoint and spill; everything else happens on the mailbox thread, by the machine `recovery`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.machines.driver import MachineDriver
from lakeward.machines.recovery import (
    CheckpointRequested,
    ContentRequested,
    DeliverPiece,
    DropSnapshot,
    FinishRecovery,
    KeepPieces,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    ReadPiece,
    Recovery,
    RecoveryPhase,
    RecoveryStopped,
    RowsSpilled,
    SnapshotAborted,
    SnapshotSpill,
    SnapshotStarted,
    SpillEnded,
    WritePiece,
)
from lakeward.subtask.exchange.draining import SpillDrain
from lakeward.subtask.exchange.items import PieceRestored, SpillSealed
from lakeward.subtask.exchange.restoring import Restoration
from lakeward.subtask.exchange.spilled_rows import OwnSegments, RecoveredRest, channels_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakeward.machines.recovery import RecoveryCommand, RecoveryEvent
    from lakeward.model.events import DeployRecovery
    from lakeward.model.exchange import ExchangeFigures
    from lakeward.subtask.exchange.checkpoint_part import ExchangePart
    from lakeward.subtask.exchange.draining import RestoredSource
    from lakeward.subtask.exchange.items import RestoredItem
    from lakeward.subtask.exchange.spilled_rows import RestoredChannel, RowPlace, SpilledPiece
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.ports import SubtaskPorts


class RowsRecovery(Restoration):
    """The recovery of one subtask: checkpoints may be taken while restored rows are written."""

    def __init__(  # noqa: PLR0917 - what is restored, then the ports to do it with
        self,
        source: RestoredSource,
        deploy: DeployRecovery,
        ports: SubtaskPorts,
        mailbox: Mailbox,
        write: Callable[[pa.RecordBatch, bool], None],
        execute: Callable[[RecoveryCommand], None],
    ) -> None:
        """Start to read back; the worker posts in the mailbox.

        `write` takes a batch, and whether a writer had counted it. `execute` executes what concerns the channels.
        """
        self._write = write
        self._execute_outside = execute
        self.channels: tuple[RestoredChannel, ...] = channels_of(source.states)
        self._machine = Recovery(len(self.channels), memory_bytes=deploy.memory_bytes)
        self._driver = MachineDriver(self._machine, self._execute)
        self._memory: deque[SpilledPiece] = deque()
        self._taken: list[SpilledPiece] = []
        self._own = OwnSegments(source.subtask, source.subtasks, self.channels)
        self._snapshot: tuple[RowPlace, int] | None = None
        """Where the first row was at the cut of a checkpoint that was not delivered, and the bytes of the spill behind
        it."""
        self._content: list[SpilledPiece] = []
        """The delivered pieces that a checkpoint holds, while it takes its snapshot."""
        self._drain = SpillDrain(source, deploy, ports, mailbox, self._own)
        self._written_bytes = self._kept_bytes = 0

    @property
    def ready(self) -> bool:
        """See `Restoration`."""
        return self._machine.phase is not RecoveryPhase.NOT_READY

    @property
    def done(self) -> bool:
        """See `Restoration`."""
        return self._machine.phase is RecoveryPhase.NONE

    @property
    def can_take(self) -> bool:
        """See `Restoration`."""
        return self._machine.can_take

    @property
    def total_bytes(self) -> int:
        """Bytes to be written, as they lie on disk; 0 while rows are read back."""
        return self._drain.size_bytes

    def figures(self, figures: ExchangeFigures) -> ExchangeFigures:
        """See `Restoration`."""
        return structs.replace(
            figures,
            recovery=self._machine.phase.value,
            recovered_bytes=self.total_bytes if self.done else self._written_bytes,
            recovery_bytes=self.total_bytes,
            spill_bytes=self._drain.spill_bytes,
            kept_spill_bytes=self._kept_bytes,
        )

    def take(self, item: RestoredItem) -> None:
        """Take what the worker has spilled, or read from the spill."""
        if item.error is not None:
            raise item.error
        if isinstance(item, SpillSealed):
            self._drain.begin()
            self._post(RowsSpilled())
        elif isinstance(item, PieceRestored):
            self._drain.read = item.piece
            self._post(SpillEnded() if item.piece is None else PieceRead(item.piece.channel, item.piece.size_bytes))

    def producers_connected(self) -> None:
        """See `Restoration`."""
        if not self._machine.connected:
            self._post(ProducersConnected())

    def write_next(self) -> None:
        """Give the writer the next piece, if there is one; then look whether that was all."""
        if not self._machine.can_take:
            return
        self._post(PieceRequested())
        for piece in self._taken:
            self._write(piece.records, self.channels[piece.channel].counted)
            self._written_bytes += piece.size_bytes
        self._taken.clear()

    def refuse(self, checkpoint: int) -> None:
        """See `Restoration`."""
        self._post(CheckpointRequested(checkpoint))

    def end(self, checkpoint: int) -> None:
        """See `Restoration`."""
        self._post(SnapshotAborted(checkpoint))

    def keep(self, part: ExchangePart) -> bool:
        """See `Restoration`."""
        if self.done:
            return True
        rest = self.rest(part.checkpoint)
        if rest is None:
            return False
        part.recovered, part.restored = rest, self.channels
        self._kept_bytes += rest.spill_bytes
        return True

    def rest(self, checkpoint: int) -> RecoveredRest | None:
        """Return what a checkpoint whose cut is now holds of the recovery; None where its marker is missing."""
        self._content = []
        self._post(SnapshotStarted(checkpoint))
        self._post(ContentRequested(checkpoint))
        content, self._content = self._content, []
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            return None
        place, spill_bytes = snapshot
        return RecoveredRest(self._own.left(content[0].first if content else place), spill_bytes)

    def close(self, timeout_s: float) -> None:
        """Stop, and delete what is on disk; calling it twice is harmless."""
        self._post(RecoveryStopped())
        self._drain.close(timeout_s)

    def _post(self, event: RecoveryEvent) -> None:
        self._driver.post(event)

    def _execute(self, command: RecoveryCommand, _: RecoveryEvent) -> None:
        match command:
            case ReadPiece():
                self._drain.read_next()
            case DeliverPiece() if (piece := self._drain.deliver()) is not None:
                self._memory.append(piece)
            case WritePiece():
                self._taken.append(self._memory.popleft())
            case SnapshotSpill():
                self._snapshot = self._drain.rest
            case KeepPieces():
                held = [piece for piece in self._memory if piece.channel == command.channel]
                self._content += held[: command.count]
            case DropSnapshot():
                self._snapshot = None
            case FinishRecovery():
                self._drain.release()
                self._execute_outside(command)
            case _:
                self._execute_outside(command)
