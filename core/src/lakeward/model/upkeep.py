"""Upkeep of a lake table: what a lake has planned, each task of it, what a task has done, and their commit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from lakeward.model.identity import RoundId
    from lakeward.model.results import CommitIds
    from lakeward.model.tables import TablePath


class UpkeepTask(msgspec.Struct, frozen=True):
    """One task: it replaces `files` files of `size_bytes` bytes in all.

    `detail` is the lake plugin's own, opaque to the core. It may hold secrets, so it is sent to its task alone.
    """

    number: int
    files: int
    size_bytes: int
    detail: bytes


class UpkeepResult(msgspec.Struct, frozen=True):
    """What one task has written: `files` files of `size_bytes` bytes in all. `detail` is the lake plugin's own.

    `attempt` is Spark's number of the try that ended; the core sets it.
    """

    number: int
    files: int
    size_bytes: int
    detail: bytes
    attempt: int = 0


class FileCounts(msgspec.Struct, frozen=True):
    """The files of a lake table's head. `small_files` are data files that upkeep would merge if there were enough.

    `deleted_rows` are the rows that delete files leave out, as far as the lake knows without reading them.
    """

    data_files: int
    size_bytes: int
    small_files: int
    delete_files: int
    deleted_rows: int


class OrphanFile(msgspec.Struct, frozen=True):
    """A file of a lake table's folders that nothing names. `written_ms` is by the clock of its storage."""

    path: str
    size_bytes: int
    written_ms: int


@dataclass(frozen=True, slots=True)
class UpkeepPlan:
    """What is due in one table, as it was when this was planned.

    All files that its tasks write lie under the lake's `file_prefix` of `upkeep_id`. `what` says in one word what is
    done, such as `compaction`.
    """

    path: TablePath
    upkeep_id: RoundId
    what: str
    tasks: tuple[UpkeepTask, ...]


@dataclass(frozen=True, slots=True)
class UpkeepCommit:
    """One snapshot that replaces the files of some tasks of a plan. `results` has one result for each of `tasks`.

    `base_snapshot` is the head that it is built on, and `ids` are the lake's `new_ids`, both noted in the journal.
    """

    path: TablePath
    upkeep_id: RoundId
    ids: CommitIds
    base_snapshot: int | None
    tasks: tuple[UpkeepTask, ...]
    results: tuple[UpkeepResult, ...]


class UpkeepOutcome(Enum):
    """The known outcome of a commit of upkeep; 'unknown' is `OutcomeUnknownError`, 'fenced' is `FencedError`."""

    LANDED = "landed"
    CONFLICT = "conflict"
    """The head is another one: it never lands, and may be built anew."""
    VOID = "void"
    """Some of the files are gone, or what others have committed is in the way: it can never be built."""


class UpkeepOrder(msgspec.Struct, frozen=True):
    """What one task of an upkeep job is sent: the lake's name, and seconds after which it stops."""

    lake: str
    task: UpkeepTask
    limit_s: float
