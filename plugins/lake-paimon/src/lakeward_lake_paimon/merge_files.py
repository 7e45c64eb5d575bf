"""Merges the files of one bucket, in an executor: reads runs side by side, and writes new files in the order of keys.

Memory does not grow with the bucket: of each run a batch of rows is held, of what is written one row group. Batches are
the smaller the more runs there are, and the longer their rows.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.errors import StorageError
from lakeward.local_files import storage_errors
from lakeward_lake_paimon.binary_row import decode_row
from lakeward_lake_paimon.column_stats import ColumnStats
from lakeward_lake_paimon.datafile import PARQUET, ParquetFile, parquet_options
from lakeward_lake_paimon.key_rows import DELETE, KEY_PREFIX, SEQUENCE, UPDATE_BEFORE, VALUE_KIND, KeyEnds, KeyLayout
from lakeward_lake_paimon.manifests import FROM_COMPACTION, DataFile
from lakeward_lake_paimon.merging import merge_runs
from lakeward_lake_paimon.parquet_batches import read_batches
from lakeward_lake_paimon.partitions import partition_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward_lake_paimon.merge_task import MergeFile, MergeTask
    from lakeward_lake_paimon.storage import Storage
    from lakeward_lake_paimon.table_schema import TableSchema

MEMORY_BYTES = 128 << 20
"""What rows that are held may take, roughly: a fourth is a row group, the rest are batches and what is made of them."""
_BATCH_ROWS = 65_536
_LEAST_ROWS = 64
_GROUP_ROWS = 1 << 17
_COPIES = 4
"""A row is held so often at the most: as it was read, cast, gathered with those of other runs, and sorted."""
_LEAST_BUFFER, _BUFFER = 16 << 10, 1 << 20
"""Bytes that are read at once of one column of one file."""
_GONE = pa.array([UPDATE_BEFORE, DELETE], pa.int8())


def merge_files(
    storage: Storage, task: MergeTask, attempt: int, check: Callable[[], None], memory_bytes: int = MEMORY_BYTES
) -> list[DataFile]:
    """Write the merged rows; return the new files. `check` is called between two batches of rows, and may raise.

    Raises:
        StorageError: the storage refused, or a file is gone.
    """
    merging = _Merging(storage, task, attempt, memory_bytes)
    try:
        with storage_errors(task.location):
            return merging.run(check)
    except BaseException:
        merging.drop()
        raise


class _Merging:
    """One try of a task."""

    def __init__(self, storage: Storage, task: MergeTask, attempt: int, memory_bytes: int) -> None:
        self._storage = storage
        self._task = task
        self._memory_bytes = memory_bytes
        schemas = task.table_schemas
        self._schema, self._schemas = schemas[0], {one.id: one for one in schemas}
        self._layout = KeyLayout(self._schema)
        kinds = [field.kind for field in self._schema.named(self._schema.partition_keys)]
        folder = partition_folder(self._schema, decode_row(task.partition, kinds))
        place = f"{task.location}/{folder}bucket-{task.bucket}"
        self._stem = f"{place}/data-{task.token}-b{task.bucket}-{attempt}-{secrets.token_hex(4)}"
        self._options = parquet_options(self._schema, task.compression, task.compression_level)
        self._out: _Output | None = None
        self._written: list[str] = []

    def run(self, check: Callable[[], None]) -> list[DataFile]:
        """Merge."""
        check()
        rows, buffer = self._sizes()
        runs = [self._ordered(run, rows, buffer) for run in self._task.runs]
        done: list[DataFile] = []
        for group in self._grouped(self._kept(merge_runs(runs, self._layout.key_names), check)):
            if self._out is None:
                path = f"{self._stem}-{len(done) + 1:05d}{PARQUET}"
                self._written.append(path)
                self._out = _Output(ParquetFile(self._storage, path, self._layout.schema, self._options), self._layout)
            self._out.write(group)
            if self._out.file.size_bytes >= self._task.target_size_bytes:
                done.append(self._close(self._out))
        if self._out is not None:
            done.append(self._close(self._out))
        return done

    def drop(self) -> None:
        """Delete what was written; what cannot be deleted now is found by the prefix of its job."""
        if self._out is not None:
            self._out.file.drop()
        for path in self._written:
            with suppress(StorageError):
                self._storage.delete(path)

    def _close(self, out: _Output) -> DataFile:
        file = out.close(self._schema, self._task.level)
        self._out = None
        return file

    def _sizes(self) -> tuple[int, int]:
        """Return how many rows of each run are read at once, and how many bytes of each column."""
        runs, columns = len(self._task.runs), len(self._layout.schema)
        widest = 1
        for run in self._task.runs:
            with storage_errors(run[0].path), self._storage.open(run[0].path) as source:
                told = pq.read_metadata(source)
                size = sum(told.row_group(number).total_byte_size for number in range(told.num_row_groups))
                widest = max(widest, size // max(1, told.num_rows))
        rows = self._memory_bytes // (runs * widest * _COPIES)
        buffer = self._memory_bytes // (runs * columns * _COPIES)
        return min(_BATCH_ROWS, max(_LEAST_ROWS, rows)), min(_BUFFER, max(_LEAST_BUFFER, buffer))

    def _ordered(self, run: Sequence[MergeFile], rows: int, buffer: int) -> Iterator[pa.Table]:
        """Yield the rows of one run in the order of their keys."""
        ids = {field.name: field.id for field in self._schema.fields}
        for file in run:
            fields = self._schemas[file.schema_id].fields
            then = {field.id: field.name for field in fields}
            kinds = {f"{prefix}{field.name}": field.kind for field in fields for prefix in ("", KEY_PREFIX)}
            with storage_errors(file.path), self._storage.open(file.path) as source:
                for batch in read_batches(source, kinds, rows, buffer):
                    columns, held = [], set(batch.schema.names)
                    for field in self._layout.schema:
                        # A column is known by its id, whatever it was called when the file was written.
                        name = then.get(ids[field.name]) if field.name in ids else field.name
                        there = name is not None and name in held
                        columns.append(
                            pc.cast(batch.column(name), field.type) if there else pa.nulls(len(batch), field.type)
                        )
                    yield pa.Table.from_arrays(columns, schema=self._layout.schema)

    def _kept(self, tables: Iterator[pa.Table], check: Callable[[], None]) -> Iterator[pa.Table]:
        for rows in tables:
            check()
            if self._task.drops_deletes:
                yield rows.filter(pc.invert(pc.is_in(rows.column(VALUE_KIND), value_set=_GONE)))
            else:
                yield rows

    def _grouped(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Gather rows up to the size of a row group."""
        pending: list[pa.Table] = []
        count = size = 0
        for rows in tables:
            if rows.num_rows:
                pending.append(rows)
                count, size = count + rows.num_rows, size + rows.nbytes
            if count >= _GROUP_ROWS or size >= self._memory_bytes // _COPIES:
                yield pa.concat_tables(pending).combine_chunks()
                pending.clear()
                count = size = 0
        if pending:
            yield pa.concat_tables(pending).combine_chunks()


