"""Fits rows to a table's schema: casts, completes and checks them; an error names column, row and value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import RowError, short_repr
from lakeward.model.batches import find_failing

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.tables import TableSpec

UPSERT, DELETE, IGNORE = 0, 1, 2
_WORDS = {
    UPSERT: ("+i", "i", "insert", "+u", "u", "update", "upsert", "update_after", "1", "3"),
    DELETE: ("-d", "d", "delete", "4"),
    IGNORE: ("-u", "update_before", "2"),
}
_OPERATIONS = {text: operation for operation, words in _WORDS.items() for text in words}
_APPENDS = {"+a", "append", "0", "+i", "i", "insert", "1"}
_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...] = (
    (pa.types.is_integer, lambda to: pa.types.is_integer(to) or pa.types.is_floating(to) or pa.types.is_decimal(to)),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_boolean, pa.types.is_boolean),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t), pa.types.is_string),
    (
        lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_fixed_size_binary(t),
        lambda to: pa.types.is_binary(to) or pa.types.is_fixed_size_binary(to),
    ),
    (pa.types.is_date, pa.types.is_date),
    (pa.types.is_time, pa.types.is_time),
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in the table's schema, and per row what to do (UPSERT or DELETE); `operations` is None for a log table.

    Columns of a DELETE row that are not keys may have any value.
    """

    records: pa.RecordBatch
    operations: npt.NDArray[np.int8] | None

    def halves(self) -> tuple[Rows, Rows]:
        """Return the first half of the rows, and the others."""
        middle, operations = len(self.records) // 2, self.operations
        return (
            Rows(self.records.slice(0, middle), None if operations is None else operations[:middle]),
            Rows(self.records.slice(middle), None if operations is None else operations[middle:]),
        )


def fit_rows(spec: TableSpec, rows: pa.Table, change: str | None, first_row: int) -> Rows:
    """Fit rows to a table: return them in its own schema; -U rows are left out (their +U says it all).

    Columns go by name; a missing nullable column is null. `change` is the column that says insert, update or delete
    (names, `+I`, `-D`, or numbers of `Change`); None = all are upserts (or appends). `first_row` is the number of the
    first row, for messages.

    Raises:
        RowError: names table, column, row and value.
    """
    _check_names(spec, rows, change)
    operations = None if change is None else _operations(spec, rows, change, first_row)
    deletes = np.zeros(len(rows), dtype=bool) if operations is None else operations == DELETE
    arrays = [_fit_column(spec, rows, field, deletes, first_row) for field in spec.schema]
    records = pa.RecordBatch.from_arrays(arrays, schema=spec.schema)
    if not spec.has_primary_key:
        return Rows(records, None)
    if operations is None:
        return Rows(records, np.zeros(len(rows), dtype=np.int8))
    kept = operations != IGNORE
    if kept.all():
        return Rows(records, operations)
    return Rows(records.filter(pa.array(kept)), operations[kept])


def as_deletes(spec: TableSpec, rows: pa.Table) -> tuple[pa.Table, str]:
    """Return rows with a further column that says delete of each, and its name, which no column of the table has."""
    name = next(name for name in ("change", *map(str, range(len(spec.schema)))) if name not in spec.schema.names)
    return rows.append_column(name, pa.array(["delete"] * len(rows))), name


def _check_names(spec: TableSpec, rows: pa.Table, change: str | None) -> None:
    for name in rows.column_names:
        if name not in spec.schema.names and name != change:
            message = f"table {spec.path}: expected the columns {', '.join(spec.schema.names)}, found {name!r}"
            raise RowError(message)
        if (times := rows.column_names.count(name)) > 1:
            message = f"table {spec.path}: expected distinct column names, found {name!r} {times} times"
            raise RowError(message)


