"""Reads a KV snapshot: its files are fetched to a directory of our own, read, and deleted again."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import SnapshotGoneError, StorageError
from lakeward_source_fluss.formats.kvsnapshot import BATCH_ROWS, SnapshotFiles, read_values
from lakeward_source_fluss.formats.records import decode_values, raw_value
from lakeward_source_fluss.formats.rows import rows_at_once
from lakeward_source_fluss.source.calls import retry
from lakeward_source_fluss.source.naming import naming_right
from lakeward_source_fluss.source.table_formats import kv_encoding
from lakeward_source_fluss.source.undecodable import UNDECODABLE, UndecodableRows
from lakeward_source_fluss.wire.errors import SnapshotMissingError
from lakeward_source_fluss.wire.messages import GetKvSnapshotMetadataRequest, GetKvSnapshotMetadataResponse

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.splits import SnapshotSplit
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward_source_fluss.formats.rows import Rows
    from lakeward_source_fluss.formats.schema import FlussSchema
    from lakeward_source_fluss.formats.storage import Storage
    from lakeward_source_fluss.rpc.client import FlussClient

PATIENCE_S = 0.5
"""The server says that a snapshot does not exist for passing failures of its own too.

Source: fluss.md, "KV snapshots and rows".
"""


def snapshot_files(client: FlussClient, bucket: TableBucket, snapshot_id: int) -> GetKvSnapshotMetadataResponse:
    """Ask for the files of a snapshot: the one way to learn that it exists.

    Raises:
        SnapshotMissingError: it is gone; the server was asked several times.
    """
    request = GetKvSnapshotMetadataRequest(
        table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket, snapshot_id=snapshot_id
    )
    with naming_right(request.api, f"id {bucket.table_id}"):
        return retry(lambda: client.call_any(request), SnapshotMissingError, PATIENCE_S)


@dataclass(frozen=True, slots=True)
class SnapshotReading:
    """Reads snapshots of one table. `spool` is where directories for their files are made."""

    client: FlussClient
    storage: Storage
    table: TableSpec
    spool: Path

    def batches(
        self, split: SnapshotSplit, schemas: Mapping[int, FlussSchema], skip_rows: int = 0
    ) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield the rows of a snapshot in the table's columns, and the seconds that their decoding took.

        `schemas` are the table's, by id. The first `skip_rows` rows are passed over without decoding them.

        Raises:
            SnapshotGoneError: its files are gone.
            StorageError: they cannot be fetched, or there is no room for them.
        """
        name = f"table {self.table.path}, bucket {split.bucket}: KV snapshot {split.snapshot_id}"
        try:
            listed = snapshot_files(self.client, split.bucket, split.snapshot_id).snapshot_files
        except SnapshotMissingError as missing:
            message = f"{name} was cleaned away"
            raise SnapshotGoneError(message) from missing
        files = SnapshotFiles(tuple((one.remote_path, one.local_file_name) for one in listed), self.storage, name)
        try:
            scratch = tempfile.TemporaryDirectory(prefix="lakeward-kv-", dir=self.spool)
        except OSError as refused:
            message = f"{self.spool}: no directory for a KV snapshot can be made: {refused}"
            raise StorageError(message) from refused
        # A new worker loads the kernels meanwhile; where they are loaded the thread ends at once.
        threading.Thread(target=_load_kernels, name="load-kernels", daemon=True).start()
        with scratch as directory:
            files.download(Path(directory))
            batch_rows = min(BATCH_ROWS, rows_at_once(schemas[self.table.schema_id].columns))
            given = skip_rows
            for values in read_values(Path(directory), batch_rows, skip_rows):
                started = time.perf_counter()
                position = RowPositions(given, f"KV snapshot {split.snapshot_id}", split.log_offset)
                rows = decode_kv(values, schemas, self.table, split.bucket, position)
                given += len(values)
                yield rows, time.perf_counter() - started


def _load_kernels() -> None:
    from lakeward_source_fluss.formats import cells  # noqa: F401, PLC0415 - loading it compiles the kernels


@dataclass(frozen=True, slots=True)
class RowPositions:
    """Where rows of a snapshot lie, as text: it has no offsets.

    Attributes:
        first: the number of the first row.
        what: the snapshot or scan.
        log_offset: the offset that it stands at.
    """

    first: int
    what: str
    log_offset: int

    def __call__(self, row: int) -> str:
        """Return a row's position."""
        return f"below {self.log_offset} (row {self.first + row} of {self.what})"


def decode_kv(
    values: Rows, schemas: Mapping[int, FlussSchema], table: TableSpec, bucket: TableBucket, position: RowPositions
) -> pa.RecordBatch:
    """Decode KV values of a bucket, each a schema id and a row, into as many rows.

    `schemas` are the table's, by id; the table gives the columns and the row format. `position` is where the values
    lie, for errors.

    Raises:
        RowError: one cannot be decoded; names bucket, position, column and value.
    """
    encoding = kv_encoding(table)

    def part(columns: pa.Schema, first: int, rows: int) -> pa.RecordBatch:
        return decode_values(values.slice(first, rows), schemas, columns, encoding)

    try:
        return part(table.schema, 0, len(values))
    except UNDECODABLE as broken:
        raise UndecodableRows(
            table,
            bucket,
            len(values),
            part,
            position,
            lambda row, name: raw_value(values, row, name, schemas, encoding),
        ).error(broken) from broken
