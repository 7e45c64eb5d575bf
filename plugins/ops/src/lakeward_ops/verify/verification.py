"""Verifies one table: reads both sides, spills them, compares them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakeward.errors import LakeError
from lakeward.model.batches import SYSTEM_FIELDS
from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN
from lakeward.ports import FileCheckedLake
from lakeward.ports.lake import LOST_COLUMNS
from lakeward_ops.verify.comparison import Comparison, Rows, compare_spills
from lakeward_ops.verify.dead_letters import DeadLetters
from lakeward_ops.verify.lake_rows import AllRows, ComparableRows
from lakeward_ops.verify.row_keys import COUNT, counted, last_of_each
from lakeward_ops.verify.row_spill import RowSpill
from lakeward_ops.verify.source_rows import readable_splits, rows_gone, source_rows
from lakeward_ops.verify.values import cast_plain, plain_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.ports import FileDifference, ReadableLake, Source, SourceReader
    from lakeward_ops.verify.source_rows import Readable

_SYSTEM = (BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN)
types = pa.types


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared: a table of the source, opened for reading, and one snapshot of the lake with its offsets.

    `letters` is the snapshot of the table of its dead letters, None where there is none.
    """

    source: Source
    reader: SourceReader
    lake: ReadableLake
    table: TableSpec
    head: LakeHead
    tiered: Mapping[TableBucket, int]
    letters: int | None = None


class TimeIsUpError(Exception):
    """A comparison took as long as it was allowed to."""


