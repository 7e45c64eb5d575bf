"""Divides the rows of one side into files by their key, so that one file after the other fits into memory."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakeward_ops.verify.row_keys import LEVELS, PARTS, part_numbers
from lakeward_ops.verify.values import comparable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Fold = Callable[[pa.Table, Sequence[pa.Array]], pa.Table]
    """Takes rows and their key; gives one row of each key."""

_MEMORY_PARTS = 4
"""A spill holds at most this part of the memory before it writes; rows are folded within that."""


class RowSpill:
    """The rows of one side, divided by key. Rows of one key stay in the order in which they came.

    With a `fold`, the rows of a key become one where they are near: a key that changes all the time, or a row that is
    there a million times, takes no more room than any other.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        key: Sequence[str],
        *,
        memory_bytes: int,
        fold: Fold | None = None,
        level: int = 0,
    ) -> None:
        """Spill nothing yet; the folder, which is made, has the files. `key` names the key's columns.

        About `memory_bytes` bytes of rows are held; a file that is larger is divided again, and `level` is how often
        the rows have been divided already. `fold` makes one row of those of each key (`row_keys`); None: each row
        counts.
        """
        folder.mkdir(parents=True)
        self._folder = folder
        self._schema = schema
        self._key = tuple(key)
        self._memory_bytes = memory_bytes
        self._fold = fold
        self._level = level
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files = ExitStack()
        self._writers: dict[int, Any] = {}
        self.sizes = np.zeros(PARTS, dtype=np.int64)
        """Bytes of rows in each file."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Take some rows."""
        if rows.num_rows:
            self._held.append(rows)
            self._held_bytes += rows.nbytes
        if self._held_bytes * _MEMORY_PARTS >= self._memory_bytes:
            self._write()

    def finish(self) -> None:
        """Write what is held, and close the files."""
        self._write()
        self._files.close()
        self._writers.clear()

    def is_too_large(self, part: int) -> bool:
        """Return whether a file is to be divided again."""
        return bool(self.sizes[part] > self._memory_bytes) and self._level + 1 < LEVELS

    def divide(self, part: int) -> RowSpill:
        """Divide a file again, and delete it."""
        finer = RowSpill(
            self._folder / f"{part}",
            self._schema,
            self._key,
            memory_bytes=self._memory_bytes,
            fold=self._fold,
            level=self._level + 1,
        )
        for rows in self._batches(part):
            finer.add(rows)
        finer.finish()
        self.delete(part)
        return finer

    def read(self, part: int) -> pa.Table:
        """Return the rows of a file: with a `fold`, one of each key."""
        table = pa.Table.from_batches(list(self._batches(part)), self._schema).combine_chunks()
        return self._fold(table, self._columns(table)) if self._fold and len(table) else table

    def delete(self, part: int) -> None:
        """Delete a file; one that was never written is no error."""
        self._file(part).unlink(missing_ok=True)

    def _batches(self, part: int) -> Iterator[pa.RecordBatch]:
        file = self._file(part)
        if file.exists():
            with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
                yield from reader

    def _write(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held, self._schema).combine_chunks()
        self._held, self._held_bytes = [], 0
        if self._fold:
            table = self._fold(table, self._columns(table))
        parts = part_numbers(self._columns(table), self._level)
        order = np.argsort(parts, kind="stable")
        table = table.take(order)
        bounds = np.searchsorted(parts[order], np.arange(PARTS + 1))
        for part in range(PARTS):
            first, end = int(bounds[part]), int(bounds[part + 1])
            if first < end:
                self._append(part, table.slice(first, end - first))

    def _append(self, part: int, rows: pa.Table) -> None:
        writer = self._writers.get(part)
        if writer is None:
            stream = self._files.enter_context(pa.OSFile(str(self._file(part)), "wb"))
            writer = self._writers[part] = self._files.enter_context(pa.ipc.new_stream(stream, self._schema))
        writer.write_table(rows)
        self.sizes[part] += rows.nbytes

    def _columns(self, table: pa.Table) -> list[pa.Array]:
        return [comparable(_one(table.column(name))) for name in self._key]

    def _file(self, part: int) -> Path:
        return self._folder / f"{part}.arrow"


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
