"""A subtask's part of an exchange: what it sends, what it receives and writes, and its share of each checkpoint.

Everything happens on the mailbox thread; the transport's threads and the workers only post. Phases:
connecting (channels open, restored rows are read back), running, and finished (all files are closed). Where checkpoints
are taken during a recovery, restored rows are written while it runs already, ahead of those that channels bring.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from lakeward.errors import ExchangeLostError, LakewardError
from lakeward.machines.exchange.messages import (
    CancelCheckpoint,
    ChannelsEnded,
    InputComplete,
    PersistBatches,
    TakeWriterSnapshot,
)
from lakeward.machines.recovery.messages import (
    AcceptCheckpoints,
    CheckpointRequested,
    FailMarkerMissing,
    FinishRecovery,
    ProducersConnected,
    SnapshotAborted,
)
from lakeward.model.batches import SourceBatch
from lakeward.model.events import NOT_READY, Connected, WriterFinished
from lakeward.model.exchange import ExchangeFigures, ExchangeState
from lakeward.ports import ExchangeKey
from lakeward.subtask.exchange.checkpoint_part import CollectedPart
from lakeward.subtask.exchange.inputs import Inputs
from lakeward.subtask.exchange.items import (
    ChannelLost,
    CreditReceived,
    ExchangeItem,
    MailboxReceiver,
    MarkReceived,
    PieceRestored,
    ProducerConnected,
    RecordsReceived,
    RowsRestored,
    SpillSealed,
    WriteNext,
)
from lakeward.subtask.exchange.open_rows import OpenFiles
from lakeward.subtask.exchange.outputs import Outputs
from lakeward.subtask.exchange.recovering import RestoredSource, RowsRecovery
from lakeward.subtask.exchange.restoring import RowsReading, Share, share_of
from lakeward.subtask.exchange.routing import Routing
from lakeward.subtask.exchange.split_output import SplitOutput
from lakeward.subtask.fan_out.dividing import RowDivider
from lakeward.subtask.fan_out.files import PartitionFiles
from lakeward.subtask.fan_out.writer import ExchangeFanOut, FanOutLimits
from lakeward.subtask.row_errors import naming_exchanged_rows
from lakeward.subtask.work import newest_us
from lakeward.subtask.writers import partition_writers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from lakeward.hooks.plugins import PartitioningLakePlugin
    from lakeward.machines.exchange.messages import AlignmentCommand, AlignmentEvent
    from lakeward.machines.recovery.messages import RecoveryCommand
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.events import Deploy, DeployExchange
    from lakeward.model.exchange import KeptRows
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.tables import TableSpec
    from lakeward.subtask.checkpointing import Checkpointing, MakeExchangePart
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.parts import SubtaskParts

_US_PER_MS = 1000
MARKER_MISSING = "marker missing"
"""The reason of a checkpoint that a recovery had no border for: counted, and never to be seen."""
_CLOSE_S = 5.0
"""Seconds that the end of a task waits for the store, and for a read of it."""


class ExchangeWork:
    """The exchange of one subtask attempt."""

    def __init__(self, place: SubtaskPlace, parts: SubtaskParts, mailbox: Mailbox) -> None:
        """Listen for the other subtasks.

        Raises:
            StorageError: no port can be opened.
        """
        job = place.job
        self._place = place
        self._parts = parts
        self._mailbox = mailbox
        key = ExchangeKey(job.round_name, job.job_attempt, place.subtask, job.secret, job.trusted)
        self._exchange = parts.exchange.open(key, job.exchange_host, MailboxReceiver(mailbox))
        self._connected: set[int] = set()
        self._checkpointing: Checkpointing | None = None
        self._deployed: _Deployed | None = None
        self._reading: RowsReading | None = None
        self._recovery: RowsRecovery | None = None
        self._kept = 0
        """Bytes of the spill that checkpoints hold by reference."""
        self._markers_missing = 0
        self._restored = False
        self._running = False
        self._writing = False
        """`WriteNext` is in the mailbox."""
        self._part: CollectedPart | None = None
        self._storing: list[CollectedPart] = []
        """Parts that were given to the worker and whose checkpoints may still complete."""
        self._all_received = False
        self._writer_finished = False
        self._full_since: float | None = None
        self._waited_s = 0.0
        """Seconds in which nothing was read because channels were full, without the present wait."""
        self._store_worker = parts.executor.worker(name="store-checkpoint")

    @property
    def address(self) -> str:
        """Where other subtasks reach this one."""
        return self._exchange.address

    @property
    def is_ready(self) -> bool:
        """Whether all channels are open and all restored rows are written: splits may be read, checkpoints taken."""
        return self._running

    @property
    def is_restoring(self) -> bool:
        """Whether rows of a checkpoint are still read back or written."""
        recovers = self._recovery is not None and not self._recovery.done
        return self._deployed is not None and (not self._restored or recovers)

    @property
    def has_written(self) -> bool:
        """Whether all files are closed; what was sent from here may still be on its way."""
        return self._writer_finished

    @property
    def is_done(self) -> bool:
        """Whether all files are closed, and all consumers have written what they got from here."""
        return self._writer_finished and self._deployed is not None and self._deployed.outputs.written

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be read for now."""
        return self._deployed is not None and self._deployed.outputs.full

    @property
    def due(self) -> float | None:
        """When `check_time` has to be called, on the subtask's clock; None while nothing depends on the time."""
        return None if self._deployed is None else self._deployed.inputs.deadline

    @property
    def figures(self) -> ExchangeFigures:
        """What it has moved."""
        deployed, recovery = self._deployed, self._recovery
        if deployed is None:
            return ExchangeFigures()
        since = self._full_since
        return ExchangeFigures(
            recovery="" if recovery is None else recovery.phase.value,
            recovered_bytes=0 if recovery is None else recovery.written_bytes,
            recovery_bytes=0 if recovery is None else recovery.total_bytes,
            spill_bytes=0 if recovery is None else recovery.spill_bytes,
            kept_spill_bytes=self._kept,
            markers_missing=self._markers_missing,
            credit_wait_s=self._waited_s + (self._parts.clock.now() - since if since is not None else 0.0),
            sent_bytes=deployed.outputs.sent_bytes,
            received_bytes=deployed.inputs.received_bytes,
            queued_bytes=deployed.outputs.queued_bytes,
            timings_s=deployed.writer.timings_s,
        )

    # --- its life -------------------------------------------------------------------------------------------

    def begin(self, deploy: Deploy, table: TableSpec, checkpointing: Checkpointing) -> None:
        """Connect to all subtasks, and start to read back what was restored; `deploy` has an exchange."""
        exchange = deploy.exchange
        if exchange is None:
            message = "a subtask with an exchange was deployed without one"
            raise LakewardError(message)
        self._checkpointing = checkpointing
        lake = cast("PartitioningLakePlugin", self._parts.lake(deploy.lake))
        senders = [self._exchange.connect(number, address) for number, address in enumerate(exchange.addresses)]
        self._deployed = _Deployed(self._place.subtask, self._parts, deploy, exchange, table, lake)
        self._deployed.inputs = Inputs(
            self._deployed.subtasks,
            self._parts.clock,
            self._execute,
            aligned_timeout_s=exchange.aligned_timeout_s,
            unaligned=exchange.unaligned,
        )
        restored = any(state.segments() for state in exchange.restore)
        # All subtasks were deployed with the same: who has to wait for credit is given it.
        granted = not restored or exchange.recovery is None
        self._deployed.outputs = Outputs(senders, self._deployed.routing, self._parts.exchange_limits, granted=granted)
        open_store = partial(self._parts.checkpoints, deploy.checkpoint_root)
        if restored and exchange.recovery is not None:
            place = (self._place.subtask, self._deployed.subtasks)
            source = RestoredSource(exchange.restore, *place, open_store, self._deployed.make_routing)
            self._recovery = RowsRecovery(source, exchange.recovery, self._parts, self._mailbox, self._execute_recovery)
        elif restored:
            self._reading = RowsReading(exchange.restore, open_store, self._parts.executor, self._mailbox)
        else:
            self._restored = True
        self._look_ready()

    def output(self, bucket: int) -> SplitOutput:
        """Return what a split of a bucket is written to."""
        return SplitOutput(self._there.outputs, bucket)

    def flush(self) -> None:
        """Send what is gathered: the reader has nothing to do."""
        if self._running and not self._there.outputs.ended:
            self._there.outputs.flush()

    def end_output(self) -> None:
        """Say to all consumers that nothing more comes."""
        if not self._there.outputs.ended:
            self._there.outputs.end()

    def take(self, item: ExchangeItem) -> None:
        """Handle an item of the mailbox.

        Raises:
            ExchangeLostError: a channel is gone.
            RowError: a row does not fit the lake table.
        """
        match item:
            case ChannelLost():
                if not self.is_done:
                    raise ExchangeLostError(item.reason)
            case ProducerConnected():
                self._connected.add(item.producer)
                self._look_ready()
            case RowsRestored():
                self._take_restored(item)
            case SpillSealed() | PieceRestored():
                self._take_spilled(item)
            case RecordsReceived():
                self._there.inputs.receive(item.producer, item.sequence, item.records)
            case MarkReceived():
                self._there.inputs.mark(item.producer, item.mark)
            case CreditReceived():
                self._there.outputs.credit(item.consumer, item.end)
            case WriteNext():
                self._writing = False
                self._write_next()
        self._go_on()

    def close(self) -> None:
        """Close all channels, and wait for the store; calling it twice is harmless."""
        if self._reading is not None:
            self._reading.stop(_CLOSE_S)
        if self._recovery is not None:
            self._recovery.close(_CLOSE_S)
        self._store_worker.stop(_CLOSE_S)
        self._exchange.close()

    def abort(self) -> None:
        """Delete what was written and no checkpoint refers to."""
        if self._deployed is not None and not self._writer_finished:
            self._deployed.writer.abort()

    # --- checkpoints ----------------------------------------------------------------------------------------

    def trigger(self, order: MakeExchangePart, *, progress: Callable[[], Iterable[SplitProgress]]) -> None:
        """Take this subtask's part of a checkpoint: its readers now, its writer once the channels are aligned.

        `progress` returns the positions of all splits of this subtask.
        """
        checkpoint, close_files = order.checkpoint, order.close_files
        checkpointing = self._checkpointing
        if checkpointing is None:
            return
        if not self._running or self._writer_finished:
            if self._recovery is not None:
                self._recovery.post(CheckpointRequested(checkpoint))
            checkpointing.decline(checkpoint, NOT_READY)
            return
        deployed = self._there
        if not deployed.inputs.may_start(checkpoint):
            checkpointing.decline(checkpoint, "a newer checkpoint has begun")
            return
        self._end_parts(checkpoint - 1)
        self._drop_part()
        self._part = CollectedPart(checkpoint, close_files, tuple(progress()), checkpointing.blocked())
        age_s = max(0.0, self._parts.clock.now() - order.since)
        deployed.outputs.barrier(checkpoint, age_s=age_s)
        at_once = self._recovery is not None and not self._recovery.done
        deployed.inputs.trigger(checkpoint, age_s=age_s, close_files=close_files, at_once=at_once)
        checkpointing.open(checkpoint)
        self._go_on()

    def end_checkpoint(self, checkpoint: int) -> None:
        """Note that a checkpoint is complete or was aborted."""
        deployed = self._deployed
        if deployed is None:
            return
        if self._part is not None and self._part.checkpoint <= checkpoint:
            self._drop_part()
        self._end_parts(checkpoint)
        if self._recovery is not None:
            self._recovery.post(SnapshotAborted(checkpoint))
        deployed.outputs.abort(checkpoint)
        deployed.inputs.abort(checkpoint)
        self._go_on()

    def check_time(self) -> None:
        """Let a barrier overtake what it has waited for long enough; count the time for which channels are full."""
        self._count_wait()
        due = self.due
        if due is not None and self._parts.clock.now() >= due:
            self._there.inputs.check_time()
            self._go_on()

    def _count_wait(self) -> None:
        now = self._parts.clock.now()
        if self.is_full:
            self._full_since = now if self._full_since is None else self._full_since
        elif self._full_since is not None:
            self._waited_s += now - self._full_since
            self._full_since = None

    def _execute(self, command: AlignmentCommand, _: AlignmentEvent) -> None:
        match command:
            case TakeWriterSnapshot():
                self._snapshot(command)
            case PersistBatches() if self._part is not None and self._part.checkpoint == command.checkpoint:
                self._part.keep(command.channel, self._there.inputs.kept(command))
            case InputComplete() if self._part is not None and self._part.checkpoint == command.checkpoint:
                part, self._part = self._part, None
                self._store(part)
            case CancelCheckpoint():
                self._cancel(command)
            case ChannelsEnded():
                self._all_received = True
            case _:  # `Inputs` counts for how long channels are blocked
                pass

    def _snapshot(self, command: TakeWriterSnapshot) -> None:
        part, deployed = self._part, self._there
        if part is None or part.checkpoint != command.checkpoint:
            return
        part.state, part.open_rows = deployed.snapshot(close_files=part.close_files, unaligned=command.unaligned)
        if command.unaligned:
            part.queued = deployed.outputs.overtake(command.checkpoint)
        recovery = self._recovery
        if recovery is not None and not recovery.done:
            part.recovered, part.restored = recovery.keep(command.checkpoint), recovery.channels
            if part.recovered is not None:
                self._kept += part.recovered.spill_bytes
            elif self._part is part:
                self._fail_marker(command.checkpoint)

    def _cancel(self, command: CancelCheckpoint) -> None:
        if self._part is not None and self._part.checkpoint == command.checkpoint:
            self._drop_part()
        if command.decline and self._checkpointing is not None:
            self._there.outputs.cancel(command.checkpoint)
            self._checkpointing.decline(command.checkpoint, command.reason)

    def _drop_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.end()

    def _store(self, part: CollectedPart) -> None:
        checkpointing = self._checkpointing
        if checkpointing is not None:
            self._storing.append(part)
            self._store_worker.submit(partial(checkpointing.store_part, part))

    def _end_parts(self, newest: int) -> None:
        """End the parts of checkpoints up to this one that are stored, or wait to be."""
        for part in self._storing:
            if part.checkpoint <= newest:
                part.end()
        self._storing = [part for part in self._storing if not part.ended]

    # --- rows ---------------------------------------------------------------------------------------------

    @property
    def _there(self) -> _Deployed:
        if self._deployed is None:
            message = "a subtask was to exchange rows before it was deployed"
            raise LakewardError(message)
        return self._deployed

    def _take_restored(self, item: RowsRestored) -> None:
        if item.error is not None:
            raise item.error
        if item.records is None:
            self._restored = True
            self._look_ready()
            return
        self._there.write_restored(item.records, item.kept, counted=item.counted)
        if self._reading is not None:
            self._reading.next()

    def _take_spilled(self, item: SpillSealed | PieceRestored) -> None:
        if self._recovery is None:
            return
        if isinstance(item, SpillSealed):
            self._recovery.sealed(item)
        else:
            self._recovery.restored(item)

    def _look_ready(self) -> None:
        deployed = self._deployed
        if self._running or deployed is None or len(self._connected) < deployed.subtasks:
            return
        if self._recovery is not None and not self._recovery.connected:
            self._recovery.post(ProducersConnected())
        elif self._restored:
            self._run()

    def _run(self) -> None:
        self._running = True
        if self._checkpointing is not None:
            self._checkpointing.send(Connected())

    def _write_next(self) -> None:
        deployed, recovery = self._there, self._recovery
        if recovery is not None and not recovery.done:
            recovery.write_next(deployed.write_recovered)
            return
        found = deployed.inputs.take()
        if found is None:
            return
        producer, end, records = found
        deployed.write(records)
        deployed.inputs.consumed(producer)
        self._exchange.give_credit(producer, end)

    def _go_on(self) -> None:
        """Have the next batch written, or finish."""
        if not self._running or self._writer_finished:
            return
        deployed, recovery = self._there, self._recovery
        recovered = recovery is None or recovery.done
        can_take = deployed.inputs.can_take if recovery is None or recovery.done else recovery.can_take
        if not self._writing and can_take:
            self._writing = True
            self._mailbox.put(WriteNext())
        ended = self._all_received and deployed.outputs.ended
        if recovered and ended and self._checkpointing is not None:
            self._writer_finished = True
            state, _ = deployed.snapshot(close_files=True, unaligned=False, last=True)
            self._checkpointing.send(WriterFinished(state=state, max_timestamp_ms=deployed.max_timestamp_ms))

    def _execute_recovery(self, command: RecoveryCommand) -> None:
        """Execute what a recovery's machine commands, as far as it concerns others."""
        match command:
            case AcceptCheckpoints():
                self._restored = True
                self._look_ready()
            case FailMarkerMissing():
                self._fail_marker(command.checkpoint)
            case FinishRecovery():
                for producer in range(self._there.subtasks):
                    self._exchange.give_credit(producer, 0)
            case _:  # `WakeWriter`: `_go_on` follows each item; `RefuseCheckpoint`: `trigger` declines
                pass

    def _fail_marker(self, checkpoint: int) -> None:
        self._markers_missing += 1
        self._cancel(CancelCheckpoint(checkpoint, MARKER_MISSING, decline=True))
        self._there.inputs.abort(checkpoint)


