"""Compares what a snapshot says of its files with the files themselves: partitions, bounds, counts, sizes.

Readers leave out files by it, so a wrong word hides rows that are all there. pyiceberg and pyarrow compute all values.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, PrimitiveType, StringType, StructType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from lakeward.errors import short_repr
from lakeward.ports import FileDifference
from lakeward_lake_iceberg.file_rows import read_errors, whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.types import IcebergType

_INT_BYTES = 4
_UNKNOWN = object()
_PATH = NestedField(2147483546, "file_path", StringType(), required=True)
"""The column of delete files that names a data file (spec, "Reserved Field IDs")."""


def wrong_in_files(table: Table, snapshot_id: int, most: int | None) -> Iterator[FileDifference]:
    """Yield what a snapshot says wrongly of its files; see `lakeward.ports.FileCheckedLake`."""
    name = ".".join(table.name())
    with read_errors(f"{name}: snapshot {snapshot_id}"):
        scan = table.scan(snapshot_id=snapshot_id)
        # As the snapshot has it: a column that was required since is in no file of before.
        schema, tasks = scan.projection(), list(scan.plan_files())
    rows = {task.file.file_path: task.file.record_count for task in tasks}
    seen: set[str] = set()
    for task in _sample(tasks, most):
        with read_errors(f"{name}: file {task.file.file_path} of snapshot {snapshot_id}"):
            yield from _data_file(table, schema, task)
        for deletes in task.delete_files:
            if deletes.file_path not in seen and deletes.file_format is FileFormat.PARQUET:
                seen.add(deletes.file_path)
                with read_errors(f"{name}: file {deletes.file_path} of snapshot {snapshot_id}"):
                    yield from _delete_file(table, deletes, rows)


def _sample(tasks: Sequence[FileScanTask], most: int | None) -> Sequence[FileScanTask]:
    """Return so many files, spread over all of them."""
    if most is None or most >= len(tasks):
        return tasks
    return [tasks[number * len(tasks) // most] for number in range(most)]


@dataclass(slots=True)
class _Column:
    """What a file has in one column, gathered batch by batch."""

    name: str
    kind: NestedField
    nulls: int = 0
    nans: int = 0
    values: list[Any] = field(default_factory=list)
    """The smallest and the largest value so far, none where there is none."""

    def add(self, array: pa.Array) -> None:
        self.nulls += array.null_count
        if pa.types.is_floating(array.type):
            nan = pc.fill_null(pc.is_nan(array), False)
            self.nans += nan.true_count
            array = array.filter(pc.invert(nan))
        both = pc.min_max(_stored(array))
        found = [both[end].as_py() for end in ("min", "max")]
        known = [value for value in (*self.values, *found) if value is not None]
        self.values = [min(known), max(known)] if known else []

    def differences(self, file: DataFile, rows: int) -> Iterator[tuple[str, Any, Any]]:
        """Yield what is wrong: what it is, what the file has, what the lake says."""
        key = self.kind.field_id
        counts = [
            ("value count", rows, file.value_counts),
            ("null count", self.nulls, file.null_value_counts),
            ("NaN count", self.nans, file.nan_value_counts),
        ]
        for what, expected, said in counts:
            found = (said or {}).get(key, expected)  # what it does not say misleads nobody
            if found != expected:
                yield f"{what} of column {self.name}", expected, found
        if not self.values:
            return
        smallest, largest = self.values
        lower, upper = (_bound(self.kind, (one or {}).get(key)) for one in (file.lower_bounds, file.upper_bounds))
        if lower is not None and lower > smallest:
            yield f"lower bound of column {self.name}", smallest, lower
        if upper is not None and upper < largest:
            yield f"upper bound of column {self.name}", largest, upper


def _data_file(table: Table, schema: Schema, task: FileScanTask) -> Iterator[FileDifference]:
    file = task.file
    columns = [_Column(name, one) for name, _, one in _primitives(schema)]
    wrong: dict[str, tuple[Any, Any]] = {}
    rows = 0
    for batch in whole_file(table, schema, task):
        rows += len(batch)
        for column, (_, places, _) in zip(columns, _primitives(schema), strict=True):
            column.add(_at(batch, places))
        for what, expected, found in _partition(table, schema, file, batch):
            wrong.setdefault(what, (expected, found))
    wrong |= {what: (expected, found) for one in columns for what, expected, found in one.differences(file, rows)}
    size = len(table.io.new_input(file.file_path))
    for what, has, said in (("row count", rows, file.record_count), ("size", size, file.file_size_in_bytes)):
        if has != said:
            wrong[what] = has, said
    orders = table.sort_orders()
    if file.sort_order_id is not None and file.sort_order_id not in {0, *orders}:
        wrong["sort order"] = f"one of {sorted(orders)}", file.sort_order_id
    for what, (expected, found) in wrong.items():
        yield FileDifference(file.file_path, what, short_repr(expected), short_repr(found))


def _delete_file(table: Table, file: DataFile, rows: dict[str, int]) -> Iterator[FileDifference]:
    """Compare a file of position deletes; one that is about a data file which is gone deletes nothing."""
    source = table.io.new_input(file.file_path)
    count, paths = 0, _Column("file_path", _PATH)
    beyond: tuple[int, int] | None = None
    with source.open() as opened:
        for batch in pq.ParquetFile(opened).iter_batches(columns=["file_path", "pos"]):
            count += len(batch)
            paths.add(batch["file_path"])
            largest = pa.table(batch).group_by("file_path").aggregate([("pos", "max")]).to_pylist()
            for one in largest:
                there = rows.get(one["file_path"])
                beyond = (there, one["pos_max"]) if there is not None and one["pos_max"] >= there else beyond
    found = [("row count", count, file.record_count), ("size", len(source), file.file_size_in_bytes)]
    wrong = [one for one in found if one[1] != one[2]]
    wrong += [one for one in paths.differences(file, count) if "bound" in one[0]]
    wrong += [] if beyond is None else [("positions in a data file of so many rows", *beyond)]
    for what, expected, said in wrong:
        yield FileDifference(file.file_path, what, short_repr(expected), short_repr(said))


def _partition(table: Table, schema: Schema, file: DataFile, batch: pa.RecordBatch) -> Iterator[tuple[str, Any, Any]]:
    """Yield each partition field whose value is not that of all rows."""
    columns = {one.field_id: (number, one) for number, one in enumerate(schema.fields)}
    for number, one in enumerate(table.specs()[file.spec_id].fields):
        if one.source_id not in columns:
            continue  # dropped since
        place, source = columns[one.source_id]
        if isinstance(source.field_type, DoubleType):
            continue  # pyiceberg reads the doubles of manifests as floats
        said = _plain(file.partition[number])
        for value in pc.unique(_stored(batch.column(place))).to_pylist():
            expected = _transformed(one, source.field_type, value)
            if expected is not _UNKNOWN and not _same(expected, said):
                yield f"partition field {one.name}", expected, said
                break


def _transformed(one: PartitionField, kind: IcebergType, value: Any) -> Any:  # noqa: ANN401 - of any type
    """Return a value's partition value; the least whole numbers wrap around when they are truncated, as in Java."""
    try:
        result = _plain(one.transform.transform(kind)(value))
    except (OverflowError, ValueError):
        return _UNKNOWN  # a time beyond the years of Python
    if isinstance(one.transform, TruncateTransform) and isinstance(result, int):
        half = 1 << (31 if isinstance(kind, IntegerType) else 63)
        return (result + half) % (2 * half) - half
    return result


