"""Lake snapshots at the server: PREPARE, COMMIT and what is on record (fluss.md, "Lake snapshots").

The server's COMMIT checks nothing and is not idempotent: sent twice it can delete the very offsets file that it
registered. So the record is asked first, each time; the previous snapshot is named as the earliest to keep, so that a
repeat deletes nothing; and `tables_req` is always sent, without which the server's remote log is never cleaned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakeward.errors import OutcomeUnknownError, SourceError, TableGoneError
from lakeward.model.tables import TableBucket, TableSpec
from lakeward.model.tiering import LakeRecord
from lakeward_source_fluss.source.naming import naming_right
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.errors import FlussServerError, LakeSnapshotMissingError, check_code
from lakeward_source_fluss.wire.tiering_messages import (
    CommitLakeTableSnapshotRequest,
    GetLakeSnapshotRequest,
    PbBucketOffset,
    PbLakeTableOffsetForBucket,
    PbLakeTableSnapshotInfo,
    PbLakeTableSnapshotMetadata,
    PbTableOffsets,
    PrepareLakeTableSnapshotRequest,
)

if TYPE_CHECKING:
    from lakeward_source_fluss.rpc.client import FlussClient
    from lakeward_source_fluss.source.tables import TableCatalog

_KEEP_ALL = -1
"""Lets the table's node in ZooKeeper grow by an entry: in a repair alone, where no earlier entry can be named."""
_Offsets = Mapping[TableBucket, int]


class LakeRegistry:
    """Registers lake snapshots, and repairs a record that cannot be read."""

    def __init__(self, client: FlussClient, catalog: TableCatalog) -> None:
        """Use an open client."""
        self._client = client
        self._catalog = catalog

    def record(self, table: TableSpec) -> LakeRecord | None:
        """Return what is on record. See `lakeward.ports.Source.lake_record`."""
        try:
            request = GetLakeSnapshotRequest(table_path=wire_path(table.path))
            with naming_right(request.api, table.path):
                response = self._client.call_any(request)
        except LakeSnapshotMissingError:
            return None
        if response.table_id != table.table_id:
            message = f"table {table.path}: expected id {table.table_id}, found {response.table_id}"
            raise TableGoneError(message)
        offsets = {
            TableBucket(table.table_id, bucket.partition_id, bucket.bucket_id): bucket.log_offset
            for bucket in response.bucket_snapshots
            if bucket.log_offset is not None and bucket.log_offset >= 0
        }
        return LakeRecord(response.snapshot_id, offsets)

    def prepare(self, table: TableSpec, offsets: _Offsets) -> str:
        """Store offsets. See `lakeward.ports.Source.prepare`.

        The server is told not to lay them over the previous ones: these are those of all buckets, a record that
        cannot be read would make it refuse, and buckets of dropped partitions would stay for ever.
        """
        request = PrepareLakeTableSnapshotRequest(
            bucket_offsets=(_table_offsets(table, offsets),), ignore_previous_table_offsets=True
        )
        what = f"PREPARE_LAKE_TABLE_SNAPSHOT of table {table.path} at the coordinator"
        for answer in self._client.call_coordinator(request).prepare_lake_table_resp:
            check_code(what, answer.error_code, answer.error_message, self._client.release)
            if answer.lake_table_offsets_path:
                return answer.lake_table_offsets_path
        message = f"{what}: expected the path of an offsets file, found none in the answer"
        raise SourceError(message)

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: _Offsets) -> None:
        """Register a lake snapshot unless it is. See `lakeward.ports.Source.commit`."""
        self._catalog.check(table)
        known, keep = self._known(table)
        if known is not None and known.snapshot_id == snapshot_id and dict(known.offsets) == dict(offsets):
            return
        try:
            self._commit(table, snapshot_id, prepared, offsets, keep)
        except OutcomeUnknownError:
            landed, _ = self._known(table)
            if landed is None or landed.snapshot_id != snapshot_id:
                raise

    def _known(self, table: TableSpec) -> tuple[LakeRecord | None, int | None]:
        """Return what is on record, and the earliest snapshot to keep besides the one that is to be registered."""
        try:
            known = self.record(table)
        except FlussServerError as refused:
            if refused.server_code != ErrorCode.UNKNOWN_SERVER_ERROR:
                raise
            return None, _KEEP_ALL
        return known, None if known is None else known.snapshot_id

    def _commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: _Offsets, keep: int | None) -> None:
        ends = tuple(
            PbLakeTableOffsetForBucket(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_end_offset=offset)
            for bucket, offset in _ordered(offsets)
        )
        request = CommitLakeTableSnapshotRequest(
            tables_req=(
                PbLakeTableSnapshotInfo(
                    table_id=table.table_id, snapshot_id=snapshot_id, buckets_req=ends, table_path=wire_path(table.path)
                ),
            ),
            lake_table_snapshot_metadata=(
                PbLakeTableSnapshotMetadata(
                    table_id=table.table_id,
                    snapshot_id=snapshot_id,
                    tiered_bucket_offsets_file_path=prepared,
                    readable_bucket_offsets_file_path=prepared,
                    earliest_snapshot_id_to_keep=keep,
                ),
            ),
        )
        what = f"COMMIT_LAKE_TABLE_SNAPSHOT of table {table.path} at the coordinator"
        for answer in self._client.call_coordinator(request).table_resp:
            check_code(what, answer.error_code, answer.error_message, self._client.release)


def _table_offsets(table: TableSpec, offsets: _Offsets) -> PbTableOffsets:
    entries = tuple(
        PbBucketOffset(partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_end_offset=offset)
        for bucket, offset in _ordered(offsets)
    )
    return PbTableOffsets(table_id=table.table_id, table_path=wire_path(table.path), bucket_offsets=entries)


def _ordered(offsets: _Offsets) -> list[tuple[TableBucket, int]]:
    return sorted(offsets.items(), key=lambda item: item[0].sort_key())
