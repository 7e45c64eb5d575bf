"""Pieces of a round."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lakeward.model.tables import KvSnapshot, TableBucket


class SnapshotSplit(msgspec.Struct, frozen=True, tag="snapshot", tag_field="kind", omit_defaults=True):
    """Read one bucket's KV snapshot, which stands for the log below `log_offset`; a `live` one may hold later rows."""

    split_id: str
    bucket: TableBucket
    partition: tuple[str, ...]
    snapshot_id: int
    log_offset: int
    live: bool = False


class LogSplit(msgspec.Struct, frozen=True, tag="log", tag_field="kind"):
    """Read one bucket's log from `start` (inclusive) to `stop` (exclusive)."""

    split_id: str
    bucket: TableBucket
    partition: tuple[str, ...]
    start: int
    stop: int


Split = LogSplit | SnapshotSplit


def snapshots_of(splits: Iterable[Split]) -> tuple[KvSnapshot, ...]:
    """Return the snapshots that reading splits takes, and a lease can hold; a log split and a `live` one take none."""
    return tuple(
        KvSnapshot(split.bucket, split.snapshot_id, split.log_offset)
        for split in splits
        if isinstance(split, SnapshotSplit) and not split.live
    )
