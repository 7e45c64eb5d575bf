"""The rows that a lake table has to have: read from the source up to the offsets of the lake's newest commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import RowsGoneError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import BUCKET_COLUMN, CHANGE_COLUMN, Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.model.splits import Split
    from lakeward.model.tables import BucketState, TableBucket, TableSpec
    from lakeward.ports import SourceReader
    from lakeward_ops.verify.dead_letters import DeadLetters

_NAMED = 3
"""Most buckets in a message."""


@dataclass(frozen=True, slots=True)
class Readable:
    """What of a table the source still has.

    `splits` are to be read, a bucket's snapshot before its log. `first` has for each bucket, named by its partition's
    values and its number, the first offset that can be compared, None for a bucket that cannot be compared at all.
    `gone` says in words which offsets the source no longer has, `dropped` whether whole partitions are among them.
    """

    splits: tuple[Split, ...]
    first: Mapping[tuple[str, ...], int | None]
    gone: tuple[str, ...]
    dropped: bool


def readable_splits(table: TableSpec, states: Sequence[BucketState], tiered: Mapping[TableBucket, int]) -> Readable:
    """Return how the source's rows up to the tiered offsets, those of the lake's newest commit, are read.

    `states` are the table's buckets now.
    """
    splits: list[Split] = []
    first: dict[tuple[str, ...], int | None] = {}
    gone: list[str] = []
    for state in states:
        stop = tiered.get(state.bucket, 0)
        found = _keyed(state, stop) if table.has_primary_key else _appended(state, stop)
        splits += found
        first[bucket_name(state.partition, state.bucket.bucket)] = _first(table, state, stop, found)
        if stop > state.end:
            gone.append(f"bucket {state.bucket}: offsets {state.end} to {stop}")
        elif stop and (not found or (state.start and not table.has_primary_key)):
            gone.append(f"bucket {state.bucket}: offsets below {min(state.start, stop)}")
    known = {state.bucket for state in states}
    dropped = [bucket for bucket in tiered if bucket not in known and bucket.table_id == table.table_id]
    gone += [f"bucket {bucket}: all offsets, its partition was dropped" for bucket in dropped]
    return Readable(tuple(splits), first, tuple(gone), bool(dropped))


def bucket_name(partition: Sequence[str], bucket: int) -> tuple[str, ...]:
    """Return a bucket as it is named in lake rows: the values of its partition, then its number."""
    return (*partition, str(bucket))


def rows_gone(table: TableSpec, gone: Sequence[str]) -> RowsGoneError:
    """Return the error that the source no longer has rows which the lake has: these, in words, at least one."""
    more = f" (and {len(gone) - _NAMED} more)" if len(gone) > _NAMED else ""
    message = (
        f"{table.path}: the source no longer has all rows that the lake has: {'; '.join(gone[:_NAMED])}{more}. "
        "Compare what it still has with --available"
    )
    return RowsGoneError(message)


def source_rows(
    table: TableSpec, reader: SourceReader, splits: Sequence[Split], letters: DeadLetters
) -> Iterator[pa.RecordBatch]:
    """Yield the records of splits, in their order, with their bucket.

    Before images and dead letters are left out, deletes are not.

    Raises:
        LogTruncatedError, SnapshotGoneError: the source deleted rows meanwhile.
    """
    for split in splits:
        is_log = isinstance(split, LogSplit)
        batches = reader.read_log(split) if isinstance(split, LogSplit) else reader.read_snapshot(split)
        for batch in batches:
            records = letters.without(batch.records, split.bucket)
            if is_log and table.has_primary_key:
                records = records.filter(pc.not_equal(records.column(CHANGE_COLUMN), Change.UPDATE_BEFORE))
            bucket = pa.repeat(pa.scalar(split.bucket.bucket, pa.int32()), len(records))
            yield records.append_column(BUCKET_COLUMN, bucket)


def _appended(state: BucketState, stop: int) -> list[Split]:
    if not state.start < stop <= state.end:
        return []
    return [LogSplit("verify", state.bucket, state.partition, state.start, stop)]


def _keyed(state: BucketState, stop: int) -> list[Split]:
    """Return what leads to the rows as of an offset: a snapshot below it and the log after it, or the whole log."""
    snapshot = state.snapshot
    if not stop or stop > state.end:
        return []
    if snapshot is not None and not snapshot.live and state.start <= snapshot.log_offset <= stop:
        first: list[Split] = [
            SnapshotSplit("verify", state.bucket, state.partition, snapshot.snapshot_id, snapshot.log_offset)
        ]
        after = LogSplit("verify", state.bucket, state.partition, snapshot.log_offset, stop)
        return [*first, after] if after.start < after.stop else first
    return [LogSplit("verify", state.bucket, state.partition, 0, stop)] if state.start == 0 else []


def _first(table: TableSpec, state: BucketState, stop: int, found: Sequence[Split]) -> int | None:
    if stop > state.end:
        return None
    if table.has_primary_key:
        return 0 if found or not stop else None
    return state.start
