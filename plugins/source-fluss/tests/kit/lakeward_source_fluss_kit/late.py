"""A server whose table has had a partition dropped: rows that come for it later are in `__historical__`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward_source_fluss.formats.schema import FlussSchema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss.source.partitions import HISTORICAL
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.messages import (
    ErrorResponse,
    GetLatestKvSnapshotsRequest,
    GetLatestKvSnapshotsResponse,
    ListDatabasesResponse,
    ListTablesResponse,
)
from lakeward_source_fluss.wire.tiering_messages import (
    CommitLakeTableSnapshotRequest,
    CommitLakeTableSnapshotResponse,
    DropKvSnapshotLeaseResponse,
    GetLakeSnapshotResponse,
    LakeTieringHeartbeatRequest,
    LakeTieringHeartbeatResponse,
    PbCommitLakeTableSnapshotRespForTable,
    PbHeartbeatReqForTable,
    PbHeartbeatRespForTable,
    PbLakeSnapshotForBucket,
    PbLakeTieringTableInfo,
    PbPrepareLakeTableRespForTable,
    PrepareLakeTableSnapshotRequest,
    PrepareLakeTableSnapshotResponse,
)
from lakeward_source_fluss_kit.oneserver import log_batch, varint
from lakeward_source_fluss_kit.rescaled import PATH, TABLE_ID, Part, RescaledServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.tables import TableSpec
    from lakeward_source_fluss_kit.server import Answer, Call

LATE = 7
"""The id of the partition with late rows."""
MON = 8
"""The id of a partition that is there."""
_NUMBER = FlussType(Kind.INTEGER, nullable=False)
_COLUMNS = (
    FlussField("id", _NUMBER),
    FlussField("day", FlussType(Kind.STRING, nullable=False)),
    FlussField("v", FlussType(Kind.STRING)),
)
_PROPERTIES = {
    "table.datalake.enabled": "true",
    "table.datalake.freshness": "1s",
    "table.datalake.format": "paimon",
    "table.datalake.historical-partition.enabled": "true",
}
Row = tuple[int, int, str, str]


@dataclass
class LateServer(RescaledServer):
    """Serves `db.days`, of columns `id`, `day` and `v`, with a bucket count for all partitions. Use `made`."""

    directory: Path = Path()
    """Of its offsets files."""
    logs: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    """By partition and bucket, a batch for each row."""
    is_tiering: bool = False
    """Whether the table is handed out."""
    prepared: dict[tuple[int | None, int], int] = field(default_factory=dict)
    """The offsets that were prepared last, by partition and bucket."""
    registered: GetLakeSnapshotResponse | None = None
    """The newest lake snapshot that it was told of."""

    @classmethod
    def made(cls, *, key: bool = False, buckets: int = 2, directory: Path = Path()) -> LateServer:
        """Begin to listen, with an empty `mon` and an empty partition for late rows."""
        schema = FlussSchema(_COLUMNS, ("id", "day") if key else ())
        parts = {"mon": Part(MON, buckets), HISTORICAL: Part(LATE, buckets)}
        return cls(buckets, parts, schema=schema, properties=_PROPERTIES, directory=directory)

    @property
    def table(self) -> TableSpec:
        """The table, as the source describes it."""
        keys = self.schema.primary_key
        return replace(super().table, schema=self.schema.to_arrow(), primary_key=keys, late_rows=True)

    def add(self, partition_id: int, bucket: int, *rows: Row) -> None:
        """Append rows to a bucket's log, each as a batch of its own."""
        log = self.logs.setdefault((partition_id, bucket), [])
        for change, number, day, value in rows:
            texts = b"".join(varint(len(text)) + text.encode() for text in (day, value))
            log.append(log_batch(len(log), [b"\0" + varint(number) + texts], change=change))

    def expire(self, day: str) -> None:
        """Drop a partition, as the coordinator does with those that are old."""
        del self.parts[day]

    def end_of(self, partition_id: int, bucket: int) -> int:
        """See `RescaledServer`."""
        return len(self.logs.get((partition_id, bucket), ()))

    def log_of(self, partition_id: int, bucket: int, start: int) -> bytes:
        """See `RescaledServer`."""
        return b"".join(self.logs.get((partition_id, bucket), [])[start:])

    # --- what a tiering service asks --------------------------------------------------------------------------------

    def _answer(self, call: Call) -> Answer:
        answers: dict[int, Callable[[Call], Answer]] = {
            ApiKey.LIST_DATABASES: lambda _: ListDatabasesResponse(database_name=(PATH.database,)),
            ApiKey.LIST_TABLES: lambda _: ListTablesResponse(table_name=(PATH.table,)),
            ApiKey.GET_LATEST_KV_SNAPSHOTS: self._no_snapshots,
            ApiKey.LAKE_TIERING_HEARTBEAT: self._heartbeat,
            ApiKey.GET_LAKE_SNAPSHOT: lambda _: self.registered or _NO_SNAPSHOT,
            ApiKey.DROP_KV_SNAPSHOT_LEASE: lambda _: DropKvSnapshotLeaseResponse(),
            ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT: self._prepare,
            ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT: self._commit,
        }
        return answers[call.api](call) if call.api in answers else super()._answer(call)

    def _no_snapshots(self, call: Call) -> Answer:
        name = call.read(GetLatestKvSnapshotsRequest).partition_name or ""
        return GetLatestKvSnapshotsResponse(table_id=TABLE_ID, partition_id=self.parts[name].partition_id)

    def _heartbeat(self, call: Call) -> Answer:
        asked = call.read(LakeTieringHeartbeatRequest)
        ended = [*asked.finished_tables, *asked.failed_tables]
        self.is_tiering = self.is_tiering and not ended
        offer = None
        if asked.request_table and not self.is_tiering:
            self.is_tiering = True
            offer = PbLakeTieringTableInfo(table_id=TABLE_ID, table_path=wire_path(PATH), tiering_epoch=1)
        return LakeTieringHeartbeatResponse(
            coordinator_epoch=0,
            tiering_table=offer,
            tiering_table_resp=tuple(map(_taken, asked.tiering_tables)),
            finished_table_resp=tuple(map(_taken, asked.finished_tables)),
            failed_table_resp=tuple(map(_taken, asked.failed_tables)),
        )

    def _prepare(self, call: Call) -> Answer:
        (table,) = call.read(PrepareLakeTableSnapshotRequest).bucket_offsets
        offsets: dict[int | None, dict[int, int]] = {}
        for one in table.bucket_offsets:
            offsets.setdefault(one.partition_id, {})[one.bucket_id] = one.log_end_offset or 0
        self.prepared = {(part, bucket): end for part, ends in offsets.items() for bucket, end in ends.items()}
        partitions = [
            {"partition_id": part, "bucket_offsets": [ends.get(number, -1) for number in range(self.table_buckets)]}
            for part, ends in offsets.items()
        ]
        path = self.directory / f"offsets-{len(list(self.directory.iterdir()))}.json"
        document = {"version": 1, "table_id": TABLE_ID, "partition_offsets": partitions}
        path.write_text(json.dumps(document), encoding="utf-8")
        answer = PbPrepareLakeTableRespForTable(table_id=TABLE_ID, lake_table_offsets_path=f"file:{path}")
        return PrepareLakeTableSnapshotResponse(prepare_lake_table_resp=(answer,))

    def _commit(self, call: Call) -> Answer:
        (table,) = call.read(CommitLakeTableSnapshotRequest).tables_req
        buckets = tuple(
            PbLakeSnapshotForBucket(
                partition_id=one.partition_id, bucket_id=one.bucket_id, log_offset=one.log_end_offset
            )
            for one in table.buckets_req
        )
        snapshot_id = table.snapshot_id
        self.registered = GetLakeSnapshotResponse(table_id=TABLE_ID, snapshot_id=snapshot_id, bucket_snapshots=buckets)
        return CommitLakeTableSnapshotResponse(table_resp=(PbCommitLakeTableSnapshotRespForTable(table_id=TABLE_ID),))


_NO_SNAPSHOT = ErrorResponse(error_code=ErrorCode.LAKE_SNAPSHOT_NOT_EXIST)


def _taken(table: PbHeartbeatReqForTable) -> PbHeartbeatRespForTable:
    return PbHeartbeatRespForTable(table_id=table.table_id)
