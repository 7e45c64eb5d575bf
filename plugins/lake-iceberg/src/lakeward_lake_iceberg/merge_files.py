"""Merges data files of one partition, in an executor: their live rows are written one file after the other.

Rows are not sorted, and values stay as they are. What is held is one row group, a batch of rows, the positions of one
file's deleted rows, and those of all files packed.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import LakeError
from lakeward.local_files import storage_errors
from lakeward_lake_iceberg.datafile import DataFiles
from lakeward_lake_iceberg.fitted_rows import fitted_rows
from lakeward_lake_iceberg.merge_task import MergeResult
from lakeward_lake_iceberg.moves import pack_positions
from lakeward_lake_iceberg.positions import read_positions
from lakeward_lake_iceberg.row_ids import with_ids_of_file
from lakeward_lake_iceberg.storage import Storage
from lakeward_lake_iceberg.writer import GROUP_BYTES, GROUP_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward_lake_iceberg.keys import Codes
    from lakeward_lake_iceberg.merge_task import MergeTask, Source


def merge_files(task: MergeTask, number: int, attempt: int, check: Callable[[], None]) -> MergeResult:
    """Write the live rows of all sources to new files. `check` is called between two batches, and may raise.

    `number` is the task's among those of its job: names of files begin with it.

    Raises:
        StorageError: the storage refused, or a file is gone.
        LakeError: a file is damaged, or does not fit the table's schema.
    """
    start = f"{task.writer.prefix}merged-{number}-{attempt}-{secrets.token_hex(4)}"
    merging = _Merging(task, start)
    try:
        with storage_errors(task.writer.location):
            return merging.run(check)
    except BaseException:
        merging.drop()
        raise


class _Merging:
    """One try of a task."""

    def __init__(self, task: MergeTask, start: str) -> None:
        self._task = task
        self._storage = Storage(task.writer.location, task.writer.storage)
        self._schema = task.writer.arrow_schema()
        names = (f"{start}-{count:05d}.parquet" for count in range(1, 1 << 30))
        self._files = DataFiles(self._storage, task.writer, task.partition, lambda: next(names))
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def run(self, check: Callable[[], None]) -> MergeResult:
        """Merge."""
        gone, live = [], []
        for source in self._task.sources:
            check()
            left_out = read_positions(self._storage, source.deletes, source.path)
            rows = 0
            for batch in self._live_rows(source, left_out):
                check()
                rows += batch.num_rows
                self._add(batch)
            gone.append(pack_positions(left_out))
            live.append(rows)
        self._flush()
        self._files.roll()
        return MergeResult(tuple(self._files.closed), tuple(gone), tuple(live))

    def drop(self) -> None:
        """Delete what was written."""
        self._files.abort(frozenset())

    def _live_rows(self, source: Source, gone: Codes) -> Iterator[pa.RecordBatch]:
        start = 0
        with storage_errors(source.path), self._storage.open(source.path) as opened:
            try:
                for rows in fitted_rows(opened, self._schema, self._task.constants, GROUP_BYTES // 4):
                    batch = rows
                    if self._task.row_ids:
                        batch = with_ids_of_file(rows, start, source.first_row_id, source.sequence)
                    live = np.ones(len(batch), dtype=np.bool_)
                    first, last = np.searchsorted(gone, (start, start + len(batch)))
                    live[gone[first:last] - start] = False
                    start += len(batch)
                    yield batch if live.all() else batch.filter(pa.array(live))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failed:
                message = f"{source.path}: it cannot be merged: {failed}"
                raise LakeError(message) from failed
        if len(gone) and gone[-1] >= start:
            message = f"{source.path}: expected deletes of rows before {start}, found one of row {gone[-1]}"
            raise LakeError(message)

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._files.write(pa.Table.from_batches(self._pending, schema=self._schema), self._bytes)
            self._pending.clear()
            self._rows = self._bytes = 0
