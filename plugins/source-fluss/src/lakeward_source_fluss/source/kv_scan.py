"""Reads a bucket's rows from its leader by SCAN_KV: no files, no lease, exact at an offset (fluss.md, "SCAN_KV")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import OutcomeUnknownError, ProtocolError, SourceError
from lakeward_source_fluss.formats.records import value_batch
from lakeward_source_fluss.formats.rows import rows_at_once
from lakeward_source_fluss.source.buckets import PATIENCE_S
from lakeward_source_fluss.source.calls import retry
from lakeward_source_fluss.source.naming import naming_right
from lakeward_source_fluss.source.read_snapshot import RowPositions, decode_kv
from lakeward_source_fluss.wire.errors import (
    ScannerGoneError,
    ServerUnreachableError,
    StaleMetadataError,
    TooManyScannersError,
    check_code,
)
from lakeward_source_fluss.wire.messages import PbScanReqForBucket, ScanKvRequest, ScanKvResponse

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward_source_fluss.formats.schema import FlussSchema
    from lakeward_source_fluss.source.bucket_log import BucketLog

REPLY_BYTES = 4 << 20
"""What one answer may hold; larger ones are not faster."""
_STARTS = 3
_LOST = (ScannerGoneError, StaleMetadataError, ServerUnreachableError, OutcomeUnknownError)
"""Whatever goes wrong with a scan that goes on, the server has given it up."""


@dataclass(frozen=True, slots=True)
class KvScan:
    """Scans of one bucket. `log` calls its leader; `reply_bytes` is what one answer may hold."""

    log: BucketLog
    reply_bytes: int = REPLY_BYTES

    def batches(self, schemas: Mapping[int, FlussSchema]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the bucket's rows in the table's columns, each key once, and the log offset that they stand at.

        A scan that is lost before it gave any rows is begun anew.

        Raises:
            SourceError: it was lost later: what was read belongs to an offset that cannot be had again.
            TableGoneError: the table was dropped.
        """
        rows_read = 0
        for attempt in range(1, _STARTS + 1):
            try:
                for data, log_offset in self._replies():
                    values = value_batch(memoryview(data), f"SCAN_KV of {self.log.name}")
                    most = rows_at_once(schemas[self.log.table.schema_id].columns)
                    for start in range(0, len(values), most):
                        part = values.slice(start, most)
                        position = RowPositions(rows_read, "a scan", log_offset)
                        yield decode_kv(part, schemas, self.log.table, self.log.bucket, position), log_offset
                        rows_read += len(part)
            except _LOST as lost:
                self.log.moved()
                if rows_read or attempt == _STARTS:
                    message = (
                        f"SCAN_KV of {self.log.name}: the server gave the scan up after {rows_read} rows (it idled "
                        f"beyond kv.scanner.ttl, or the leader moved); it must be read from the beginning: {lost}"
                    )
                    raise SourceError(message) from lost
            else:
                return

    def _replies(self) -> Iterator[tuple[bytes, int]]:
        """Yield the records of each answer, the next one on its way while one is decoded."""
        answer = retry(self._open, (StaleMetadataError, TooManyScannersError), PATIENCE_S, self.log.moved)
        if answer.log_offset is None:
            message = f"SCAN_KV of {self.log.name}: expected the log offset of the rows, found none"
            raise ProtocolError(message)
        log_offset, number, scanner = answer.log_offset, 0, answer.scanner_id
        with ThreadPoolExecutor(1, thread_name_prefix="fluss-scan") as ahead:
            try:
                while True:
                    number += 1
                    more = bool(answer.has_more_results)
                    coming = ahead.submit(self._continue, scanner, number) if more else None
                    if answer.records:
                        yield answer.records, log_offset
                    if coming is None:
                        scanner = None
                        return
                    answer = coming.result()
            finally:
                # One that is left open keeps one of the bucket's eight places for ten minutes.
                ahead.submit(self._close, scanner)

    def _open(self) -> ScanKvResponse:
        bucket = self.log.bucket
        wanted = PbScanReqForBucket(
            table_id=bucket.table_id,
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            bucket_count_actual=self.log.bucket_count(),
        )
        return self._call(
            ScanKvRequest(bucket_scan_req=wanted, call_seq_id=0, batch_size_bytes=self.reply_bytes), "open"
        )

    def _continue(self, scanner: bytes | None, number: int) -> ScanKvResponse:
        request = ScanKvRequest(scanner_id=scanner, call_seq_id=number, batch_size_bytes=self.reply_bytes)
        return self._call(request, f"call {number}")

    def _close(self, scanner: bytes | None) -> None:
        if scanner is not None:
            with suppress(SourceError, OutcomeUnknownError):  # it expires by itself
                self._call(ScanKvRequest(scanner_id=scanner, close_scanner=True), "close")

    def _call(self, request: ScanKvRequest, what: str) -> ScanKvResponse:
        answer, server = self.log.call(request)
        where = f"SCAN_KV ({what}) of {self.log.name} at tablet server {server}"
        with naming_right(request.api, self.log.table.path):
            check_code(where, answer.error_code, answer.error_message, self.log.client.release)
        return answer
