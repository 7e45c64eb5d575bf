"""What coordinator and subtask say to each other, in the envelope of architecture.md, "Threads and processes".

These are msgspec structs, not dataclasses: only structs can be told apart by a tag on the wire. Data events are
numbered and can be held back while a checkpoint is cut; control events always pass.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from lakeward.model.checkpoints import BlockedEvent, CheckpointRef, Origin, PartFile, SplitProgress, SubtaskSnapshot
from lakeward.model.exchange import ExchangeFigures, ExchangeState
from lakeward.model.results import WriteResult

Direction = Literal["up", "down"]


class Event(msgspec.Struct, frozen=True, tag=True, tag_field="type", kw_only=True):
    """The base of all events."""


class SplitFinished(Event, frozen=True, kw_only=True):
    """Up, data: all records of a split are in closed files. `origin` is given where it is sent again, restored.

    `read_bytes` is the size of the records that its sender has read of the split, for people; None where the finish
    comes from a checkpoint, which does not keep that.
    """

    result: WriteResult
    origin: Origin | None = None
    read_bytes: int | None = None


class RequestSplit(Event, frozen=True, kw_only=True):
    """Up, data: the subtask has nothing to read."""


class AssignSplits(Event, frozen=True, kw_only=True):
    """Down, data: read these, from where they are on."""

    splits: list[SplitProgress]


class NoMoreSplits(Event, frozen=True, kw_only=True):
    """Down, data: nothing will come any more; close and say so."""


class FinishEarly(Event, frozen=True, kw_only=True):
    """Down, data: log splits stop where they are, started snapshot splits run to their end."""


class Register(Event, frozen=True, kw_only=True):
    """Up, control: a subtask started (or reconnects, with the attempt that it was given)."""

    subtask: int
    host: str
    pid: int
    attempt: int | None = None
    data_address: str = ""
    """Where it is reached for the exchange's data; empty: it has no part in one."""


class Heartbeat(Event, frozen=True, kw_only=True):
    """Both ways, control: I live; `acked` is the last data sequence of the other side that was processed."""

    acked: int = 0


class Progress(Event, frozen=True, kw_only=True):
    """Up, control: how far a split is; for people, nothing depends on it.

    A subtask of an exchange that reads no split at the moment reports an empty `split_id` and zeros.
    """

    split_id: str
    rows: int
    size_bytes: int
    offset: int
    exchange: ExchangeFigures | None = None


class Failed(Event, frozen=True, kw_only=True):
    """Up, control: the subtask cannot go on. `code` is the error's stable code."""

    code: str
    message: str
    permanent: bool = False


class DeployRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """How a subtask takes checkpoints while it writes what was restored."""

    spill_dirs: list[str]
    spill_quota_bytes: int
    memory_bytes: int


class DeployExchange(msgspec.Struct, frozen=True, kw_only=True):
    """The exchange of one launch: where all its subtasks are, and what a checkpoint holds of an earlier launch."""

    addresses: list[str]
    """Of all subtasks, by number."""
    by_bucket: bool
    """Whether rows are divided by partition and bucket, not by partition alone."""
    restore: list[ExchangeState] = msgspec.field(default_factory=list)
    """States of all subtasks of the restored checkpoint, which may have had more or fewer; empty: a fresh round."""
    open_files: int
    open_rows_bytes: int
    aligned_timeout_s: float
    unaligned: bool
    recovery: DeployRecovery | None = None
    """None: everything that was restored is written before anything else."""


class DeployDeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The table of dead letters; the fields as in `Deploy`."""

    table: bytes
    lake_task: bytes
    round_name: str
    """The round's full name, which each letter has."""


class DeployBadRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a subtask does with rows that do not fit the lake table."""

    most: float
    """So many of a round's may not fit; below 1: a share of the round, which a subtask cannot know."""
    letters: DeployDeadLetters | None = None
    """Where they are written; None: they are dropped."""