def _primitives(schema: Schema) -> list[tuple[str, tuple[int, ...], NestedField]]:
    """Return name, place and field of each primitive field outside lists and maps."""
    return [*_within((), "", schema.as_struct())]


def _within(
    places: tuple[int, ...], prefix: str, kind: StructType
) -> Iterator[tuple[str, tuple[int, ...], NestedField]]:
    for number, one in enumerate(kind.fields):
        name, place = f"{prefix}{one.name}", (*places, number)
        if isinstance(one.field_type, StructType):
            yield from _within(place, f"{name}.", one.field_type)
        elif isinstance(one.field_type, PrimitiveType):
            yield name, place, one


def _at(batch: pa.RecordBatch, places: tuple[int, ...]) -> pa.Array:
    """Return a column; a field of a row that is null is null."""
    array = batch.column(places[0])
    return array if len(places) == 1 else pc.struct_field(array, list(places[1:]))


def _stored(array: pa.Array) -> pa.Array:
    """Return dates and times as the whole numbers that Iceberg stores, other values as they are."""
    if not pa.types.is_temporal(array.type):
        return array
    return array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever pyiceberg read or computed
    if isinstance(value, datetime):
        return datetime_to_micros(value)
    if isinstance(value, date):
        return date_to_days(value)
    return time_to_micros(value) if isinstance(value, time) else value


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - as above
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def _bound(one: NestedField, bound: bytes | None) -> Any:  # noqa: ANN401 - depends on the type
    """Decode a bound, None where there is none or where it is no value of its type: readers take it as unknown."""
    kind = one.field_type
    if bound is None or not isinstance(kind, PrimitiveType):
        return None
    try:
        if isinstance(kind, LongType) and len(bound) == _INT_BYTES:
            kind = IntegerType()  # as it was when the file was written
        return _plain(from_bytes(kind, bound))
    except (ValueError, struct.error):
        return None
