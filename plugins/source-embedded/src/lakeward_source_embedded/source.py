"""The embedded store as a source: the driver side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from lakeward.ports import CheckResult
from lakeward_source_embedded.catalog import bucket_at, check_exists, key_of
from lakeward_source_embedded.options import table_options
from lakeward_source_embedded.reader import ReaderTask
from lakeward_source_embedded.split_sizes import split_sizes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakeward.model.splits import Split
    from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath, TableSpec
    from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, LakeRecord
    from lakeward.ports import SnapshotLeases
    from lakeward.ports.source import SplitSize
    from lakeward_source_embedded.store import EmbeddedStore

_EXISTING = """
SELECT s.table_id, s.partition_id, s.bucket, s.snapshot_id, s.file
FROM json_each(?) j JOIN snapshots s ON s.table_id = j.value ->> 0 AND s.partition_id = j.value ->> 1
  AND s.bucket = j.value ->> 2 AND s.snapshot_id = j.value ->> 3"""
_PENDING_SINCE = """
SELECT MIN((
  SELECT s.timestamp_ms FROM segments s
  WHERE s.table_id = :table AND s.partition_id = j.value ->> 0 AND s.bucket = j.value ->> 1
    AND s.stop > j.value ->> 2 AND s.rows > 0 ORDER BY s.stop LIMIT 1))
FROM json_each(:behind) j"""


class EmbeddedSource:
    """See `lakeward.ports.Source`."""

    name = "embedded"

    def __init__(self, store: EmbeddedStore) -> None:
        """Serve an open store; `close` closes it."""
        self.store = store
        self.leases: SnapshotLeases = store.lease_table

    def describe(self) -> Sequence[CheckResult]:
        """See `lakeward.ports.DescribedSource`."""
        tables = self.all_tables()
        named = f"{len(tables)} table{'' if len(tables) == 1 else 's'}, {len(self.tables())} of them lake-enabled"
        return (
            CheckResult("tables", ok=True, message=f"{self.store.root}: {named}"),
            *(CheckResult("tables", ok=True, message=one.unreadable, warning=True) for one in tables if one.unreadable),
            CheckResult("leases", ok=True, message="leases protect KV snapshots"),
            CheckResult("tiering", ok=True, message="hands tables out and keeps their lake snapshots on record"),
        )

    def tables(self) -> Sequence[TableSpec]:
        """See Protocol."""
        return tuple(spec for spec in self.store.tables() if table_options(spec.properties).lake_enabled)

    def all_tables(self) -> Sequence[TableSpec]:
        """See Protocol."""
        return tuple(self.store.tables())

    def table(self, path: TablePath) -> TableSpec:
        """See Protocol."""
        return self.store.table(path)

    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        """See Protocol."""
        return self.store.catalog.buckets(table)

    def missing_snapshots(self, snapshots: Collection[KvSnapshot]) -> frozenset[KvSnapshot]:
        """See Protocol. A snapshot exists if it is registered and its file exists."""
        keys = {(*key_of(snapshot.bucket), snapshot.snapshot_id): snapshot for snapshot in snapshots}
        with self.store.database.read() as sql:
            rows = sql.execute(_EXISTING, (json.dumps(list(keys)),)).fetchall()
        existing = {tuple(row[:4]) for row in rows if (self.store.root / row[4]).is_file()}
        return frozenset(snapshot for key, snapshot in keys.items() if key not in existing)

    def split_sizes(self, table: TableSpec, splits: Sequence[Split]) -> Sequence[SplitSize]:
        """See `lakeward.ports.source.SizedSource`."""
        return split_sizes(self.store.database, self.store.root, table, splits)

    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        """See Protocol."""
        with self.store.database.read() as sql:
            check_exists(sql, table)
            query = "SELECT partition_id, bucket, log_start, log_end FROM buckets WHERE table_id = ?"
            rows = sql.execute(query, (table.table_id,)).fetchall()
            behind = []
            for partition_id, bucket, start, end in rows:
                offset = max(start, offsets.get(bucket_at(table.table_id, partition_id, bucket), 0))
                if end > offset:
                    behind.append((partition_id, bucket, offset))
            arguments = {"table": table.table_id, "behind": json.dumps(behind)}
            found: int | None = sql.execute(_PENDING_SINCE, arguments).fetchone()[0]
        return found

    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        """See Protocol."""
        return self.store.queue.heartbeat(heartbeat)

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """See Protocol. Tables that are being tiered, or are pending already, are unchanged."""
        self.store.queue.make_due(paths)
        return True

    def lake_record(self, table: TableSpec) -> LakeRecord | None:
        """See Protocol."""
        return self.store.offsets.record(table)

    def read_offsets(self, table: TableSpec, path: str) -> Mapping[TableBucket, int]:
        """See Protocol."""
        return self.store.offsets.read(table, path)

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        """See Protocol."""
        return self.store.offsets.prepare(table, offsets)

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """See Protocol."""
        self.store.offsets.commit(table, snapshot_id, prepared, offsets)

    def reader_task(self, table: TableSpec) -> bytes:  # noqa: ARG002 - the port gives it; ours needs no more than the path
        """See Protocol."""
        return msgspec.msgpack.encode(ReaderTask(str(self.store.root)))

    def close(self) -> None:
        """See Protocol."""
        self.store.close()
