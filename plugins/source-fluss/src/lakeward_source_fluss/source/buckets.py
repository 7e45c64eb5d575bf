"""The state of a table's buckets in one batch of calls: offsets by leader, snapshots and partitions by table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from lakeward.errors import ProtocolError, SourceError, TableGoneError
from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TableSpec
from lakeward_source_fluss.source.calls import MOVING, retry, run_parallel
from lakeward_source_fluss.source.naming import naming_right
from lakeward_source_fluss.source.partitions import Partition, historical_partition, listed_partitions
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.apis import LEASE_APIS, ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.errors import FlussServerError, PartitionMissingError, StaleMetadataError, check_code
from lakeward_source_fluss.wire.messages import (
    GetLatestKvSnapshotsRequest,
    ListOffsetsRequest,
)

if TYPE_CHECKING:
    from lakeward_source_fluss.rpc.client import FlussClient
    from lakeward_source_fluss.source.tables import TableCatalog

CLIENT = -1
"""`follower_server_id` of a client."""
EARLIEST, LATEST = 0, 1
PATIENCE_S = 20.0
"""A bucket may have no leader for some seconds, when it is new and when its server starts.

Source: fluss.md, "The protocol".
"""
NO_SNAPSHOT = 0
"""The id of a live snapshot, which has none."""


class BucketStates:
    """Asks servers for the state of tables' buckets."""

    def __init__(
        self, client: FlussClient, catalog: TableCatalog, first_round: Literal["files", "scan"] | None = None
    ) -> None:
        """Use an open client."""
        self._client = client
        self._catalog = catalog
        self._first_round = first_round

    def states(self, table: TableSpec) -> Sequence[BucketState]:
        """Return the state of each bucket. See `lakeward.ports.Source.buckets`."""
        self._catalog.check(table)
        # The late rows first. A partition of which there are any has expired, and is in no list that comes after them:
        # no round has rows of a key from its own partition and late ones, in an order that nobody knows.
        late = [historical_partition(self._client, table)] if table.late_rows else []
        states = [*self._states(table, late), *self._states(table, listed_partitions(self._client, table))]
        return sorted(states, key=lambda state: state.bucket.sort_key())

    def _states(self, table: TableSpec, partitions: Sequence[Partition]) -> Sequence[BucketState]:
        found = run_parallel(lambda partition: self._partition(table, partition), partitions)
        return [state for states in found for state in states]

    def _partition(self, table: TableSpec, partition: Partition) -> Sequence[BucketState]:
        """Return the buckets of one partition; one that was dropped meanwhile has no buckets."""
        # Of late rows there are no KV snapshots, and a scan has those alone that the server's lake does not have yet.
        keyed = table.has_primary_key and not partition.is_historical
        scans = keyed and self._client.supports(ApiKey.SCAN_KV)
        live = keyed and self._reads_live(scans=scans)
        try:
            # The snapshots first: the log never ends before what a snapshot of it stands for.
            snapshots = self._snapshots(table, partition) if keyed and not live else {}
            bounds = retry(
                lambda: self._bounds(table, partition),
                MOVING,
                PATIENCE_S,
                lambda: self._moved(table, partition),
            )
        except FlussServerError as refused:
            if partition.partition_id is not None and self._is_gone(table, partition, refused):
                return ()
            self._catalog.check(table)
            raise
        states = []
        for bucket in sorted(bounds, key=TableBucket.sort_key):
            start, end = bounds[bucket]
            snapshot = snapshots.get(bucket)
            # Where files and log do not join, nothing but a scan has all rows.
            joined = start <= (0 if snapshot is None else snapshot.log_offset)
            if live or (scans and not joined):
                snapshot = KvSnapshot(bucket, NO_SNAPSHOT, end, live=True)
            values = () if partition.is_historical else partition.values
            states.append(BucketState(bucket, values, start, end, snapshot))
        return states

    def _reads_live(self, *, scans: bool) -> bool:
        """Return whether a first round scans the servers.

        Raises:
            SourceError: that is wanted, and the servers cannot do it.
        """
        if self._first_round is None:
            return scans and not all(self._client.supports(api) for api in LEASE_APIS)
        if self._first_round == "scan" and not scans:
            message = 'source.first_round: expected "files", found "scan": the servers do not offer SCAN_KV'
            raise SourceError(message)
        return self._first_round == "scan"

    def _moved(self, table: TableSpec, partition: Partition) -> None:
        """Look for the new leaders; raise if there are none because the table or the partition was dropped."""
        self._client.forget_leaders(wire_path(table.path))
        self._catalog.check(table)
        if not self._is_there(table, partition):
            what = f"table {table.path}, partition {partition.name}"
            raise PartitionMissingError(what, ErrorCode.PARTITION_NOT_EXISTS)

    def _is_gone(self, table: TableSpec, partition: Partition, refused: FlussServerError) -> bool:
        # An unknown partition name is a -1 in some calls and a 36 in others (fluss.md, "KV snapshots and rows").
        passing = isinstance(refused, PartitionMissingError | StaleMetadataError)
        if not passing and refused.server_code != ErrorCode.UNKNOWN_SERVER_ERROR:
            return False
        return not self._is_there(table, partition)

    def _is_there(self, table: TableSpec, partition: Partition) -> bool:
        if partition.is_historical:
            return partition == historical_partition(self._client, table)
        return partition in listed_partitions(self._client, table)

    def _snapshots(self, table: TableSpec, partition: Partition) -> Mapping[TableBucket, KvSnapshot]:
        request = GetLatestKvSnapshotsRequest(table_path=wire_path(table.path), partition_name=partition.name)
        with naming_right(request.api, table.path):
            response = self._client.call_any(request)
        if (response.table_id, response.partition_id) != (table.table_id, partition.partition_id):
            message = f"table {table.path}: dropped and created anew, or its partition {partition.name}"
            raise TableGoneError(message)
        found = {}
        for one in response.latest_snapshots:
            if one.snapshot_id is not None and one.log_offset is not None:
                bucket = TableBucket(table.table_id, partition.partition_id, one.bucket_id)
                found[bucket] = KvSnapshot(bucket, one.snapshot_id, one.log_offset)
        return found

    def _bounds(self, table: TableSpec, partition: Partition) -> Mapping[TableBucket, tuple[int, int]]:
        """Return start and end of each bucket's log."""
        known = self._client.buckets(wire_path(table.path), partition.partition_id)
        count = table.buckets if known.count is None else known.count
        if len(known.leaders) < count:
            what = f"table {table.path}, partition {partition.name}: {len(known.leaders)} of {count} buckets"
            raise StaleMetadataError(what, ErrorCode.LEADER_NOT_AVAILABLE, "the others have no leader now")
        by_server: dict[int, list[int]] = defaultdict(list)
        for bucket, server in known.leaders.items():
            by_server[server].append(bucket)
        starts: dict[TableBucket, int] = {}
        ends: dict[TableBucket, int] = {}
        for server, buckets in by_server.items():
            request = ListOffsetsRequest(
                follower_server_id=CLIENT,
                offset_type=EARLIEST,
                table_id=table.table_id,
                partition_id=partition.partition_id,
                bucket_id=tuple(sorted(buckets)),
                bucket_count_actual=known.count,
            )
            starts |= self._offsets(table, server, request)
            ends |= self._offsets(table, server, replace(request, offset_type=LATEST))
        # A start is 0 or above, and retention may move it past the end that was asked for after it: never so here.
        return {bucket: (min(max(0, starts[bucket]), end), max(0, end)) for bucket, end in ends.items()}

    def _offsets(self, table: TableSpec, server: int, request: ListOffsetsRequest) -> Mapping[TableBucket, int]:
        found = {}
        with naming_right(request.api, table.path):
            listed = self._client.call_tablet(server, request).buckets_resp
        for one in listed:
            bucket = TableBucket(table.table_id, request.partition_id, one.bucket_id)
            what = f"LIST_OFFSETS of bucket {bucket} of table {table.path} at tablet server {server}"
            check_code(what, one.error_code, one.error_message, self._client.release)
            if one.offset is None:
                message = f"LIST_OFFSETS of bucket {bucket} of table {table.path}: expected an offset, found none"
                raise ProtocolError(message)
            found[bucket] = one.offset
        return found
