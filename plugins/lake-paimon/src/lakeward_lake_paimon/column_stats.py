"""What a data file's Parquet statistics say of its columns in a manifest, by which readers leave files out.

The rules are those of Paimon's own writers (`metadata.stats-mode`, `ParquetSimpleStatsExtractor`). A wrong bound loses
rows in readers without a word; so where one is not known for sure, none is written. Bytes have none: readers of Paimon
before 2.0 take them for signed numbers.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward_lake_paimon.binary_row import encode_row
from lakeward_lake_paimon.kinds import timestamp_unit
from lakeward_lake_paimon.stats import Stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.parquet as pq

    from lakeward_lake_paimon.binary_row import Value
    from lakeward_lake_paimon.datafile import ParquetFile
    from lakeward_lake_paimon.kinds import Kind
    from lakeward_lake_paimon.table_schema import TableSchema

_COUNTS, _WHOLE = 0, sys.maxsize
_KEY_LENGTH = 128
"""Of texts in a key, whatever the table's options say (`StatsCollectorFactories`)."""
_TRUNCATE = re.compile(r"TRUNCATE\((\d+)\)")
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_TICKS_IN_MS = {"ms": 1, "us": 1000}
_NS_IN_MS = 1_000_000
_Found = tuple["Value", "Value", int | None]
"""The least and the greatest value, and the number of nulls; None: unknown."""
_UNKNOWN: _Found = (None, None, None)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file: its name there, the place of its values among all, and the letters that are kept of a bound.

    Without letters (0) only nulls are counted, with None nothing is said.
    """

    name: str
    kind: Kind
    place: int
    letters: int | None


class ColumnStats:
    """Gathers what a manifest says of the columns of files of one kind."""

    def __init__(self, columns: list[_Column], *, dense: bool) -> None:
        """Use `of_values` or `of_keys`. With `dense`, a column of which nothing is said is left out."""
        self._columns = columns
        self._dense = dense

    @classmethod
    def of_values(
        cls, schema: TableSchema, written: pa.Schema, level: int | None = None, *, changelog: bool = False
    ) -> ColumnStats:
        """Return what gathers those of a table's columns.

        `written` is the schema of the file, `level` that of a key table's file.
        """
        places = _places(written)
        mode = _mode(schema.options, level, changelog=changelog)
        first = int(schema.options.get("metadata.stats-keep-first-n-columns", "-1"))
        columns = []
        for number, field in enumerate(schema.fields):
            kept = mode if first < 0 or number < first else "none"
            letters = _letters(schema.options.get(f"fields.{field.name}.stats-mode", kept))
            columns.append(_Column(field.name, field.kind, places[field.name], letters))
        return cls(columns, dense=schema.options.get("metadata.stats-dense-store", "true").lower() == "true")

    @classmethod
    def of_keys(cls, schema: TableSchema, written: pa.Schema, prefix: str) -> ColumnStats:
        """Return what gathers those of a key table's key columns, whose names in files begin with a prefix."""
        places = _places(written)
        names = {f"{prefix}{field.name}": field for field in schema.named(schema.key_columns)}
        columns = [_Column(name, field.kind, places[name], _KEY_LENGTH) for name, field in names.items()]
        return cls(columns, dense=False)

    def gather(self, file: ParquetFile) -> tuple[Stats, tuple[str, ...] | None]:
        """Return the statistics of a file that was closed, and the names of their columns; None: all."""
        pairs = [(one, _found(one, file)) for one in self._columns]
        if self._dense:
            pairs = [pair for pair in pairs if pair[1] != _UNKNOWN]
        kinds = [one.kind for one, _ in pairs]
        stats = Stats(
            encode_row([least for _, (least, _, _) in pairs], kinds),
            encode_row([greatest for _, (_, greatest, _) in pairs], kinds),
            tuple(nulls for _, (_, _, nulls) in pairs),
        )
        return stats, None if len(pairs) == len(self._columns) else tuple(one.name for one, _ in pairs)


