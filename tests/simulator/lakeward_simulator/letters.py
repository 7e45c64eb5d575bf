"""Rows that do not fit in the simulator: which they are, how dead letters stand for them, and what must hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import RowError
from lakeward.model.dead_letters import path_of
from lakeward.model.tables import OFFSET_COLUMN, TableBucket
from lakeward_simulator.records import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.model.splits import Split
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_simulator.lake import LakeTable
    from lakeward_simulator.source import SimTable
    from lakeward_simulator.world import World

_UNFIT = 5
"""One row of so many does not fit."""


def is_unfit(key: int, offset: int) -> bool:
    """Say whether a row does not fit the lake table, of a run that keeps dead letters."""
    return (3 * key + offset) % _UNFIT == 0


class SimRowCheck:
    """See `lakeward.ports.RowCheck`."""

    def __init__(self, table: TableSpec, split: Split) -> None:
        """Check rows of a split."""
        self._where = table.path, split.bucket

    def __call__(self, records: pa.RecordBatch) -> dict[int, RowError]:
        """See Protocol."""
        keys, offsets = records.column("key").to_pylist(), records.column(OFFSET_COLUMN).to_pylist()
        return {
            row: RowError.at(*self._where, offset, "key", expected="a key that fits", found=key)
            for row, (key, offset) in enumerate(zip(keys, offsets, strict=True))
            if is_unfit(key, offset)
        }


def rows_in(letters: pa.RecordBatch, table_id: int) -> Iterator[Row]:
    """Yield the rows that dead letters stand for."""
    columns = (letters.column(name).to_pylist() for name in ("row", "partition_id", "bucket"))
    for data, partition_id, number in zip(*columns, strict=True):
        with pa.ipc.open_stream(data) as stream:
            (row,) = stream.read_all().to_pylist()
        snapshot = None if row["snapshot"] < 0 else row["snapshot"]
        bucket = TableBucket(table_id, partition_id, number)
        yield Row(bucket, row["__offset"], row["key"], row["__change"], snapshot, row["day"])


def wrong_beside_letters(rows: Iterable[Row]) -> Iterator[str]:
    """Yield what is wrong with the rows of a lake table beside its dead letters: one is unfit, or there twice."""
    for row, count in Counter(rows).items():
        if is_unfit(row.key, row.offset):
            yield f"{row} does not fit, and is in the table"
        if count > 1:
            yield f"{row} is there {count} times"


def wrong_letters(world: World, table: LakeTable, path: TablePath, owner: TablePath) -> Iterator[str]:
    """Yield what is wrong with dead letters: a row fits, is there twice, or the commit of its table is missing."""
    of_table = world.lake.tables.get(owner)
    newest = None if of_table is None else of_table.newest
    offsets = {} if newest is None or newest.request is None else newest.request.offsets
    for row, count in Counter(row for file in table.live() for row in world.lake.files.get(file, ())).items():
        if not is_unfit(row.key, row.offset):
            yield f"{path}: {row} fits"
        if count > 1:
            yield f"{path}: {row} is there {count} times"
        if row.offset >= offsets.get(row.bucket, -1):
            yield f"{path}: {row} is there before its table's commit"


def letters_of(world: World, source: SimTable) -> list[Row]:
    """Return the rows of a table that are dead letters in the lake now."""
    table = world.lake.tables.get(path_of(source.spec.path))
    if table is None or table.table_id != source.spec.table_id:
        return []
    return [row for file in table.live() for row in world.lake.files[file]]
