"""Compares the spilled rows of source and lake, file by file, and keeps the first differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.tables import CHANGE_COLUMN, NO_OFFSET, OFFSET_COLUMN, TIMESTAMP_COLUMN, Change
from lakeward_ops.verify.row_keys import COUNT, PARTS, row_numbers
from lakeward_ops.verify.values import comparable, same_values, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lakeward_ops.verify.row_spill import RowSpill

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
class Rows:
    """What the rows of both sides are.

    `key` are the columns that name a row, `columns` the others that are compared. `keyed`: the table has a primary key,
    so offset and time of a row are unknown where it came from a KV snapshot. `counted`: nothing names a row, so `key`
    are all columns, and what is compared is how often a row is there. `partly`: the source no longer has some rows and
    the lake's do not say which those are, so what the source does not have is left out.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    keyed: bool
    counted: bool = False
    partly: bool = False


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
    left_out: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    first: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not any(self.counts.values())


def compare_spills(source: RowSpill, lake: RowSpill, rows: Rows, found: Comparison) -> None:
    """Compare all rows of the source, which the lake has to have, with those that it has.

    The files are deleted on the way; `found` takes the result.
    """
    compare = _compare_counts if rows.counted else _compare
    for part in range(PARTS):
        if not source.sizes[part] and not lake.sizes[part]:
            continue
        if source.is_too_large(part) or lake.is_too_large(part):
            compare_spills(source.divide(part), lake.divide(part), rows, found)
            continue
        compare(_live(source.read(part)), lake.read(part), rows, found)
        source.delete(part)
        lake.delete(part)


def _compare(source: pa.Table, lake: pa.Table, rows: Rows, found: Comparison) -> None:
    found.source_rows += len(source)
    ours, theirs, keys = _numbered(source, lake, rows)
    place = np.full(keys, -1, dtype=np.int64)
    place[ours] = np.arange(len(ours))
    there = np.bincount(theirs, minlength=keys)
    _note(found, MISSING, source, np.flatnonzero(there[ours] == 0), rows)
    unknown, known = np.flatnonzero(place[theirs] < 0), np.flatnonzero(place[theirs] >= 0)
    if rows.partly:
        found.left_out += len(unknown)
    else:
        _note(found, EXTRA, lake, unknown, rows)
    found.lake_rows += len(lake) - (len(unknown) if rows.partly else 0)
    _note(found, DOUBLED, lake, known[_repeated(theirs[known])], rows)
    _compare_values(source.take(place[theirs[known]]), lake.take(known), rows, found)


def _compare_counts(source: pa.Table, lake: pa.Table, rows: Rows, found: Comparison) -> None:
    """Compare rows that nothing names: each is on each side once, with how often it was there."""
    ours, theirs, keys = _numbered(source, lake, rows)
    expected, there = np.zeros(keys, dtype=np.int64), np.zeros(keys, dtype=np.int64)
    expected[ours], there[theirs] = (table.column(COUNT.name).to_numpy() for table in (source, lake))
    less, surplus = np.maximum(expected - there, 0)[ours], np.maximum(there - expected, 0)[theirs]
    left_out = int(surplus.sum()) if rows.partly else 0
    found.left_out += left_out
    found.source_rows += int(expected.sum())
    found.lake_rows += int(there.sum()) - left_out
    _note(found, MISSING, source, np.flatnonzero(less), rows, copies=less)
    if not rows.partly:
        known = expected[theirs] > 0
        _note(found, EXTRA, lake, np.flatnonzero(surplus * ~known), rows, copies=surplus)
        _note(found, DOUBLED, lake, np.flatnonzero(surplus * known), rows, copies=surplus)


def _numbered(source: pa.Table, lake: pa.Table, rows: Rows) -> tuple[Numbers, Numbers, int]:
    """Number the keys of both sides; return as well how many there are."""
    keys = [[comparable(_column(table, name)) for name in rows.key] for table in (source, lake)]
    ours, theirs = row_numbers(keys)
    return ours, theirs, max(int(numbers.max()) + 1 if len(numbers) else 0 for numbers in (ours, theirs))


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


def _compare_values(source: pa.Table, lake: pa.Table, rows: Rows, found: Comparison) -> None:
    changed = np.zeros(len(lake), dtype=np.bool_)
    for name in rows.columns:
        one, other = _column(source, name), _column(lake, name)
        differs = ~same_values(one, other)
        if rows.keyed and name in {OFFSET_COLUMN, TIMESTAMP_COLUMN}:
            offsets = (_column(table, OFFSET_COLUMN) for table in (source, lake))
            known = pc.and_kleene(*(pc.not_equal(one, NO_OFFSET) for one in offsets))
            # Null differs from whatever it should be: nothing that Lakeward writes has it.
            differs &= np.asarray(pc.or_(pc.fill_null(known, True), pc.is_null(other)))
        changed |= differs
        for row in np.flatnonzero(differs)[: found.most - len(found.first)].tolist():
            key = _key(lake, row, rows.key)
            found.first.append(Difference(CHANGED, key, name, shown(one[row]), shown(other[row])))
    found.counts[CHANGED] += int(changed.sum())


def _note(
    found: Comparison, kind: str, table: pa.Table, places: Numbers, rows: Rows, *, copies: Numbers | None = None
) -> None:
    """Count rows of a kind, and keep the first ones; `copies` says of each row of the table how often it counts."""
    if copies is None:
        found.counts[kind] += len(places)
    else:
        found.counts[kind] += int(copies[places].sum())
        places = np.repeat(places, np.minimum(copies[places], found.most))
    for row in places[: found.most - len(found.first)].tolist():
        found.first.append(Difference(kind, _key(table, row, rows.key)))


def _key(table: pa.Table, row: int, key: Sequence[str]) -> dict[str, str]:
    return {name: shown(table.column(name)[row]) for name in key}


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