def _nothing() -> None:
    """Let the comparison go on."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How it is compared.

    `available` compares what the source still has, and leaves the rest of the lake's rows out. `most` is the number of
    differences that are kept, `memory_bytes` about how many bytes of rows are held at once. `files` are as many data
    files as are compared with what the lake says of them, None for all. `check` is called before each batch and each
    file; what it raises ends the comparison.
    """

    folder: Path
    available: bool
    most: int
    memory_bytes: int
    files: int | None = None
    check: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Verification:
    """The result. `left_out` are lake rows that were not compared.

    `not_in_lake` are columns that the source has and the lake does not have yet. `lost` are those that the lake does
    not have any more, and fields of nested columns, each with what became of it. `file_differences` are the first ones
    of `wrong_in_files` in all.
    """

    comparison: Comparison
    key: tuple[str, ...]
    left_out: int
    gone: tuple[str, ...]
    not_in_lake: tuple[str, ...]
    lost: Mapping[str, str]
    wrong_in_files: int
    file_differences: tuple[FileDifference, ...]
    dead_letters: int = 0
    """Records that do not fit the lake table: they were not compared, nor were other versions of their keys."""

    @property
    def equal(self) -> bool:
        """Whether no row differs, the lake has lost no column and says nothing wrong of its files."""
        return self.comparison.equal and not self.lost and not self.wrong_in_files


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that are compared, in the types in which they are; and the others as of `Verification`.

    `system`: the lake's rows have their bucket, their offset and their time.
    """

    schema: pa.Schema
    system: bool
    not_in_lake: tuple[str, ...]
    lost: Mapping[str, str]


def verify_table(sides: Sides, options: VerifyOptions) -> Verification:
    """Compare a snapshot of a lake table with its source, up to the snapshot's offsets.

    Raises:
        RowsGoneError: the source no longer has rows that the lake has.
        LakeError: the snapshot is gone, or its columns are not those that Lakeward writes.
    """
    table = sides.table
    readable = readable_splits(table, sides.source.buckets(table), sides.tiered)
    batches = _called_as_in_source(table, sides.lake.read_rows(table.in_lake.path, sides.head.snapshot_id or 0))
    first = next(batches)
    common = _common_columns(table, first.schema)
    if readable.gone and not options.available and (table.has_primary_key or not common.system):
        raise rows_gone(table, readable.gone)
    rows = _rows(table, common, partly=bool(readable.gone))
    # Where it is counted how often a row is there, the same row takes its place once.
    schema, fold = (common.schema.append(COUNT), counted) if rows.counted else (common.schema, None)
    lake = RowSpill(options.folder / "lake", schema, rows.key, memory_bytes=options.memory_bytes, fold=fold)
    letters = DeadLetters.read(sides.lake, table, sides.letters, common.schema)
    known = ComparableRows(table.partition_keys, readable.first, readable.dropped) if common.system else AllRows()
    for batch in chain([first], batches):
        options.check()
        lake.add(known.of(letters.other_keys(_plain(table, batch, schema))))
        if known.left_out and not options.available:
            raise rows_gone(table, readable.gone or ("all offsets of a bucket",))
    lake.finish()
    source = _spill_source(sides, readable, schema, rows, options, letters)
    comparison = Comparison(options.most)
    compare_spills(source, lake, rows, comparison)
    wrong, differences = _compare_files(sides, options)
    return Verification(
        comparison,
        rows.key,
        known.left_out + comparison.left_out,
        readable.gone,
        common.not_in_lake,
        common.lost,
        wrong_in_files=wrong,
        file_differences=differences,
        dead_letters=letters.count,
    )


def _called_as_in_source(table: TableSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = {name: source for source, name in table.lake_columns.items()}
    for batch in batches:
        yield batch.rename_columns([names.get(name, name) for name in batch.schema.names]) if names else batch


def _rows(table: TableSpec, common: _Columns, *, partly: bool) -> Rows:
    """Return how rows are compared: by the key, else by their offset, and whole where they have none."""
    names = tuple(common.schema.names)
    key = table.primary_key or ((*table.partition_keys, BUCKET_COLUMN, OFFSET_COLUMN) if common.system else names)
    others = tuple(name for name in names if name not in key)
    keyed, nameless = table.has_primary_key, not common.system
    return Rows(key, others, keyed, counted=nameless and not keyed, partly=nameless and partly)


def _compare_files(sides: Sides, options: VerifyOptions) -> tuple[int, tuple[FileDifference, ...]]:
    if not isinstance(sides.lake, FileCheckedLake):
        return 0, ()
    count = 0
    first: list[FileDifference] = []
    for one in sides.lake.check_files(sides.table.in_lake.path, sides.head.snapshot_id or 0, options.files):
        options.check()
        count += 1
        first += [one] if len(first) < options.most else []
    return count, tuple(first)


def _spill_source(  # noqa: PLR0917 - what is read, and how
    sides: Sides, readable: Readable, schema: pa.Schema, rows: Rows, options: VerifyOptions, letters: DeadLetters
) -> RowSpill:
    fold = counted if rows.counted else None
    if rows.keyed:
        schema, fold = schema.append(SYSTEM_FIELDS[0]), last_of_each
    folder = options.folder / "source"
    spill = RowSpill(folder, schema, rows.key, memory_bytes=options.memory_bytes, fold=fold)
    for records in source_rows(sides.table, sides.reader, readable.splits, letters):
        options.check()
        spill.add(_plain(sides.table, records, schema))
    spill.finish()
    return spill


def _common_columns(table: TableSpec, lake: pa.Schema) -> _Columns:
    had: dict[str, str] = json.loads((lake.metadata or {}).get(LOST_COLUMNS, b"{}"))
    system = any(name in (*lake.names, *had) for name in _SYSTEM)
    needed = (*table.primary_key, *table.partition_keys, *(_SYSTEM if system else ()))
    if missing := [f"{name} ({had[name]})" if name in had else name for name in needed if name not in lake.names]:
        message = f"{table.path}: expected lake columns {', '.join(needed)}, found no {', '.join(missing)}"
        raise LakeError(message)
    names = [name for name in (*table.schema.names, *_SYSTEM) if name in lake.names]
    schema = pa.schema([pa.field(name, plain_type(lake.field(name).type)) for name in names])
    absent = [name for name in table.schema.names if name not in lake.names]
    lost = {name: had[name] for name in absent if name in had}
    for field in table.schema:
        if field.name in lake.names:
            inner = _lost_fields(field.name, plain_type(field.type), schema.field(field.name).type)
            lost |= dict.fromkeys(inner, "its type in the lake lacks it")
    return _Columns(schema, system, tuple(name for name in absent if name not in had), lost)


def _lost_fields(name: str, source: pa.DataType, lake: pa.DataType) -> Iterator[str]:
    """Yield the fields of a nested column that its lake column lacks: a cast of the source's values leaves them out."""
    if types.is_struct(source) and types.is_struct(lake):
        there = {child.name: child.type for child in lake}
        for child in source:
            inner = f"{name}.{child.name}"
            if child.name in there:
                yield from _lost_fields(inner, child.type, there[child.name])
            else:
                yield inner
    elif types.is_large_list(source) and types.is_large_list(lake):
        yield from _lost_fields(f"{name}.element", source.value_type, lake.value_type)
    elif types.is_map(source) and types.is_map(lake):
        yield from _lost_fields(f"{name}.key", source.key_type, lake.key_type)
        yield from _lost_fields(f"{name}.value", source.item_type, lake.item_type)


def _plain(table: TableSpec, records: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.equals(COUNT):
            columns.append(pa.array(np.ones(records.num_rows, dtype=np.int64)))
            continue
        column = records.column(field.name)
        try:
            columns.append(cast_plain(column, field.type, exact=field.name in table.primary_key))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unfit:
            message = f"{table.path}, column {field.name!r}: {column.type} cannot be compared as {field.type}: {unfit}"
            raise LakeError(message) from unfit
    return pa.RecordBatch.from_arrays(columns, schema=schema)
