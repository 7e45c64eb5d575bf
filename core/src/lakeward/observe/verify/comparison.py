"""Compares the spilled rows of source and lake, file by file, and keeps the first differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.tables import CHANGE_COLUMN, NO_OFFSET, OFFSET_COLUMN, TIMESTAMP_COLUMN, Change
from lakeward.observe.verify.row_keys import PARTS, row_numbers
from lakeward.observe.verify.values import same_values, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lakeward.observe.verify.row_spill import RowSpill

    Numbers = npt.NDArray[np.int64]

MISSING = "missing"
EXTRA = "extra"
DOUBLED = "doubled"
CHANGED = "changed"
KINDS = {
    MISSING: "rows of the source that the lake does not have",
    EXTRA: "rows of the lake that the source does not have",
    DOUBLED: "further rows of the lake with the same key",
    CHANGED: "rows of the lake with another value in some column",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. `key` names the row; `column`, `source` and `lake` are empty where a row is there or is not."""

    kind: str
    key: dict[str, str]
    column: str = ""
    source: str = ""
    lake: str = ""


@dataclass(slots=True)
class Comparison:
    """The result so far. `counts` are rows by kind, `first` are the first differences, at most `most`."""

    most: int
    source_rows: int = 0
    lake_rows: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    first: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not any(self.counts.values())


def compare_spills(
    source: RowSpill, lake: RowSpill, key: Sequence[str], columns: Sequence[str], found: Comparison, *, keyed: bool
) -> None:
    """Compare all rows; the files are deleted on the way.

    Args:
        source: what the lake has to have.
        lake: what it has.
        key: columns that name a row.
        columns: the other columns that are compared.
        found: takes the result.
        keyed: the table has a primary key, so offset and time of a row are unknown where it came from a KV snapshot.
    """
    for part in range(PARTS):
        if not source.sizes[part] and not lake.sizes[part]:
            continue
        if source.is_too_large(part) or lake.is_too_large(part):
            compare_spills(source.divide(part), lake.divide(part), key, columns, found, keyed=keyed)
            continue
        _compare(_live(source.read(part)), lake.read(part), key, columns, found, keyed=keyed)
        source.delete(part)
        lake.delete(part)


def _compare(
    source: pa.Table, lake: pa.Table, key: Sequence[str], columns: Sequence[str], found: Comparison, *, keyed: bool
) -> None:
    found.source_rows += len(source)
    found.lake_rows += len(lake)
    ours, theirs = row_numbers([[_column(table, name) for name in key] for table in (source, lake)])
    keys = max(int(numbers.max()) + 1 if len(numbers) else 0 for numbers in (ours, theirs))
    place = np.full(keys, -1, dtype=np.int64)
    place[ours] = np.arange(len(ours))
    there = np.bincount(theirs, minlength=keys)
    _note(found, MISSING, source, np.flatnonzero(there[ours] == 0), key)
    _note(found, EXTRA, lake, np.flatnonzero(place[theirs] < 0), key)
    known = np.flatnonzero(place[theirs] >= 0)
    _note(found, DOUBLED, lake, known[_repeated(theirs[known])], key)
    _compare_values(source.take(place[theirs[known]]), lake.take(known), key, columns, found, keyed=keyed)


def _live(rows: pa.Table) -> pa.Table:
    """Return the rows whose last change was no delete."""
    if CHANGE_COLUMN not in rows.column_names:
        return rows
    return rows.filter(pc.not_equal(rows.column(CHANGE_COLUMN), Change.DELETE)).drop_columns([CHANGE_COLUMN])


def _repeated(numbers: Numbers) -> Numbers:
    """Return the places of all rows but the first of each number."""
    repeated = np.ones(len(numbers), dtype=np.bool_)
    repeated[np.unique(numbers, return_index=True)[1]] = False
    return np.flatnonzero(repeated)


def _compare_values(
    source: pa.Table, lake: pa.Table, key: Sequence[str], columns: Sequence[str], found: Comparison, *, keyed: bool
) -> None:
    changed = np.zeros(len(lake), dtype=np.bool_)
    for name in columns:
        one, other = _column(source, name), _column(lake, name)
        differs = ~same_values(one, other)
        if keyed and name in {OFFSET_COLUMN, TIMESTAMP_COLUMN}:
            offsets = (_column(table, OFFSET_COLUMN) for table in (source, lake))
            known = pc.and_kleene(*(pc.not_equal(one, NO_OFFSET) for one in offsets))
            # Null differs from whatever it should be: nothing that Lakeward writes has it.
            differs &= np.asarray(pc.or_(pc.fill_null(known, True), pc.is_null(other)))
        changed |= differs
        for row in np.flatnonzero(differs)[: found.most - len(found.first)].tolist():
            found.first.append(Difference(CHANGED, _key(lake, row, key), name, shown(one[row]), shown(other[row])))
    found.counts[CHANGED] += int(changed.sum())


def _note(found: Comparison, kind: str, table: pa.Table, rows: Numbers, key: Sequence[str]) -> None:
    found.counts[kind] += len(rows)
    for row in rows[: found.most - len(found.first)].tolist():
        found.first.append(Difference(kind, _key(table, row, key)))


def _key(table: pa.Table, row: int, key: Sequence[str]) -> dict[str, str]:
    return {name: shown(table.column(name)[row]) for name in key}


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
