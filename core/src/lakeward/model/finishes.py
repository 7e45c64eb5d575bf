"""The finish of a split as it travels, and as a checkpoint keeps it: where events and checkpoints meet."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from lakeward.model.results import WriteResult


class Event(msgspec.Struct, frozen=True, tag=True, tag_field="type", kw_only=True):
    """The base of all events."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who first sent a data event, under which number: its duplicate key when it is sent again after a restore."""

    job_attempt: int
    subtask: int
    task_attempt: int
    sequence: int


class SplitFinished(Event, frozen=True, kw_only=True):
    """Up, data: all records of a split are in closed files. `origin` is given where it is sent again, restored.

    `read_bytes` is the size of the records that its sender has read of the split, for people; None where the finish
    comes from a checkpoint, which does not keep that.
    """

    result: WriteResult
    origin: Origin | None = None
    read_bytes: int | None = None
