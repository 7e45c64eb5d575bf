"""The stored form of a checkpoint's parts: separate msgpack structs, so that the model may change its shape.

A field that is added gets a default and no new version; a field that changes its meaning gets a new version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lakeward.model.checkpoints import BlockedEvent, RoundSnapshot, SplitProgress, SubtaskSnapshot
from lakeward.model.exchange import ExchangeState
from lakeward.model.finishes import Origin, SplitFinished
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import LakeFile, WriteResult
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TableBucket, TablePath

if TYPE_CHECKING:
    from lakeward.model.splits import Split

Bucket = tuple[int, int | None, int]
"""Table id, partition id, bucket."""


class StoredLog(msgspec.Struct, frozen=True, tag="log", tag_field="kind"):
    """A `LogSplit`."""

    split_id: str
    bucket: Bucket
    partition: tuple[str, ...]
    start: int
    stop: int


class StoredSnapshot(msgspec.Struct, frozen=True, tag="snapshot", tag_field="kind", omit_defaults=True):
    """A `SnapshotSplit`."""

    split_id: str
    bucket: Bucket
    partition: tuple[str, ...]
    snapshot_id: int
    log_offset: int
    live: bool = False


StoredSplit = StoredLog | StoredSnapshot


class StoredResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `WriteResult`."""

    split_id: str
    bucket: Bucket
    end_offset: int
    max_timestamp_ms: int
    rows: int
    files: tuple[LakeFile, ...]
    timings_s: dict[str, float]
    left_out: int | None = None
    empty_offsets: int | None = None


class StoredProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `SplitProgress`."""

    split: StoredSplit
    position: int
    files: tuple[LakeFile, ...]
    rows: int
    max_timestamp_ms: int
    timings_s: dict[str, float]
    left_out: int | None = None
    empty_offsets: int | None = None


class StoredEvent(msgspec.Struct, frozen=True):
    """A `BlockedEvent`. `event_origin` is the event's own origin: set if the event had been restored before."""

    origin: Origin
    result: StoredResult
    event_origin: Origin | None


class StoredSubtask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `SubtaskSnapshot`."""

    subtask: int
    task_attempt: int
    progress: tuple[StoredProgress, ...]
    blocked: tuple[StoredEvent, ...]
    exchange: ExchangeState | None = None


class StoredPlainRound(msgspec.Struct, frozen=True):
    """A `RoundSnapshot` without a layout; maps and sets are sorted lists, so that the same round has the same bytes."""

    incarnation: str
    number: int
    path: TablePath
    table_id: int
    epoch: int
    schema_id: int
    base_snapshot: int | None
    base_commit: int | None
    step: int
    splits: tuple[StoredSplit, ...]
    before: tuple[tuple[Bucket, int], ...]
    behind: bool
    finished: tuple[StoredResult, ...]
    committed: tuple[str, ...]
    progress: tuple[StoredProgress, ...]


class StoredRound(StoredPlainRound, frozen=True):
    """A `RoundSnapshot`: its bytes have the layout only where the table has one."""

    layout: tuple[str, ...] = ()


def store_subtask(snapshot: SubtaskSnapshot) -> StoredSubtask:
    """Turn a subtask's part into its stored form."""
    progress = tuple(map(_store_progress, snapshot.progress))
    blocked = tuple(_store_event(blocked) for blocked in snapshot.blocked)
    return StoredSubtask(snapshot.subtask, snapshot.task_attempt, progress, blocked, snapshot.exchange)


def read_subtask(stored: StoredSubtask) -> SubtaskSnapshot:
    """Turn the stored form back."""
    progress = tuple(map(_read_progress, stored.progress))
    blocked = tuple(_read_event(event) for event in stored.blocked)
    return SubtaskSnapshot(stored.subtask, stored.task_attempt, progress, blocked, stored.exchange)