class _Deployed:
    """What there is from the deployment on: the writer, its counts, and the channels."""

    inputs: Inputs
    outputs: Outputs

    def __init__(  # noqa: PLR0917 - what is worked on, then the parts to do it with
        self,
        subtask: int,
        parts: SubtaskParts,
        deploy: Deploy,
        exchange: DeployExchange,
        table: TableSpec,
        lake: PartitioningLakePlugin,
    ) -> None:
        self.subtask, self.subtasks = subtask, len(exchange.addresses)
        self._table = table
        self._open_rows_bytes = exchange.open_rows_bytes
        self._make_partitioner = partial(lake.partitioner, deploy.lake_task, table)
        partitioner = self._make_partitioner()
        self.routing = Routing(partitioner, self.subtasks, by_bucket=not table.has_primary_key)
        self._share: Share = share_of(exchange.restore, subtask, self.subtasks, self.routing, partitioner)
        self._rows = self._share.rows
        self.max_timestamp_ms = -1
        writers = partition_writers(lake, deploy, table)
        self.writer = ExchangeFanOut(
            RowDivider(partitioner, table),
            PartitionFiles(writers, f"x{subtask}", partitioner, self._share.files),
            FanOutLimits(exchange.open_files, exchange.open_rows_bytes, deploy.write_memory_bytes),
            parts.clock.now,
        )
        self._open_files = OpenFiles()

    def write(self, records: pa.RecordBatch) -> None:
        """Write rows that came through a channel."""
        self._write(records)
        self._rows += records.num_rows

    def make_routing(self) -> Routing:
        """Make a routing that another thread may use."""
        return Routing(self._make_partitioner(), self.subtasks, by_bucket=self.routing.by_bucket)

    def write_recovered(self, records: pa.RecordBatch, counted: bool) -> None:
        """Write rows of a checkpoint that all belong here. Arguments as of `write_restored`."""
        self._write(records)
        self._rows += 0 if counted else records.num_rows

    def write_restored(self, records: pa.RecordBatch, kept: KeptRows | None, *, counted: bool) -> None:
        """Write those rows of a checkpoint that belong here; `records` are of any key group.

        `kept` is as of `RowsRestored`. If `counted`, a writer had taken them, so they are in its count of rows.
        """
        mine = self.routing.only(records, self.subtask, kept)
        if mine.num_rows:
            self._write(mine)
            self._rows += 0 if counted else mine.num_rows

    def _write(self, records: pa.RecordBatch) -> None:
        with naming_exchanged_rows(self._table, records):
            self.writer.write(SourceBatch(records, next_offset=0))
            newest = newest_us(records)
        if newest is not None:
            self.max_timestamp_ms = max(self.max_timestamp_ms, newest // _US_PER_MS)

    def snapshot(self, *, close_files: bool, unaligned: bool, last: bool = False) -> tuple[ExchangeState, dict]:  # type: ignore[type-arg]
        """Return the writer's state without its segments, and the rows that are in open files."""
        with naming_exchanged_rows(self._table):
            if close_files:
                self.writer.close_open()
            while self.writer.open_bytes > self._open_rows_bytes:
                self.writer.close_largest()
            files = self.writer.close() if last else self.writer.roll()
        open_rows = {} if last else self._open_files.take(self.writer)
        blocked_s, self.inputs.blocked_s = self.inputs.blocked_s, 0.0
        state = ExchangeState(
            subtask=self.subtask,
            subtasks=self.subtasks,
            files=files,
            rows=self._rows,
            left_out=self._share.left_out + self.writer.flushed_left_out,
            unaligned=unaligned,
            blocked_s=blocked_s,
        )
        return state, open_rows
