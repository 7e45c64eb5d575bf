"""A server with one keyed table and all that a tiering service asks of it: its queue, lake snapshots and leases."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.model.tables import Change
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.messages import (
    ErrorResponse,
    GetKvSnapshotMetadataRequest,
    GetKvSnapshotMetadataResponse,
    GetLatestKvSnapshotsResponse,
    GetTableInfoResponse,
    PbKvSnapshot,
)
from lakeward_source_fluss.wire.tiering_messages import (
    AcquireKvSnapshotLeaseRequest,
    AcquireKvSnapshotLeaseResponse,
    CommitLakeTableSnapshotRequest,
    CommitLakeTableSnapshotResponse,
    DropKvSnapshotLeaseRequest,
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
    ReleaseKvSnapshotLeaseRequest,
    ReleaseKvSnapshotLeaseResponse,
)
from lakeward_source_fluss_kit.oneserver import PATH, TABLE_ID, OneServer, compacted, log_batch
from lakeward_source_fluss_kit.schemas import dump_schema

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.ports import Clock
    from lakeward_source_fluss_kit.server import Answer, Call

TIMEOUT_S = 120.0
"""The server's `lake.tiering.heartbeat.timeout`."""


@dataclass
class TieringServer:
    """Rows `0` .. `rows` in a KV snapshot, the tiering queue, and leases by a clock of the test.

    Attributes:
        directory: of its snapshots and offsets files.
        clock: what heartbeats and leases are counted by.
        rows: how many there are.
        cleans_first: after a lease was dropped, and before a table is handed out, it takes a newer snapshot and cleans
            up, once.
        release: the server's.
        retained: the snapshots whose files are there.
        leases: lease id to when it runs out (ms), and the snapshot that it holds.
    """

    directory: Path
    clock: Clock
    rows: int
    cleans_first: bool = False
    release: Release = Release.V1_0
    retained: dict[int, GetKvSnapshotMetadataResponse] = field(default_factory=dict)
    leases: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin to listen."""
        self._lock = threading.RLock()
        self._epoch = 1
        self._tiering_since: int | None = None
        self._asked_after_drop = -1
        self._version = 0
        self._lake: GetLakeSnapshotResponse | None = None
        self.one = OneServer(primary_key=("id",), release=self.release)
        document = {
            "schema": json.loads(dump_schema(self.one.schema)),
            "bucket_key": ["id"],
            "bucket_count": 1,
            "properties": self.one.properties | {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"},
        }
        described = GetTableInfoResponse(
            table_id=TABLE_ID, schema_id=1, table_json=json.dumps(document).encode(), created_time=0, modified_time=0
        )
        self.one.further |= {
            ApiKey.GET_TABLE_INFO: lambda _: described,
            ApiKey.LAKE_TIERING_HEARTBEAT: self._heartbeat,
            ApiKey.GET_LAKE_SNAPSHOT: self._record,
            ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT: self._prepare,
            ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT: self._commit,
            ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: self._acquire,
            ApiKey.RELEASE_KV_SNAPSHOT_LEASE: self._release,
            ApiKey.DROP_KV_SNAPSHOT_LEASE: self._drop,
        }
        self._take_snapshot()

    def close(self) -> None:
        """Stop listening."""
        self.one.server.close()

    @property
    def held(self) -> set[int]:
        """The snapshots that leases hold now."""
        now = self.clock.wall_ms()
        return {snapshot for until, snapshot in self.leases.values() if until > now}

    @property
    def all_tiered(self) -> bool:
        """Whether the lake snapshot on record reaches the log's end, and no lease is left."""
        ends = [] if self._lake is None else [bucket.log_offset for bucket in self._lake.bucket_snapshots]
        return ends == [self.one.log_end] and not self.leases

    def value(self, key: int) -> str:
        """Return what a row holds now."""
        return f"v{self._version} of {key}"

    def clean_up(self) -> None:
        """Update every row, take a snapshot of that, and delete the earlier ones, but for those that are leased."""
        with self._lock:
            before = [compacted(key, self.value(key).encode()) for key in range(self.rows)]
            self._version += 1
            after = [compacted(key, self.value(key).encode()) for key in range(self.rows)]
            for change, rows in ((Change.UPDATE_BEFORE, before), (Change.UPDATE_AFTER, after)):
                self.one.batches.append(log_batch(self.one.log_end, rows, change=change))
            self._take_snapshot()
            for number in set(self.retained) - self.held - {max(self.retained)}:
                del self.retained[number]
                shutil.rmtree(self.directory / f"snap-{number}")

    def _take_snapshot(self) -> None:
        if not self.one.batches:
            rows = [compacted(key, self.value(key).encode()) for key in range(self.rows)]
            self.one.batches.append(log_batch(0, rows, change=Change.INSERT))
        number, end = self._version + 1, self.one.log_end
        values = (
            (key.to_bytes(4, "big"), b"\1\0" + compacted(key, self.value(key).encode())) for key in range(self.rows)
        )
        self.retained[number] = self.one.put_snapshot(self.directory / f"snap-{number}", values, end)
        latest = PbKvSnapshot(bucket_id=0, snapshot_id=number, log_offset=end)
        answer = GetLatestKvSnapshotsResponse(table_id=TABLE_ID, latest_snapshots=(latest,))
        self.one.further |= {
            ApiKey.GET_LATEST_KV_SNAPSHOTS: lambda _: answer,
            ApiKey.GET_KV_SNAPSHOT_METADATA: self._metadata,
        }

    # --- the queue ------------------------------------------------------------------------------------------------

    def _heartbeat(self, call: Call) -> Answer:
        with self._lock:
            asked, now = call.read(LakeTieringHeartbeatRequest), self.clock.wall_ms()
            if self._tiering_since is not None and now - self._tiering_since > TIMEOUT_S * 1000:
                self._tiering_since = None
            renewed = tuple(map(self._renewed, asked.tiering_tables))
            finished = tuple(map(self._ended, asked.finished_tables))
            failed = tuple(map(self._ended, asked.failed_tables))
            offer = self._offer() if asked.request_table else None
        return LakeTieringHeartbeatResponse(
            coordinator_epoch=0,
            tiering_table=offer,
            tiering_table_resp=renewed,
            finished_table_resp=finished,
            failed_table_resp=failed,
        )

    def _renewed(self, table: PbHeartbeatReqForTable) -> PbHeartbeatRespForTable:
        if self._tiering_since is None or table.tiering_epoch != self._epoch:
            error = ErrorResponse(error_code=ErrorCode.FENCED_TIERING_EPOCH)
            return PbHeartbeatRespForTable(table_id=table.table_id, error=error)
        self._tiering_since = self.clock.wall_ms()
        return PbHeartbeatRespForTable(table_id=table.table_id)

    def _ended(self, table: PbHeartbeatReqForTable) -> PbHeartbeatRespForTable:
        answer = self._renewed(table)
        if answer.error is None:
            self._tiering_since = None
        return answer

    def _offer(self) -> PbLakeTieringTableInfo | None:
        if self._tiering_since is not None or not self._may_hand_out():
            return None
        self._epoch += 1
        self._tiering_since = self.clock.wall_ms()
        return PbLakeTieringTableInfo(table_id=TABLE_ID, table_path=wire_path(PATH), tiering_epoch=self._epoch)

    def _may_hand_out(self) -> bool:
        """Wait some heartbeats after a drop: whatever a service lets go of with it is then let go of too."""
        if not self.cleans_first:
            return True
        if self._asked_after_drop < 0:
            return False
        self._asked_after_drop += 1
        if self._asked_after_drop < 5:
            return False
        self.clean_up()
        self.cleans_first = False
        return True

    # --- the lake's snapshots -------------------------------------------------------------------------------------

    def _record(self, _: Call) -> Answer:
        return ErrorResponse(error_code=ErrorCode.LAKE_SNAPSHOT_NOT_EXIST) if self._lake is None else self._lake

    def _prepare(self, call: Call) -> Answer:
        (table,) = call.read(PrepareLakeTableSnapshotRequest).bucket_offsets
        offsets = [bucket.log_end_offset for bucket in table.bucket_offsets]
        path = self.directory / f"offsets-{self._epoch}.json"
        path.write_text(json.dumps({"version": 1, "table_id": TABLE_ID, "bucket_offsets": offsets}), encoding="utf-8")
        answer = PbPrepareLakeTableRespForTable(table_id=TABLE_ID, lake_table_offsets_path=f"file:{path}")
        return PrepareLakeTableSnapshotResponse(prepare_lake_table_resp=(answer,))

    def _commit(self, call: Call) -> Answer:
        (table,) = call.read(CommitLakeTableSnapshotRequest).tables_req
        buckets = tuple(
            PbLakeSnapshotForBucket(bucket_id=one.bucket_id, log_offset=one.log_end_offset) for one in table.buckets_req
        )
        self._lake = GetLakeSnapshotResponse(table_id=TABLE_ID, snapshot_id=table.snapshot_id, bucket_snapshots=buckets)
        return CommitLakeTableSnapshotResponse(table_resp=(PbCommitLakeTableSnapshotRespForTable(table_id=TABLE_ID),))

    # --- KV snapshots and leases ----------------------------------------------------------------------------------

    def _metadata(self, call: Call) -> Answer:
        files = self.retained.get(call.read(GetKvSnapshotMetadataRequest).snapshot_id)
        return ErrorResponse(error_code=ErrorCode.KV_SNAPSHOT_NOT_EXIST) if files is None else files

    def _acquire(self, call: Call) -> Answer:
        asked = call.read(AcquireKvSnapshotLeaseRequest)
        ((one,),) = (table.bucket_snapshots for table in asked.snapshots_to_lease)
        with self._lock:
            self.leases[asked.lease_id] = (self.clock.wall_ms() + asked.lease_duration_ms, one.snapshot_id)
        return AcquireKvSnapshotLeaseResponse()

    def _release(self, call: Call) -> Answer:
        with self._lock:
            self.leases.pop(call.read(ReleaseKvSnapshotLeaseRequest).lease_id, None)
        return ReleaseKvSnapshotLeaseResponse()

    def _drop(self, call: Call) -> Answer:
        with self._lock:
            self.leases.pop(call.read(DropKvSnapshotLeaseRequest).lease_id, None)
            self._asked_after_drop = max(self._asked_after_drop, 0)
        return DropKvSnapshotLeaseResponse()
