"""The rows of dead letters, as records of their table as it is now."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lakeward.errors import RowError
from lakeward.model.batches import batch_schema
from lakeward.model.column_ids import column_id
from lakeward.model.lake_rows import RowConverter
from lakeward.model.tables import OFFSET_COLUMN, RESERVED_COLUMNS, TableBucket
from lakeward.subtask.row_errors import UNFIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.model.tables import TableSpec
    from lakeward.ports import RowCheck

_UNREADABLE = (*UNFIT, OSError, EOFError)


class Found(NamedTuple):
    """Letters of one bucket whose rows have the same columns. `records` is None where rows cannot be read."""

    names: list[bytes]
    records: pa.RecordBatch | None
    log_offsets: list[int | None]


class LetterRows(NamedTuple):
    """The rows of one bucket that fit, as the source would give them now, with the digests of their letters.

    `versions` are their offsets, or the last one before the snapshot that a row is of, None where nobody knows it.
    `keys` is empty where the table has no primary key. `misfits` says of other letters why their rows do not fit.
    """

    bucket: TableBucket
    names: list[bytes]
    records: pa.RecordBatch
    offsets: list[int]
    versions: list[int | None]
    keys: list[tuple[object, ...]]
    misfits: Mapping[bytes, RowError]


def rows_by_bucket(
    letters: pa.RecordBatch, names: Sequence[bytes], table: TableSpec
) -> Iterator[tuple[TableBucket, Found]]:
    """Yield the rows of letters, whose digests are `names`: those of one bucket and of the same columns together.

    Columns are called as in the lake table by now, whatever either side called them when the row was read.
    """
    by_id = {column_id(field): field.name for field in table.as_written.schema}
    groups: dict[TableBucket, dict[bytes, list[tuple[bytes, pa.RecordBatch | None, int | None]]]] = defaultdict(dict)
    columns = [letters.column(name).to_pylist() for name in ("partition_id", "bucket", "row")]
    known = "log_offset" in letters.schema.names
    log_offsets = letters.column("log_offset").to_pylist() if known else [None] * letters.num_rows
    for name, partition, bucket, row, log_offset in zip(names, *columns, log_offsets, strict=True):
        try:
            record = _called(pa.ipc.open_stream(row).read_next_batch(), by_id, table.lake_columns)
        except _UNREADABLE:
            record = None
        schema = b"" if record is None else record.schema.serialize().to_pybytes()
        of_bucket = groups[TableBucket(table.table_id, partition, bucket)]
        of_bucket.setdefault(schema, []).append((name, record, log_offset))
    for where, by_schema in groups.items():
        for found in by_schema.values():
            records = [one for _, one, _ in found if one is not None]
            together = pa.concat_batches(records) if records else None
            yield where, Found([name for name, _, _ in found], together, [at for _, _, at in found])


def judged(found: Found, table: TableSpec, bucket: TableBucket, check: RowCheck) -> LetterRows:
    """Return the rows that fit the source's table and, by `check`, the lake's, and why the others do not."""
    target = batch_schema(table.schema)
    if found.records is None:
        unread = RowError(f"table {table.path}, bucket {bucket}: the letter has no row that can be read")
        return _rows(Found([], _empty(target), []), table, bucket, dict.fromkeys(found.names, unread))
    converter, errors = RowConverter(table, target, bucket), dict[int, RowError]()
    rows, places = found.records, list(range(found.records.num_rows))
    rows, places = _without(rows, places, _unknown_columns(rows, table, bucket), errors)
    rows, places = _without(rows, places, converter.misfits(rows), errors)
    try:
        rows = converter.convert(rows)
    except RowError as missing:  # of a column that these rows do not have, and that must not be null
        errors |= dict.fromkeys(places, missing)
        rows, places = _empty(target), []
    rows, places = _without(rows, places, check(rows), errors)
    fitting = Found([found.names[one] for one in places], rows, [found.log_offsets[one] for one in places])
    return _rows(fitting, table, bucket, {found.names[one]: error for one, error in errors.items()})


def keys_of(records: pa.RecordBatch, primary_key: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the keys of records, as values that are equal where the keys are."""
    return list(zip(*(_plain(records.column(name)).to_pylist() for name in primary_key), strict=True))


def _rows(found: Found, table: TableSpec, bucket: TableBucket, misfits: Mapping[bytes, RowError]) -> LetterRows:
    assert found.records is not None  # noqa: S101 - its callers have some
    offsets: list[int] = found.records.column(OFFSET_COLUMN).to_pylist()
    before = [None if at is None else at - 1 for at in found.log_offsets]
    versions = [offset if offset >= 0 else at for offset, at in zip(offsets, before, strict=True)]
    keys = keys_of(found.records, table.primary_key) if table.has_primary_key else []
    return LetterRows(bucket, found.names, found.records, offsets, versions, keys, misfits)


def _without(
    rows: pa.RecordBatch, places: list[int], misfits: Mapping[int, RowError], errors: dict[int, RowError]
) -> tuple[pa.RecordBatch, list[int]]:
    """Return the rows without misfits, which are noted in `errors` by their places."""
    if not misfits:
        return rows, places
    errors |= {places[row]: error for row, error in misfits.items()}
    kept = [row for row in range(rows.num_rows) if row not in misfits]
    return rows.take(pa.array(kept, pa.int64())), [places[row] for row in kept]


def _unknown_columns(rows: pa.RecordBatch, table: TableSpec, bucket: TableBucket) -> dict[int, RowError]:
    """Return the rows with a value in a column that the lake table is not to have, and no rule leaves out."""
    found: dict[int, RowError] = {}
    known = {*table.schema.names, *table.left_out, *RESERVED_COLUMNS}
    for name in (one for one in rows.schema.names if one not in known):
        column, offsets = rows.column(name), rows.column(OFFSET_COLUMN)
        for row in (one for one in range(rows.num_rows) if column[one].is_valid and one not in found):
            where = table.path, bucket, offsets[row].as_py(), name
            found[row] = RowError.at(*where, expected="no value, as the lake table has no such column", found="one")
    return found


def _called(row: pa.RecordBatch, by_id: Mapping[int | None, str], names: Mapping[str, str]) -> pa.RecordBatch:
    """Return a row under the lake's names: `by_id` has them by the source's ids, `names` by the source's names.

    A letter of an earlier release has no ids. A column that the source has no more keeps its name, unless another one
    has that by now; one that was added again has another id, and is the same in the lake.
    """
    fields = list(row.schema)
    known = {field.name: by_id[one] for field in fields if (one := column_id(field)) is not None and one in by_id}
    others = [field.name for field in fields if field.name not in known]
    called = {name: name if (one := names.get(name, name)) in row.schema.names else one for name in others}
    taken = {*known.values()}
    gone = {name: f"{name} (dropped)" if one in taken else one for name, one in called.items()}
    return row.rename_columns([(known | gone)[name] for name in row.schema.names])


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in schema], schema=schema)


def _plain(array: pa.Array) -> pa.Array:
    """Return a column as Python can hold all of its values: times as their numbers, texts as bytes."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    if pa.types.is_temporal(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())  # noqa: PLR2004 - bits
    return array
