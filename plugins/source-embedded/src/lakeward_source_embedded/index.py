"""The key index of a primary-key table: the location of the current row of each key.

A log-structured merge of sorted runs: each load adds one run (key hash, location), newer runs win, and runs of similar
size are merged, so there are few. All steps are array operations on mapped files; there is no server and no
row-at-a-time work. A location is `piece << 32 | row`; a piece is a log segment or a KV snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptFileError
from lakeward_source_embedded.arrow_files import ArrowFile, write_arrow
from lakeward_source_embedded.files import Layout, remove

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    import numpy.typing as npt

    Hashes = npt.NDArray[np.uint64]
    Locations = npt.NDArray[np.int64]

ABSENT = -1
TOMBSTONE = -2
ROW_BITS = 32
_SCHEMA = pa.schema([pa.field("hash", pa.uint64(), nullable=False), pa.field("location", pa.int64(), nullable=False)])
_GROWTH = 2
"""A run at most this many times as long as the next newer one is merged with it."""


@dataclass(frozen=True, slots=True)
class Run:
    """Sorted distinct hashes and their locations; `run_id` is None until it is registered."""

    run_id: int | None
    file: str
    hashes: Hashes
    locations: Locations


@dataclass(frozen=True, slots=True)
class IndexChange:
    """A new run that is written but not registered, and the runs that it replaces."""

    added: Run
    replaced: tuple[Run, ...]


class KeyIndex:
    """The index of one table, read under the table's lock."""

    def __init__(self, layout: Layout, table_id: int, runs: Sequence[Run]) -> None:
        """Hold mapped runs, oldest first."""
        self._layout = layout
        self._table_id = table_id
        self._runs = tuple(runs)

    @classmethod
    def read(cls, layout: Layout, sql: sqlite3.Connection, table_id: int) -> KeyIndex:
        """Map the runs of a table.

        Raises:
            CorruptFileError: a run is damaged or missing.
        """
        query = "SELECT run_id, file, entries FROM runs WHERE table_id = ? ORDER BY run_id"
        rows = sql.execute(query, (table_id,)).fetchall()
        return cls(layout, table_id, [_map(layout, *row) for row in rows])

    def find(self, hashes: Hashes) -> Locations:
        """Return the location of each key, ABSENT where there is none.

        Hashes are sorted (that makes it fast), distinct.
        """
        found = np.full(len(hashes), ABSENT, dtype=np.int64)
        open_rows = np.arange(len(hashes))
        for run in reversed(self._runs):
            if not len(open_rows):
                break
            if not len(run.hashes):
                continue
            at = np.searchsorted(run.hashes, hashes[open_rows])
            at[at == len(run.hashes)] = 0
            hit = run.hashes[at] == hashes[open_rows]
            found[open_rows[hit]] = run.locations[at[hit]]
            open_rows = open_rows[~hit]
        found[found == TOMBSTONE] = ABSENT
        return found

    def entries(self) -> tuple[Hashes, Locations]:
        """Return all existing keys, sorted by hash, and their locations."""
        return _merge(self._runs, bottom=True)

    def add(self, hashes: Hashes, locations: Locations) -> IndexChange:
        """Write a run with these entries on top, merged with older runs of like size.

        Hashes are sorted, distinct; the location of a deleted key is TOMBSTONE.
        """
        merged = [Run(None, "", hashes, locations)]
        size = len(hashes)
        for run in reversed(self._runs):
            if len(run.hashes) > _GROWTH * size:
                break
            merged.insert(0, run)
            size += len(run.hashes)
        if len(merged) > 1:
            hashes, locations = _merge(merged, bottom=len(merged) > len(self._runs))
        return IndexChange(self._write(hashes, locations), tuple(merged[:-1]))

    def replace(self, hashes: Hashes, locations: Locations) -> IndexChange:
        """Write a run that replaces all others. Arguments as `add`."""
        return IndexChange(self._write(hashes, locations), self._runs)

    def discard(self, change: IndexChange) -> None:
        """Remove the file of a change that was not registered."""
        remove([self._layout.root / change.added.file])

    def _write(self, hashes: Hashes, locations: Locations) -> Run:
        file = self._layout.new_file("index", self._table_id, "run")
        batch = pa.RecordBatch.from_arrays([pa.array(hashes), pa.array(locations)], schema=_SCHEMA)
        write_arrow(self._layout.root / file, _SCHEMA, [batch])
        return Run(None, file, hashes, locations)


def register_run(sql: sqlite3.Connection, table_id: int, change: IndexChange) -> None:
    """Register a change of the index, within the caller's transaction; call `remove_replaced` afterwards."""
    sql.executemany("DELETE FROM runs WHERE run_id = ?", [(run.run_id,) for run in change.replaced])
    added = change.added
    sql.execute(
        "INSERT INTO runs (table_id, file, entries) VALUES (?, ?, ?)", (table_id, added.file, len(added.hashes))
    )


def remove_replaced(layout: Layout, change: IndexChange) -> None:
    """Unlink the runs that a registered change replaced."""
    remove(layout.root / run.file for run in change.replaced)


def _map(layout: Layout, run_id: int, file: str, entries: int) -> Run:
    path = layout.root / file
    try:
        batch = ArrowFile(path, layout.checked).batch(0)
    except FileNotFoundError as error:
        raise CorruptFileError(str(path), "a run of the key index", "no file") from error
    if len(batch) != entries or batch.schema != _SCHEMA:
        raise CorruptFileError(str(path), f"{entries} index entries", f"{len(batch)} rows of {batch.schema.names}")
    return Run(run_id, file, batch.column(0).to_numpy(), batch.column(1).to_numpy())


def _merge(runs: Sequence[Run], *, bottom: bool) -> tuple[Hashes, Locations]:
    """Merge runs, oldest first; the newest entry of a hash wins. In the oldest run tombstones are dropped."""
    if not runs:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    hashes = np.concatenate([run.hashes for run in runs])
    locations = np.concatenate([run.locations for run in runs])
    order = np.argsort(hashes, kind="stable")
    hashes, locations = hashes[order], locations[order]
    keep = np.ones(len(hashes), dtype=bool)
    keep[:-1] = hashes[1:] != hashes[:-1]
    if bottom:
        keep &= locations != TOMBSTONE
    return hashes[keep], locations[keep]
