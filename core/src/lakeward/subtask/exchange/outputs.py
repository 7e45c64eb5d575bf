"""A subtask's rows on their way to all consumers: gathered, queued, and sent within each consumer's credit."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.machines.driver import MachineDriver
from lakeward.machines.exchange import OutputPhase, OutputQueue
from lakeward.machines.exchange.messages import (
    BarrierAborted,
    BarrierRequested,
    BatchesWritten,
    BatchQueued,
    EndRequested,
    KeepBatches,
    OvertakeRequested,
    SendBatches,
    SendMark,
)
from lakeward.model.exchange import BarrierCancelled
from lakeward.model.tables import BUCKET_COLUMN
from lakeward.subtask.ports import LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.machines.exchange.messages import OutputCommand, OutputEvent
    from lakeward.ports import ChannelSender
    from lakeward.subtask.exchange.routing import Routing
    from lakeward.subtask.ports import OutputLimits


_BUCKET = pa.field(BUCKET_COLUMN, pa.int32(), nullable=False)
_BATCHES = 2
"""So many batches fit a window at least: while one is written, the next one is on its way."""


@dataclass(slots=True)
class _Output:
    sender: ChannelSender
    queue: OutputQueue
    gathered: list[pa.RecordBatch] = field(default_factory=list)
    gathered_bytes: int = 0
    gathered_rows: int = 0
    waiting: dict[int, pa.RecordBatch] = field(default_factory=dict)
    """By sequence: what the queue has not sent."""
    kept: list[pa.RecordBatch] = field(default_factory=list)
    """What the present step keeps for a checkpoint."""


class Outputs:
    """All channels of one producer. Called by the mailbox thread alone."""

    def __init__(
        self, senders: Sequence[ChannelSender], routing: Routing, limits: OutputLimits = LIMITS, *, granted: bool = True
    ) -> None:
        """Start with nothing to send; `senders` are the channels, by consumer.

        The limits are of what is held here and under way. If `granted`, batches may be sent before a consumer gives
        credit.
        """
        self._routing = routing
        self._limits = limits
        window_bytes = min(limits.window_bytes, max(1, limits.received_bytes // max(1, len(senders))))
        self._batch_bytes = max(1, window_bytes // _BATCHES)
        """Of a batch, at most, but for a single row that is larger."""
        self._gathered_bytes = 0
        """Of all channels."""
        self._waiting_bytes = 0
        """As well: of what the queues have not sent."""
        self._full_channels: set[int] = set()
        """Consumers for whom more waits than a channel may hold."""
        self._outputs = [_Output(sender, OutputQueue(window_bytes=window_bytes, granted=granted)) for sender in senders]
        self._drivers = [MachineDriver(output.queue, partial(self._execute, output)) for output in self._outputs]
        self.sent_bytes = 0
        self._full_since: float | None = None
        self._waited_s = 0.0
        """Without the present wait."""

    def put(self, records: pa.RecordBatch, bucket: int) -> None:
        """Take rows of one bucket."""
        column = pa.array(np.full(records.num_rows, bucket, dtype=np.int32))
        records = records.append_column(_BUCKET, column)
        bytes_per_row = records.nbytes / records.num_rows
        limits = self._limits
        for consumer, rows in self._routing.divide(records):
            output = self._outputs[consumer]
            size_bytes = int(rows.num_rows * bytes_per_row)
            output.gathered.append(rows)
            output.gathered_rows += rows.num_rows
            output.gathered_bytes += size_bytes
            self._gathered_bytes += size_bytes
            if output.gathered_rows >= limits.gathered_rows or output.gathered_bytes >= limits.gathered_bytes:
                self._flush(consumer)
        # What is gathered for very many consumers must not fill the subtask: its reader would wait for nothing.
        while self._gathered_bytes > limits.subtask_bytes // 2:
            self._flush(max(range(len(self._outputs)), key=lambda consumer: self._outputs[consumer].gathered_bytes))

    def flush(self) -> None:
        """Queue what is gathered."""
        for consumer in range(len(self._outputs)):
            self._flush(consumer)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait here."""
        return self._gathered_bytes + self._waiting_bytes

    @property
    def full(self) -> bool:
        """Whether nothing more is to be read for now."""
        return bool(self._full_channels) or self.queued_bytes >= self._limits.subtask_bytes

    @property
    def ended(self) -> bool:
        """Whether all channels were told that nothing more comes."""
        return all(output.queue.phase is not OutputPhase.OPEN for output in self._outputs)

    @property
    def written(self) -> bool:
        """Whether all channels have ended, and their consumers have written everything."""
        return all(output.queue.phase is OutputPhase.WRITTEN for output in self._outputs)

    def count_wait(self, now: float) -> None:
        """Count for how long nothing was read because channels were full."""
        if self.full:
            self._full_since = now if self._full_since is None else self._full_since
        elif self._full_since is not None:
            self._waited_s += now - self._full_since
            self._full_since = None

    def waited_s(self, now: float) -> float:
        """Return the seconds in which nothing was read because channels were full."""
        return self._waited_s + (0.0 if self._full_since is None else now - self._full_since)

    def credit(self, consumer: int, end: int) -> None:
        """Note that a consumer has written all batches before `end`."""
        self._step(consumer, BatchesWritten(end))

    def barrier(self, checkpoint: int, *, age_s: float = 0.0) -> None:
        """Send a checkpoint's barrier into all channels, behind everything that was put in.

        `age_s`: seconds since it was triggered.
        """
        self.flush()
        for consumer in range(len(self._outputs)):
            self._step(consumer, BarrierRequested(checkpoint, age_s))

    def overtake(self, checkpoint: int) -> dict[int, list[pa.RecordBatch]]:
        """Let a checkpoint's barrier overtake what waits here; return, by consumer, the batches to be kept for it."""
        kept = {consumer: self._step(consumer, OvertakeRequested(checkpoint)) for consumer in range(len(self._outputs))}
        return {consumer: batches for consumer, batches in kept.items() if batches}

    def abort(self, checkpoint: int) -> None:
        """Note that a checkpoint will not be."""
        for consumer in range(len(self._outputs)):
            self._step(consumer, BarrierAborted(checkpoint))

    def cancel(self, checkpoint: int) -> None:
        """Tell all consumers that a checkpoint will not be."""
        for output in self._outputs:
            output.sender.mark(BarrierCancelled(checkpoint))

    def end(self) -> None:
        """Say that nothing more comes."""
        self.flush()
        for consumer in range(len(self._outputs)):
            self._step(consumer, EndRequested())

    def _flush(self, consumer: int) -> None:
        output = self._outputs[consumer]
        if not output.gathered_rows:
            return
        batch = output.gathered[0] if len(output.gathered) == 1 else pa.concat_batches(output.gathered)
        self._gathered_bytes -= output.gathered_bytes
        fitting = self._batch_bytes * batch.num_rows // max(1, output.gathered_bytes)
        rows = max(1, min(self._limits.gathered_rows, fitting))
        output.gathered, output.gathered_rows, output.gathered_bytes = [], 0, 0
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            output.waiting[output.queue.queued] = piece
            self._step(consumer, BatchQueued(piece.nbytes))

    def _step(self, consumer: int, event: OutputEvent) -> list[pa.RecordBatch]:
        """Step a channel's queue; return what is to be kept for a checkpoint."""
        output = self._outputs[consumer]
        before = output.queue.waiting_bytes
        self._drivers[consumer].post(event)
        self._count_waiting(consumer, output.queue.waiting_bytes, before)
        kept, output.kept = output.kept, []
        return kept

    def _count_waiting(self, consumer: int, now_bytes: int, before_bytes: int) -> None:
        """Count here what a step has changed: with hundreds of channels nobody looks at each of them at every turn."""
        self._waiting_bytes += now_bytes - before_bytes
        if now_bytes >= self._limits.channel_bytes:
            self._full_channels.add(consumer)
        else:
            self._full_channels.discard(consumer)

    def _execute(self, output: _Output, command: OutputCommand, _: OutputEvent) -> None:
        match command:
            case SendBatches():
                for sequence in range(command.first, command.end):
                    records = output.waiting.pop(sequence)
                    self.sent_bytes += records.nbytes
                    output.sender.send(sequence, records)
            case SendMark():
                output.sender.mark(command.mark)
            case KeepBatches():
                output.kept += [output.waiting[sequence] for sequence in range(command.first, command.end)]
