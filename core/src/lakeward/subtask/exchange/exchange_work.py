"""A subtask's part of an exchange: what it sends, what it receives and writes, and its share of each checkpoint.

Everything happens on the mailbox thread; the transport's threads and the workers only post. Where checkpoints
are taken during a recovery, restored rows are written while it runs already, ahead of those that channels bring.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import structs

from lakeward.errors import ExchangeLostError, LakewardError
from lakeward.machines.exchange.messages import (
    CancelCheckpoint,
    InputComplete,
    PersistBatches,
    TakeWriterSnapshot,
)
from lakeward.machines.recovery import (
    AcceptCheckpoints,
    FailMarkerMissing,
    FinishRecovery,
)
from lakeward.model.batches import SourceBatch
from lakeward.model.events import NOT_READY, Connected, WriterFinished
from lakeward.model.exchange import ExchangeFigures, ExchangeState
from lakeward.ports import ExchangeKey
from lakeward.subtask.exchange.checkpoint_part import ExchangePart
from lakeward.subtask.exchange.draining import RestoredSource
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
from lakeward.subtask.exchange.phase import ExchangePhase
from lakeward.subtask.exchange.recovering import RowsRecovery
from lakeward.subtask.exchange.restoring import Restoration, RowsReading, Share, share_of
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
    from lakeward.machines.recovery import RecoveryCommand
    from lakeward.model.checkpoints import SplitProgress
    from lakeward.model.events import Deploy, DeployExchange
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.tables import TableSpec
    from lakeward.ports import CheckpointStore, LakeWriter
    from lakeward.subtask.checkpointing import Checkpointing, MakePart
    from lakeward.subtask.mailbox import Mailbox
    from lakeward.subtask.ports import SubtaskPorts

_US_PER_MS = 1000
MARKER_MISSING = "marker missing"
"""The reason of a checkpoint that a recovery had no marker for: counted, and never to be seen."""
_CLOSE_S = 5.0
"""Seconds that the end of a task waits for the store, and for a read of it."""


class ExchangeWork:
    """The exchange of one subtask attempt."""

    def __init__(self, place: SubtaskPlace, ports: SubtaskPorts, mailbox: Mailbox) -> None:
        """Listen for the other subtasks.

        Raises:
            StorageError: no port can be opened.
        """
        job = place.job
        self._subtask = place.subtask
        self._ports = ports
        self._mailbox = mailbox
        key = ExchangeKey(job.round_name, job.job_attempt, place.subtask, job.secret, job.trusted)
        self._exchange = ports.exchange.open(key, job.exchange_host, MailboxReceiver(mailbox))
        self._connected: set[int] = set()
        self._phase = ExchangePhase.CONNECTING
        self._checkpointing: Checkpointing | None = None
        self._deployed: _Deployed | None = None
        self._restored = Restoration()
        self._markers_missing = 0
        self._write_posted = False
        """`WriteNext` is in the mailbox."""
        self._part: ExchangePart | None = None
        """Of the checkpoint whose channels are being aligned."""

    @property
    def address(self) -> str:
        """Where other subtasks reach this one."""
        return self._exchange.address

    @property
    def phase(self) -> ExchangePhase:
        """How far it is."""
        if self._phase is ExchangePhase.WRITTEN and self._begun.outputs.written:
            return ExchangePhase.DONE
        return self._phase

    @property
    def is_restoring(self) -> bool:
        """Whether rows of a checkpoint are still read back or written."""
        return not self._restored.done

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
        deployed = self._deployed
        if deployed is None:
            return ExchangeFigures()
        moved = ExchangeFigures(
            markers_missing=self._markers_missing,
            credit_wait_s=deployed.outputs.waited_s(self._ports.clock.now()),
            sent_bytes=deployed.outputs.sent_bytes,
            received_bytes=deployed.inputs.received_bytes,
            queued_bytes=deployed.outputs.queued_bytes,
            timings_s=deployed.writer.timings_s,
        )
        return self._restored.figures(moved)

    # --- its life -------------------------------------------------------------------------------------------

    def begin(self, deploy: Deploy, table: TableSpec, checkpointing: Checkpointing) -> None:
        """Connect to all subtasks, and start to read back what was restored; `deploy` has an exchange."""
        exchange = deploy.exchange
        if exchange is None:
            message = "a subtask with an exchange was deployed without one"
            raise LakewardError(message)
        self._checkpointing = checkpointing
        lake = cast("PartitioningLakePlugin", self._ports.lake(deploy.lake))
        senders = [self._exchange.connect(number, address) for number, address in enumerate(exchange.addresses)]
        deployed = self._deployed = _Deployed(self._subtask, self._ports, deploy, exchange, table, lake)
        deployed.inputs = Inputs(
            deployed.subtasks,
            self._ports.clock,
            self._execute,
            aligned_timeout_s=exchange.aligned_timeout_s,
            unaligned=exchange.unaligned,
        )
        restores = any(state.segments() for state in exchange.restore)
        # All subtasks were deployed with the same: who has to wait for credit is given it.
        granted = not restores or exchange.recovery is None
        deployed.outputs = Outputs(senders, deployed.routing, self._ports.exchange_limits, granted=granted)
        if restores:
            open_store = partial(self._ports.checkpoints, deploy.checkpoint_root)
            self._restored = self._restore(deployed, exchange, open_store)
        self._run_if_ready()

    def _restore(
        self, deployed: _Deployed, exchange: DeployExchange, open_store: Callable[[], CheckpointStore]
    ) -> Restoration:
        ports, mailbox = self._ports, self._mailbox
        if exchange.recovery is None:
            return RowsReading(exchange.restore, open_store, ports, mailbox, deployed.write_restored)
        place = (self._subtask, deployed.subtasks)
        source = RestoredSource(exchange.restore, *place, open_store, deployed.make_routing)
        write, execute = deployed.write_recovered, self._execute_recovery
        return RowsRecovery(source, exchange.recovery, ports, mailbox, write, execute)

    def begin_split(
        self, _deploy: Deploy, _table: TableSpec, progress: SplitProgress
    ) -> tuple[SplitProgress, LakeWriter]:
        """Return the progress that a split begins with, and what it is written to: the channels."""
        # The writers count what they leave out.
        return structs.replace(progress, left_out=None), SplitOutput(self._begun.outputs, progress.split.bucket.bucket)

    def flush(self) -> None:
        """Send what is gathered: the reader has nothing to do."""
        if self._phase is not ExchangePhase.CONNECTING and not self._begun.outputs.ended:
            self._begun.outputs.flush()

    def end_output(self) -> None:
        """Say to all consumers that nothing more comes."""
        if not self._begun.outputs.ended:
            self._begun.outputs.end()

    def take(self, item: ExchangeItem) -> None:
        """Handle an item of the mailbox.

        Raises:
            ExchangeLostError: a channel is gone.
            RowError: a row does not fit the lake table.
        """
        match item:
            case ChannelLost():
                if self.phase is not ExchangePhase.DONE:
                    raise ExchangeLostError(item.reason)
            case ProducerConnected():
                self._connected.add(item.producer)
            case RowsRestored() | SpillSealed() | PieceRestored():
                self._restored.take(item)
            case RecordsReceived():
                self._begun.inputs.receive(item.producer, item.sequence, item.records)
            case MarkReceived():
                self._begun.inputs.mark(item.producer, item.mark)
            case CreditReceived():
                self._begun.outputs.credit(item.consumer, item.end)
            case WriteNext():
                self._write_posted = False
                self._write_next()
        self._run_if_ready()
        self._write_on()

    def close(self) -> None:
        """Close all channels, and wait for the store; calling it twice is harmless."""
        self._restored.close(_CLOSE_S)
        self._exchange.close()

    def abort(self) -> None:
        """Delete what was written and no checkpoint refers to."""
        if self._deployed is not None and self._phase is not ExchangePhase.WRITTEN:
            self._deployed.writer.abort()

    # --- checkpoints ----------------------------------------------------------------------------------------

    def trigger(
        self, order: MakePart, checkpointing: Checkpointing, *, progress: Callable[[], Iterable[SplitProgress]]
    ) -> None:
        """Take this subtask's part of a checkpoint: its readers now, its writer once the channels are aligned.

        `progress` returns the positions of all splits of this subtask.
        """
        checkpoint, close_files = order.checkpoint, order.close_files
        if self._phase is not ExchangePhase.RUNNING:
            self._restored.refuse(checkpoint)
            checkpointing.decline(checkpoint, NOT_READY)
            return
        deployed = self._begun
        if not deployed.inputs.may_start(checkpoint):
            checkpointing.decline(checkpoint, "a newer checkpoint has begun")
            return
        checkpointing.store.end(checkpoint - 1)
        self._drop_part()
        self._part = ExchangePart(checkpoint, tuple(progress()), checkpointing.blocked(), close_files=close_files)
        age_s = max(0.0, self._ports.clock.now() - order.since)
        deployed.outputs.barrier(checkpoint, age_s=age_s)
        at_once = not self._restored.done
        deployed.inputs.trigger(checkpoint, age_s=age_s, close_files=close_files, at_once=at_once)
        checkpointing.open(checkpoint)
        self._write_on()

    def end_checkpoint(self, checkpoint: int) -> None:
        """Note that a checkpoint is complete or was aborted."""
        if self._part is not None and self._part.checkpoint <= checkpoint:
            self._drop_part()
        self._restored.end(checkpoint)
        self._begun.outputs.abort(checkpoint)
        self._begun.inputs.abort(checkpoint)
        self._write_on()

    def check_time(self) -> None:
        """Let a barrier overtake what it has waited for long enough; count the time for which channels are full."""
        now, due = self._ports.clock.now(), self.due
        self._begun.outputs.count_wait(now)
        if due is not None and now >= due:
            self._begun.inputs.check_time()
            self._write_on()

    def _execute(self, command: AlignmentCommand, _: AlignmentEvent) -> None:
        match command:
            case TakeWriterSnapshot():
                self._snapshot(command)
            case PersistBatches() if self._part is not None and self._part.checkpoint == command.checkpoint:
                self._part.keep(command.channel, self._begun.inputs.kept(command))
            case InputComplete() if self._part is not None and self._part.checkpoint == command.checkpoint:
                part, self._part = self._part, None
                if self._checkpointing is not None:
                    self._checkpointing.store.put(part)
            case CancelCheckpoint():
                self._cancel(command)
            case _:  # `Inputs` knows how long channels are blocked, and whether they have ended
                pass

    def _snapshot(self, command: TakeWriterSnapshot) -> None:
        part, deployed = self._part, self._begun
        if part is None or part.checkpoint != command.checkpoint:
            return
        part.state, part.open_rows = deployed.snapshot(close_files=part.close_files, unaligned=command.unaligned)
        if command.unaligned:
            part.queued = deployed.outputs.overtake(command.checkpoint)
        if not self._restored.keep(part) and self._part is part:
            self._fail_marker(command.checkpoint)

    def _cancel(self, command: CancelCheckpoint) -> None:
        if self._part is not None and self._part.checkpoint == command.checkpoint:
            self._drop_part()
        if command.decline and self._checkpointing is not None:
            self._begun.outputs.cancel(command.checkpoint)
            self._checkpointing.decline(command.checkpoint, command.reason)

    def _drop_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.end()

    # --- rows ---------------------------------------------------------------------------------------------

    @property
    def _begun(self) -> _Deployed:
        if self._deployed is None:
            message = "a subtask was to exchange rows before it was deployed"
            raise LakewardError(message)
        return self._deployed

    def _run_if_ready(self) -> None:
        if self._deployed is None or len(self._connected) < self._deployed.subtasks:
            return
        self._restored.producers_connected()
        connecting = self._phase is ExchangePhase.CONNECTING
        if connecting and self._restored.ready and self._checkpointing is not None:
            self._phase = ExchangePhase.RUNNING
            self._checkpointing.send(Connected())

    def _write_next(self) -> None:
        if not self._restored.done:
            self._restored.write_next()
            return
        found = self._begun.inputs.take()
        if found is None:
            return
        producer, end, records = found
        self._begun.write(records)
        self._begun.inputs.consumed(producer)
        self._exchange.give_credit(producer, end)

    def _write_on(self) -> None:
        """Have the next batch written, or finish."""
        if self._phase is not ExchangePhase.RUNNING:
            return
        deployed, restored = self._begun, self._restored
        can_take = deployed.inputs.can_take if restored.done else restored.can_take
        if not self._write_posted and can_take:
            self._write_posted = True
            self._mailbox.put(WriteNext())
        ended = deployed.inputs.ended and deployed.outputs.ended
        if restored.done and ended and self._checkpointing is not None:
            self._phase = ExchangePhase.WRITTEN
            state, _ = deployed.snapshot(close_files=True, unaligned=False, last=True)
            self._checkpointing.send(WriterFinished(state=state, max_timestamp_ms=deployed.max_timestamp_ms))

    def _execute_recovery(self, command: RecoveryCommand) -> None:
        """Execute what a recovery's machine commands, as far as it concerns the channels."""
        match command:
            case AcceptCheckpoints():
                self._run_if_ready()
            case FailMarkerMissing():
                self._fail_marker(command.checkpoint)
            case FinishRecovery():
                for producer in range(self._begun.subtasks):
                    self._exchange.give_credit(producer, 0)
            case _:  # `WakeWriter`: `_write_on` follows each item; `RefuseCheckpoint`: `trigger` declines
                pass

    def _fail_marker(self, checkpoint: int) -> None:
        self._markers_missing += 1
        self._cancel(CancelCheckpoint(checkpoint, MARKER_MISSING, decline=True))
        self._begun.inputs.abort(checkpoint)


