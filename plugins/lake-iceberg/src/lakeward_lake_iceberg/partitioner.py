"""Lake partitions in the worker: which one each row is in, and what a partition's writer is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import LakeError, RowError
from lakeward.model.lake_rows import RowConverter
from lakeward.model.splits import SnapshotSplit
from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN
from lakeward.ports.lake import PartitionedRows
from lakeward_lake_iceberg.detail import Value, unpack_detail
from lakeward_lake_iceberg.nanoseconds import to_microseconds
from lakeward_lake_iceberg.transforms import transform, unfit_rows, values_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward_lake_iceberg.task import LayoutField, WriterTask

    Codes = npt.NDArray[np.signedinteger[Any]]

_DENSE = 4
"""Codes are counted in a table of all combinations, if there are at most so many times the rows, and else hashed."""
_WIDE = 1 << 31
"""Codes of so many combinations do not fit 32 bits."""
_CLOSE = 1024
"""Whole numbers that differ by less are numbered by their distance from the least."""
_NAME_LETTERS = 40
_DATE_UNITS: dict[str, Literal["Y", "M", "D", "h"]] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_VALUES = msgspec.msgpack.Decoder(tuple[Value, ...])
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def partition_key(values: tuple[Value, ...]) -> bytes:
    """Return a partition as bytes that are the same in every process."""
    return msgspec.msgpack.encode(values)


def partition_values(key: bytes) -> tuple[Value, ...]:
    """Return the values of a partition from what `partition_key` gave."""
    return _VALUES.decode(key)


@dataclass(frozen=True, slots=True)
class Place:
    """What one writer writes: the values of its partition fields, and what its files are named after.

    `bucket` is None where rows of several buckets come, each with a `__bucket`. `only_snapshot` says that all rows come
    from a KV snapshot, None that each may. `directory` is where files lie below the round's prefix, with a slash at its
    end. `base` is the name of the partition in the task.
    """

    partition: tuple[Value, ...]
    base: str
    name: str
    bucket: TableBucket | None
    only_snapshot: bool | None
    directory: str = ""

    @classmethod
    def of_split(cls, task: WriterTask, split: Split) -> Place:
        """Return the place of a split's rows in the source's own layout: its partition, its bucket if that divides."""
        partition = (*split.partition, split.bucket.bucket) if task.by_bucket else split.partition
        return cls(partition, base_name(partition), split.split_id, split.bucket, isinstance(split, SnapshotSplit))

    @classmethod
    def of_partition(cls, task: WriterTask, partition: bytes, name: str) -> Place:
        """Return the place of one partition (a key) of the lake's own layout; `name` is a part of each file's name."""
        values = partition_values(partition)
        return cls(values, partition.hex(), name, None, None, directory_of(task.layout, values))


def base_name(partition: tuple[Value, ...]) -> str:
    """Return the text under which a partition of the source's own layout is found in a task."""
    return msgspec.json.encode(partition).decode("utf-8")


def directory_of(layout: tuple[LayoutField, ...], values: tuple[Value, ...]) -> str:
    """Return the directories of a partition: `ts_day=2024-01-01/id_bucket_16=3/`.

    They are for people: readers find a file's partition in the table's metadata. So letters that are special in a path
    are replaced, and long texts are cut.
    """
    named = (
        f"{_plain(field.name)}={_plain(_text(field, value))}/" for field, value in zip(layout, values, strict=True)
    )
    return "".join(named)