class _Output:
    """One file that is being written."""

    def __init__(self, file: ParquetFile, layout: KeyLayout) -> None:
        self.file = file
        self._layout = layout
        self._ends = KeyEnds(layout)
        self._sequences: list[int] = []
        self._deleted = 0

    def write(self, rows: pa.Table) -> None:
        self.file.write(rows)
        self._ends.add(rows)
        found = pc.min_max(rows.column(SEQUENCE))
        self._sequences += [found["min"].as_py(), found["max"].as_py()]
        self._deleted += pc.sum(pc.is_in(rows.column(VALUE_KIND), value_set=_GONE)).as_py() or 0

    def close(self, schema: TableSchema, level: int) -> DataFile:
        size = self.file.close()
        first, last = self._ends.rows()
        keys, _ = ColumnStats.of_keys(schema, self._layout.schema, KEY_PREFIX).gather(self.file)
        values, columns = ColumnStats.of_values(schema, self._layout.schema, level).gather(self.file)
        return DataFile(
            name=self.file.path.rpartition("/")[2],
            size_bytes=size,
            rows=self.file.rows,
            schema_id=schema.id,
            min_sequence=min(self._sequences),
            max_sequence=max(self._sequences),
            created_ms=time.time_ns() // 1_000_000,
            min_key=first,
            max_key=last,
            key_stats=keys,
            value_stats=values,
            value_stats_columns=columns,
            level=level,
            deleted_rows=self._deleted,
            source=FROM_COMPACTION,
        )
