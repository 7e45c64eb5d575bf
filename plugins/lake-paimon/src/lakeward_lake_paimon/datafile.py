"""Parquet files of the lake: their names, their options, and closing them."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.local_files import storage_errors
from lakeward_lake_paimon.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward_lake_paimon.table_schema import TableSchema
    from lakeward_lake_paimon.task import WriterTask

PARQUET = ".parquet"
_SAMPLE_ROWS = 1 << 13
_OFTEN = 0.75
_WITH_LEVEL = frozenset({"zstd", "gzip", "brotli"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a writer's files lie.

    `folder` is that of the partition within the table's (empty, or with a slash at its end), `partition` its row, and
    `bucket` Paimon's. `name` is a part of each file's name.
    """

    folder: str
    partition: bytes
    bucket: int
    total_buckets: int
    name: str


class FileNames:
    """File names that are unique among all tries, and among all writers of the same try."""

    def __init__(self, task: WriterTask, name: str, attempt: int, count: int = 0) -> None:
        """Fix what all names of one writer share; so many files as `count` were named before."""
        plain = "".join(one if one.isalnum() or one in "._" else "_" for one in name)
        self._middle = f"{task.token}-{plain}-{attempt}-{secrets.token_hex(4)}"
        self._count = count

    def next(self, kind: str) -> str:
        """Return the next name; `kind` is what it begins with, as Paimon names such files."""
        self._count += 1
        return f"{kind}-{self._middle}-{self._count:05d}{PARQUET}"


def parquet_options(schema: TableSchema, compression: str, compression_level: int) -> dict[str, Any]:
    """Return the options of pyarrow's writer with which Paimon's readers can read each type.

    They want decimals of up to 18 digits as whole numbers, and timestamps finer than a microsecond as INT96. Arrow then
    writes all timestamps of the file so, which they read too.
    """
    codec = schema.options.get("file.compression", compression)
    level = compression_level if codec in _WITH_LEVEL else None
    return {
        "compression": codec,
        "compression_level": level,
        "store_decimal_as_integer": True,
        "use_deprecated_int96_timestamps": any(field.kind.has_nanoseconds for field in schema.fields),
        "store_schema": False,
    }


def parquet_writer(sink: pa.NativeFile, schema: pa.Schema, options: dict[str, Any], rows: pa.Table) -> pq.ParquetWriter:
    """Return the writer of a file whose first rows are these.

    The first rows of all say for all files with the same options which columns have a dictionary: one of values that
    hardly repeat takes longer than the rest of the column, and is thrown away.
    """
    if "use_dictionary" not in options:
        options["use_dictionary"] = _repeated(rows, options)
    return pq.ParquetWriter(sink, schema, **options)


def _repeated(rows: pa.Table, options: dict[str, Any]) -> list[str]:
    """Return the columns with values that repeat in the first rows; of a nested one all that is in it."""
    sample = rows.slice(0, _SAMPLE_ROWS)
    columns = zip(sample.schema, sample.columns, strict=True)
    found = [field.name for field, column in columns if not pa.types.is_nested(field.type) and _repeats(column)]
    nested = pa.schema([field for field in sample.schema if pa.types.is_nested(field.type)])
    if len(nested):
        writer = pq.ParquetWriter(pa.BufferOutputStream(), nested, **options)
        writer.close()
        leaves = writer.writer.metadata.schema
        found += [leaves.column(number).path for number in range(len(leaves.names))]
    return found


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(column).as_py() <= _OFTEN * (len(column) - column.null_count))


class _Sinks:
    """Two files that get the same bytes, as one that Arrow writes."""

    closed = False

    def __init__(self, sinks: Sequence[pa.NativeFile]) -> None:
        self._sinks = sinks

    def write(self, data: bytes) -> int:
        for sink in self._sinks:
            sink.write(data)
        return len(data)

    def tell(self) -> int:
        return int(self._sinks[0].tell())

    def flush(self) -> None:
        """Hold nothing back."""

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


class ParquetFile:
    """One open file; each `write` is one row group.

    `nulls` are those of each column, and `with_nan` the columns that have NaN.
    """

    def __init__(self, storage: Storage, path: str, schema: pa.Schema, options: dict[str, Any], copy: str = "") -> None:
        """Create it; `copy` is the path of a second file with the same bytes.

        Raises:
            StorageError: it cannot be created.
        """
        self.path = path
        self.rows = 0
        self.nulls: Counter[str] = Counter()
        self.with_nan: set[str] = set()
        self.upload_s = 0.0
        self._schema = schema
        self._options = options
        self._writer: pq.ParquetWriter | None = None
        self._sink = storage.open_output(path)
        if copy:
            self._sink = pa.PythonFile(_Sinks((self._sink, self._second(storage, copy))), mode="w")

    def _second(self, storage: Storage, path: str) -> pa.NativeFile:
        try:
            return storage.open_output(path)
        except BaseException:
            self.drop()
            storage.delete(self.path)
            raise

    @property
    def size_bytes(self) -> int:
        """Bytes written so far, compressed."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Append one row group.

        Raises:
            StorageError: the storage refused.
        """
        with storage_errors(self.path):
            if self._writer is None:
                self._writer = parquet_writer(self._sink, self._schema, self._options, rows)
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self.rows += rows.num_rows
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            self.nulls[name] += column.null_count
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self.with_nan.add(name)

    def close(self) -> int:
        """Write the footer; return the file's size in bytes.

        Raises:
            StorageError: the storage refused.
        """
        assert self._writer is not None  # noqa: S101 - a file is opened for its first rows
        with storage_errors(self.path):
            self._writer.close()
            size = int(self._sink.tell())
            started = time.perf_counter()
            self._sink.close()
            self.upload_s = time.perf_counter() - started
        return size

    @property
    def footer(self) -> pq.FileMetaData:
        """What the file says of its columns, once it is closed."""
        assert self._writer is not None  # noqa: S101 - as above
        return self._writer.writer.metadata

    def drop(self) -> None:
        """Close the file without a footer; it is deleted next, so errors of the storage are ignored."""
        # pyarrow would write the footer when the writer is collected, and complain that the file is closed.
        if self._writer is not None:
            self._writer.is_open = False
        try:
            self._sink.close()
        except OSError:
            return
