"""Rows by location: pieces are log segments and KV snapshots, and a location says piece and row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.embedded.files import open_arrow, read_batch
from lakeward.embedded.index import ROW_BITS
from lakeward.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from lakeward.embedded.database import Database
    from lakeward.model.tables import TableSpec

    Ints = npt.NDArray[np.int64]

_PIECES = """
SELECT piece, file, batch FROM segments WHERE table_id = :table AND piece IN (SELECT value FROM json_each(:pieces))
UNION ALL
SELECT piece, file, NULL FROM snapshots WHERE table_id = :table AND piece IN (SELECT value FROM json_each(:pieces))"""


@dataclass(frozen=True, slots=True)
class _Piece:
    batches: list[pa.RecordBatch]
    starts: Ints


class Pieces:
    """The rows of one table, by location; files stay mapped as long as this object lives."""

    def __init__(self, root: Path, database: Database, spec: TableSpec) -> None:
        """Map nothing yet.

        Args:
            root: the store's directory.
            database: the store's.
            spec: the table; rows are given in its schema.
        """
        self._root = root
        self._database = database
        self._spec = spec
        self._mapped: dict[int, _Piece] = {}

    def take(self, locations: Ints) -> pa.RecordBatch:
        """Gather rows.

        Args:
            locations: any order.

        Returns:
            The rows, in the order asked for.

        Raises:
            CorruptFileError: a file is damaged or missing.
        """
        order = np.argsort(locations, kind="stable")
        ordered = locations[order]
        pieces = ordered >> ROW_BITS
        cuts = np.flatnonzero(np.diff(pieces)) + 1
        wanted = [int(piece) for piece in pieces[np.concatenate([[0], cuts])]] if len(pieces) else []
        self._map([piece for piece in wanted if piece not in self._mapped])
        rows = np.split(ordered & ((1 << ROW_BITS) - 1), cuts)
        parts = [part for piece, part in zip(wanted, rows, strict=False) for part in self._rows(piece, part)]
        gathered = _one_batch(parts, self._spec.schema)
        if np.array_equal(order, np.arange(len(order))):
            return gathered
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return gathered.take(pa.array(back))

    def _rows(self, piece: int, rows: Ints) -> list[pa.RecordBatch]:
        mapped = self._mapped[piece]
        which = np.searchsorted(mapped.starts, rows, side="right") - 1
        cuts = np.flatnonzero(np.diff(which)) + 1
        parts = []
        for part in np.split(rows, cuts):
            number = int(np.searchsorted(mapped.starts, part[0], side="right") - 1)
            parts.append(mapped.batches[number].take(pa.array(part - mapped.starts[number])))
        return parts

    def _map(self, pieces: Sequence[int]) -> None:
        if not pieces:
            return
        arguments = {"table": self._spec.table_id, "pieces": json.dumps(list(pieces))}
        with self._database.read() as sql:
            rows = sql.execute(_PIECES, arguments).fetchall()
        readers: dict[str, pa.ipc.RecordBatchFileReader] = {}
        for piece, file, number in rows:
            path = self._root / file
            reader = readers.setdefault(file, _open(path))
            numbers = range(reader.num_record_batches) if number is None else (number,)
            batches = [widen(read_batch(path, reader, n), self._spec.schema) for n in numbers]
            lengths = np.array([0, *map(len, batches)], dtype=np.int64)
            self._mapped[piece] = _Piece(batches, np.cumsum(lengths)[:-1])
        missing = [piece for piece in pieces if piece not in self._mapped]
        if missing:
            raise CorruptFileError(str(self._database.file), "the pieces that the key index names", missing[:3])


def widen(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch the columns of `schema`, in its order; those that an older batch lacks are null."""
    there = batch.schema.names
    arrays = [
        batch.column(there.index(field.name)) if field.name in there else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _open(path: Path) -> pa.ipc.RecordBatchFileReader:
    try:
        return open_arrow(path)
    except FileNotFoundError as error:
        raise CorruptFileError(str(path), "a file that holds current rows", "no file") from error


def _one_batch(parts: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    return one_batch(pa.Table.from_batches(parts, schema=schema))


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """Copy a table into one batch (an empty table gives an empty one)."""
    batches = rows.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    empty = [pa.array([], field.type) for field in rows.schema]
    return pa.RecordBatch.from_arrays(empty, schema=rows.schema)
