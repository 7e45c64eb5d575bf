"""Reads a bucket's log as batches, in order, the next fetch on its way while the last one is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from lakeward.errors import SourceError
from lakeward_source_fluss.formats.logbatch import LogBatch, LogFormat, iter_batches
from lakeward_source_fluss.formats.remote import SegmentMissingError, read_segment, remote_segments
from lakeward_source_fluss.source.bucket_log import BucketLog
from lakeward_source_fluss.wire.messages import PbFetchLogRespForBucket, PbRemoteLogFetchInfo

_EMPTY_TRIES = 30
"""Fetches without any record, each of which the leader has waited with, until something must be wrong."""


def read_batches(log: BucketLog, stored: LogFormat, start: int, stop: int) -> Iterator[LogBatch]:
    """Yield the batches that hold any of the offsets from `start` to `stop`.

    `stop` is at most the end of the log. `stored` is the table's log format.

    Yields:
        Whole batches in order, each beginning where the one before it ended; the first and the last may go beyond.
        Empty batches too.

    Raises:
        LogTruncatedError: `start` is below what the log still has, or retention took records while they were read.
        LogGapError: offsets are missing between two batches, or come twice.
        TableGoneError: the table was dropped.
        SourceError: the log does not come to `stop`.
        CorruptFileError: what came is damaged.
    """
    if start >= stop:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="fluss-fetch") as ahead:
        yield from _Run(log, stored, ahead).read(start, stop)


class _Run:
    """One read from a start to a stop."""

    def __init__(self, log: BucketLog, stored: LogFormat, ahead: ThreadPoolExecutor) -> None:
        self._log = log
        self._format = stored
        self._ahead = ahead
        self._reached = 0
        self._begun = False

    def read(self, start: int, stop: int) -> Iterator[LogBatch]:
        self._reached, empty = start, 0
        coming: Future[PbFetchLogRespForBucket] = self._ahead.submit(self._log.fetch, start)
        while self._reached < stop:
            answer = coming.result()
            before = self._reached
            if answer.remote_log_fetch_info is not None:
                yield from self._remote(answer.remote_log_fetch_info, stop)
                coming = self._ahead.submit(self._log.fetch, self._reached)
            else:
                batches = self._batches(answer.records or b"", stop)
                if self._reached < stop:
                    coming = self._ahead.submit(self._log.fetch, self._reached)
                yield from batches
            empty = empty + 1 if self._reached == before else 0
            if empty >= _EMPTY_TRIES:
                message = f"{self._log.name}: expected log records up to {stop}, found none from {self._reached} on"
                raise SourceError(message)

    def _remote(self, info: PbRemoteLogFetchInfo, stop: int) -> Iterator[LogBatch]:
        """Read the remote segments one after another, and no further than needed."""
        listed = [
            (
                one.remote_log_segment_id,
                one.remote_log_start_offset,
                one.remote_log_end_offset,
                one.segment_size_in_bytes,
            )
            for one in info.remote_log_segments
        ]
        for segment in remote_segments(info.remote_log_tablet_dir, listed, info.first_start_pos or 0):
            try:
                for batch in read_segment(segment, self._log.storage, self._reached, self._format):
                    self._follow(batch)
                    yield batch
                    if self._reached >= stop:
                        return
            except SegmentMissingError as missing:
                raise self._log.truncation(self._reached) or missing from missing

    def _batches(self, data: bytes, stop: int) -> list[LogBatch]:
        """Return the batches of a record set that hold any wanted offset."""
        origin = f"log of bucket {self._log.bucket} of table {self._log.table.path}"
        found = []
        for batch in iter_batches(memoryview(data), self._format, origin=origin):
            if batch.next_offset > self._reached:
                self._follow(batch)
                found.append(batch)
            if self._reached >= stop:
                break
        return found

    def _follow(self, batch: LogBatch) -> None:
        """Go on to a batch's end; refuse one that does not begin where the one before it ended.

        Offsets have no holes (fluss.md, "The log"). Only the first batch may begin before what was
        asked for, as servers give whole batches.
        """
        if batch.base_offset != self._reached and (self._begun or batch.base_offset > self._reached):
            raise self._log.gap(self._reached, batch.base_offset)
        self._reached, self._begun = batch.next_offset, True


def oldest_record_ms(log: BucketLog, stored: LogFormat, start: int, stop: int) -> int | None:
    """Return the commit time, milliseconds since 1970, of the first record from `start` on.

    None where only empty batches are left before `stop`, where the log ended when it was asked. `stored` is the table's
    log format.
    """
    for batch in read_batches(log, stored, start, stop):
        if batch.base_offset + batch.rows > start:
            return batch.timestamp_ms
    return None
