"""One writer in front of many: divides records among the partitions of the lake table, with a bounded number of files.

Batches are gathered, and their rows grouped by array operations. The rows of a partition are held until all that is
held is more than a writer's memory: then the partition with the most goes to its writer, which makes one row group of
it. So partitions share the memory as they need it, and a partition needs an open file only once it has a row group.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from lakeward.model.batches import SourceBatch
from lakeward.model.results import sum_timings
from lakeward.model.tables import BUCKET_COLUMN, CHANGE_COLUMN, Change
from lakeward.subtask.row_errors import naming_exchanged_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableSpec
    from lakeward.ports import LakeWriter, Partitioner

    Ints = np.ndarray[Any, np.dtype[np.int32]]

_MEMORY_LEAST = 4 << 20
"""What the writer of one partition may have for itself, however many there are: those of keys remember them."""
GATHERED_BYTES = 16 << 20
"""With `keep_open_rows`, batches are divided together: those of a channel are small. Those of a split are divided one
by one, so that an error about their values comes while they are written."""
HELD_BYTES = 32 << 20
"""Rows of one partition that are enough for a row group, however much memory is left."""
_CHUNK_BYTES = 256
"""About how many bytes a column of few rows takes beside its values."""
_MOST_RETAINED = 2
"""A slice is copied if what it keeps in memory is more than so many times itself."""
_RUN_ROWS = 4096
"""Rows that follow one another in one partition are not put in order from so many rows a run on, on average; nor are
those of a batch in which each partition comes about once, as in those that were put in order for the exchange."""
_MOST_RUNS = 2
"""How often a partition comes in such a batch, on average, at most."""
_BATCH_ROWS = 4096
"""Batches of fewer rows are divided together: one by one, that takes longer than to join them."""
_SMALL_CODES = 1 << 15
"""Codes below this fit 16 bits, which NumPy sorts by radix."""


class PartitionWriters(Protocol):
    """Makes the writers of single partitions."""

    def __call__(self, partition: bytes, name: str, before: tuple[LakeFile, ...], memory_bytes: int) -> LakeWriter:
        """Make a writer, see `PartitioningLakePlugin.partition_writer`."""
        ...


@dataclass(slots=True)
class OpenPartition:
    """A partition whose newest file is open, or may be: its writer has taken rows since it was made."""

    generation: int
    """Number of the writer, unique within the fan-out: rows of another generation are in closed files."""
    size_bytes: int = 0
    """About how many bytes of rows are in no closed file."""
    rows: int = 0
    """How many rows are in no closed file."""
    unsaved: list[pa.RecordBatch] = field(default_factory=list)
    """Those of these rows that no checkpoint has yet, in order; empty unless they are kept."""
    unsaved_bytes: int = 0
    forgotten: bool = False
    """Rows that no checkpoint has are kept no longer: they took too much memory. The next one needs the file closed."""


@dataclass(slots=True)
class _Partition:
    open: OpenPartition
    writer: LakeWriter | None = None
    """None while all rows are held."""
    held: list[pa.RecordBatch] = field(default_factory=list)
    """Rows that the writer has not got yet, in order."""
    held_bytes: int = 0
    left_out: int = 0
    """Records that the writer had left out when all its rows were last in closed files."""

    @property
    def flushed(self) -> bool:
        """Whether the writer has no open file."""
        return self.writer is None or self.writer.all_rows_flushed

    @property
    def held_rows(self) -> int:
        return sum(rows.num_rows for rows in self.held)


class FanOutWriter:
    """See `lakeward.ports.LakeWriter`: of one split, or with `keep_open_rows` of one subtask of an exchange.

    Without `keep_open_rows`, a position and its files must say the same: a checkpoint refers to files only as of a
    moment at which no partition had an open file. `roll` looks for such a moment, and makes one by closing all files
    once the rows since the last one have more than `open_rows_bytes`.

    With it, the rows in open files are part of a checkpoint: they are kept as they were taken until `take_unsaved`
    hands them over or their file is closed, and `roll` returns every closed file. Beyond `open_rows_bytes` those of the
    largest file are kept no longer, and the next `roll` closes it.
    """

    def __init__(
        self,
        partitioner: Partitioner,
        writers: PartitionWriters,
        name: str,
        before: Iterable[LakeFile] = (),
        *,
        table: TableSpec,
        open_files: int,
        open_rows_bytes: int,
        memory_bytes: int,
        bucket: int | None = None,
        deletes_old_row: bool = False,
        keep_open_rows: bool = False,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Open no file yet.

        Args:
            partitioner: says which partition a row is in.
            writers: makes the writer of one partition.
            name: first part of the files' names, unique in the attempt.
            before: closed files that the writers go on from, of any partitions.
            table: for errors, which name the row: rows are held, and an error may come with a later batch.
            open_files: partitions with an open file at the same time, at most; at least 1.
            open_rows_bytes: see above.
            memory_bytes: about how many bytes of rows may be held, of all partitions together, that are in no file yet.
            bucket: `__bucket` of all records; None: they have that column already.
            deletes_old_row: an update may move a row to another partition: the record before it deletes the old row.
            keep_open_rows: see above.
            now: a clock's seconds.

        Raises:
            ValueError: `open_files` is below 1: no partition could get a file.
        """
        if open_files < 1:
            message = f"open_files: expected at least 1, found {open_files}"
            raise ValueError(message)
        self._table = table
        self._partitioner = partitioner
        self._writers = writers
        self._name = name
        self._open_files = open_files
        self._open_rows_bytes = open_rows_bytes
        self._bucket = bucket
        self._deletes_old_row = deletes_old_row
        self._keep = keep_open_rows
        self._now = now
        self._memory_bytes = memory_bytes
        self._gathered: list[pa.RecordBatch] = []
        """Rows that are not divided yet."""
        self._gathered_bytes = self._held_bytes = self._unsaved_bytes = 0
        self._before: dict[str, int] = {}
        """Place of each file of `before` among them, by path."""
        self._files: dict[bytes, tuple[LakeFile, ...]] = {}
        """Closed files by partition, of partitions without a writer; those with one have theirs there."""
        for place, file in enumerate(before):
            self._before[file.path] = place
            partition = partitioner.partition_of(file)
            self._files[partition] = (*self._files.get(partition, ()), file)
        self._open: dict[bytes, _Partition] = {}
        self._retired: list[LakeWriter] = []
        """Closed writers whose files no `roll` has returned: `abort` deletes these."""
        self._rolled = self._closed_files()
        self._made = 0
        self._rows = self._size_bytes = 0
        """Rows, and about how many bytes they have, since the moment that `_rolled` is of."""
        self._left_out = 0
        """Of closed writers."""
        self._spent_s: dict[str, float] = {"partition": 0.0}
        """Seconds of closed writers, and of dividing rows."""

    # --- as a writer ----------------------------------------------------------------------------------------

    def write(self, batch: SourceBatch) -> None:
        """See Protocol; the records may be of many partitions."""
        if not batch.records.num_rows:
            return
        records = self._prepared(batch.records)
        size_bytes = records.nbytes
        self._gathered.append(records)
        self._gathered_bytes += size_bytes
        self._rows += records.num_rows
        self._size_bytes += size_bytes
        if not self._keep or self._gathered_bytes >= min(GATHERED_BYTES, self._memory_bytes):
            self._divide_gathered()

    @property
    def all_rows_flushed(self) -> bool:
        """See Protocol; without `keep_open_rows` it is asked for at `roll` only, which is when files are looked at."""
        return self._no_open_file if self._keep else not self._rows

    def roll(self) -> tuple[LakeFile, ...]:
        """See Protocol, and above."""
        if self._keep:
            self._divide_gathered()
            while forgotten := [partition for partition, one in self._open.items() if one.open.forgotten]:
                self._close(forgotten[0])
            files = self._roll_writers()
            self._note_flushed(self._open.values())
            self._retired.clear()
            self._rolled = self._closed_files(files)
            return self._rolled
        if self._size_bytes > self._open_rows_bytes and not self._no_open_file:
            self.close_open()
        if self._rows and self._no_open_file:
            files = self._roll_writers()
            self._retired.clear()
            self._rows = self._size_bytes = 0
            self._rolled = self._closed_files(files)
        return self._rolled

    def close(self) -> tuple[LakeFile, ...]:
        """See Protocol."""
        self.close_open()
        return self._closed_files()

    def abort(self) -> None:
        """See Protocol."""
        self._gathered.clear()
        for one in self._open.values():
            one.held.clear()
            one.open.unsaved.clear()
        for writer in (*self._retired, *self._present()):
            writer.abort()

    @property
    def left_out(self) -> int:
        """See Protocol."""
        return self._left_out + sum(writer.left_out for writer in self._present())

    @property
    def timings_s(self) -> dict[str, float]:
        """See Protocol; `partition` is the time for dividing rows."""
        return sum_timings((self._spent_s, *(writer.timings_s for writer in self._present())))

    # --- open rows, for checkpoints with an exchange ----------------------------------------------------------

    def open_rows(self) -> Mapping[bytes, OpenPartition]:
        """Return, by partition, the rows that are in no closed file."""
        self._divide_gathered()
        return {partition: one.open for partition, one in self._open.items() if one.open.rows}

    def take_unsaved(self, partition: bytes) -> list[pa.RecordBatch]:
        """Hand over, in order, the rows of one of `open_rows` that no checkpoint has yet; they now count as saved."""
        opened = self._open[partition].open
        rows, opened.unsaved = opened.unsaved, []
        self._unsaved_bytes -= opened.unsaved_bytes
        opened.unsaved_bytes = 0
        return rows

    @property
    def flushed_left_out(self) -> int:
        """How many of the records that are in no open file became no row of a data file."""
        return self._left_out + sum(one.left_out for one in self._open.values())

    @property
    def open_bytes(self) -> int:
        """About how many bytes of rows are in no closed file."""
        return self._gathered_bytes + sum(one.open.size_bytes for one in self._open.values())

    def close_largest(self) -> None:
        """Close the open file with the most bytes of rows; rows that are held for it count, and are in it then."""
        self._divide_gathered()
        if self._open:
            self._close(max(self._open, key=lambda partition: self._open[partition].open.size_bytes))

    def close_open(self) -> None:
        """Close all open files; later rows begin new ones."""
        self._divide_gathered()
        # Those with a file first: one of the others needs a file to be closed where there are many.
        for partition in sorted(self._open, key=lambda partition: self._open[partition].writer is None):
            self._close(partition)

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def _no_open_file(self) -> bool:
        return not self._gathered and all(one.flushed and not one.held for one in self._open.values())

    def _present(self) -> list[LakeWriter]:
        return [one.writer for one in self._open.values() if one.writer is not None]

    def _roll_writers(self) -> dict[bytes, tuple[LakeFile, ...]]:
        return {partition: one.writer.roll() for partition, one in self._open.items() if one.writer is not None}

    def _prepared(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Add the bucket; make an update's record of the old row a delete of it."""
        if self._bucket is not None:
            column = pa.array(np.full(records.num_rows, self._bucket, dtype=np.int32))
            records = records.append_column(pa.field(BUCKET_COLUMN, pa.int32(), nullable=False), column)
        if not self._deletes_old_row:
            return records
        place = records.schema.get_field_index(CHANGE_COLUMN)
        changes = records.column(place).to_numpy()
        old = changes == Change.UPDATE_BEFORE
        if not old.any():
            return records
        deletes = np.where(old, np.uint8(Change.DELETE), changes)
        return records.set_column(place, records.schema.field(place), pa.array(deletes))

    def _divide_gathered(self) -> None:
        """Hold the gathered rows for their partitions, and hand on what is too much."""
        if not self._gathered:
            return
        started = self._now()
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        for records in _joined(gathered):
            bytes_per_row = records.nbytes / records.num_rows
            with naming_exchanged_rows(self._table, records):
                groups = list(self._divide(records))
            for partition, rows in groups:
                self._hold(partition, rows, int(rows.num_rows * bytes_per_row))
            del records, groups
        self._spent_s["partition"] += self._now() - started
        while self._held_bytes > self._memory_bytes:
            self._pass_on(max(self._open, key=lambda partition: self._open[partition].held_bytes))
        while large := [partition for partition, one in self._open.items() if one.held_bytes >= HELD_BYTES]:
            self._pass_on(large[0])
        while self._unsaved_bytes > self._open_rows_bytes:
            self._forget_largest()

    def _divide(self, records: pa.RecordBatch) -> Iterator[tuple[bytes, pa.RecordBatch]]:
        """Yield the rows of each partition, in order; a partition may come in several runs."""
        codes, partitions = self._partitioner.partition(records)
        ends = np.append(np.flatnonzero(codes[1:] != codes[:-1]) + 1, len(codes))
        if len(ends) > _MOST_RUNS * len(partitions) and len(codes) < _RUN_ROWS * len(ends):
            if len(partitions) < _SMALL_CODES:
                codes = codes.astype(np.int16)
            order = np.argsort(codes, kind="stable")
            records, codes = records.take(pa.array(order)), codes[order]
            ends = np.append(np.flatnonzero(codes[1:] != codes[:-1]) + 1, len(codes))
        start, empty = 0, records.slice(0, 0)
        for end in ends.tolist():
            rows = records.slice(start, end - start)
            few = _MOST_RETAINED * rows.num_rows < records.num_rows
            yield partitions[codes[start]], _own_memory(rows, empty, copy=few)
            start = end

    def _hold(self, partition: bytes, rows: pa.RecordBatch, size_bytes: int) -> None:
        one = self._open.get(partition)
        if one is None:
            self._made += 1
            one = self._open[partition] = _Partition(OpenPartition(self._made))
        opened = one.open
        opened.rows += rows.num_rows
        opened.size_bytes += size_bytes
        if self._keep and not opened.forgotten:
            opened.unsaved.append(rows)
            opened.unsaved_bytes += size_bytes
            self._unsaved_bytes += size_bytes
        one.held.append(rows)
        size_bytes += _CHUNK_BYTES * rows.num_columns
        one.held_bytes += size_bytes
        self._held_bytes += size_bytes

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
        with naming_exchanged_rows(self._table, rows):
            writer.write(SourceBatch(rows, next_offset=0))
        self._note_flushed((one,))

    def _begin(self, partition: bytes) -> LakeWriter:
        """Make the writer of a partition; for one more than may be open, another is closed."""
        while len(written := [name for name, one in self._open.items() if one.writer is not None]) >= self._open_files:
            # One without an open file if there is any, else that with the largest.
            idle = [name for name in written if self._open[name].flushed and not self._open[name].held]
            self._close(idle[0] if idle else max(written, key=lambda name: self._open[name].open.size_bytes))
        self._made += 1
        memory = max(_MEMORY_LEAST, self._memory_bytes // self._open_files)
        writer = self._writers(partition, f"{self._name}-{self._made}", self._files.pop(partition, ()), memory)
        self._open[partition].writer = writer
        return writer

    def _forget_largest(self) -> None:
        """Keep no longer the rows of the file with the most that no checkpoint has; the next one needs it closed."""
        opened = max((one.open for one in self._open.values()), key=lambda opened: opened.unsaved_bytes)
        opened.forgotten = True
        self._forget(opened)

    def _forget(self, opened: OpenPartition) -> None:
        self._unsaved_bytes -= opened.unsaved_bytes
        opened.unsaved_bytes = 0
        opened.unsaved = []

    def _note_flushed(self, partitions: Collection[_Partition]) -> None:
        """Forget the open rows of writers that have closed their files; what is held is in the next file."""
        for one in partitions:
            if one.writer is None or not one.writer.all_rows_flushed or one.open.rows == one.held_rows:
                continue
            self._forget(one.open)
            self._made += 1
            size_bytes = sum(rows.nbytes for rows in one.held)
            one.open = OpenPartition(self._made, size_bytes, one.held_rows)
            if self._keep:
                one.open.unsaved = list(one.held)
                one.open.unsaved_bytes = size_bytes
                self._unsaved_bytes += size_bytes
            one.left_out = one.writer.left_out

    def _close(self, partition: bytes) -> None:
        self._pass_on(partition)
        one = self._open.pop(partition)
        self._forget(one.open)
        if one.writer is None:
            return
        with naming_exchanged_rows(self._table):
            self._files[partition] = one.writer.close()
        self._retired.append(one.writer)
        self._left_out += one.writer.left_out
        self._spent_s = sum_timings((self._spent_s, one.writer.timings_s))

    def _closed_files(self, of_open: Mapping[bytes, tuple[LakeFile, ...]] | None = None) -> tuple[LakeFile, ...]:
        """Return all closed files, with those of the open writers as given: the files of `before` first, as given."""
        files = [file for files in (self._files | dict(of_open or {})).values() for file in files]
        return tuple(sorted(files, key=lambda file: self._before.get(file.path, len(self._before))))


def _own_memory(rows: pa.RecordBatch, empty: pa.RecordBatch, *, copy: bool) -> pa.RecordBatch:
    """Return rows that do not keep a much larger batch in memory, of which they are a slice.

    With `copy`, they are copied in any case: to ask for the bytes of a slice takes longer than to copy a small one.
    """
    if not copy and rows.get_total_buffer_size() <= _MOST_RETAINED * rows.nbytes:
        return rows
    # With one batch there would be no copy, and `take` of all rows is several times slower than a copy of memory.
    return pa.concat_batches([rows, empty])


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, in batches that are not small if there is another way; empty the list."""
    batches.reverse()
    while batches:
        together = [batches.pop()]
        rows = together[0].num_rows
        while batches and (rows < _BATCH_ROWS or batches[-1].num_rows < _BATCH_ROWS):
            together.append(batches.pop())
            rows += together[-1].num_rows
        yield together[0] if len(together) == 1 else pa.concat_batches(together)
