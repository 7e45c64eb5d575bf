"""Fetches a bucket's log as runs of whole batches: from its leader, and where that says so from remote segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lakeward.errors import (
    LogGapError,
    LogTruncatedError,
    OffsetsBeyondLogError,
    ProtocolError,
    SourceError,
    TableError,
    TableGoneError,
)
from lakeward.model.tables import TableBucket, TableSpec
from lakeward_source_fluss.rpc.topology import BucketAddress
from lakeward_source_fluss.source.buckets import CLIENT, EARLIEST, LATEST, PATIENCE_S
from lakeward_source_fluss.source.calls import retry
from lakeward_source_fluss.source.naming import naming_right
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.apis import Request
from lakeward_source_fluss.wire.errors import OffsetOutOfRangeError, StaleMetadataError, check_code
from lakeward_source_fluss.wire.messages import (
    FetchLogRequest,
    GetTableInfoRequest,
    ListOffsetsRequest,
    ListPartitionInfosRequest,
    PbFetchLogReqForBucket,
    PbFetchLogReqForTable,
    PbFetchLogRespForBucket,
)
from lakeward_source_fluss.wire.protobuf import Message

if TYPE_CHECKING:
    from lakeward_source_fluss.formats.storage import Storage
    from lakeward_source_fluss.rpc.client import FlussClient

Answer = TypeVar("Answer", bound=Message)
_WAIT_MS = 1000
"""The leader waits so long where there is nothing yet; what is asked for lies below the end, so it hardly ever does."""


@dataclass(frozen=True, slots=True)
class BucketLog:
    """One bucket's log, read from wherever it lies. `fetch_bytes` is what one fetch asks for."""

    client: FlussClient
    storage: Storage
    table: TableSpec
    bucket: TableBucket
    fetch_bytes: int

    def fetch(self, offset: int) -> PbFetchLogRespForBucket:
        """Ask the leader for what begins at an offset, waiting out a change of leaders.

        Returned are records, or where the remote segments lie.

        Raises:
            LogTruncatedError: the log no longer has it.
            OffsetsBeyondLogError: the log ends before it.
            TableGoneError: the table was dropped.
            SourceError: the server cannot answer.
        """
        try:
            return retry(lambda: self._fetch(offset), StaleMetadataError, PATIENCE_S, self.moved)
        except OffsetOutOfRangeError as refused:
            outside = self._outside(offset)
            if outside is None:
                raise
            raise outside from refused

    def _fetch(self, offset: int) -> PbFetchLogRespForBucket:
        wanted = PbFetchLogReqForBucket(
            partition_id=self.bucket.partition_id,
            bucket_id=self.bucket.bucket,
            fetch_offset=offset,
            max_fetch_bytes=self.fetch_bytes,
            bucket_count_actual=self.bucket_count(),
        )
        table = PbFetchLogReqForTable(
            table_id=self.table.table_id, projection_pushdown_enabled=False, buckets_req=(wanted,)
        )
        request = FetchLogRequest(
            follower_server_id=CLIENT,
            max_bytes=self.fetch_bytes,
            tables_req=(table,),
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
        )
        response, server = self.call(request)
        for answer in (bucket for one in response.tables_resp for bucket in one.buckets_resp):
            what = f"FETCH_LOG of {self.name} at offset {offset} at tablet server {server}"
            with naming_right(request.api, self.table.path):
                check_code(what, answer.error_code, answer.error_message, self.client.release)
            return answer
        message = f"FETCH_LOG of {self.name} at offset {offset}: expected an answer for the bucket, found none"
        raise SourceError(message)

    def call(self, request: Request[Answer]) -> tuple[Answer, int]:
        """Call the bucket's leader; return its answer and its id."""
        address = BucketAddress(wire_path(self.table.path), self.bucket.partition_id, self.bucket.bucket)
        with naming_right(request.api, self.table.path):
            return self.client.call_leader_seen(address, request)

    def bucket_count(self) -> int | None:
        """Return how many buckets the partition has, as requests for it say; None where the server does not say."""
        return self.client.buckets(wire_path(self.table.path), self.bucket.partition_id).count

    def gap(self, expected: int, found: int) -> TableError:
        """Return the error of a log that goes on at offset `found`, where reading had come to `expected`."""
        return self.truncation(expected) or LogGapError(self.name, expected, found)

    def truncation(self, offset: int) -> LogTruncatedError | None:
        """Return the error of an offset that retention took; None where the log still reaches back to it."""
        start = self._bound(EARLIEST)
        if start <= offset:
            return None
        message = (
            f"{self.name}: expected log records from offset {offset}, found the log to begin at {start}: "
            "its retention removed them before they were read"
        )
        return LogTruncatedError(message)

    def _outside(self, offset: int) -> TableError | None:
        end = self._bound(LATEST)
        if offset <= end:
            return self.truncation(offset)
        message = (
            f"{self.name}: expected log records from offset {offset}, found the log to end at {end}: "
            "the table or the cluster was created anew, or has lost its newest records"
        )
        return OffsetsBeyondLogError(message)

    def _bound(self, kind: int) -> int:
        request = ListOffsetsRequest(
            follower_server_id=CLIENT,
            offset_type=kind,
            table_id=self.table.table_id,
            partition_id=self.bucket.partition_id,
            bucket_id=(self.bucket.bucket,),
            bucket_count_actual=self.bucket_count(),
        )
        response, server = self.call(request)
        for one in response.buckets_resp:
            what = f"LIST_OFFSETS of {self.name} at tablet server {server}"
            check_code(what, one.error_code, one.error_message, self.client.release)
            if one.offset is not None:
                return max(0, one.offset)
        message = f"LIST_OFFSETS of {self.name}: expected an offset, found none"
        raise ProtocolError(message)

    def moved(self) -> None:
        """Look for the new leader; raise if there is none because the table or the partition was dropped."""
        path = wire_path(self.table.path)
        self.client.forget_leaders(path)
        found = self.client.call_any(GetTableInfoRequest(table_path=path)).table_id
        if found != self.table.table_id:
            message = f"table {self.table.path}: expected id {self.table.table_id}, found {found}; it was created anew"
            raise TableGoneError(message)
        if self.bucket.partition_id is not None and not self._has_partition():
            # Not the table: the round is tried again, and finds the partitions that are left.
            message = f"{self.name}: its partition was dropped"
            raise TableError(message)

    def _has_partition(self) -> bool:
        listed = self.client.call_any(ListPartitionInfosRequest(table_path=wire_path(self.table.path)))
        return any(one.partition_id == self.bucket.partition_id for one in listed.partitions_info)

    @property
    def name(self) -> str:
        """The bucket, for messages."""
        return f"bucket {self.bucket} of table {self.table.path}"