class LayoutPartitioner:
    """See `lakeward.ports.Partitioner`."""

    def __init__(self, task: WriterTask, table: TableSpec) -> None:
        """Remember layout and columns."""
        self._task = task
        self._table = table
        self._schema = task.arrow_schema()
        self._converter = RowConverter(table, self._schema, None, coarsen=to_microseconds)

    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        """See `lakeward.ports.Partitioner.partition`.

        Raises:
            RowError: a value does not fit its column, or no file can have the partition that it is in.
        """
        codes: Codes = np.zeros(records.num_rows, dtype=np.int32)
        tuples: list[tuple[Value, ...]] = [()]
        for field in self._task.layout:
            numbers, values = _numbered(self._column(records, field))
            combinations = len(tuples) * len(values)
            if len(tuples) > 1:
                wide: Codes = codes.astype(np.int64, copy=False) if combinations >= _WIDE else codes
                numbers = wide * len(values) + numbers
            codes, found = _densify(numbers, combinations)
            tuples = [(*tuples[one // len(values)], values[one % len(values)]) for one in found.tolist()]
        return PartitionedRows(codes.astype(np.int32, copy=False), tuple(map(partition_key, tuples)))

    def partition_of(self, file: LakeFile) -> bytes:
        """See `lakeward.ports.Partitioner.partition_of`."""
        detail = unpack_detail(file.detail)
        spec_id, key = detail.writer or (detail.spec_id, partition_key(detail.partition))
        if spec_id != self._task.spec_id:
            message = (
                f"file {file.path}: expected a file of the lake table's present partition spec {self._task.spec_id}, "
                f"found one of spec {spec_id}"
            )
            raise LakeError(message)
        return key

    def _column(self, records: pa.RecordBatch, field: LayoutField) -> pa.Array:
        if field.transform == "void":
            return pa.nulls(records.num_rows, pa.int32())
        column = self._converter.column(records, self._schema.field(field.column))
        result = transform(field.transform, field.argument, column)
        if unfit := unfit_rows(result):
            raise self._refusal(records, field, unfit[0], column[unfit[0]].as_py())
        return result

    def _refusal(self, records: pa.RecordBatch, field: LayoutField, row: int, value: object) -> RowError:
        path = self._table.path
        bucket, offset = (records.column(name)[row].as_py() for name in (BUCKET_COLUMN, OFFSET_COLUMN))
        return RowError.at(path, bucket, offset, field.column, expected=expected_of(self._table, field), found=value)


def expected_of(table: TableSpec, field: LayoutField) -> str:
    """Return, in words, which values a column may have in whose partition no file can lie otherwise."""
    text = f"{field.transform}({field.argument}, {field.column})"
    return f"a value that {text!r} of {table.section}.lake_partition rounds down to one of {field.kind}"


def _numbered(array: pa.Array) -> tuple[Codes, list[Value]]:
    """Return a number for each row, and the value of each number; some values may be no row's."""
    if pa.types.is_int32(array.type) and len(array) and not array.null_count:
        # Most transforms give whole numbers that lie close together: no hashing.
        numbers = np.frombuffer(array.buffers()[1], dtype=np.int32, count=array.offset + len(array))[array.offset :]
        least, most = int(numbers.min()), int(numbers.max())
        if most - least < _CLOSE:
            return numbers - least, list(range(least, most + 1))
    bits = array.view(pa.int64()) if pa.types.is_float64(array.type) else array
    encoded = pc.dictionary_encode(bits, null_encoding="encode")
    values = encoded.dictionary
    if bits is not array:
        # Numbers that differ in their bits are different partitions: 0.0 and -0.0 are for Iceberg.
        values = values.view(pa.float64())
    return np.asarray(encoded.indices), values_of(values)


def _densify(codes: Codes, combinations: int) -> tuple[Codes, Codes]:
    """Number codes from 0 without a hole; return the new codes, and the old code of each."""
    if combinations <= max(_DENSE * len(codes), 1024):
        present = np.bincount(codes, minlength=combinations) > 0
        found = np.flatnonzero(present)
        if len(found) == combinations:
            return codes, found
        numbers = np.cumsum(present, dtype=np.int32) - np.int32(1)
        return numbers[codes], found
    encoded = pc.dictionary_encode(pa.array(codes))
    return np.asarray(encoded.indices), np.asarray(encoded.dictionary)


def _text(field: LayoutField, value: Value) -> str:
    """Return a value as people read it."""
    if value is None:
        return "null"
    unit = _DATE_UNITS.get(field.transform) or ("D" if field.transform == "identity" and field.kind == "date" else None)
    if unit is not None and isinstance(value, int):
        return str(np.datetime64(value, unit)).replace("T", "-")
    if field.kind.startswith("timestamp") and field.transform == "identity" and isinstance(value, int):
        return str(np.datetime64(value, "us"))
    if field.kind.startswith("decimal") and isinstance(value, bytes):
        return _decimal_text(field.kind, int.from_bytes(value, "big", signed=True))
    return value.hex() if isinstance(value, bytes) else str(value)


def _decimal_text(kind: str, number: int) -> str:
    scale = int(kind.rstrip(")").rpartition(",")[2])
    digits = str(abs(number)).rjust(scale + 1, "0")
    before, after = (digits[:-scale], f".{digits[-scale:]}") if scale else (digits, "")
    return f"{'-' if number < 0 else ''}{before}{after}"


def _plain(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text[:_NAME_LETTERS])
