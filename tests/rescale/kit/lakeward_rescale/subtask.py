"""The process of one subtask: the product's own, with a slow lake and small windows, so that rows wait in channels."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.clock import SystemClock
from lakeward.model.events import AssignSplits, Deploy, NoMoreSplits
from lakeward.observe.logs import setup_logs
from lakeward.ports import SourceBatch
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.exchange.recovering import RowsRecovery
from lakeward.subtask.fan_out import writer
from lakeward.subtask.ports import OutputLimits
from lakeward.subtask.run import real_ports
from lakeward.subtask.subtask import Subtask
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_rescale.mistakes import MISTAKES
from lakeward_rescale.notes import Notes, Orders
from lakeward_source_embedded.plugin import EmbeddedSourcePlugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakeward.model.events import Envelope
    from lakeward.model.exchange import ExchangeState, Segment
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Address, Connection, LakeWriter, Receiver, SourceReader, Transport
    from lakeward.subtask.exchange.spilled_rows import RecoveredRest
    from lakeward_rescale.scenario import Scenario

_READ_ROWS = 50
_LOOK_S = 0.05


def run(place: SubtaskPlace, directory: Path, scenario: Scenario) -> str:
    """Do the work of one task; see `lakeward.subtask.run.run_subtask`."""
    setup_logs("text", "info")
    writer.GATHERED_BYTES = scenario.divided_bytes
    MISTAKES[scenario.mistake]()
    notes = Notes(directory)
    parts = real_ports(place)
    slow = SlowLakePlugin(directory, scenario.slow_s * place.job.subtasks / scenario.rows)
    who = {"table": place.job.pool.rpartition(".")[2], "launch": place.job.job_attempt, "subtask": place.subtask}
    _note_kept(notes, who)
    parts = replace(
        parts,
        transport=NotingTransport(parts.transport, notes, who),
        lake=lambda _: slow,
        source=lambda _: PiecewiseSourcePlugin(),
        checkpoints=lambda root: NotingFiles(root, notes, who),
        exchange_limits=OutputLimits(
            window_bytes=scenario.window_bytes,
            channel_bytes=scenario.channel_bytes,
            subtask_bytes=3 * scenario.channel_bytes,
            gathered_rows=scenario.gathered_rows,
        ),
    )
    return Subtask(place, parts).run()


# --- the lake ---------------------------------------------------------------------------------------------------


class SlowLakePlugin(IcebergLakePlugin):
    """Its writers take their time for each row, until they are told not to."""

    def __init__(self, directory: Path, row_s: float) -> None:
        """Be slow.

        Args:
            directory: of the run.
            row_s: seconds that a row takes.
        """
        self._directory = directory
        self._row_s = row_s
        self._look_at = 0.0

    def partition_writer(  # noqa: PLR0917 - as the Protocol
        self,
        task: bytes,
        table: TableSpec,
        partition: bytes,
        name: str,
        attempt: int,
        before: tuple[LakeFile, ...],
        memory_bytes: int,
    ) -> LakeWriter:
        """See Protocol."""
        inner = super().partition_writer(task, table, partition, name, attempt, before, memory_bytes)
        return _SlowWriter(inner, self)

    def pause(self, rows: int) -> None:
        """Take the time of some rows."""
        now = time.monotonic()
        if self._row_s and now >= self._look_at:
            self._look_at = now + _LOOK_S
            if not Orders.read(self._directory).slow:
                self._row_s = 0.0
        if self._row_s:
            time.sleep(rows * self._row_s)


class _SlowWriter:
    def __init__(self, inner: LakeWriter, lake: SlowLakePlugin) -> None:
        self._inner = inner
        self._lake = lake

    def write(self, batch: SourceBatch) -> None:
        self._lake.pause(batch.records.num_rows)
        self._inner.write(batch)

    def roll(self) -> tuple[LakeFile, ...]:
        return self._inner.roll()

    def close(self) -> tuple[LakeFile, ...]:
        return self._inner.close()

    def abort(self) -> None:
        self._inner.abort()

    @property
    def all_rows_flushed(self) -> bool:
        return self._inner.all_rows_flushed

    @property
    def left_out(self) -> int:
        return self._inner.left_out

    @property
    def timings_s(self) -> dict[str, float]:
        return self._inner.timings_s


# --- the source -------------------------------------------------------------------------------------------------


class PiecewiseSourcePlugin(EmbeddedSourcePlugin):
    """Its readers give a few rows at a time."""

    def reader(self, task: bytes, table: TableSpec) -> SourceReader:
        """See Protocol."""
        return _Piecewise(super().reader(task, table))


class _Piecewise:
    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        for batch in self._reader.read_log(split):
            records = batch.records
            offsets = records.column("__offset")
            for start in range(0, max(1, records.num_rows), _READ_ROWS):
                piece = records.slice(start, _READ_ROWS)
                last = start + _READ_ROWS >= records.num_rows
                yield SourceBatch(piece, batch.next_offset if last else offsets[start + _READ_ROWS].as_py())

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        for batch in self._reader.read_snapshot(split, skip_rows):
            for start in range(0, max(1, batch.records.num_rows), _READ_ROWS):
                yield SourceBatch(batch.records.slice(start, _READ_ROWS), batch.next_offset)

    def close(self) -> None:
        self._reader.close()


# --- what is told to the run ------------------------------------------------------------------------------------


def _note_kept(notes: Notes, who: dict[str, object]) -> None:
    """Say how much of the spill the part of a checkpoint holds that is taken in a recovery."""
    keep = RowsRecovery.rest

    def noting(self: RowsRecovery, checkpoint: int) -> RecoveredRest | None:
        kept = keep(self, checkpoint)
        notes.note("kept", **who, number=checkpoint, spill_bytes=0 if kept is None else kept.spill_bytes)
        return kept

    setattr(RowsRecovery, "rest", noting)  # noqa: B010 - in this process alone


class NotingFiles(CheckpointFiles):
    """Says when a subtask begins to read rows back."""

    def __init__(self, root: str, notes: Notes, who: dict[str, object]) -> None:
        """Keep whom to tell."""
        super().__init__(SmallFiles(root), SystemClock())
        self._notes = notes
        self._who = who
        self._reading = False

    def read_segment(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Read rows back."""
        if not self._reading:
            self._reading = True
            self._notes.note("restoring", **self._who)
        return super().read_segment(segment)


