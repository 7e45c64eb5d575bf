"""One split in progress: its reader, its writer, its progress and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from lakeward.errors import ReadTimeoutError
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.results import WriteResult
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TIMESTAMP_COLUMN
from lakeward.subtask.reading import SplitReading
from lakeward.subtask.row_account import RowAccount
from lakeward.subtask.row_errors import UNFIT, naming_rows, unreadable
from lakeward.subtask.row_filter import RowFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, Executor, LakeWriter, SourceBatch, SourceReader
    from lakeward.subtask.mailbox import Mailbox

_US_PER_MS = 1000


class _Seconds:
    """How long a split takes, by phase: reading, decoding, the writer's own, and waiting."""

    def __init__(self, clock: Clock, before: Mapping[str, float]) -> None:
        self._clock = clock
        self._before = before
        """Of earlier tries."""
        self._started = clock.now()
        self._read_s = self._decode_s = 0.0

    def add_read(self, read_s: float, decode_s: float) -> None:
        """Add a read; `read_s` includes its decoding."""
        self._read_s += read_s - decode_s
        self._decode_s += decode_s

    def by_phase(self, of_writer: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of all tries."""
        here = {**of_writer, "read": self._read_s, "decode": self._decode_s}
        here["wait"] = max(0.0, self._clock.now() - self._started - sum(here.values()))
        return {phase: self._before.get(phase, 0.0) + here.get(phase, 0.0) for phase in {**self._before, **here}}


class SplitWork:
    """Reads a split and writes its files; `close` returns the write result."""

    def __init__(  # noqa: PLR0917 - what is worked on, then the parts to do it with
        self,
        table: TableSpec,
        progress: SplitProgress,
        reader: SourceReader,
        writer: LakeWriter,
        clock: Clock,
        executor: Executor,
        mailbox: Mailbox,
        row_filter: RowFilter | None = None,
    ) -> None:
        """Start reading at the split's progress: `SplitProgress.beginning`, or that in a checkpoint.

        The writer is fresh, of this split and this progress, and so is the filter; None lets all rows pass. The
        executor runs the reads; batches are posted in the mailbox.
        """
        self.split = progress.split
        self.rows = progress.rows
        self.size_bytes = 0
        self.next_offset = progress.position if isinstance(self.split, LogSplit) else 0
        self._before = self._flushed = progress
        self._table = table
        self._account = RowAccount(table, progress)
        self._writer = writer
        self._filter = row_filter or RowFilter(table.path, progress)
        self._seconds = _Seconds(clock, progress.timings_s)
        self._not_read = 0
        """Batches that were written, and in whose place nothing was read yet."""
        self._max_timestamp_ms = progress.max_timestamp_ms
        self._reading = SplitReading(self.split, reader, clock, executor, mailbox, progress.position)

    def check_read(self, timeout_s: float) -> None:
        """Raise if the source has not answered for `timeout_s` seconds with one batch.

        Raises:
            ReadTimeoutError: names the split.
        """
        if self._reading.waited_s > timeout_s:
            message = (
                f"table {self._table.path}, bucket {self.split.bucket}, split {self.split.split_id}: the source has "
                f"given no record for {timeout_s:g} s (source.read_timeout_s)"
            )
            raise ReadTimeoutError(message)

    def write(self, batch: SourceBatch, read_s: float) -> None:
        """Write the next records; reading them took `read_s` seconds, with their decoding.

        Another batch is read in their place once `read_on` is called.

        Raises:
            LogGapError: offsets are missing.
            RowCountError: offsets go back, or records are missing.
            RowError: a value cannot be written, or too many do not fit.
        """
        records = batch.records
        self._account.take(batch)
        if records.num_rows:
            with naming_rows(self._table, self.split, records):
                fitting = self._filter.fitting(batch, self.rows)
                if fitting.records.num_rows:
                    self._writer.write(fitting)
                self._see_time(records)
        self.rows += records.num_rows
        self.size_bytes += records.nbytes
        self.next_offset = batch.next_offset
        self._seconds.add_read(read_s, batch.decode_s)
        self._note_flushed()
        self._not_read += 1

    def read_on(self) -> None:
        """Let as many batches be read as were written."""
        while self._not_read:
            self._not_read -= 1
            self._reading.taken()

    def unreadable(self, error: Exception) -> Exception:
        """Translate an exception of the reader: a value that cannot be decoded becomes an error of its row."""
        return unreadable(self._table, self.split, self._account.position, error) if isinstance(error, UNFIT) else error

    def roll(self) -> SplitProgress:
        """Prepare a checkpoint: close files that are large enough, and return the split's progress.

        Takes as long as closing a file takes, so it is done while no gateway is closed.
        """
        if isinstance(self.split, SnapshotSplit) and self.split.live:
            return self._before  # the next read would return its rows in another order, as of another moment
        with naming_rows(self._table, self.split):
            files = self._writer.roll()
        self._note_flushed()
        files = (*files, *self._filter.roll())
        timings_s = self._seconds.by_phase(self._writer.timings_s)
        return structs.replace(self._flushed, files=files, timings_s=timings_s)

    def close(self, *, ended: bool = True) -> WriteResult:
        """Stop reading, close all files; return what was written, including earlier tries.

        If not `ended`, the split is finished early: the source has more batches. The result's end is the split's own if
        all of it was read.

        Raises:
            SourceError: the source ended before the split did.
            RowCountError: the rows in the files are not the records that were read.
        """
        self._reading.stop()
        if ended:
            self._account.check_end()
        with naming_rows(self._table, self.split):
            files = (*self._writer.close(), *self._filter.close())
        self._account.check_written(files, self._writer.left_out, self._filter.bad)
        return WriteResult(
            split_id=self.split.split_id,
            bucket=self.split.bucket,
            end_offset=self._end_offset(),
            max_timestamp_ms=self._max_timestamp_ms,
            rows=self.rows,
            files=files,
            timings_s=self._seconds.by_phase(self._writer.timings_s),
            left_out=self._account.left_out(self._writer.left_out),
            empty_offsets=self._account.empty_offsets,
            bad_rows=self._filter.bad,
        )

    def ended(self, result: WriteResult) -> SplitProgress | None:
        """Return a result as progress; None for a live snapshot, whose rows never come in the same order twice."""
        live = isinstance(self.split, SnapshotSplit) and self.split.live
        return None if live else SplitProgress.done(self.split, result)

    def abort(self) -> None:
        """Stop reading, delete what this try wrote; files that a checkpoint may reference stay (`LakeWriter.abort`)."""
        self._reading.stop()
        self._writer.abort()
        self._filter.abort()

    def _note_flushed(self) -> None:
        if self._writer.all_rows_flushed:
            self._filter.mark()
            self._flushed = SplitProgress(
                self.split,
                self._account.position,
                (),
                self.rows,
                self._max_timestamp_ms,
                left_out=self._account.left_out(self._writer.left_out),
                empty_offsets=self._account.empty_offsets,
                bad_rows=self._filter.bad,
            )

    def _end_offset(self) -> int:
        if isinstance(self.split, LogSplit):
            return self.next_offset
        return max(self.next_offset, self.split.log_offset) if self.split.live else self.split.log_offset

    def _see_time(self, records: pa.RecordBatch) -> None:
        newest = newest_us(records)
        if newest is not None:
            self._max_timestamp_ms = max(self._max_timestamp_ms, newest // _US_PER_MS)


def newest_us(records: pa.RecordBatch) -> int | None:
    """Return the newest timestamp of a batch, in microseconds since 1970; None where it has none."""
    found: int | None = pc.max(records.column(TIMESTAMP_COLUMN)).value
    return found
