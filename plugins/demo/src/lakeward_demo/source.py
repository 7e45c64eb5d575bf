"""The demo's tables in the embedded store, and what happens to their KV snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakeward_demo.store import SnapshotCount
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakeward.model.tables import TableBucket
    from lakeward_demo.store import DemoTable, SnapshotKey

FRESHNESS_S = 2.0
_KEYED_PROPERTIES = {
    # More than one snapshot of each bucket for each day that is fed, and only the newest one is kept: clean-up
    # races against whoever reads an older one.
    "table.kv.snapshot.interval-s": "0",
    "table.kv.snapshot.rows": "600",
    "table.kv.snapshot.num-retained": "1",
}
_NOT_TIERED = {"table.datalake.enabled": "false"}
_TAKEN = "SELECT SUM(next_snapshot) FROM buckets WHERE table_id = ?"
_COUNT = "SELECT COUNT(*) FROM snapshots WHERE table_id = ?"
_SUPERSEDED = """
SELECT s.partition_id, s.bucket, s.snapshot_id
FROM snapshots s JOIN buckets b USING (table_id, partition_id, bucket)
WHERE s.table_id = ? AND s.snapshot_id < b.snapshot_id"""


class EmbeddedDemo:
    """See `lakeward_demo.store.DemoStore`. Due snapshots and clean-up follow each load."""

    def __init__(self, store: EmbeddedStore) -> None:
        """Use an open store; `close` closes it."""
        self.store = store

    @classmethod
    def open(cls, directory: str) -> EmbeddedDemo:
        """Open the store of a directory."""
        return cls(EmbeddedStore.open(Path(directory)))

    def create(self, table: DemoTable) -> None:
        """See Protocol."""
        self.store.create_table(
            table.path,
            table.columns,
            primary_key=table.primary_key,
            partition_keys=table.partition_keys,
            buckets=table.buckets,
            freshness_s=FRESHNESS_S,
            properties=(_KEYED_PROPERTIES if table.primary_key else {}) | ({} if table.tiered else _NOT_TIERED),
        )

    def load(self, table: DemoTable, rows: pa.Table, change: str | None = None) -> None:
        """See Protocol."""
        self.store.load(table.path, rows, change=change)

    def settle(self, table: DemoTable) -> None:
        """See Protocol. Snapshots were taken when rows were loaded."""

    def snapshots(self, table: DemoTable) -> SnapshotCount:
        """See Protocol."""
        table_id = self._table_id(table)
        with self.store.database.read() as sql:
            taken = int(sql.execute(_TAKEN, (table_id,)).fetchone()[0] or 0)
            there = int(sql.execute(_COUNT, (table_id,)).fetchone()[0])
        return SnapshotCount(taken, taken - there)

    def superseded(self, table: DemoTable) -> frozenset[SnapshotKey]:
        """See Protocol. Only the newest is retained, so right after a clean-up a lease has saved the others."""
        with self.store.database.read() as sql:
            return frozenset(sql.execute(_SUPERSEDED, (self._table_id(table),)).fetchall())

    def ends(self, table: DemoTable) -> Mapping[TableBucket, int]:
        """See Protocol."""
        return {state.bucket: state.end for state in self.store.buckets(table.path)}

    def registered(self, table: DemoTable) -> Mapping[TableBucket, int]:
        """See Protocol."""
        record = self.store.offsets.record(self.store.table(table.path))
        return {} if record is None else record.offsets

    def leases(self) -> int:
        """See Protocol."""
        return len(self.store.leases())

    def close(self) -> None:
        """See Protocol."""
        self.store.close()

    def _table_id(self, table: DemoTable) -> int:
        return self.store.table(table.path).table_id
