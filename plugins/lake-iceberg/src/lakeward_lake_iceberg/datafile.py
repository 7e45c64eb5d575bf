"""Parquet files of one lake partition: encodings, rolling at the target size, metrics."""

from __future__ import annotations

import secrets
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.local_files import storage_errors
from lakeward.model.results import LakeFile
from lakeward_lake_iceberg.bounds import Metrics
from lakeward_lake_iceberg.detail import FileDetail, pack_detail
from lakeward_lake_iceberg.parquet_fields import FIELD_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_lake_iceberg.detail import Value
    from lakeward_lake_iceberg.partitioner import Place
    from lakeward_lake_iceberg.storage import Storage
    from lakeward_lake_iceberg.task import WriterTask

_GLANCE_ROWS = 16_384
_SAMPLE_ROWS = 131_072
_LOW_CARDINALITY = 0.2
"""Share of distinct values up to which a dictionary is built; with more, building one only costs time."""
_LOW_CARDINALITY_OF_FEW = 0.5
"""The same for text in files of few rows: there repeated text is still less to compress, in less time."""
_HIGH_CARDINALITY = 0.8
"""Share of distinct values in a small sample from which a larger sample is not worth its time."""
_DICTIONARY_BYTES = 1 << 20
"""Size at which Parquet writers stop using a dictionary (pyarrow's `dictionary_pagesize_limit`)."""
_ROUNDS = 16
"""Rounds of which a process remembers the encodings."""


class FileNames:
    """File names that are unique among all tries, and among all writers of the same try."""

    def __init__(self, task: WriterTask, place: Place, attempt: int, count: int = 0) -> None:
        """Fix what all names of one writer share; `count` files of the place were named before."""
        self._start = f"{task.prefix}{place.directory}{_plain(place.name)}-{attempt}-{secrets.token_hex(4)}"
        self._count = count

    def next(self, end: str = ".parquet") -> str:
        """Return the next name as a full path."""
        self._count += 1
        return f"{self._start}-{self._count:05d}{end}"


class ParquetFile:
    """One open file; each `write` is one row group."""

    def __init__(self, storage: Storage, path: str, schema: pa.Schema, options: dict[str, Any]) -> None:
        """Create it.

        Raises:
            StorageError: it cannot be created.
        """
        self.path = path
        self.rows = 0
        self.upload_s = 0.0
        self.nan_counts: dict[int, int] = {}
        self._sink = storage.create(path)
        self._writer = pq.ParquetWriter(self._sink, schema, **options)

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
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self.rows += rows.num_rows
        self._count_nan(rows)

    def close(self) -> tuple[pq.FileMetaData, int]:
        """Write the footer; return it and the file's size in bytes."""
        with storage_errors(self.path):
            self._writer.close()
            size = int(self._sink.tell())
            started = time.perf_counter()
            self._sink.close()
            self.upload_s = time.perf_counter() - started
        return self._writer.writer.metadata, size

    def drop(self) -> None:
        """Close the file without a footer; it is deleted next, so errors of the storage are ignored."""
        # pyarrow would write the footer when the writer is collected, and complain that the file is closed.
        self._writer.is_open = False
        try:
            self._sink.close()
        except OSError:
            return

    def _count_nan(self, rows: pa.Table) -> None:
        for field in rows.schema:
            if pa.types.is_floating(field.type):
                found = pc.sum(pc.is_nan(rows.column(field.name))).as_py() or 0
                field_id = int(field.metadata[FIELD_ID])
                self.nan_counts[field_id] = self.nan_counts.get(field_id, 0) + found


