"""Tables of a source, of any shape that a lake table may have, and the rows that they have at any offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lakeward.model.partitioning import PartitionField
from lakeward.model.tables import Change, TableBucket
from lakeward_testing.lake_tables import key_table, log_table, source_batch

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from lakeward.model.tables import TableSpec
    from lakeward.ports import SourceBatch

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field("name", pa.string()),
    ]
)
REGIONS = ("north", "süd")
_LAYOUTS = ("region", "bucket(2, id)", "truncate(1, region)")
_KEYS = 6
_GONE = 0.25
_MOVES = 0.4


class Row(NamedTuple):
    """A row. `name` says which record of which bucket it is; ids of a bucket are of its remainder."""

    id: int
    region: str
    name: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of table it is."""

    kind: str
    """`log`, `bucketed log` or `key`."""
    partitions: str
    """`none`, `source` or the lake's own fields."""
    is_clean: bool
    is_mirror: bool
    buckets: int
    properties: Mapping[str, str]

    @classmethod
    def chosen(cls, source: random.Random) -> Shape:
        """Choose one."""
        kind = source.choice(("log", "bucketed log", "key", "key", "key"))
        partitions = source.choice(("none", "none", "source", source.choice(_LAYOUTS)))
        own = partitions not in {"none", "source"}
        properties = {"paimon.num-sorted-run.compaction-trigger": str(source.randrange(2, 5))}
        if source.random() < 0.3:
            properties["paimon.changelog-producer"] = "none"
        return cls(
            kind=kind,
            partitions=partitions,
            is_clean=source.random() < 0.5,
            is_mirror=own or source.random() < 0.4,
            buckets=source.randrange(1, 3),
            properties=properties if kind == "key" else {},
        )

    @property
    def words(self) -> tuple[str, ...]:
        """What it is, in words."""
        mode, layout = "mirror" if self.is_mirror else "tier", "clean" if self.is_clean else "legacy"
        return f"table: {self.kind}", f"partitions: {self.partitions}", f"mode: {mode}", f"columns: {layout}"

    @property
    def is_key(self) -> bool:
        """Whether it has a primary key."""
        return self.kind == "key"

    @property
    def is_own(self) -> bool:
        """Whether its partitions are the lake's own."""
        return self.partitions not in {"none", "source"}

    @property
    def has_changelog(self) -> bool:
        """Whether changes go to changelog files too."""
        return self.is_key and self.properties.get("paimon.changelog-producer") != "none"

    @property
    def moves_keys(self) -> bool:
        """Whether a key may come to another partition of the lake's."""
        return self.is_key and "region" in self.partitions

    def spec(self, table_id: int) -> TableSpec:
        """Return what a source says of such a table."""
        of_source = self.partitions == "source"
        told = {
            "table_id": table_id,
            "buckets": self.buckets,
            "partition_keys": ("region",) if of_source else (),
            "bucket_key": ("id",) if self.kind != "log" else (),
            "system_columns": not self.is_clean,
            "union_read": not self.is_mirror,
            "properties": self.properties,
            "lake_partition": (PartitionField.parse(self.partitions),) if self.is_own else (),
        }
        if not self.is_key:
            return log_table(COLUMNS, **told)
        return key_table(COLUMNS, **told, primary_key=("id", "region") if of_source else ("id",))


@dataclass(slots=True)
class Log:
    """The records of one bucket."""

    region: str
    """The partition, empty where it is in none."""
    rows: list[Row]
    changes: list[int]

    def cut(self, stop: int) -> int:
        """Return an offset near another one at which a read may end: an update has two records."""
        stop = min(stop, len(self.rows))
        inside = 0 < stop < len(self.rows) and self.changes[stop] == Change.UPDATE_AFTER
        return stop + 1 if inside else stop


class SourceTable:
    """One table of the source with all its records."""

    def __init__(self, source: random.Random, shape: Shape, table_id: int, records: int) -> None:
        """Write each bucket's log; it has `records` records or a little more."""
        self.shape = shape
        self.spec = shape.spec(table_id)
        self.logs: dict[TableBucket, Log] = {}
        regions = REGIONS if shape.partitions == "source" else ("",)
        for number, region in enumerate(regions):
            partition = number + 1 if region else None
            for bucket in range(shape.buckets):
                log = Log(region, [], [])
                self.logs[TableBucket(table_id, partition, bucket)] = log
                _Records(source, shape, bucket, log).write(records)

    @property
    def ends(self) -> dict[TableBucket, int]:
        """The offset after the last record of each bucket."""
        return {bucket: len(log.rows) for bucket, log in self.logs.items()}

    def batch(self, bucket: TableBucket, start: int, stop: int) -> SourceBatch:
        """Return some records as a source gives them."""
        log = self.logs[bucket]
        return source_batch(
            COLUMNS, [row._asdict() for row in log.rows[start:stop]], changes=log.changes[start:stop], start=start
        )

    def rows_at(self, offsets: Mapping[TableBucket, int]) -> list[Row]:
        """Return the rows that the table has of the records below some offsets, in order."""
        found: list[Row] = []
        for bucket, offset in offsets.items():
            log = self.logs[bucket]
            if not self.shape.is_key:
                found += log.rows[:offset]
                continue
            rows: dict[int, Row] = {}
            for row, change in zip(log.rows[:offset], log.changes, strict=False):
                if change == Change.DELETE:
                    del rows[row.id]
                elif change != Change.UPDATE_BEFORE:
                    rows[row.id] = row
            found += rows.values()
        return sorted(found)


class _Records:
    """Writes the log of one bucket."""

    def __init__(self, source: random.Random, shape: Shape, bucket: int, log: Log) -> None:
        self._source = source
        self._shape = shape
        self._bucket = bucket
        self._log = log
        self._live: dict[int, Row] = {}

    def write(self, count: int) -> None:
        """Write so many records, or one more."""
        while len(self._log.rows) < count:
            if self._shape.is_key:
                self._change(self._source.randrange(_KEYS))
            else:
                self._add(self._row(len(self._log.rows), None), Change.APPEND)

    def _row(self, key: int, before: Row | None) -> Row:
        region = self._log.region
        if not region:
            stays = before is not None and (not self._shape.moves_keys or self._source.random() >= _MOVES)
            region = before.region if before is not None and stays else self._source.choice(REGIONS)
        number = key * self._shape.buckets + self._bucket
        return Row(number, region, f"{self._bucket}:{len(self._log.rows):04d}")

    def _change(self, key: int) -> None:
        before = self._live.get(key)
        if before is None:
            self._live[key] = self._row(key, None)
            self._add(self._live[key], Change.INSERT)
        elif self._source.random() < _GONE:
            self._add(self._live.pop(key), Change.DELETE)
        else:
            self._add(before, Change.UPDATE_BEFORE)
            self._live[key] = self._row(key, before)
            self._add(self._live[key], Change.UPDATE_AFTER)

    def _add(self, row: Row, change: int) -> None:
        self._log.rows.append(row)
        self._log.changes.append(change)
