"""What a checkpoint of a round consists of: the coordinator's part, and one part for each subtask."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from lakeward.model.bad_rows import NO_BAD_ROWS, BadRows
from lakeward.model.exchange import ExchangeState, Segment
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import LakeFile, WriteResult, no_timings
from lakeward.model.splits import LogSplit, SnapshotSplit, Split
from lakeward.model.tables import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class Origin:
    """Who first sent a data event, under which number: its duplicate key when it is sent again after a restore."""

    job_attempt: int
    subtask: int
    task_attempt: int
    sequence: int


class BlockedEvent(msgspec.Struct, frozen=True):
    """The result of a split that a subtask had sent while its gateway was closed.

    Requests for splits are not kept: a restored subtask requests again.
    """

    origin: Origin
    result: WriteResult
    event_origin: Origin | None = None
    """Always None, and stored all the same: the release before this one reads it."""


class SplitProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A split in progress: the part of it that is in closed files.

    `position` of a log split is the first offset that is in no file; of a snapshot split it is the number of its
    rows that are in files (a snapshot is read in the same order each time). All else counts as in `WriteResult`.
    """

    split: Split
    position: int
    files: tuple[LakeFile, ...]
    rows: int
    max_timestamp_ms: int
    timings_s: dict[str, float] = msgspec.field(default_factory=no_timings)
    left_out: int | None = None
    empty_offsets: int | None = None
    bad_rows: BadRows = NO_BAD_ROWS

    @property
    def is_half_snapshot(self) -> bool:
        """Whether it is of a snapshot whose reading has begun: rows of it have no offset before its end."""
        return isinstance(self.split, SnapshotSplit) and self.position > 0

    @classmethod
    def beginning(cls, split: Split) -> SplitProgress:
        """Return the progress of a split of which nothing is read."""
        start, empty = (split.start, 0) if isinstance(split, LogSplit) else (0, None)
        return cls(split, start, (), 0, -1, left_out=0, empty_offsets=empty)

    @classmethod
    def done(cls, split: Split, result: WriteResult) -> SplitProgress:
        """Return a finish as progress: a reader of the split reads nothing more and reports the same result."""
        position = result.end_offset if isinstance(split, LogSplit) else result.rows
        counts = (result.timings_s, result.left_out, result.empty_offsets, result.bad_rows)
        return cls(split, position, result.files, result.rows, result.max_timestamp_ms, *counts)


class SubtaskSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One subtask's part: its splits (also those that it has not begun), and the events that its gateway held.

    `exchange` is None where there is no exchange. With one, the `position` of a split is where its reader stood: up to
    there its rows were sent into the channels, and its `files` are empty.
    """

    subtask: int
    task_attempt: int
    progress: tuple[SplitProgress, ...]
    blocked: tuple[BlockedEvent, ...]
    exchange: ExchangeState | None = None

    def segments(self) -> tuple[Segment, ...]:
        """Return every file of rows that the part refers to; without an exchange there is none."""
        return () if self.exchange is None else self.exchange.segments()


@dataclass(frozen=True, slots=True)
class LeaseCopy:
    """The lease as its backend serialised it; used at a restore only if the service's own state file is missing."""

    backend: str
    lease_id: str
    state: bytes | None


class RoundSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The coordinator's part: the round as it was enumerated, and its progress.

    `base_snapshot` is the lake snapshot that the round pins, `base_commit` the newest offset-carrying commit that it
    is based on now: the one that it was enumerated from, or after `commit_every` its own last step. `step` is the
    number of its next commit. `before` holds the tiered offsets that the round's splits start from (all buckets).
    `finished` holds accepted results; their files that a step has committed are in `committed`. `progress` holds
    splits in progress that no subtask of this checkpoint has. `layout` is the table's `lake_partition` in its text
    form. `before` and `committed` are sorted, so that the same round has the same bytes. `lake_path` is the name of the
    lake table, None where it is `path`, that of the source's table. `columns` are those of rows under way in an
    exchange: the lake's names, each after the source's id where there is one (`7:name`). `gathered` says that the
    exchange divides rows by their partition alone, where it would else by their bucket as well.
    """

    incarnation: str
    number: int
    path: TablePath
    table_id: int
    epoch: int
    schema_id: int
    base_snapshot: int | None
    base_commit: int | None
    step: int
    splits: tuple[Split, ...]
    before: tuple[tuple[TableBucket, int], ...]
    behind: bool
    finished: tuple[WriteResult, ...]
    committed: tuple[str, ...]
    progress: tuple[SplitProgress, ...]
    layout: tuple[str, ...] = ()
    lake_path: TablePath | None = None
    columns: tuple[str, ...] = ()
    gathered: bool = False

    @property
    def in_lake(self) -> TablePath:
        """The name of the lake table."""
        return self.lake_path or self.path

    @property
    def round_id(self) -> RoundId:
        """The round.

        Raises:
            UsageError: `incarnation` is none.
        """
        return RoundId(Incarnation.parse(self.incarnation), self.table_id, self.epoch, self.number)


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """Where a checkpoint is: its round's service, incarnation, table and epoch, and its number within that epoch."""

    service: str
    incarnation: str
    table_id: int
    epoch: int
    number: int

    def __str__(self) -> str:
        """`INCARNATION/TABLE_ID-EPOCH/chk-NUMBER`."""
        return f"{self.incarnation}/{self.table_id}-{self.epoch}/chk-{self.number}"


@dataclass(frozen=True, slots=True)
class PartFile:
    """A subtask's part as it is stored."""

    subtask: int
    task_attempt: int
    name: str
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A completed checkpoint, read back. `lease` is None in version 1."""

    ref: CheckpointRef
    completed_ms: int
    coordinator: RoundSnapshot
    subtasks: tuple[SubtaskSnapshot, ...]
    lease: LeaseCopy | None
    size_bytes: int


class CheckpointState(Enum):
    """Whether a round can be restored from a checkpoint.

    UNFINISHED ones never completed (they may be running): no `_metadata`, a torn one, or abandoned. DAMAGED ones
    had completed, and a file of them is missing or wrong now.
    """

    COMPLETE = "complete"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint as it is stored.

    `message` says why it is not complete, naming the file. `written_ms` is when its newest file was written, by the
    store's clock; `completed_ms` and `path` are None where `_metadata` cannot be read. `parts` are the subtasks'.
    """

    ref: CheckpointRef
    state: CheckpointState
    message: str
    written_ms: int
    size_bytes: int
    completed_ms: int | None = None
    path: TablePath | None = None
    parts: int = 0