class Encodings:
    """Which columns have a dictionary in the files of several writers: chosen of the first rows that are seen.

    A few rows say little of the others. So the choice is made again for a sample of at least twice the rows, until
    one had as many as are looked at. A file keeps the choice that it was opened with.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._rows = 0
        self._repeated: frozenset[str] = frozenset()

    def repeated(self, sample: pa.Table) -> frozenset[str]:
        """Return the names of the columns with a dictionary, given the first rows of a file, not empty."""
        if self._rows < _SAMPLE_ROWS and sample.num_rows >= 2 * self._rows:
            self._repeated, self._rows = _repeated(sample), sample.num_rows
        return self._repeated


@lru_cache(maxsize=_ROUNDS)
def _encodings(prefix: str, schema: bytes) -> Encodings:  # noqa: ARG001 - they say whose encodings these are
    return Encodings()


def encodings_of_round(task: WriterTask) -> Encodings:
    """Return the encodings of all writers of a round in this process that ask for them.

    The prefix of the files of a task is the round's own.
    """
    return _encodings(task.prefix, task.schema)


class DataFiles:
    """The data files of one writer, one open at a time."""

    def __init__(
        self,
        storage: Storage,
        task: WriterTask,
        partition: tuple[Value, ...],
        new_path: Callable[[], str],
        encodings: Encodings | None = None,
    ) -> None:
        """Open nothing yet; `new_path` names a file, and `partition` has values of the partition fields.

        Encodings are shared with other writers; None: it has its own.
        """
        self._storage = storage
        self._encodings = encodings
        self._task = task
        self._schema = task.arrow_schema()
        self._partition = partition
        self._new_path = new_path
        self._open: ParquetFile | None = None
        self._options: dict[str, Any] | None = None
        self._given_bytes = 0
        self._written_bytes = 0
        self.closed: list[LakeFile] = []
        self.paths: list[str] = []
        self.upload_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a file is open: some rows are not in closed files."""
        return self._open is not None

    def amounts_to_half(self, pending_bytes: int) -> bool:
        """Return whether a file that is closed now would have half the target size.

        `pending_bytes` of Arrow would be written first; what they shrink to is judged by what others have shrunk to,
        and where there were none they count whole.
        """
        shrunk = self._written_bytes / self._given_bytes if self._given_bytes else 1.0
        size = 0 if self._open is None else self._open.size_bytes
        return 2 * (size + pending_bytes * shrunk) >= self._task.target_size_bytes

    def write(self, rows: pa.Table, given_bytes: int) -> tuple[int, int]:
        """Append rows in the lake's schema, not empty, as one row group; a file of the target size is closed.

        They were made of `given_bytes` bytes of Arrow. Returned are the number of the file (into `paths`) and the
        position of the first row in it.
        """
        current = self._current(rows)
        place = (len(self.paths) - 1, current.rows)
        before = current.size_bytes
        current.write(rows)
        self._given_bytes += given_bytes
        self._written_bytes += current.size_bytes - before
        if current.size_bytes >= self._task.target_size_bytes:
            self.roll()
        return place

    def roll(self) -> None:
        """Close the open file, if any."""
        if self._open is not None:
            current, self._open = self._open, None
            footer, size = current.close()
            self.upload_s += current.upload_s
            self.closed.append(self._describe(current, footer, size))

    def abort(self, kept: frozenset[str]) -> None:
        """Delete this writer's files, except those that must be kept."""
        if self._open is not None:
            self._open.drop()
            self._open = None
        for path in self.paths:
            if path not in kept:
                self._storage.delete(path)

    def _current(self, rows: pa.Table) -> ParquetFile:
        if self._open is None:
            if self._options is None:
                self._options = parquet_options(self._task, rows, self._encodings)
            path = self._new_path()
            self.paths.append(path)
            self._open = ParquetFile(self._storage, path, self._schema, self._options)
        return self._open

    def _describe(self, written: ParquetFile, footer: pq.FileMetaData, size: int) -> LakeFile:
        has_nan = {field_id for field_id, count in written.nan_counts.items() if count}
        metrics = Metrics(footer, self._task.types, has_nan)
        detail = FileDetail(
            partition=self._partition,
            spec_id=self._task.spec_id,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_counts=metrics.null_counts,
            nan_counts=written.nan_counts,
            lower=metrics.lower,
            upper=metrics.upper,
            split_offsets=metrics.split_offsets,
        )
        return LakeFile(written.path, "data", written.rows, size, pack_detail(detail))


def parquet_options(task: WriterTask, sample: pa.Table, encodings: Encodings | None = None) -> dict[str, Any]:
    """Choose codec and encodings by the first rows of a file: keyword arguments of `pq.ParquetWriter`.

    A dictionary only for columns with few values; whole numbers and times otherwise as packed differences, which are
    both faster and smaller than a dictionary that is given up. Writers share this choice through `encodings`; None:
    they share nothing.
    """
    repeated = _repeated(sample) if encodings is None else encodings.repeated(sample)
    # pyarrow takes paths here: `l.list.element` would also be the elements of a list `l`, which may be text.
    packed = {
        field.name
        for field in sample.schema
        if field.name not in repeated and _is_integer(field.type) and "." not in field.name
    }
    return {
        "compression": task.compression,
        "compression_level": task.compression_level,
        "use_dictionary": sorted(repeated),
        "column_encoding": dict.fromkeys(sorted(packed), "DELTA_BINARY_PACKED") or None,
        "store_decimal_as_integer": True,
        "version": "2.6",
        "write_statistics": True,
    }


def _repeated(sample: pa.Table) -> frozenset[str]:
    flat = [field for field in sample.schema if not pa.types.is_nested(field.type)]
    return frozenset(field.name for field in flat if repeats(sample.column(field.name)))


def repeats(column: pa.ChunkedArray) -> bool:
    """Return whether a dictionary is worth it, by a column's first rows: few distinct values, which fit into one.

    10,000 different texts of 60 characters are half of the values in a small sample, and a thirteenth in a larger one:
    with a dictionary they take 2.5 times less time to write, and 2.4 times less space.
    """
    if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        return False
    if _distinct_share(column.slice(0, _GLANCE_ROWS)) > _HIGH_CARDINALITY:
        return False
    sample = column.slice(0, _SAMPLE_ROWS)
    share = _distinct_share(sample)
    few = len(sample) < _SAMPLE_ROWS and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type))
    return (
        share <= (_LOW_CARDINALITY_OF_FEW if few else _LOW_CARDINALITY) and share * sample.nbytes <= _DICTIONARY_BYTES
    )


def _distinct_share(column: pa.ChunkedArray) -> float:
    rows = len(column)
    return float((pc.count_distinct(column, mode="all").as_py() - 1) / rows) if rows else 1.0


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _plain(text: str) -> str:
    """Make a split's id usable in a file name: replace characters that are special in a path or a URI."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)
