"""One split in work: its reading, its writer, and what it came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.results import WriteResult
from lakeward.model.splits import LogSplit, Split
from lakeward.model.tables import TIMESTAMP_COLUMN
from lakeward.subtask.reading import SplitReading

if TYPE_CHECKING:
    from queue import SimpleQueue

    from lakeward.ports import Clock, LakeWriter, SourceBatch, SourceReader

_US_PER_MS = 1000


class SplitWork:
    """Reads a split and writes its files; closed, it gives the write result."""

    def __init__(
        self, split: Split, reader: SourceReader, writer: LakeWriter, clock: Clock, mailbox: SimpleQueue[object]
    ) -> None:
        """Start reading.

        Args:
            split: what to do.
            reader: the source in this subtask.
            writer: a fresh writer for this split.
            clock: the machine's clock.
            mailbox: where batches are posted.
        """
        self.split = split
        self.rows = 0
        self.size_bytes = 0
        self.next_offset = split.start if isinstance(split, LogSplit) else 0
        self._writer = writer
        self._clock = clock
        self._started = clock.now()
        self._read_s = 0.0
        self._decode_s = 0.0
        self._max_timestamp_ms = -1
        self._reading = SplitReading(split, reader, clock, mailbox)

    def write(self, batch: SourceBatch, read_s: float) -> None:
        """Write one batch.

        Args:
            batch: the next records.
            read_s: seconds that reading it took, with its decoding.
        """
        records = batch.records
        if records.num_rows:
            self._writer.write(batch)
            self._see_time(records)
        self.rows += records.num_rows
        self.size_bytes += records.nbytes
        self.next_offset = batch.next_offset
        self._read_s += read_s - batch.decode_s
        self._decode_s += batch.decode_s
        self._reading.taken()

    def close(self) -> WriteResult:
        """Stop reading, close all files.

        Returns:
            What was written; its end is the split's own where it was read whole.
        """
        self._reading.stop()
        files = self._writer.close()
        timings = self._writer.timings_s | {"read": self._read_s, "decode": self._decode_s}
        timings["wait"] = max(0.0, self._clock.now() - self._started - sum(timings.values()))
        return WriteResult(
            split_id=self.split.split_id,
            bucket=self.split.bucket,
            end_offset=self._end_offset(),
            max_timestamp_ms=self._max_timestamp_ms,
            rows=self.rows,
            files=files,
            timings_s=timings,
        )

    def abort(self) -> None:
        """Stop reading, delete what was written."""
        self._reading.stop()
        self._writer.abort()

    def _end_offset(self) -> int:
        if isinstance(self.split, LogSplit):
            return self.next_offset
        return max(self.next_offset, self.split.log_offset) if self.split.live else self.split.log_offset

    def _see_time(self, records: pa.RecordBatch) -> None:
        newest = pc.max(records.column(TIMESTAMP_COLUMN).cast(pa.int64())).as_py()
        if newest is not None:
            self._max_timestamp_ms = max(self._max_timestamp_ms, newest // _US_PER_MS)
