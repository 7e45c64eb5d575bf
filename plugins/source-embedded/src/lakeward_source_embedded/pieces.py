"""Reads rows by location: pieces are log segments and KV snapshots, and a location is a piece and a row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptFileError
from lakeward.model.batches import BYTES_MOST, concat_batches
from lakeward_source_embedded.arrow_files import ArrowFile
from lakeward_source_embedded.column_ids import fitted
from lakeward_source_embedded.index import ROW_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from lakeward.model.tables import TableSpec
    from lakeward_source_embedded.database import Database
    from lakeward_source_embedded.files import Layout

    Ints = npt.NDArray[np.int64]

_PIECES = """
SELECT piece, file, batch FROM segments WHERE table_id = :table AND piece IN (SELECT value FROM json_each(:pieces))
UNION ALL
SELECT piece, file, NULL FROM snapshots WHERE table_id = :table AND piece IN (SELECT value FROM json_each(:pieces))"""
TAKE_BYTES_MOST = 256 << 20
"""Most bytes of rows taken at once: they are joined twice with as many new bytes, in one batch below 2 GiB."""


@dataclass(frozen=True, slots=True)
class _Piece:
    file: str
    batches: list[pa.RecordBatch]
    starts: Ints
    rows: int


class TooManyBytes(Exception):  # noqa: N818 - no error: who asked for these rows asks for fewer at a time
    """The rows requested at once are larger than one batch may be."""


class Pieces:
    """The rows of one table, by location; files stay mapped as long as this object lives."""

    def __init__(self, layout: Layout, database: Database, spec: TableSpec) -> None:
        """Prepare; no file is mapped yet. Rows are given in the schema of `spec`."""
        self._layout = layout
        self._database = database
        self._spec = spec
        self._mapped: dict[int, _Piece] = {}

    def take(self, locations: Ints) -> pa.RecordBatch:
        """Gather rows, in any order, into one batch, in the order asked for.

        Raises:
            CorruptFileError: a file is damaged or missing.
            TooManyBytes: several rows have more than `TAKE_BYTES_MOST` bytes.
        """
        order = np.argsort(locations, kind="stable")
        parts: list[pa.RecordBatch] = []
        size = 0
        for part in self.ordered(locations[order]):
            parts.append(part)
            size += part.nbytes
            if size > TAKE_BYTES_MOST and len(locations) > 1:
                raise TooManyBytes
        gathered = concat_batches(parts, self._spec.schema)
        if np.array_equal(order, np.arange(len(order))):
            return gathered
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return gathered.take(pa.array(back))

    def ordered(self, locations: Ints) -> Iterator[pa.RecordBatch]:
        """Yield rows part by part, of any total size; locations are ascending.

        Raises:
            CorruptFileError: a file is damaged or missing.
        """
        pieces = locations >> ROW_BITS
        cuts = np.flatnonzero(np.diff(pieces)) + 1
        wanted = [int(piece) for piece in pieces[np.concatenate([[0], cuts])]] if len(pieces) else []
        self._map([piece for piece in wanted if piece not in self._mapped])
        rows = np.split(locations & ((1 << ROW_BITS) - 1), cuts)
        for piece, part in zip(wanted, rows, strict=False):
            yield from self._rows(self._mapped[piece], part)

    def _rows(self, mapped: _Piece, rows: Ints) -> Iterator[pa.RecordBatch]:
        if rows[-1] >= mapped.rows:
            raise CorruptFileError(mapped.file, f"at least {int(rows[-1]) + 1} rows", mapped.rows)
        which = np.searchsorted(mapped.starts, rows, side="right") - 1
        cuts = np.flatnonzero(np.diff(which)) + 1
        for part in np.split(rows, cuts):
            number = int(np.searchsorted(mapped.starts, part[0], side="right") - 1)
            batch = mapped.batches[number]
            step = max(1, len(batch) * BYTES_MOST // max(1, batch.nbytes))
            for start in range(0, len(part), step):
                yield batch.take(pa.array(part[start : start + step] - mapped.starts[number]))

    def _map(self, pieces: Sequence[int]) -> None:
        if not pieces:
            return
        arguments = {"table": self._spec.table_id, "pieces": json.dumps(list(pieces))}
        with self._database.read() as sql:
            rows = sql.execute(_PIECES, arguments).fetchall()
        files: dict[str, ArrowFile] = {}
        for piece, file, number in rows:
            path = self._layout.root / file
            mapped = files.get(file) or files.setdefault(file, self._open(path))
            numbers = range(mapped.batches) if number is None else (number,)
            batches = [fitted(mapped.batch(n), self._spec.schema) for n in numbers]
            lengths = np.array([0, *map(len, batches)], dtype=np.int64)
            self._mapped[piece] = _Piece(str(path), batches, np.cumsum(lengths)[:-1], int(lengths.sum()))
        missing = [piece for piece in pieces if piece not in self._mapped]
        if missing:
            raise CorruptFileError(str(self._database.file), "the pieces that the key index names", missing[:3])

    def _open(self, path: Path) -> ArrowFile:
        try:
            return ArrowFile(path, self._layout.checked)
        except FileNotFoundError as error:
            raise CorruptFileError(str(path), "a file that holds current rows", "no file") from error
