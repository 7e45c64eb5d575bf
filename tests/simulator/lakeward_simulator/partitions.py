"""A lake partitioning in the simulator: its routes, which partition a row is in, and the writer of one partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakeward.model.partitioning import PartitionField
from lakeward.model.tables import BUCKET_COLUMN, CHANGE_COLUMN, OFFSET_COLUMN, Change, TableBucket
from lakeward.ports import PartitionedRows
from lakeward.subtask.ports import LIMITS, OutputLimits
from lakeward_simulator.lake import SimWriter
from lakeward_simulator.records import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import SourceBatch
    from lakeward_simulator.lake import SimLake

_LEFT_OUT = 7
"""One record of so many becomes no row of a data file: writers leave some out, which have to be counted."""


@dataclass(frozen=True, slots=True)
class Route:
    """A kind of table with a lake partitioning. Updates of a `moves` one may give a row another `day`."""

    keyed: bool
    lake_partition: tuple[str, ...]
    moves: bool = False
    evolved: tuple[str, ...] = ()
    """The lake partitioning that every other start has where tables evolve; empty: the same."""

    def log_row(self, random: Random, live: Mapping[int, int], next_key: int) -> list[tuple[int, int, int]]:
        """Return the log's records of the next write: key, change and day of each.

        Args:
            random: of the world.
            live: the day of each key that the bucket has.
            next_key: of an append-only table.
        """
        if not self.keyed:
            return [(next_key, Change.APPEND, 0)]
        key = random.randrange(6)
        if not self.moves:
            return [(key, Change.APPEND, 0)]
        before, day = live.get(key), random.randrange(3)
        if before is None:
            return [(key, Change.INSERT, day)]
        if len(live) > 1 and random.random() < 0.2:  # a snapshot without a row would leave no trace in the lake
            return [(key, Change.DELETE, before)]
        return [(key, Change.UPDATE_BEFORE, before), (key, Change.UPDATE_AFTER, day)]


ROUTES: Mapping[str, Route] = {
    "append": Route(keyed=False, lake_partition=("truncate(4, key)",), evolved=("truncate(6, key)",)),
    "keyed": Route(keyed=True, lake_partition=("bucket(3, key)",), evolved=("bucket(2, key)",)),
    "moving": Route(keyed=True, lake_partition=("day",), moves=True),
}
"""By partition and bucket; by partition alone; and without an exchange, for a partition column outside the key."""


@dataclass(slots=True)
class Partitioned:
    """What a run's tables with a lake partitioning have: by table a name of `ROUTES`, and the settings."""

    routes: dict[TablePath, str] = field(default_factory=dict)
    limits: OutputLimits = LIMITS
    aligned_timeout_s: float = 1.0
    unaligned: bool = True
    open_rows: int = 1 << 20
    open_files: int = 64
    during_recovery: tuple[bool, ...] = (False,)
    """Whether checkpoints are taken during a recovery: by start, in turn."""
    memory: int = 1 << 20
    """See `CheckpointSettings`."""

    restored_s: float | None = None
    """Seconds that it takes at the most to read a piece of restored rows; None: as long as it takes to read others."""
    written_s: float = 0.01
    """Seconds that a turn of a subtask takes at the most: it has many items in its mailbox, and most are small."""
    missing_slots: int | None = None
    """Spark has so many slots fewer than it says, and no more tasks run at once; None: as many as are asked for."""

    evolves: bool = False
    """Whether every other start has another lake partitioning."""

    def layout(self, route: Route, start: int) -> tuple[str, ...]:
        """Return the lake partitioning of a kind of table, by the number of the start."""
        return route.evolved if self.evolves and start % 2 == 0 and route.evolved else route.lake_partition

    @property
    def recovers(self) -> bool:
        """Whether a start takes checkpoints during a recovery: the step `recover` is one of the run's own then."""
        return any(self.during_recovery)

    def route(self, path: TablePath) -> Route | None:
        """Return a table's kind, None without a lake partitioning."""
        return ROUTES[self.routes[path]] if path in self.routes else None


def fields_of(layout: tuple[str, ...]) -> tuple[PartitionField, ...]:
    """Return a lake partitioning, parsed."""
    return tuple(map(PartitionField.parse, layout))


def partition_of(fields: Iterable[PartitionField], row: Row) -> bytes:
    """Return the lake partition that a row belongs to: what the records below have to come to."""
    return b"/".join(b"%d" % _transformed(one, getattr(row, one.column)) for one in fields)


def rows_of(records: pa.RecordBatch, table_id: int) -> list[Row]:
    """Return the rows of a batch that a writer is given, with `__bucket`."""
    names = (BUCKET_COLUMN, OFFSET_COLUMN, "key", CHANGE_COLUMN, "snapshot", "day")
    columns = (records.column(name).to_pylist() for name in names)
    return [
        Row(TableBucket(table_id, None, bucket), offset, key, change, None if snapshot < 0 else snapshot, day)
        for bucket, offset, key, change, snapshot, day in zip(*columns, strict=True)
    ]


class SimPartitioner:
    """See `lakeward.ports.Partitioner`. A partition's key is its values as text."""

    def __init__(self, fields: tuple[PartitionField, ...]) -> None:
        """Keep the layout."""
        self._fields = fields

    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        """See Protocol."""
        columns = [_transformed(one, records.column(one.column).to_numpy()).tolist() for one in self._fields]
        rows = [*zip(*columns, strict=True)]
        keys = sorted({*rows})
        codes = {key: code for code, key in enumerate(keys)}
        names = tuple(b"/".join(b"%d" % value for value in key) for key in keys)
        return PartitionedRows(np.array([codes[row] for row in rows], np.int32), names)

    @staticmethod
    def partition_of(file: LakeFile) -> bytes:
        """See Protocol."""
        return file.detail


class PartitionWriter(SimWriter):
    """See `lakeward.ports.LakeWriter`: of one partition, for rows of any bucket. Some records it leaves out.

    Those are in the simulator's files all the same: it can be seen what became of every record.
    """

    def __init__(  # noqa: PLR0917 - what is written, then where
        self, lake: SimLake, stem: str, target: int, before: tuple[LakeFile, ...], table: TableSpec, partition: bytes
    ) -> None:
        """Write under a stem."""
        super().__init__(lake, stem, target, before, partition, table.table_id)
        self._left_out = 0

    def write(self, batch: SourceBatch) -> None:
        """See Protocol."""
        rows = rows_of(batch.records, self._table_id)
        self._left_out += sum(map(self.leaves_out, rows))
        self.take(rows)

    @staticmethod
    def leaves_out(row: Row) -> bool:
        """Say whether a record becomes no row of a data file."""
        return (row.key + row.offset) % _LEFT_OUT == 0

    @property
    def left_out(self) -> int:
        """See Protocol."""
        return self._left_out


def _transformed(by: PartitionField, value: Any) -> Any:  # noqa: ANN401 - a number, or an array of numbers
    width = by.argument or 1
    match by.transform:
        case "truncate":
            return value - value % width
        case "bucket":
            return value % width
        case _:
            return value