class NotingTransport:
    """Says with what a subtask is deployed, and when its launch begins to assign splits."""

    def __init__(self, inner: Transport, notes: Notes, who: dict[str, object]) -> None:
        """Keep whom to tell."""
        self._inner = inner
        self._notes = notes
        self._who = who

    async def listen(self, *_: Any) -> Any:  # noqa: ANN401 - the coordinator's alone
        """Refuse: subtasks only connect."""
        raise NotImplementedError

    def connect(self, address: Address, first: Envelope, receiver: Receiver, *, after_s: float) -> Connection:
        """See Protocol."""
        return self._inner.connect(address, first, _NotingReceiver(receiver, self), after_s=after_s)

    def heard(self, envelope: Envelope) -> None:
        """Take note of what was received."""
        event = envelope.event
        if isinstance(event, Deploy) and event.exchange is not None:
            self._notes.note("deployed", **self._who, **held(event.exchange.restore))
        elif isinstance(event, AssignSplits | NoMoreSplits):
            self._notes.note("connected", **self._who)


class _NotingReceiver:
    def __init__(self, inner: Receiver, transport: NotingTransport) -> None:
        self._inner = inner
        self._transport = transport

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        self._transport.heard(envelope)
        self._inner.on_message(connection, envelope)

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        self._inner.on_disconnect(connection, error)


def held(states: list[ExchangeState]) -> dict[str, object]:
    """Return what a checkpoint's states hold, in figures."""
    channels = [channel for state in states for channel in state.channels]
    return {
        "of": states[0].subtasks if states else 0,
        "channel_bytes": sum(channel.segment.held_bytes for channel in channels),
        "channel_rows": sum(channel.segment.held_rows for channel in channels),
        "sides": sorted({channel.side.value for channel in channels}),
        "open_rows": sum(one.held_rows for state in states for rows in state.open_rows for one in rows.segments),
        "unaligned": sum(state.unaligned for state in states),
    }