def store_round(snapshot: RoundSnapshot) -> StoredPlainRound:
    """Turn the coordinator's part into its stored form."""
    before = sorted(snapshot.before.items(), key=lambda item: item[0].sort_key())
    plain = StoredPlainRound(
        incarnation=str(snapshot.round_id.incarnation),
        number=snapshot.round_id.number,
        path=snapshot.path,
        table_id=snapshot.table_id,
        epoch=snapshot.epoch,
        schema_id=snapshot.schema_id,
        base_snapshot=snapshot.base_snapshot,
        base_commit=snapshot.base_commit,
        step=snapshot.step,
        splits=tuple(map(_store_split, snapshot.splits)),
        before=tuple((_store_bucket(bucket), offset) for bucket, offset in before),
        behind=snapshot.behind,
        finished=tuple(map(_store_result, snapshot.finished)),
        committed=tuple(sorted(snapshot.committed)),
        progress=tuple(map(_store_progress, snapshot.progress)),
    )
    return StoredRound(**msgspec.structs.asdict(plain), layout=snapshot.layout) if snapshot.layout else plain


def read_round(stored: StoredRound) -> RoundSnapshot:
    """Turn the stored form back.

    Raises:
        UsageError: its incarnation cannot be parsed.
    """
    incarnation = Incarnation.parse(stored.incarnation)
    return RoundSnapshot(
        round_id=RoundId(incarnation, stored.table_id, stored.epoch, stored.number),
        path=stored.path,
        table_id=stored.table_id,
        epoch=stored.epoch,
        schema_id=stored.schema_id,
        base_snapshot=stored.base_snapshot,
        base_commit=stored.base_commit,
        step=stored.step,
        splits=tuple(map(_read_split, stored.splits)),
        before={TableBucket(*bucket): offset for bucket, offset in stored.before},
        behind=stored.behind,
        finished=tuple(map(_read_result, stored.finished)),
        committed=frozenset(stored.committed),
        progress=tuple(map(_read_progress, stored.progress)),
        layout=stored.layout,
    )


def _store_bucket(bucket: TableBucket) -> Bucket:
    return (bucket.table_id, bucket.partition_id, bucket.bucket)


def _store_split(split: Split) -> StoredSplit:
    bucket = _store_bucket(split.bucket)
    if isinstance(split, LogSplit):
        return StoredLog(split.split_id, bucket, split.partition, split.start, split.stop)
    return StoredSnapshot(split.split_id, bucket, split.partition, split.snapshot_id, split.log_offset, split.live)


def _read_split(stored: StoredSplit) -> Split:
    bucket = TableBucket(*stored.bucket)
    if isinstance(stored, StoredLog):
        return LogSplit(stored.split_id, bucket, stored.partition, stored.start, stored.stop)
    offsets = (stored.snapshot_id, stored.log_offset, stored.live)
    return SnapshotSplit(stored.split_id, bucket, stored.partition, *offsets)


def _store_result(one: WriteResult) -> StoredResult:
    bucket = _store_bucket(one.bucket)
    counts = (one.timings_s, one.left_out, one.empty_offsets)
    return StoredResult(one.split_id, bucket, one.end_offset, one.max_timestamp_ms, one.rows, one.files, *counts)


def _read_result(one: StoredResult) -> WriteResult:
    bucket = TableBucket(*one.bucket)
    counts = (one.timings_s, one.left_out, one.empty_offsets)
    return WriteResult(one.split_id, bucket, one.end_offset, one.max_timestamp_ms, one.rows, one.files, *counts)


def _store_progress(one: SplitProgress) -> StoredProgress:
    split = _store_split(one.split)
    counts = (one.timings_s, one.left_out, one.empty_offsets)
    return StoredProgress(split, one.position, one.files, one.rows, one.max_timestamp_ms, *counts)


def _read_progress(one: StoredProgress) -> SplitProgress:
    split = _read_split(one.split)
    counts = (one.timings_s, one.left_out, one.empty_offsets)
    return SplitProgress(split, one.position, one.files, one.rows, one.max_timestamp_ms, *counts)


def _store_event(blocked: BlockedEvent) -> StoredEvent:
    return StoredEvent(blocked.origin, _store_result(blocked.event.result), blocked.event.origin)


def _read_event(stored: StoredEvent) -> BlockedEvent:
    event = SplitFinished(result=_read_result(stored.result), origin=stored.event_origin)
    return BlockedEvent(stored.origin, event)
