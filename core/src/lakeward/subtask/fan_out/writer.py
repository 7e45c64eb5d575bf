"""The writers of many partitions: of one split, and of one subtask of an exchange.

The rows of a partition are held until all that is held is more than a writer's memory: then the partition with the most
goes to its writer, which makes one row group of it. So partitions share the memory as they need it, and a partition
needs an open file only once it has a row group.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from lakeward.model.batches import SourceBatch
from lakeward.model.results import sum_timings
from lakeward.subtask.row_errors import naming_exchanged_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.model.results import LakeFile
    from lakeward.ports import LakeWriter
    from lakeward.subtask.fan_out.dividing import RowDivider
    from lakeward.subtask.fan_out.files import PartitionFiles

_MEMORY_LEAST = 4 << 20
"""What the writer of one partition may have for itself, however many there are: those of keys remember them."""
GATHERED_BYTES = 16 << 20
"""Batches of a channel are divided together: they are small."""
HELD_BYTES = 32 << 20
"""Rows of one partition that are enough for a row group, however much memory is left."""
_CHUNK_BYTES = 256
"""About how many bytes a column of few rows takes beside its values."""


@dataclass(frozen=True, slots=True)
class FanOutLimits:
    """How much a fan-out may have open and in memory."""

    open_files: int
    """Partitions with an open file at the same time, at most; at least 1."""
    open_rows_bytes: int
    """See `SplitFanOut` and `ExchangeFanOut`."""
    memory_bytes: int
    """About how many bytes of rows may be held, of all partitions together, that are in no file yet."""


@dataclass(slots=True)
class OpenPartition:
    """A partition whose newest file is open, or may be: rows were taken since its writer was made, or are held."""

    generation: int
    """Unique within the fan-out, and a new one once all rows are in closed files."""
    writer: LakeWriter | None = None
    """None while all rows are held."""
    size_bytes: int = 0
    """About how many bytes of rows are in no closed file."""
    rows: int = 0
    """How many rows are in no closed file."""
    held: list[pa.RecordBatch] = field(default_factory=list)
    """Rows that the writer has not got yet, in order."""
    held_bytes: int = 0
    left_out: int = 0
    """Records that the writer had left out when all its rows were last in closed files."""
    unsaved: list[pa.RecordBatch] = field(default_factory=list)
    """Those of `rows` that no checkpoint has yet, in order, in an exchange; empty for a split."""
    unsaved_bytes: int = 0
    forgotten: bool = False
    """Rows that no checkpoint has are kept no longer: they took too much memory. The next one needs the file closed."""

    @property
    def flushed(self) -> bool:
        """Whether the writer has no open file."""
        return self.writer is None or self.writer.all_rows_flushed

    @property
    def held_rows(self) -> int:
        """How many rows the writer has not got yet."""
        return sum(rows.num_rows for rows in self.held)


class FanOutWriter:
    """What `SplitFanOut` and `ExchangeFanOut` have in common: rows are held by partition, and go to writers."""

    _gathers: ClassVar[bool]
    """Whether batches are gathered before they are divided."""

    def __init__(
        self,
        divider: RowDivider,
        files: PartitionFiles,
        limits: FanOutLimits,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Open no file yet; `now` is a clock's seconds.

        Raises:
            ValueError: `open_files` is below 1: no partition could get a file.
        """
        if limits.open_files < 1:
            message = f"open_files: expected at least 1, found {limits.open_files}"
            raise ValueError(message)
        self._divider = divider
        self._files = files
        self._limits = limits
        self._now = now
        self._gathered: list[pa.RecordBatch] = []
        """Rows that are not divided yet."""
        self._gathered_bytes = 0
        self._open: dict[bytes, OpenPartition] = {}
        self._generations = count(1)
        self._held_bytes = 0
        self._dividing_s = 0.0

    def write(self, batch: SourceBatch) -> None:
        """See `LakeWriter`; the records may be of many partitions."""
        if not batch.records.num_rows:
            return
        records = self._divider.prepare(batch.records)
        self._gathered.append(records)
        self._gathered_bytes += records.nbytes
        if not self._gathers or self._gathered_bytes >= min(GATHERED_BYTES, self._limits.memory_bytes):
            self._divide_gathered()

    def close(self) -> tuple[LakeFile, ...]:
        """See `LakeWriter`."""
        self.close_open()
        return self._files.closed()

    def close_open(self) -> None:
        """Close all open files; later rows begin new ones."""
        self._divide_gathered()
        # Those with a file first: one of the others needs a file to be closed where there are many.
        for partition in sorted(self._open, key=lambda partition: self._open[partition].writer is None):
            self._close(partition)

    def abort(self) -> None:
        """See `LakeWriter`."""
        self._gathered.clear()
        for one in self._open.values():
            one.held.clear()
            one.unsaved.clear()
        self._files.abort()
        for writer in self._present().values():
            writer.abort()

    @property
    def left_out(self) -> int:
        """See `LakeWriter`."""
        return self._files.left_out + sum(writer.left_out for writer in self._present().values())

    @property
    def timings_s(self) -> dict[str, float]:
        """See `LakeWriter`; `partition` is the time for dividing rows."""
        of_open = (writer.timings_s for writer in self._present().values())
        return sum_timings(({"partition": self._dividing_s}, self._files.timings_s, *of_open))

    @property
    def _no_open_file(self) -> bool:
        return not self._gathered and all(one.flushed and not one.held for one in self._open.values())

    def _present(self) -> dict[bytes, LakeWriter]:
        return {partition: one.writer for partition, one in self._open.items() if one.writer is not None}

    def _divide_gathered(self) -> None:
        """Hold rows for their partitions, and hand on what is too much."""
        if not self._gathered:
            return
        started = self._now()
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        for partition, rows, size_bytes in self._divider.divide(gathered):
            self._hold(partition, rows, size_bytes)
        self._dividing_s += self._now() - started
        while self._held_bytes > self._limits.memory_bytes:
            self._pass_on(max(self._open, key=lambda partition: self._open[partition].held_bytes))
        while large := [partition for partition, one in self._open.items() if one.held_bytes >= HELD_BYTES]:
            self._pass_on(large[0])

    def _hold(self, partition: bytes, rows: pa.RecordBatch, size_bytes: int) -> OpenPartition:
        one = self._open.get(partition)
        if one is None:
            one = self._open[partition] = OpenPartition(next(self._generations))
        one.rows += rows.num_rows
        one.size_bytes += size_bytes
        one.held.append(rows)
        size_bytes += _CHUNK_BYTES * rows.num_columns
        one.held_bytes += size_bytes
        self._held_bytes += size_bytes
        return one

    def _pass_on(self, partition: bytes) -> None:
        """Let the partition's writer have the rows that are held for it."""
        one = self._open[partition]
        if not one.held:
            return
        writer = one.writer or self._begin(partition)
        held, one.held = one.held, []
        self._held_bytes -= one.held_bytes
        one.held_bytes = 0
        rows = held[0] if len(held) == 1 else pa.concat_batches(held)
        held.clear()
        with naming_exchanged_rows(self._divider.table, rows):
            writer.write(SourceBatch(rows, next_offset=0))
        self._note_flushed(one)

    def _begin(self, partition: bytes) -> LakeWriter:
        """Make the writer of a partition; for one more than may be open, another is closed."""
        while len(written := list(self._present())) >= self._limits.open_files:
            # One without an open file if there is any, else that with the largest.
            idle = [name for name in written if self._open[name].flushed and not self._open[name].held]
            self._close(idle[0] if idle else max(written, key=lambda name: self._open[name].size_bytes))
        memory = max(_MEMORY_LEAST, self._limits.memory_bytes // self._limits.open_files)
        writer = self._files.begin(partition, memory)
        self._open[partition].writer = writer
        return writer

    def _note_flushed(self, one: OpenPartition) -> None:
        """Forget the open rows of a writer that has closed its file; what is held is in the next one."""
        if one.writer is None or not one.writer.all_rows_flushed or one.rows == one.held_rows:
            return
        one.generation = next(self._generations)
        one.rows, one.size_bytes = one.held_rows, sum(rows.nbytes for rows in one.held)
        one.left_out = one.writer.left_out

    def _close(self, partition: bytes) -> OpenPartition:
        self._pass_on(partition)
        one = self._open.pop(partition)
        if one.writer is not None:
            with naming_exchanged_rows(self._divider.table):
                self._files.finish(partition, one.writer)
        return one


class SplitFanOut(FanOutWriter):
    """See `lakeward.ports.LakeWriter`: of one split.

    A position and its files must say the same: a checkpoint refers to files only as of a moment at which no partition
    had an open file. `roll` looks for such a moment, and makes one by closing all files once the rows since the last
    one have more than `open_rows_bytes`. Each batch is divided at once, so that an error about its values comes while
    it is written.
    """

    _gathers = False
    _rows = _size_bytes = 0
    """Rows, and about how many bytes they have, since the last such moment."""

    def write(self, batch: SourceBatch) -> None:
        """See `LakeWriter`."""
        self._rows += batch.records.num_rows
        self._size_bytes += batch.records.nbytes
        super().write(batch)

    @property
    def all_rows_flushed(self) -> bool:
        """See `LakeWriter`; files are looked at when `roll` is called, and not before."""
        return not self._rows

    def roll(self) -> tuple[LakeFile, ...]:
        """See `LakeWriter`, and above."""
        if self._size_bytes > self._limits.open_rows_bytes and not self._no_open_file:
            self.close_open()
        if self._rows and self._no_open_file:
            self._files.roll(self._present())
            self._rows = self._size_bytes = 0
        return self._files.rolled


class ExchangeFanOut(FanOutWriter):
    """See `lakeward.ports.LakeWriter`: of one subtask of an exchange, whose records have their buckets.

    The rows in open files are part of a checkpoint: they are kept as they were taken until `take_unsaved` hands them
    over or their file is closed, and `roll` returns every closed file. Beyond `open_rows_bytes` those of the largest
    file are kept no longer, and the next `roll` closes it.
    """

    _gathers = True
    _unsaved_bytes = 0

    @property
    def all_rows_flushed(self) -> bool:
        """See `LakeWriter`."""
        return self._no_open_file

    def roll(self) -> tuple[LakeFile, ...]:
        """See `LakeWriter`, and above."""
        self._divide_gathered()
        while forgotten := [partition for partition, one in self._open.items() if one.forgotten]:
            self._close(forgotten[0])
        self._files.roll(self._present())
        for one in self._open.values():
            self._note_flushed(one)
        return self._files.rolled

    def open_rows(self) -> Mapping[bytes, OpenPartition]:
        """Return, by partition, the rows that are in no closed file."""
        self._divide_gathered()
        return {partition: one for partition, one in self._open.items() if one.rows}

    def take_unsaved(self, partition: bytes) -> list[pa.RecordBatch]:
        """Hand over, in order, the rows of one of `open_rows` that no checkpoint has yet; they now count as saved."""
        one = self._open[partition]
        rows = one.unsaved
        self._forget(one)
        return rows

    @property
    def flushed_left_out(self) -> int:
        """How many of the records that are in no open file became no row of a data file."""
        return self._files.left_out + sum(one.left_out for one in self._open.values())

    @property
    def open_bytes(self) -> int:
        """About how many bytes of rows are in no closed file."""
        return self._gathered_bytes + sum(one.size_bytes for one in self._open.values())

    def close_largest(self) -> None:
        """Close the open file with the most bytes of rows; rows that are held for it count, and are in it then."""
        self._divide_gathered()
        if self._open:
            self._close(max(self._open, key=lambda partition: self._open[partition].size_bytes))

    def _divide_gathered(self) -> None:
        super()._divide_gathered()
        while self._unsaved_bytes > self._limits.open_rows_bytes:
            largest = max(self._open.values(), key=lambda one: one.unsaved_bytes)
            largest.forgotten = True
            self._forget(largest)

    def _hold(self, partition: bytes, rows: pa.RecordBatch, size_bytes: int) -> OpenPartition:
        one = super()._hold(partition, rows, size_bytes)
        if not one.forgotten:
            self._add_unsaved(one, [rows], size_bytes)
        return one

    def _note_flushed(self, one: OpenPartition) -> None:
        generation = one.generation
        super()._note_flushed(one)
        if one.generation != generation:
            self._forget(one)
            one.forgotten = False
            self._add_unsaved(one, one.held, one.size_bytes)

    def _close(self, partition: bytes) -> OpenPartition:
        one = super()._close(partition)
        self._forget(one)
        return one

    def _add_unsaved(self, one: OpenPartition, rows: list[pa.RecordBatch], size_bytes: int) -> None:
        one.unsaved += rows
        one.unsaved_bytes += size_bytes
        self._unsaved_bytes += size_bytes

    def _forget(self, one: OpenPartition) -> None:
        self._unsaved_bytes -= one.unsaved_bytes
        one.unsaved, one.unsaved_bytes = [], 0
