"""Enumerates the splits of a round from the states of the source's buckets.

The decision is per bucket (fluss.md, "The tiering queue"), so a new partition of an old table starts with its
snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from lakeward.errors import LogTruncatedError, OffsetsBeyondLogError
from lakeward.model.splits import LogSplit, SnapshotSplit, Split, snapshots_of
from lakeward.model.tables import BucketState, KvSnapshot, TableBucket

_NAMED_BUCKETS = 5
"""Most buckets in an error message; a table may have thousands."""


class Enumeration(Struct, frozen=True):
    """The splits of a round, and the state of its buckets before it.

    `splits` in the order in which they are assigned: snapshot splits first, then log splits, longest first.
    `offsets` are the offsets of ALL buckets before the round (a bucket never tiered and without records is left
    out). `snapshots` are to be leased. `behind`: a snapshot split leaves log records to the next round.
    """

    splits: tuple[Split, ...]
    offsets: Mapping[TableBucket, int]
    snapshots: tuple[KvSnapshot, ...]
    behind: bool


def enumerate_splits(
    buckets: Sequence[BucketState],
    tiered: Mapping[TableBucket, int],
    *,
    primary_key: bool,
    max_split_rows: int,
    late_rows: bool = False,
) -> Enumeration:
    """Enumerate the splits of a round. A bucket whose `end` is its tiered offset gives no split.

    `buckets`: every one's state now. `tiered`: the next offset to tier, by bucket, from the lake's head; absent = never
    tiered. Buckets of another table id are left out; buckets of a dropped partition are kept, so that no offset ever
    moves back. A never tiered bucket of a primary-key table gives a snapshot split if it has a snapshot. Log splits of
    append-only tables are divided into ranges of at most `max_split_rows` offsets; 0 = never. `late_rows`: buckets
    without partition values hold rows of partitions that the source has dropped.

    Raises:
        OffsetsBeyondLogError: the tiered offset of a bucket is beyond the log's end; names both, and what to do.
        LogTruncatedError: records between the tiered offset (or 0 on a never tiered primary-key bucket without a
            snapshot that covers the gap) and the log's start are gone; names buckets, offsets expected and found.
            A never tiered append-only bucket, or one of late rows, starts at the log's start: what retention removed
            before the first round was never promised.
    """
    snapshots: list[SnapshotSplit] = []
    logs: list[LogSplit] = []
    truncated: list[tuple[BucketState, int]] = []
    behind = False
    if beyond := [state for state in buckets if state.end < tiered.get(state.bucket, 0)]:
        raise OffsetsBeyondLogError(_beyond(beyond, tiered))
    for state in buckets:
        snapshot = state.snapshot if primary_key and state.bucket not in tiered else None
        from_zero = primary_key and not (late_rows and not state.partition)
        first = _first_offset(state, tiered, snapshot, primary_key=from_zero)
        if state.bucket in tiered and state.end <= first:
            continue
        if state.start > first:
            truncated.append((state, first))
        elif snapshot is not None and state.end > 0:
            snapshots.append(_snapshot_split(state, snapshot))
            behind = behind or state.end > snapshot.log_offset
        elif snapshot is None and state.end > first:
            logs.extend(_ranges(state, first, 0 if primary_key else max_split_rows))
    if truncated:
        raise LogTruncatedError(_truncation(truncated))
    snapshots.sort(key=lambda split: (-split.log_offset, split.bucket.sort_key()))
    logs.sort(key=lambda split: (split.start - split.stop, split.bucket.sort_key(), split.start))
    return Enumeration(
        splits=(*snapshots, *logs),
        offsets=_offsets_of_table(buckets, tiered),
        snapshots=snapshots_of(snapshots),
        behind=behind,
    )


def by_bucket(splits: Iterable[Split]) -> dict[TableBucket, list[Split]]:
    """Group by bucket, each bucket's splits in offset order."""
    groups: dict[TableBucket, list[Split]] = {}
    for split in splits:
        groups.setdefault(split.bucket, []).append(split)
    for group in groups.values():
        group.sort(key=lambda split: split.start if isinstance(split, LogSplit) else 0)
    return groups


def _first_offset(
    state: BucketState, tiered: Mapping[TableBucket, int], snapshot: KvSnapshot | None, *, primary_key: bool
) -> int:
    """Return the first offset that is not tiered yet; the log must reach back to it."""
    if snapshot is not None:
        return snapshot.log_offset
    return tiered.get(state.bucket, 0 if primary_key else state.start)


def _snapshot_split(state: BucketState, snapshot: KvSnapshot) -> SnapshotSplit:
    split_id = f"{_bucket_name(state.bucket)}-s{snapshot.snapshot_id}"
    return SnapshotSplit(
        split_id, state.bucket, state.partition, snapshot.snapshot_id, snapshot.log_offset, snapshot.live
    )


def _ranges(state: BucketState, start: int, max_split_rows: int) -> Iterator[LogSplit]:
    """Divide [start, end) into ranges of even length; the earlier ones are longer by one where it does not divide."""
    rows = state.end - start
    pieces = -(-rows // max_split_rows) if max_split_rows > 0 else 1
    length, longer = divmod(rows, pieces)
    name = _bucket_name(state.bucket)
    for number in range(pieces):
        stop = start + length + (number < longer)
        yield LogSplit(f"{name}-{start}", state.bucket, state.partition, start, stop)
        start = stop


def _bucket_name(bucket: TableBucket) -> str:
    return f"b{bucket.bucket}" if bucket.partition_id is None else f"p{bucket.partition_id}-b{bucket.bucket}"


def _offsets_of_table(buckets: Sequence[BucketState], tiered: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
    """Leave out buckets of an earlier table of the same name; if there are no buckets now, keep all of them."""
    table_ids = {state.bucket.table_id for state in buckets}
    return {bucket: offset for bucket, offset in tiered.items() if not table_ids or bucket.table_id in table_ids}


def _beyond(states: Sequence[BucketState], tiered: Mapping[TableBucket, int]) -> str:
    named = ", ".join(
        f"bucket {state.bucket}: the lake has all records below offset {tiered[state.bucket]}, "
        f"the log ends at {state.end}"
        for state in states[:_NAMED_BUCKETS]
    )
    return (
        f"the source was re-created, or lost its newest records: {named}{_more(states)}. Bring the records back, or "
        "set the lake table aside and accept that with `lakeward tables accept`; then `lakeward tables resume`"
    )


def _more(states: Sequence[object]) -> str:
    return f" (and {len(states) - _NAMED_BUCKETS} more buckets)" if len(states) > _NAMED_BUCKETS else ""


def _truncation(truncated: Sequence[tuple[BucketState, int]]) -> str:
    named = ", ".join(
        f"bucket {state.bucket}: expected offset {first}, the log starts at {state.start}"
        for state, first in truncated[:_NAMED_BUCKETS]
    )
    return f"records were cleaned from the log before they were tiered: {named}{_more(truncated)}"