class _Deployed:
    """What there is from the deployment on: the writer, its counts, and the channels."""

    inputs: Inputs
    outputs: Outputs

    def __init__(  # noqa: PLR0917 - what is worked on, then the ports to do it with
        self,
        subtask: int,
        ports: SubtaskPorts,
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
        self.routing = Routing(partitioner, self.subtasks, by_bucket=exchange.by_bucket)
        self._share: Share = share_of(exchange.restore, subtask, self.subtasks, self.routing, partitioner)
        self._rows = self._share.rows
        self.max_timestamp_ms = -1
        writers = partition_writers(lake, deploy, table)
        self.writer = ExchangeFanOut(
            RowDivider(partitioner, table),
            PartitionFiles(writers, f"x{subtask}", partitioner, self._share.files),
            FanOutLimits(exchange.open_files, exchange.open_rows_bytes, deploy.write_memory_bytes),
            ports.clock.now,
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
        """Write rows of a checkpoint that all belong here.

        If `counted`, a writer had taken them, so they are in its count of rows.
        """
        self._write(records)
        self._rows += 0 if counted else records.num_rows

    def write_restored(self, item: RowsRestored) -> None:
        """Write those rows of a checkpoint that belong here; an item has rows of any key group."""
        mine = self.routing.only(item.records, self.subtask, item.kept)
        if mine.num_rows:
            self.write_recovered(mine, item.counted)

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
