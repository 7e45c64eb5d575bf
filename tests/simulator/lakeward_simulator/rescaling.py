"""Counts of buckets that change: raised for a table, for its new partitions alone, or for one that is there as well."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_simulator.lake import LakeTable
    from lakeward_simulator.records import Row
    from lakeward_simulator.source import SimTable


@dataclass(frozen=True, slots=True)
class Division:
    """How the source divides a table's rows.

    With a bucket key the lake divides partitions by the same function and one count, unless the table is mirrored.
    `partitions` is how many a new table has; 0: it is not partitioned.
    """

    by_key: bool = True
    partitions: int = 0


@dataclass(slots=True)
class Rescaling:
    """What a run has of changing counts."""

    divisions: dict[TablePath, Division] = field(default_factory=dict)
    """Of the tables that have another one than most."""
    changed: bool = False
    """Whether a count was ever changed."""
    misfits: set[int] = field(default_factory=set)
    """Ids of tables that the lake did not take at some time; one that was set aside then waits until it is resumed."""
    resumed: Counter[str] = field(default_factory=Counter)
    """How often a person has resumed a table, by its name."""


def add_partition(table: SimTable) -> None:
    """Add a partition, with the table's count of buckets as of now."""
    number = 1 + max((name for name in table.partitions if name is not None), default=0)
    grow(table, number, table.spec.buckets)


def grow(table: SimTable, partition: int | None, count: int) -> None:
    """Give a partition, or a table without partitions, so many buckets; a partition that is not there is added.

    Args:
        table: the table.
        partition: None for a table without partitions.
        count: at least as many as it has.
    """
    table.partitions.add(partition)
    buckets = [TableBucket(table.spec.table_id, partition, number) for number in range(count)]
    for bucket in buckets:
        table.logs.setdefault(bucket, [])
        table.snapshots.setdefault(bucket, {})
        table.changes.setdefault(bucket, [])
        table.divided.setdefault(bucket, []).append((len(table.logs[bucket]), count))
    table.logs = {bucket: table.logs[bucket] for bucket in sorted(table.logs, key=TableBucket.sort_key)}


def with_count(spec: TableSpec, count: int) -> TableSpec:
    """Return what the source says of a table, with another count of buckets."""
    return replace(spec, buckets=count)


def change_count(table: SimTable, random: Random) -> bool:
    """Change the count of buckets of a table: mostly to more.

    Without partitions the new buckets are there at once. With partitions the count is that of new ones; one may be
    added at once, and one that is there may be divided anew.

    Args:
        table: the table.
        random: of the world.

    Returns:
        Whether a partition is still to be added.
    """
    before = table.spec.buckets
    fewer = bool(table.spec.partition_keys) and before > 1 and random.random() < 0.25
    count = before - 1 if fewer else before + random.randint(1, 2)
    table.spec = with_count(table.spec, count)
    if not table.spec.partition_keys:
        grow(table, None, count)
        return False
    if not fewer and random.random() < 0.3:
        grow(table, random.choice(partitions(table)), count)
    later = random.random() < 0.5
    if not later:
        add_partition(table)
    return later


def set_back(table: SimTable, count: int) -> bool:
    """Set a partitioned table's count back, and drop the partitions that have another one, as the product advises.

    Args:
        table: the table.
        count: the one by which the lake divides it.

    Returns:
        False where that is not possible: no partition has that count, or one that was there was divided anew.
    """
    if not table.spec.partition_keys or any(len(table.divided[bucket]) > 1 for bucket in table.logs):
        return False
    other = {bucket.partition_id for bucket in table.logs if table.divided[bucket] != [(0, count)]}
    if other == table.partitions:
        return False
    table.partitions -= other
    table.spec = with_count(table.spec, count)
    table.logs = {bucket: log for bucket, log in table.logs.items() if bucket.partition_id not in other}
    return True


def partitions(table: SimTable) -> list[int | None]:
    """Return the partitions in their order, None alone for a table without."""
    return sorted(table.partitions, key=lambda name: name or 0)


def fits(table: SimTable, lake: LakeTable | None) -> bool:
    """Say whether the lake takes a table: it divides by no bucket key, or by the one count that all partitions have."""
    if not divides(table):
        return True
    counts = {table.spec.buckets, *(table.divided[bucket][-1][1] for bucket in table.logs)}
    return len(counts) == 1 and (lake is None or lake.buckets in counts)


def divides(table: SimTable) -> bool:
    """Say whether the lake divides a table by the source's bucket key."""
    return bool(table.spec.bucket_key) and table.route is None


def wrongly_divided(table: SimTable, lake: LakeTable, rows: Iterable[Row], starts: dict[int, int]) -> Iterator[str]:
    """Yield the rows in the lake that the source divides by another count: readers look for them elsewhere.

    A row may have been divided anew until it was read: each count since it was written will do.

    Args:
        table: in the source.
        lake: the same, in the lake.
        rows: of the lake table.
        starts: the log offset of each KV snapshot that rows are of.
    """
    if not divides(table):
        return
    for row in rows:
        last = row.offset if row.snapshot is None else starts[row.snapshot] - 1
        divided = table.divided[row.bucket]
        first = max(number for number, (start, _) in enumerate(divided) if start <= last)
        counts = [count for _, count in divided[first:]]
        if lake.buckets not in counts:
            yield f"{row.bucket}@{last} is divided by {counts}, and the lake by {lake.buckets}"
