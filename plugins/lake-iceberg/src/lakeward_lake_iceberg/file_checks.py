"""Compares what a snapshot says of its files with the files themselves: partitions, bounds, counts, sizes, order.

Readers leave out files by it, so a wrong word hides rows that are all there. pyiceberg and pyarrow compute all values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.delete_file_index import _referenced_data_file_path
from pyiceberg.types import NestedField, StringType

from lakeward.errors import short_repr
from lakeward.ports import FileDifference
from lakeward_lake_iceberg.file_order import ClaimedOrder
from lakeward_lake_iceberg.file_rows import read_errors, whole_file
from lakeward_lake_iceberg.file_values import (
    UNKNOWN,
    bound,
    extremes,
    ordered,
    plain,
    primitives,
    same_value,
    stored,
    transformed,
    values_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

_BEYOND = "positions in a data file of so many rows"
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
    seen: set[tuple[str, str | None]] = set()
    for task in _sample(tasks, most):
        with read_errors(f"{name}: file {task.file.file_path} of snapshot {snapshot_id}"):
            yield from _data_file(table, schema, task)
        for deletes in task.delete_files:
            known = deletes.file_path, _referenced_data_file_path(deletes)
            if known not in seen:
                seen.add(known)
                check = _delete_file if deletes.file_format is FileFormat.PARQUET else _other_deletes
                with read_errors(f"{name}: file {deletes.file_path} of snapshot {snapshot_id}"):
                    yield from check(table, deletes, rows)


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
    repeated: bool = False
    """Whether it is in a list or a map: then only its bounds count."""
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
        known = [*self.values, *extremes(stored(array))]
        self.values = [min(known, key=ordered), max(known, key=ordered)] if known else []

    def differences(self, file: DataFile, rows: int) -> Iterator[tuple[str, Any, Any]]:
        """Yield what is wrong: what it is, what the file has, what the lake says."""
        key = self.kind.field_id
        counts: list[tuple[str, int, Any]] = (
            []
            if self.repeated
            else [
                ("value count", rows, file.value_counts),
                ("null count", self.nulls, file.null_value_counts),
                ("NaN count", self.nans, file.nan_value_counts),
            ]
        )
        for what, expected, said in counts:
            found = (said or {}).get(key, expected)  # what it does not say misleads nobody
            if found != expected:
                yield f"{what} of column {self.name}", expected, found
        if not self.values:
            return
        smallest, largest = self.values
        lower, upper = (bound(self.kind, (one or {}).get(key)) for one in (file.lower_bounds, file.upper_bounds))
        if lower is not None and ordered(lower) > ordered(smallest):
            yield f"lower bound of column {self.name}", smallest, lower
        if upper is not None and ordered(upper) < ordered(largest):
            yield f"upper bound of column {self.name}", largest, upper


def _data_file(table: Table, schema: Schema, task: FileScanTask) -> Iterator[FileDifference]:
    file = task.file
    fields = primitives(schema)
    columns = [_Column(one.name, one.field, one.repeated) for one in fields]
    order = _claimed_order(table, schema, file)
    wrong: dict[str, tuple[Any, Any]] = {}
    rows = 0
    for batch in whole_file(table, schema, task):
        rows += len(batch)
        for column, one in zip(columns, fields, strict=True):
            column.add(values_at(batch, one))
        if order is not None:
            order.add(batch)
        for what, expected, found in _partition(table, schema, file, batch):
            wrong.setdefault(what, (expected, found))
    wrong |= {what: (expected, found) for one in columns for what, expected, found in one.differences(file, rows)}
    size = len(table.io.new_input(file.file_path))
    for what, has, said in (("row count", rows, file.record_count), ("size", size, file.file_size_in_bytes)):
        if has != said:
            wrong[what] = has, said
    for what, (expected, found) in wrong.items():
        yield FileDifference(file.file_path, what, short_repr(expected), short_repr(found))
    yield from _order_differences(table, file, order)


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
    wrong += [] if beyond is None else [(_BEYOND, *beyond)]
    for what, expected, said in wrong:
        yield FileDifference(file.file_path, what, short_repr(expected), short_repr(said))


def _other_deletes(table: Table, file: DataFile, rows: dict[str, int]) -> Iterator[FileDifference]:
    """Compare deletion vectors, or deletes in ORC, as pyiceberg reads them.

    One file may hold the vectors of several data files, and a manifest entry for each: where bounds do not name the
    data file, pyiceberg does not say which entry is about which, and counts are not compared.
    """
    size = len(table.io.new_input(file.file_path))
    wrong = [] if size == file.file_size_in_bytes else [("size", size, file.file_size_in_bytes)]
    target = _referenced_data_file_path(file)
    for path, positions in _read_deletes(table.io, file).items():
        if path == target and len(positions) != file.record_count:
            wrong.append(("row count", len(positions), file.record_count))
        largest = pc.max(positions).as_py()
        if path in rows and largest is not None and largest >= rows[path]:
            wrong.append((_BEYOND, rows[path], largest))
    for what, expected, said in wrong:
        yield FileDifference(file.file_path, what, short_repr(expected), short_repr(said))


def _claimed_order(table: Table, schema: Schema, file: DataFile) -> ClaimedOrder | None:
    claimed = table.sort_orders().get(file.sort_order_id or 0)
    return None if claimed is None else ClaimedOrder(claimed, schema)


def _order_differences(table: Table, file: DataFile, order: ClaimedOrder | None) -> Iterator[FileDifference]:
    known = {0, *table.sort_orders()}
    if file.sort_order_id is not None and file.sort_order_id not in known:
        yield FileDifference(file.file_path, "sort order", f"one of {sorted(known)}", str(file.sort_order_id))
    if order is not None and order.wrong is not None:
        text = f"row {order.wrong} comes before row {order.wrong - 1}"
        yield FileDifference(file.file_path, "sort order", text, order.text)


def _partition(table: Table, schema: Schema, file: DataFile, batch: pa.RecordBatch) -> Iterator[tuple[str, Any, Any]]:
    """Yield each partition field whose value is not that of all rows."""
    columns = {one.field_id: (number, one) for number, one in enumerate(schema.fields)}
    for number, one in enumerate(table.specs()[file.spec_id].fields):
        if one.source_id not in columns:
            continue  # dropped since
        place, source = columns[one.source_id]
        said = plain(file.partition[number])
        for value in pc.unique(stored(batch.column(place))).to_pylist():
            expected = transformed(one, source.field_type, value)
            if expected is not UNKNOWN and not same_value(source.field_type, expected, said):
                yield f"partition field {one.name}", expected, said
                break
