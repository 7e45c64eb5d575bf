"""Reads a bucket's log as batches, in order, the next fetch on its way while the last one is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from lakeward.errors import SourceError
from lakeward.model.tables import TableSpec
from lakeward_fluss.formats.logbatch import LogBatch, LogFormat, iter_batches
from lakeward_fluss.formats.remote import read_segment, remote_segments
from lakeward_fluss.source.fetching import BucketLog
from lakeward_fluss.wire.messages import PbFetchLogRespForBucket, PbRemoteLogFetchInfo

LOG_FORMAT = "table.log.format"
_EMPTY_TRIES = 30
"""Fetches without any record, each of which the leader has waited with, until something must be wrong."""


def log_format(table: TableSpec) -> LogFormat:
    """Return how a table's log is stored.

    Raises:
        SourceError: in a way that is not known here.
    """
    text = table.properties.get(LOG_FORMAT, LogFormat.ARROW.value)
    try:
        return LogFormat(text.upper())
    except ValueError:
        message = f"table {table.path}: {LOG_FORMAT}: expected one of {', '.join(LogFormat)}, found {text!r}"
        raise SourceError(message) from None


def read_batches(log: BucketLog, stored: LogFormat, start: int, stop: int) -> Iterator[LogBatch]:
    """Yield the batches that hold any of the offsets from `start` to `stop`.

    Args:
        log: the bucket's log.
        stored: how; the table's.
        start: the first offset wanted.
        stop: the first one not wanted; at most the end of the log.

    Yields:
        Whole batches in order; the first and the last may go beyond. Empty batches too.

    Raises:
        LogTruncatedError: `start` is below what the log still has.
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

    def read(self, start: int, stop: int) -> Iterator[LogBatch]:
        reached, empty = start, 0
        coming: Future[PbFetchLogRespForBucket] = self._ahead.submit(self._log.fetch, reached)
        while reached < stop:
            answer = coming.result()
            before = reached
            if answer.remote_log_fetch_info is not None:
                for batch in self._remote(answer.remote_log_fetch_info, reached, stop):
                    reached = batch.next_offset
                    yield batch
                coming = self._ahead.submit(self._log.fetch, reached)
            else:
                batches = self._batches(answer.records or b"", reached, stop)
                reached = batches[-1].next_offset if batches else reached
                if reached < stop:
                    coming = self._ahead.submit(self._log.fetch, reached)
                yield from batches
            empty = empty + 1 if reached == before else 0
            if empty >= _EMPTY_TRIES:
                message = f"bucket {self._log.bucket}: expected log records up to {stop}, found none from {reached} on"
                raise SourceError(message)

    def _remote(self, info: PbRemoteLogFetchInfo, start: int, stop: int) -> Iterator[LogBatch]:
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
        reached = start
        for segment in remote_segments(info.remote_log_tablet_dir, listed, info.first_start_pos or 0):
            for batch in read_segment(segment, self._log.storage, reached, self._format):
                if batch.base_offset >= stop:
                    return
                reached = batch.next_offset
                yield batch
            if reached >= stop:
                return

    def _batches(self, data: bytes, start: int, stop: int) -> list[LogBatch]:
        """Return the batches of a record set that hold any wanted offset."""
        origin = f"log of bucket {self._log.bucket} of table {self._log.table.path}"
        found = []
        for batch in iter_batches(memoryview(data), self._format, origin=origin):
            if batch.base_offset >= stop:
                break
            if batch.next_offset > start:
                found.append(batch)
        return found


def oldest_record_ms(log: BucketLog, stored: LogFormat, start: int, stop: int) -> int | None:
    """Return the commit time of the first record from `start` on.

    Args:
        log: the bucket's log.
        stored: how; the table's.
        start: the first offset looked at.
        stop: where the log ended when it was asked.

    Returns:
        Milliseconds since 1970; None where only empty batches are left.
    """
    for batch in read_batches(log, stored, start, stop):
        if batch.base_offset + batch.rows > start:
            return batch.timestamp_ms
    return None
