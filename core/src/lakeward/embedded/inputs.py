"""Rows in whatever form they come: Arrow objects and files, as a stream of tables of a bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import RowError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.model.tables import TableSpec

ROWS_MOST = 1_000_000
"""Rows of one atomic step of a load: large enough to be fast, small enough to be held in memory a few times over."""
_BYTES_MOST = 256 << 20
_CSV_NULLS = ("", "NULL", "null", "\\N")


def steps_of(rows: object) -> Iterator[pa.Table]:
    """Cut and gather rows into steps of up to `ROWS_MOST` rows.

    Args:
        rows: a table, a batch, a reader, or an iterable of tables and batches.

    Raises:
        UsageError: it is something else.
    """
    held: list[pa.Table] = []
    size = count = 0
    for table in _tables(rows):
        for start in range(0, len(table), ROWS_MOST):
            part = table.slice(start, ROWS_MOST)
            if held and (count + len(part) > ROWS_MOST or size + part.nbytes > _BYTES_MOST):
                yield _joined(held)
                held, size, count = [], 0, 0
            held.append(part)
            size += part.nbytes
            count += len(part)
    if held:
        yield _joined(held)


def open_file(spec: TableSpec, path: Path, change: str | None) -> Iterator[pa.RecordBatch]:
    """Read a file of rows, batch by batch.

    Args:
        spec: the table; a CSV file's text is converted by its schema.
        path: ends in .parquet, .csv, .arrow, .feather, .ipc or .arrows.
        change: the name of the column that says insert, update or delete.

    Raises:
        UsageError: no such file, or an ending that says nothing.
        RowError: the file's content does not fit.
    """
    readers = {
        ".parquet": _parquet,
        ".pq": _parquet,
        ".csv": lambda file: _csv(spec, file, change),
        ".arrow": _arrow,
        ".ipc": _arrow,
        ".feather": _arrow,
        ".arrows": _arrow,
    }
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
        message = f"table {spec.path}, file {path}: {error}"
        raise RowError(message) from error


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
    from pyarrow import csv  # noqa: PLC0415 - only who loads CSV pays for it

    for field in spec.schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            message = f"{path}: column {field.name!r} ({field.type}) cannot be read from CSV; use Parquet or Arrow"
            raise UsageError(message)
    types = {field.name: field.type for field in spec.schema}
    if change is not None:
        types.setdefault(change, pa.string())
    convert = csv.ConvertOptions(
        column_types=types, null_values=_CSV_NULLS, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    with csv.open_csv(path, convert_options=convert) as reader:
        yield from reader
