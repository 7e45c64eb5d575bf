"""The results of writers (closed files) and of lakes (commits)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lakeward.model.bad_rows import NO_BAD_ROWS, BadRows
from lakeward.model.tables import TableBucket, TablePath

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.model.identity import Incarnation, RoundId


class LakeFile(msgspec.Struct, frozen=True):
    """One closed file. `detail` is the lake plugin's own (statistics, partition), opaque to the core."""

    path: str
    kind: str
    """`data` or `deletes`."""
    rows: int
    size_bytes: int
    detail: bytes = b""


def no_timings() -> dict[str, float]:
    """Return no seconds of any phase: a default that is written all the same, unlike an empty `dict()`."""
    return {}


class WriteResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one finished split.

    `end_offset` is the first offset not contained. `max_timestamp_ms` is -1 where no log record was seen. `rows`
    counts the records read from the source; `left_out` of those that fit the lake table became no row of a data file,
    and so many offsets of a log split as `empty_offsets` hold no record (each None where it was not counted).
    `bad_rows` are those that do not fit. `timings_s` maps a phase (read, decode, encode, upload) to seconds.
    """

    split_id: str
    bucket: TableBucket
    end_offset: int
    max_timestamp_ms: int
    rows: int
    files: tuple[LakeFile, ...]
    timings_s: dict[str, float] = msgspec.field(default_factory=no_timings)
    left_out: int | None = None
    empty_offsets: int | None = None
    bad_rows: BadRows = NO_BAD_ROWS


def sum_timings(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds of each phase, in all parts together."""
    total: dict[str, float] = {}
    for part in parts:
        for phase, seconds in part.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A lake snapshot that carries offsets: ours, or another tiering service's.

    `offsets` is None where the snapshot only names an offsets file of the source (`source_path`); ask the source
    to read it. `incarnation`, `round_name`, `step` and `complete_ms` are None where another service made it.
    """

    snapshot_id: int
    offsets: Mapping[TableBucket, int] | None
    source_path: str | None
    incarnation: Incarnation | None
    round_name: str | None
    step: int | None
    timestamp_ms: int
    complete_ms: int | None = None
    """As of its `CommitRequest`."""


class LakeColumn(NamedTuple):
    """What a column of the source is called in the lake table now, and was called in the source when it was noted."""

    name: str
    source_name: str


@dataclass(frozen=True, slots=True)
class LakeHead:
    """The state of a lake table's main branch.

    `stamp` is the incarnation of the newest snapshot that carries one, None on a table that we never touched.
    `commit` is the newest commit that carries offsets, None if nothing was ever tiered. `own` is the newest of those
    that a service of ours made: `commit` itself, or one below a commit of another tiering service. `files` counts the
    table's data and delete files, `columns` are the names of its columns; None where the lake does not say. `by_id` has
    the columns that the lake follows by the source's ids (`lakeward.model.column_ids`). `target_file_bytes` is how
    large a data file should be, `row_bytes` what a row of the files has on average; None where the lake does not say.
    """

    path: TablePath
    table_id: int | None
    location: str
    snapshot_id: int | None
    stamp: Incarnation | None
    commit: OffsetCommit | None
    own: OffsetCommit | None = None
    files: int | None = None
    columns: tuple[str, ...] | None = None
    by_id: Mapping[int, LakeColumn] = field(default_factory=dict)
    target_file_bytes: int | None = None
    row_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class CommitIds:
    """Chosen before a commit is built and written to the journal, so that its leftovers can be found."""

    uuid: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One atomic commit to one lake table.

    `base_commit` is the snapshot id of the newest offset-carrying commit that the round was enumerated from (None:
    there was none); if the head has another one now, the commit is refused with `FencedError`. `offsets` holds ALL
    buckets of the table. `source_path` is where the source stored them (`Source.prepare`), None where it stored none;
    the lake keeps it with the commit, and `OffsetCommit.source_path` gives it back. So it does with `complete_ms`:
    with this commit the table has every row that the source had at that moment, in milliseconds since 1970 by the
    service's clock; None where nobody knows one.
    """

    path: TablePath
    table_id: int
    incarnation: Incarnation
    round_id: RoundId
    step: int
    ids: CommitIds
    base_commit: int | None
    files: tuple[LakeFile, ...]
    offsets: Mapping[TableBucket, int]
    source_path: str | None
    complete_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """All rows of an append-only table anew, as one snapshot on its head; offsets and stamp stay as they are.

    `base_snapshot` is the head whose rows were read: with another one by now, the rewrite is refused as a CONFLICT.
    `incarnation` is whose stamp has to be on the head; None: any, for files that nobody else deletes.
    """

    path: TablePath
    table_id: int
    ids: CommitIds
    base_snapshot: int
    files: tuple[LakeFile, ...]
    incarnation: Incarnation | None = None


class CommitOutcome(Enum):
    """The known outcome of a commit; 'unknown' is `OutcomeUnknownError`, 'fenced' is `FencedError`."""

    LANDED = "landed"
    CONFLICT = "conflict"
