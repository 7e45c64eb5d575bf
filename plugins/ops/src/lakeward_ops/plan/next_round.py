"""What the next round of a table would do, from source and lake as they are now. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.coordinator.rounds.context import tiered_offsets
from lakeward.coordinator.rounds.layout import check_late_rows, check_splits, resolve_layout, with_bucket_counts
from lakeward.errors import LakeTableGoneError, LakewardError, OffsetsWentBackError
from lakeward.machines.splits import enumerate_splits
from lakeward.model.partitioning import ExchangeMode
from lakeward.model.splits import LogSplit
from lakeward.ports.source import SplitSize
from lakeward.storage.commit_records import lost_commits
from lakeward.storage.late_commits import is_accepted, went_back

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.machines.splits import Enumeration
    from lakeward.model.results import LakeHead
    from lakeward.model.settings import TableSettings
    from lakeward.model.splits import Split
    from lakeward.model.tables import TableBucket, TableSpec
    from lakeward.ports import Lake, Source
    from lakeward.ports.source import SizedSource
    from lakeward.storage.commit_records import CommitRecord


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """One split. Of a snapshot, `start` is empty, and `stop` the log offset that it stands for.

    `rows` and `size_bytes` are None where the source does not know them; of a log, offsets stand for rows then.
    """

    split: str
    kind: str
    bucket: str
    partition: tuple[str, ...]
    start: int | None
    stop: int
    rows: int | None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedLease:
    """A KV snapshot that would be leased."""

    bucket: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class NextRound:
    """What the next round of a table would do. `reason` says why.

    `action` is `tier`, `nothing` or `impossible`; `paused` or `suspended` where no round starts until a person asks for
    it, and all else is what the round would do then.

    `rows` and `size_bytes` are those of the splits whose size is known, None where none is: a source may not know the
    rows of a snapshot, and need not know bytes. `files` is an estimate, None where it would be a guess.
    `creates` says that the lake table would be created; `checkpoint` is one that the round may go on from instead.
    """

    table: str
    action: str
    reason: str
    code: str = ""
    splits: tuple[PlannedSplit, ...] = ()
    rows: int | None = None
    size_bytes: int | None = None
    leases: tuple[PlannedLease, ...] = ()
    exchange: str = "none"
    layout: str = ""
    files: int | None = None
    creates: bool = False
    checkpoint: str = ""


def next_round(
    source: Source,
    lake: Lake,
    table: TableSpec,
    record: CommitRecord | None,
    rules: TableSettings,
    *,
    gangs: bool,
    sized: SizedSource | None = None,
) -> NextRound:
    """Return what the next round of a table would do; it is `impossible` where it would fail at its start.

    Source and lake are open. `record`: what the service committed last to the table. `gangs`: whether Spark can start
    the subtasks of a round together. `sized`: what knows how large splits are, if anything does.
    """
    try:
        return _next_round(source, lake, table, record, rules, gangs=gangs, sized=sized)
    except LakewardError as error:
        return NextRound(str(table.path), "impossible", str(error), error.code)


def _next_round(
    source: Source,
    lake: Lake,
    table: TableSpec,
    record: CommitRecord | None,
    rules: TableSettings,
    *,
    gangs: bool,
    sized: SizedSource | None,
) -> NextRound:
    table.check_readable()
    layout = resolve_layout(table, rules, gangs=gangs)
    if rules.mode != "mirror":
        table.check_lake(lake.name)
    check_late_rows(table, lake)
    head = lake.head(table.in_lake.path)
    if lost := lost_commits(source, table, record, head):
        raise LakeTableGoneError(lost)
    if head is not None and head.table_id not in {None, table.table_id}:
        head = None  # of an earlier table of this name: it would be set aside
    buckets = source.buckets(table)
    table = with_bucket_counts(table, buckets, lake)
    tiered = _tiered(source, table, record, head)
    if head is not None and (wrong := went_back(table.path, record, head, tiered, buckets)):
        raise OffsetsWentBackError(wrong)
    exchanged = layout.exchange is ExchangeMode.HASH
    most = 0 if exchanged else rules.max_split_rows
    found = enumerate_splits(
        buckets, tiered, primary_key=table.has_primary_key, max_split_rows=most, late_rows=table.late_rows
    )
    check_splits(table, layout, found.splits)
    splits = _planned(table, found.splits, sized)
    return NextRound(
        table=str(table.path),
        action="tier" if found.splits else "nothing",
        reason=_reason(found, tiered, empty=all(state.end == 0 for state in buckets)),
        splits=splits,
        rows=_sum(split.rows for split in splits),
        size_bytes=_sum(split.size_bytes for split in splits),
        leases=tuple(PlannedLease(str(one.bucket), one.snapshot_id) for one in found.snapshots),
        exchange=layout.exchange.value,
        layout=layout.message,
        files=None if layout.fields or not found.splits else len(found.splits),
        creates=head is None,
    )


def _tiered(
    source: Source, table: TableSpec, record: CommitRecord | None, head: LakeHead | None
) -> Mapping[TableBucket, int]:
    if record is not None and head is not None and is_accepted(record, head):
        return record.offsets
    return tiered_offsets(source, table, head)


def _reason(found: Enumeration, tiered: Mapping[TableBucket, int], *, empty: bool) -> str:
    if not found.splits:
        return "the source has no rows yet" if empty else "the lake has everything"
    why = "the source has rows that the lake does not have" if tiered else "the table was never tiered"
    return f"{why}; later log records are left to the round after it" if found.behind else why


def _planned(table: TableSpec, splits: Sequence[Split], sized: SizedSource | None) -> tuple[PlannedSplit, ...]:
    unknown = [SplitSize(None, None)] * len(splits)
    sizes = unknown if sized is None or not splits else sized.split_sizes(table, splits)
    return tuple(map(_split, splits, sizes))


def _split(split: Split, known: SplitSize) -> PlannedSplit:
    name, bucket, partition = split.split_id, str(split.bucket), split.partition
    if isinstance(split, LogSplit):
        rows = split.stop - split.start if known.rows is None else known.rows
        return PlannedSplit(name, "log", bucket, partition, split.start, split.stop, rows, known.size_bytes)
    return PlannedSplit(name, "snapshot", bucket, partition, None, split.log_offset, known.rows, known.size_bytes)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of those that are known; None where there are some, and none is known."""
    found = list(numbers)
    known = [number for number in found if number is not None]
    return None if found and not known else sum(known)
