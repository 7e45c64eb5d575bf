"""The conformance suite's world on a real cluster. Its clock cannot be moved, so what needs long times is skipped."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath, TableSpec
from lakeward.model.tiering import HeartbeatRequest
from lakeward.ports import SourceReader
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.source.connect import connect
from lakeward_source_fluss.source.plugin import FlussSourcePlugin
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss_kit.clusters import LakeCluster
from lakeward_source_fluss_kit.messages import AlterTableRequest, PbAddColumn, PbAlterConfig
from lakeward_testing.source_world import SCHEMA
from lakeward_testing.waiting import wait_until

LONGEST_S = 10.0
"""Seconds that a test may really wait."""
DUE_S = 5.0
"""A table of 1 s freshness is in the queue after so long: the server's timer ticks once a second, if it is not busy."""


class FlussWorld:
    """See `lakeward_testing.source_world.SourceWorld`."""

    tiering_timeout_s = 120.0

    def __init__(self, cluster: LakeCluster, *, queue: bool, lake: bool = True) -> None:
        """Open the source.

        Args:
            cluster: shared by many worlds, one after another.
            queue: whether the test is about the tiering queue: tables are then made due before it begins.
            lake: whether tables are lake-enabled; a 0.9 server adds no column to one whose lake is Iceberg.
        """
        self.source = cluster.source()
        self._cluster = cluster
        self._queue = queue
        self._lake = lake
        self._client: FlussClient = connect(cluster.options)
        self._readers: list[SourceReader] = []
        self._schemas: dict[TablePath, pa.Schema] = {}
        self._partitioned: set[TablePath] = set()
        self._freshness: dict[TablePath, float] = {}

    def close(self) -> None:
        """Drop all tables and close what was opened."""
        for path in list(self._schemas):
            self.drop(path)
        for reader in self._readers:
            reader.close()
        self._client.close()
        self.source.close()

    def reader(self, table: TableSpec) -> SourceReader:
        """See Protocol."""
        reader = FlussSourcePlugin().reader(self.source.reader_task(table), table)
        self._readers.append(reader)
        return reader

    def create(
        self,
        path: TablePath,
        *,
        primary_key: bool,
        partitioned: bool = False,
        buckets: int = 1,
        freshness_s: float = 60,
    ) -> TableSpec:
        """See Protocol."""
        partition = ["day"] if partitioned else []
        properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s" if self._queue else "1h"}
        coordinator = self._coordinator_epoch()
        self._cluster.writer.create(
            str(path),
            SCHEMA,
            key=["id", *partition] if primary_key else [],
            partition=partition,
            buckets=buckets,
            bucket_key=["id"],
            properties=properties if self._lake else {},
        )
        self._schemas[path] = SCHEMA
        if partitioned:
            self._partitioned.add(path)
        if self._queue:
            self._freshness[path] = freshness_s
            # The writer restarts a coordinator that missed the table, and a new one counts the freshness of all others
            # from its start.
            anew = list(self._freshness) if self._coordinator_epoch() != coordinator else [path]
            self._make_due(anew)
        return self.source.table(path)

    def _coordinator_epoch(self) -> int:
        return self.source.heartbeat(HeartbeatRequest()).coordinator_epoch

    def _make_due(self, paths: Sequence[TablePath]) -> None:
        """Wait until tables are in the queue, then give them the freshness that they are to have."""
        for path in paths:
            self._alter_freshness(path, 1)
        time.sleep(DUE_S)
        for path in paths:
            self._alter_freshness(path, self._freshness[path])

    def set_freshness(self, path: TablePath, freshness_s: float) -> None:
        """Change a table's freshness; one that is due stays due."""
        self._freshness[path] = freshness_s
        self._alter_freshness(path, freshness_s)

    def _alter_freshness(self, path: TablePath, freshness_s: float) -> None:
        change = PbAlterConfig(config_key="table.datalake.freshness", config_value=f"{freshness_s:.0f}s", op_type=0)
        request = AlterTableRequest(table_path=wire_path(path), ignore_if_not_exists=False, config_changes=(change,))
        self._client.call_coordinator(request)

    def write(self, path: TablePath, rows: Sequence[tuple[str, int, str]], day: str = "mon") -> None:
        """See Protocol."""
        if path in self._partitioned:
            self._cluster.writer.partition(str(path), {"day": day})
        if self.source.table(path).has_primary_key:
            changes = [(operation, self._row(path, number, name, day)) for operation, number, name in rows]
            # pyfluss wants nothing but the key of a row that is deleted.
            key = ["id", "day"] if path in self._partitioned else ["id"]
            self._cluster.writer.change(
                str(path),
                [(one, row if one != "delete" else {name: row[name] for name in key}) for one, row in changes],
            )
            return
        values = [self._row(path, number, name, day) for _, number, name in rows]
        self._cluster.writer.append(str(path), pa.Table.from_pylist(values, schema=self._schemas[path]))

    def snapshot(self, path: TablePath) -> None:
        """See Protocol. The server takes them by itself, each second; the newest is waited for."""
        table = self.source.table(path)

        def is_whole() -> bool:
            states = [state for state in self.source.buckets(table) if state.end]
            return all(state.snapshot is not None and state.snapshot.log_offset == state.end for state in states)

        wait_until(is_whole, f"a snapshot of {path}")

    def drop(self, path: TablePath) -> None:
        """See Protocol. The server deletes the table's snapshots a moment after it has answered."""
        self._cluster.drop(str(path))
        self.advance(1.0)
        self._schemas.pop(path, None)
        self._partitioned.discard(path)
        self._freshness.pop(path, None)

    def add_column(self, path: TablePath, name: str) -> None:
        """See Protocol."""
        kind = json.dumps({"type": "STRING"}).encode()
        column = PbAddColumn(column_name=name, data_type_json=kind, column_position_type=0)
        request = AlterTableRequest(table_path=wire_path(path), ignore_if_not_exists=False, add_columns=(column,))
        self._client.call_coordinator(request)
        self._schemas[path] = self._schemas[path].append(pa.field(name, pa.string()))

    def append_empty(self, path: TablePath, bucket: int, count: int) -> None:
        """See Protocol. Log tables have no empty batches."""
        raise NotImplementedError

    def trim(self, path: TablePath, bucket: int, before: int) -> None:
        """See Protocol. A server trims by age, and by whole segments alone."""
        pytest.skip("a server cannot be told to trim its log; see the test of remote segments")

    def set_lease_api(self, *, on: bool) -> None:
        """See Protocol. This server is not old."""
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        """See Protocol."""
        if seconds > LONGEST_S:
            pytest.skip(f"needs {seconds:g} s of real time")
        time.sleep(seconds)

    def _row(self, path: TablePath, number: int, name: str, day: str) -> dict[str, object]:
        further = dict.fromkeys(self._schemas[path].names)
        return further | {"id": number, "name": name, "day": day}