class Deploy(Event, frozen=True, kw_only=True):
    """Down, control: what to work on. The bytes are opaque here; `attempt` is the coordinator's number."""

    attempt: int
    table: bytes
    """`lakeward.model.wire` form of the table's spec."""
    source: str
    source_task: bytes
    lake: str
    lake_task: bytes
    fence_s: float
    progress_s: float
    read_timeout_s: float = math.inf
    """Seconds without a batch after which a read counts as hung."""
    checkpoint_root: str = ""
    """Where the checkpoint store lies; empty: no checkpoint is taken."""
    checkpoint_ref: CheckpointRef | None = None
    """Names this round's checkpoints; the number is that of the checkpoint to take, here 0."""
    gateway_closed: int | None = None
    """The checkpoint in the middle of which it registered: both gateways start closed for it."""
    restored: list[BlockedEvent] = msgspec.field(default_factory=list)
    """Data events of a restored checkpoint: to be sent again before anything new."""
    open_files: int = 0
    """Partitions that it has an open file for, at most, where the table has a `lake_partition`."""
    open_rows_bytes: int = 0
    """Bytes of rows in open files that a checkpoint leaves open, at most, for such a table."""
    write_memory_bytes: int = 128 << 20
    """Bytes of rows that it holds, at most, until they are enough for a row group of such a table."""
    exchange: DeployExchange | None = None
    """What it needs for the exchange; None: the subtask writes what it reads."""
    bad_rows: DeployBadRows | None = None
    """None: a row that does not fit the lake table is an error."""

    def __repr__(self) -> str:
        """Show what may be shown: the tasks' bytes and the root may hold passwords."""
        return f"Deploy(attempt={self.attempt}, source={self.source!r}, lake={self.lake!r}, ...)"


class SubtaskDone(Event, frozen=True, kw_only=True):
    """Up, control: everything is closed and acknowledged; the connection may end."""


class Cancel(Event, frozen=True, kw_only=True):
    """Down, control: this attempt no longer counts; delete what is unfinished and exit."""

    reason: str


class Close(Event, frozen=True, kw_only=True):
    """Down, control: a checkpoint starts; close the gateway, answer with `AckClose`."""

    checkpoint: int


class AckClose(Event, frozen=True, kw_only=True):
    """Up, control: the gateway is closed. `sent` is the number of the last data event before the cut."""

    checkpoint: int
    sent: int


class TriggerCheckpoint(Event, frozen=True, kw_only=True):
    """Down, control: take a snapshot of your state.

    `close_files`: a commit will be made of this checkpoint. It is aligned, however long that takes, and every file is
    closed at its cut.
    """

    checkpoint: int
    close_files: bool = False


class AckCheckpoint(Event, frozen=True, kw_only=True):
    """Up, control: `snapshot` is stored as `part`."""

    checkpoint: int
    part: PartFile
    snapshot: SubtaskSnapshot


NOT_READY = "not ready"
"""The reason of a subtask that has not connected to all others yet: that is not counted as a failure."""


class DeclineCheckpoint(Event, frozen=True, kw_only=True):
    """Up, control: no snapshot can be taken now, or it could not be stored."""

    checkpoint: int
    reason: str


class CheckpointComplete(Event, frozen=True, kw_only=True):
    """Down, control: the checkpoint is whole."""

    checkpoint: int


class CheckpointAborted(Event, frozen=True, kw_only=True):
    """Down, control: the checkpoint never happened; a gateway that is closed for it opens."""

    checkpoint: int


class Connected(Event, frozen=True, kw_only=True):
    """Up, control: all channels are open, and what was restored is written: the subtask takes checkpoints now."""


class WriterFinished(Event, frozen=True, kw_only=True):
    """Up, data: every channel has ended and all files of the subtask are closed; `state` holds no row outside them."""

    state: ExchangeState
    max_timestamp_ms: int = -1


class Open(Event, frozen=True, kw_only=True):
    """Up, control: the snapshot is taken and the gateway open again; the coordinator opens its own."""

    checkpoint: int


DATA_EVENTS = (RequestSplit, SplitFinished, WriterFinished, AssignSplits, NoMoreSplits, FinishEarly)

AnyEvent = (
    RequestSplit
    | SplitFinished
    | WriterFinished
    | Connected
    | AssignSplits
    | NoMoreSplits
    | FinishEarly
    | Register
    | Heartbeat
    | Progress
    | Failed
    | Deploy
    | SubtaskDone
    | Cancel
    | Close
    | AckClose
    | TriggerCheckpoint
    | AckCheckpoint
    | DeclineCheckpoint
    | CheckpointComplete
    | CheckpointAborted
    | Open
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """Every event on the wire: who, which try, which number. `sequence` is 0 for control events."""

    round: str
    job_attempt: int
    subtask: int
    task_attempt: int
    direction: Direction
    sequence: int
    event: AnyEvent
