"""Reads rows from Arrow objects and files, as a stream of tables of a bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import RowError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.model.tables import TableSpec

JSON_LINES = (".jsonl", ".ndjson", ".json")
ROWS_MOST = 1_000_000
"""Rows of one atomic step of a load: large enough to be fast, small enough to be held in memory a few times over."""
_BYTES_MOST = 256 << 20
"""Bytes of one step: it is merged with as many old bytes in batches that must stay below 2 GiB."""
_ROW_BYTES_MOST = 512 << 20
"""An update of such a row, its old and its new values, still fits one batch."""


@dataclass(slots=True)
class LoadProgress:
    """How many rows of a load are stored, those included that an earlier load had stored."""

    rows: int = 0

    @property
    def advice(self) -> str:
        """What is stored of a file that was not loaded whole, and how to go on."""
        if not self.rows:
            return "No row of the file is stored: correct it and load it again"
        stored = "The first row of the file is" if self.rows == 1 else f"The first {self.rows} rows of the file are"
        return f"{stored} stored: correct it and load it again with --skip-rows {self.rows}"


def skipped(batches: Iterator[pa.RecordBatch], path: Path, count: int) -> Iterator[pa.RecordBatch]:
    """Leave out the first `count` (>= 0) rows of a file; the error names its path.

    Raises:
        UsageError: the file has fewer.
    """
    left = count
    for batch in batches:
        rest = batch.slice(min(left, len(batch)))
        left -= len(batch) - len(rest)
        if len(rest):
            yield rest
    if left:
        message = f"{path}: expected at least {count} rows to skip, found {count - left}"
        raise UsageError(message)


def steps_of(rows: object) -> Iterator[pa.Table]:
    """Split and gather rows into steps of up to `ROWS_MOST` rows and, down to one row, `_BYTES_MOST` bytes.

    Rows are a table, a batch, a reader, or an iterable of tables and batches.

    Raises:
        UsageError: it is something else.
        RowError: a row is too large.
    """
    held: list[pa.Table] = []
    size = count = 0
    for table in _tables(rows):
        for part in _parts(table):
            part_bytes = _bytes(part)
            if held and (count + len(part) > ROWS_MOST or size + part_bytes > _BYTES_MOST):
                yield _joined(held)
                held, size, count = [], 0, 0
            held.append(part)
            size += part_bytes
            count += len(part)
    if held:
        yield _joined(held)


def open_file(spec: TableSpec, path: Path, change: str | None) -> Iterator[pa.RecordBatch]:
    """Read a file of rows, batch by batch; text of CSV and JSON is converted by the table's schema.

    The path ends in .parquet, .csv, .jsonl, .ndjson, .json, .arrow, .feather, .ipc or .arrows. `change` is the name of
    the column that says insert, update or delete.

    Raises:
        UsageError: no such file, or an unknown file extension.
        RowError: the file's content does not fit.
    """
    readers: dict[str, Callable[[Path], Iterator[pa.RecordBatch]]] = {
        ".parquet": _parquet,
        ".pq": _parquet,
        ".csv": lambda file: _csv(spec, file, change),
    }
    readers |= dict.fromkeys((".arrow", ".ipc", ".feather", ".arrows"), _arrow)
    readers |= dict.fromkeys(JSON_LINES, lambda file: _json_lines(spec, file, change))
    reader = readers.get(path.suffix.lower())
    if reader is None:
        message = f"{path}: expected a name that ends in {', '.join(readers)}"
        raise UsageError(message)
    if not path.is_file():
        message = f"{path}: expected a file, found none"
        raise UsageError(message)
    try:
        yield from reader(path)
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError) as error:
        message = f"table {spec.path}: {error}"
        raise RowError(message) from error


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, len(table), ROWS_MOST):
        yield from _halves(table.slice(start, ROWS_MOST))


def _halves(table: pa.Table) -> Iterator[pa.Table]:
    size = _bytes(table)
    if len(table) <= 1 or size <= _BYTES_MOST:
        if size > _ROW_BYTES_MOST:
            message = f"rows: expected rows of at most {_ROW_BYTES_MOST >> 20} MiB, found one of {size >> 20} MiB"
            raise RowError(message)
        yield table
        return
    middle = len(table) // 2
    yield from _halves(table.slice(0, middle))
    yield from _halves(table.slice(middle))


def _bytes(table: pa.Table) -> int:
    """Return the size of a table once its dictionaries are resolved."""
    size = int(table.nbytes)
    for column in table.columns:
        if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
            for chunk in column.chunks:
                lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
                size += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return size


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def _tables(rows: object) -> Iterator[pa.Table]:
    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    elif hasattr(rows, "__iter__") and not isinstance(rows, (str, bytes, dict)):
        for part in rows:
            if not isinstance(part, (pa.Table, pa.RecordBatch)):
                message = f"rows: expected Arrow tables or batches, found {type(part).__name__}"
                raise UsageError(message)
            yield from _tables(part)
    else:
        message = f"rows: expected an Arrow table, batch, reader or an iterable of them, found {type(rows).__name__}"
        raise UsageError(message)


def _joined(parts: list[pa.Table]) -> pa.Table:
    if len(parts) == 1:
        return parts[0]
    try:
        return pa.concat_tables(parts)
    except pa.ArrowInvalid as error:
        message = f"rows: expected batches of one schema: {error}"
        raise RowError(message) from error


def _parquet(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only who loads Parquet pays for it

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=262_144)


def _arrow(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as source:
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)
            return
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


def _csv(spec: TableSpec, path: Path, change: str | None) -> Iterator[pa.RecordBatch]:
    from lakeward_source_embedded.csv_files import read_csv  # noqa: PLC0415 - only who loads CSV pays for it

    return read_csv(spec, path, change)


def _json_lines(spec: TableSpec, path: Path, change: str | None) -> Iterator[pa.RecordBatch]:
    from lakeward_source_embedded.json_rows import read_json_lines  # noqa: PLC0415 - only who loads JSON pays for it

    return read_json_lines(spec, path, change)
