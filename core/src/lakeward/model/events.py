"""What coordinator and subtask say to each other, in the envelope of design section 6.

These are msgspec structs, not dataclasses: only structs can be told apart by a tag on the wire. Data events are
numbered and can be held back while a checkpoint is cut; control events always pass.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lakeward.model.results import WriteResult
from lakeward.model.splits import LogSplit, SnapshotSplit

Direction = Literal["up", "down"]


class Event(msgspec.Struct, frozen=True, tag=True, tag_field="type", kw_only=True):
    """The base of all events."""


class WireLogSplit(msgspec.Struct, frozen=True, tag="log", tag_field="kind"):
    """A `LogSplit` on the wire."""

    split: LogSplit


class WireSnapshotSplit(msgspec.Struct, frozen=True, tag="snapshot", tag_field="kind"):
    """A `SnapshotSplit` on the wire."""

    split: SnapshotSplit


WireSplit = WireLogSplit | WireSnapshotSplit


class RequestSplit(Event, frozen=True, kw_only=True):
    """Up, data: the subtask has nothing to read."""


class SplitFinished(Event, frozen=True, kw_only=True):
    """Up, data: all records of a split are in closed files."""

    result: WriteResult


class AssignSplits(Event, frozen=True, kw_only=True):
    """Down, data: read these."""

    splits: list[WireSplit]


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


class Heartbeat(Event, frozen=True, kw_only=True):
    """Both ways, control: I live; `acked` is the last data sequence of the other side that was processed."""

    acked: int = 0


class Progress(Event, frozen=True, kw_only=True):
    """Up, control: how far a split is; for people, nothing depends on it."""

    split_id: str
    rows: int
    size_bytes: int
    offset: int


class Failed(Event, frozen=True, kw_only=True):
    """Up, control: the subtask cannot go on. `code` is the error's stable code."""

    code: str
    message: str
    permanent: bool = False


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


class Close(Event, frozen=True, kw_only=True):
    """Down, control: stop reading, close, answer with `AckClose`."""


class AckClose(Event, frozen=True, kw_only=True):
    """Up, control: everything is closed; the connection may end."""


class Cancel(Event, frozen=True, kw_only=True):
    """Down, control: this attempt no longer counts; delete what is unfinished and exit."""

    reason: str


class TriggerCheckpoint(Event, frozen=True, kw_only=True):
    """Down, control: take a snapshot of your state."""

    checkpoint: int


class AckCheckpoint(Event, frozen=True, kw_only=True):
    """Up, control: the snapshot is stored."""

    checkpoint: int


class DeclineCheckpoint(Event, frozen=True, kw_only=True):
    """Up, control: no snapshot can be taken now."""

    checkpoint: int
    reason: str


class CheckpointComplete(Event, frozen=True, kw_only=True):
    """Down, control: the checkpoint is whole."""

    checkpoint: int


class CheckpointAborted(Event, frozen=True, kw_only=True):
    """Down, control: the checkpoint never happened."""

    checkpoint: int


class Open(Event, frozen=True, kw_only=True):
    """Both ways, control: the gateway may send again."""

    checkpoint: int


DATA_EVENTS = (RequestSplit, SplitFinished, AssignSplits, NoMoreSplits, FinishEarly)

AnyEvent = (
    RequestSplit
    | SplitFinished
    | AssignSplits
    | NoMoreSplits
    | FinishEarly
    | Register
    | Heartbeat
    | Progress
    | Failed
    | Deploy
    | Close
    | AckClose
    | Cancel
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
