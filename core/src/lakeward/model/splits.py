"""Pieces of a round."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.tables import TableBucket


@dataclass(frozen=True, slots=True)
class SnapshotSplit:
    """Read one bucket's KV snapshot; the bucket then stands at `log_offset`, after a `live` one there or later."""

    split_id: str
    bucket: TableBucket
    partition: tuple[str, ...]
    snapshot_id: int
    log_offset: int
    live: bool = False


@dataclass(frozen=True, slots=True)
class LogSplit:
    """Read one bucket's log from `start` (inclusive) to `stop` (exclusive)."""

    split_id: str
    bucket: TableBucket
    partition: tuple[str, ...]
    start: int
    stop: int


Split = SnapshotSplit | LogSplit