def _mode(options: Mapping[str, str], level: int | None, *, changelog: bool) -> str:
    """Return what a table's options say of its columns."""
    mode = options.get("metadata.stats-mode", "truncate(16)")
    if level is not None:
        pairs = (pair.partition(":") for pair in options.get("metadata.stats-mode.per.level", "").split(","))
        mode = {number.strip(): said.strip() for number, _, said in pairs}.get(str(level), mode)
    return options.get("changelog-file.stats-mode", mode) if changelog else mode


def _letters(mode: str) -> int | None:
    """Return how much of texts a mode keeps; a mode that is not known keeps nothing."""
    known = {"COUNTS": _COUNTS, "FULL": _WHOLE}
    found = _TRUNCATE.fullmatch(mode.upper())
    return int(found[1]) if found else known.get(mode.upper())


def _places(schema: pa.Schema) -> dict[str, int]:
    """Return where the values of each column begin among the Parquet columns: a nested one has several."""
    places: dict[str, int] = {}
    place = 0
    for field in schema:
        places[field.name] = place
        place += _leaves(field.type)
    return places


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))


def _found(column: _Column, file: ParquetFile) -> _Found:
    if column.letters is None or column.kind.is_nested:
        return _UNKNOWN
    nulls = file.nulls[column.name]
    # NaN is none of Parquet's bounds, but in Paimon greater than all numbers. Nanoseconds have no bounds.
    unbounded = column.kind.is_bytes or column.kind.has_nanoseconds or column.name in file.with_nan
    if unbounded or not column.letters:
        return None, None, nulls
    footer = file.footer
    groups = [footer.row_group(number).column(column.place).statistics for number in range(footer.num_row_groups)]
    bounds = _bounds(groups, column.kind)
    shortened = None if bounds is None else _shortened(*bounds, column.kind, column.letters)
    return (None, None, nulls) if shortened is None else (*shortened, nulls)


def _bounds(groups: list[pq.Statistics | None], kind: Kind) -> tuple[Value, Value] | None:
    """Return the least and the greatest value of a column; None where it has none, or they are not known."""
    valued = [one for one in groups if one is None or one.num_values]
    if not valued or not all(one is not None and one.has_min_max for one in valued):
        return None
    least = min(_value(one.min_raw, kind) for one in valued if one is not None)
    greatest = max(_value(one.max_raw, kind) for one in valued if one is not None)
    if kind.root in {"FLOAT", "DOUBLE"}:
        # Of the two zeros Paimon takes -0.0 for the lesser one, Parquet and Python for the same.
        least, greatest = least or -0.0, greatest or 0.0
    return least, greatest


def _value(raw: Any, kind: Kind) -> Value:  # noqa: ANN401 - whatever the footer holds
    """Return a physical value of a footer as Paimon stores it in a row."""
    if kind.is_timestamp:
        ticks = _TICKS_IN_MS[timestamp_unit(kind.digits)]
        millis, rest = divmod(raw, ticks)
        return millis, rest * (_NS_IN_MS // ticks)
    return int.from_bytes(raw, "big", signed=True) if kind.root == "DECIMAL" and isinstance(raw, bytes) else raw


def _shortened(least: Value, greatest: Value, kind: Kind, letters: int) -> tuple[Value, Value] | None:
    """Shorten bounds so that they stay bounds; None where the greatest value has no shorter one above it."""
    if not kind.is_text:
        return least, greatest
    try:
        first, last = least.decode(), greatest.decode()
    except UnicodeDecodeError:
        return None
    text = _text_above(last, letters)
    return None if text is None else (first[:letters].encode(), text.encode())


def _text_above(text: str, letters: int) -> str | None:
    if len(text) <= letters:
        return text
    for end in range(letters, 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:
            # Java's writer takes one, which UTF-8 does not have: a bound below the value.
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return text[: end - 1] + chr(following)
    return None
