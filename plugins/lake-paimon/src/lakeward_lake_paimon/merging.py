"""Merges sorted runs of a key table: of each key, the row with the greatest sequence number.

A run is an iterator of tables whose rows ascend by key, each key once. What is held is one table of each run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward_lake_paimon.key_rows import SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def merge_runs(runs: Sequence[Iterator[pa.Table]], keys: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the newest row of each key, deletes among them, in the order of the keys.

    `keys` are the names of the key columns.
    """
    open_runs = [_Run(run) for run in runs]
    while True:
        open_runs = [run for run in open_runs if run.fill()]
        if not open_runs:
            return
        # Up to here every run has said what it has.
        ends = pa.concat_tables([run.rows.select(keys).slice(run.rows.num_rows - 1) for run in open_runs])
        least = ends.take(pc.sort_indices(ends, sort_keys=[(name, "ascending") for name in keys])[:1])
        bound = [least.column(name)[0] for name in keys]
        parts = [run.take_up_to(keys, bound) for run in open_runs]
        yield newest(pa.concat_tables(parts), keys)


def newest(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the row of each key with the greatest sequence number, in the order of the keys."""
    order = [(name, "ascending") for name in (*keys, SEQUENCE)]
    rows = rows.take(pc.sort_indices(rows, sort_keys=order))
    if rows.num_rows <= 1:
        return rows
    last = np.zeros(rows.num_rows, dtype=np.bool_)
    last[-1] = True
    for name in keys:
        column = rows.column(name).combine_chunks()
        differs = pc.not_equal(column.slice(0, rows.num_rows - 1), column.slice(1))
        last[:-1] |= differs.to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(last))


class _Run:
    """One run, and the rows of it that are at hand."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self.rows: pa.Table = pa.table({})

    def fill(self) -> bool:
        """Return whether there are rows; read more if none are at hand."""
        while not self.rows.num_rows:
            following = next(self._tables, None)
            if following is None:
                return False
            self.rows = following
        return True

    def take_up_to(self, keys: Sequence[str], bound: Sequence[pa.Scalar]) -> pa.Table:
        """Take away the rows up to a key, that included."""
        count = int(pc.sum(_at_most(self.rows, keys, bound)).as_py() or 0)
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return taken


def _at_most(rows: pa.Table, keys: Sequence[str], bound: Sequence[pa.Scalar]) -> pa.ChunkedArray:
    """Return for each row whether its key is at most a key, column by column."""
    found = pc.less_equal(rows.column(keys[-1]), bound[-1])
    for name, value in zip(reversed(keys[:-1]), reversed(bound[:-1]), strict=True):
        column = rows.column(name)
        found = pc.or_(pc.less(column, value), pc.and_(pc.equal(column, value), found))
    return found
