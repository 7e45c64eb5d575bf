"""One snapshot of a lake table as a table of DuckDB, in memory: rows are read whenever a query asks for them."""

from __future__ import annotations

from contextlib import contextmanager
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import LakewardError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakeward.model.tables import TablePath

_EXTRA = "lakeward query needs DuckDB: expected it to be installed (pip install 'lakeward[query]'), found none"


class LakeRows:
    """Rows that can be read again and again: each scan of a query reads the snapshot anew.

    `error` is what ended the last scan: DuckDB itself tells only its text.
    """

    def __init__(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        """Keep what yields the batches, at least one."""
        self._read = read
        self.error: LakewardError | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Begin a scan, see Arrow's PyCapsule interface."""
        batches = self._batches()
        first = next(batches)
        rest = (_like(first.schema, batch) for batch in batches)
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], rest))
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read()
        except LakewardError as error:
            self.error = error
            raise


def _like(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch if batch.schema.equals(schema) else batch.select(schema.names).cast(schema)


@contextmanager
def queried(path: TablePath, rows: LakeRows, folder: str) -> Iterator[Query]:
    """Open a DuckDB that knows one table, by its path and by its name alone; `folder` is for what memory cannot hold.

    Raises:
        UsageError: DuckDB is not installed.
    """
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise UsageError(_EXTRA) from missing
    with duckdb.connect(config={"temp_directory": folder}) as connection:
        source = f"rows of {path}"  # no name of a table, which has no spaces
        connection.register(source, rows)
        for schema in (path.database, "main"):
            connection.execute(f"create schema if not exists {quoted(schema)}")
            view = f"memory.{quoted(schema)}.{quoted(path.table)}"
            connection.execute(f"create or replace view {view} as from {quoted(source)}")
        yield Query(connection, rows, duckdb.Error)


class Query:
    """Runs SQL on the one table."""

    def __init__(self, connection: Any, rows: LakeRows, refused: type[Exception]) -> None:  # noqa: ANN401 - DuckDB's
        """Keep the connection; `refused` is the root of DuckDB's errors."""
        self._connection = connection
        self._rows = rows
        self._refused = refused

    def run(self, sql: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        """Return the names of the columns of a result, and its first rows, at most so many.

        Raises:
            UsageError: DuckDB refused the SQL.
            LakeError: the lake cannot be read.
        """
        try:
            # As Arrow: DuckDB's own Python values of a timestamp with a time zone need yet another library.
            reader = self._connection.execute(sql).to_arrow_reader(most)
            return _unique(reader.schema.names), list(islice(_rows(reader), most))
        except self._refused as error:
            if self._rows.error is not None:
                raise self._rows.error from error
            message = f"DuckDB: {error}"
            raise UsageError(message) from error


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _rows(reader: pa.RecordBatchReader) -> Iterator[Sequence[object]]:
    for batch in reader:
        yield from zip(*(map(_value, column.to_pylist()) for column in batch.columns), strict=True)


def _value(value: object) -> object:
    """Return a whole number as one: DuckDB's sums of numbers are decimals in Arrow."""
    return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else value


def _unique(names: Iterable[str]) -> Sequence[str]:
    """Number the names that come again."""
    found: list[str] = []
    for name in names:
        number, other = 0, name
        while other in found:
            number += 1
            other = f"{name}_{number}"
        found.append(other)
    return found