def _operations(spec: TableSpec, rows: pa.Table, change: str, first_row: int) -> npt.NDArray[np.int8]:
    if change not in rows.column_names:
        message = f"table {spec.path}: expected a column {change!r} that says insert or delete, found none"
        raise RowError(message)
    texts = _single(rows.column(change))
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        texts = texts.cast(pa.string())
    coded = texts.dictionary_encode()
    words = [None if text is None else text.strip().lower() for text in coded.dictionary.to_pylist()]
    known: dict[str, int] = _OPERATIONS if spec.has_primary_key else dict.fromkeys(_APPENDS, UPSERT)
    codes = np.array([known.get(text or "", -1) for text in words] or [-1], dtype=np.int8)
    indices = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    operations = np.where(indices < 0, np.int8(-1), codes[indices])
    bad = np.flatnonzero(operations < 0)
    if len(bad):
        expected = "insert, update or delete" if spec.has_primary_key else "insert (a log table takes nothing else)"
        raise _refusal(spec, change, first_row + int(bad[0]), expected, texts[int(bad[0])].as_py())
    return operations.astype(np.int8)


def _fit_column(
    spec: TableSpec, rows: pa.Table, field: pa.Field, deletes: npt.NDArray[np.bool_], first_row: int
) -> pa.Array:
    there = field.name in rows.column_names
    given = _single(rows.column(field.name)) if there else pa.nulls(len(rows), field.type)
    fitted = _cast(spec, field, given, first_row)
    if not field.nullable and fitted.null_count:
        missing = np.asarray(fitted.is_null().to_numpy(zero_copy_only=False))
        if field.name not in spec.primary_key:
            missing = missing & ~deletes
        bad = np.flatnonzero(missing)
        if len(bad):
            raise _refusal(spec, field.name, first_row + int(bad[0]), f"{field.type} not null", None)
    if pa.types.is_nested(field.type) and not _is_valid(field, fitted):
        at = find_failing(len(fitted), lambda first, count: not _is_valid(field, fitted.slice(first, count)))
        raise _refusal(spec, field.name, first_row + at, f"{field.type}, no null inside", given[at].as_py())
    return fitted


def _cast(spec: TableSpec, field: pa.Field, given: pa.Array, first_row: int) -> pa.Array:
    if given.type == field.type:
        return given
    if not _same_family(given.type, field.type):
        message = f"table {spec.path}, column {field.name!r}: expected {field.type}, found {given.type}"
        raise RowError(message)

    def fails(first: int, count: int) -> bool:
        try:
            given.slice(first, count).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return True
        return False

    try:
        return given.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        at = find_failing(len(given), fails)
        raise _refusal(spec, field.name, first_row + at, str(field.type), given[at].as_py()) from error


def _same_family(found: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_null(found):
        return True
    if types.is_timestamp(found) or types.is_timestamp(wanted):
        both = types.is_timestamp(found) and types.is_timestamp(wanted)
        return bool(both) and (found.tz is None) == (wanted.tz is None)
    if types.is_nested(found) or types.is_nested(wanted):
        return bool(types.is_nested(found) and types.is_nested(wanted))
    return any(is_found(found) and fits(wanted) for is_found, fits in _FAMILIES)


def _is_valid(field: pa.Field, values: pa.Array) -> bool:
    """Return whether no nested field is null that must not be."""
    if pa.types.is_struct(field.type):
        there = values.filter(values.is_valid())
        return all(
            (child.nullable or part.null_count == 0) and _is_valid(child, part)
            for child, part in zip(field.type, there.flatten(), strict=True)
        )
    if pa.types.is_map(field.type):
        keys, items = values.keys, values.items
        return bool(keys.null_count == 0 and (field.type.item_field.nullable or items.null_count == 0))
    if pa.types.is_list(field.type):
        inner = field.type.value_field
        elements = values.flatten()
        return bool(inner.nullable or elements.null_count == 0) and _is_valid(inner, elements)
    return True


def _single(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(array, pa.ChunkedArray):
        message = "a batch of over 2 GiB in one column cannot be loaded at once: split it"
        raise RowError(message)
    return pc.cast(array, array.type.value_type) if pa.types.is_dictionary(array.type) else array


def _refusal(spec: TableSpec, column: str, row: int, expected: str, found: object) -> RowError:
    return RowError(f"table {spec.path}, column {column!r}, row {row}: expected {expected}, found {short_repr(found)}")
