"""The ports of a lake, a table format: `Lake` in the driver, `LakeWriter` in a subtask.

Threads: the driver calls a `Lake` from several worker threads at once, but never twice at a time for one table. A
`LakeWriter` lives in one subtask, or in the driver while it replays dead letters, and is called by one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import numpy as np
    import pyarrow as pa

    from lakeward.errors import RowError
    from lakeward.model.batches import SourceBatch
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import CommitIds, CommitOutcome, CommitRequest, LakeFile, LakeHead, RewriteRequest
    from lakeward.model.tables import TablePath, TableSpec


class Lake(Protocol):
    """A table format; the driver's half. Paths of files are full URIs or absolute paths, as the lake names them."""

    name: str

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """Create the lake table if there is none, append new nullable columns, check that both fit.

        `table` is the source's, as it is now; a lake table that is created remembers the start that asks,
        `incarnation`, until there is a stamp. A lake table that belongs to an earlier table of the same name (another
        table id) is set aside under a new name, with all its data, and a fresh one is created. That is fenced like a
        commit: a start that was overtaken neither changes nor sets aside a table that a later start of the same service
        has created or stamped, whenever it wakes up.

        Raises:
            FencedError: a later start of the same service has created or stamped the lake table of that name.
            LakeError: the lake table of that name belongs to a later table id: the caller's table is no more.
            SchemaMismatchError: they do not fit; says what differs.
            StorageError: the warehouse cannot be written.
        """
        ...

    def head(self, path: TablePath) -> LakeHead | None:
        """Return the main branch's state, None if the lake has no such table.

        Raises:
            RolledBackError: the table's own offsets property names a snapshot that is not in main's ancestry.
        """
        ...

    def stamp(self, path: TablePath, incarnation: Incarnation) -> LakeHead:
        """Make `incarnation` the stamp on the head: an empty snapshot, by compare-and-swap on main.

        Returns at once where it already is. After a lost race it tries again, unless the winner is a later start of
        the same service.

        Raises:
            FencedError: a later start of the same service holds the stamp.
        """
        ...

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:
        """Return what the subtasks' writers need for one round: schema, layout, pinned base, file prefix.

        The size may not grow with the number of the table's files beyond what its touched buckets need.
        """
        ...

    def new_ids(self, path: TablePath) -> CommitIds:
        """Choose the ids of a commit to a table that is about to be built.

        The uuid is new. The snapshot id is one that no snapshot of the table has: where the format counts snapshots,
        the next one after the head, and `commit` says CONFLICT if the head is another one by then.
        """
        ...

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """Check the fence, build on the metadata of that very check, send once, no retry and no clean-up.

        CONFLICT: nothing of ours landed or ever can, it may be built anew. A server's word alone is not enough for
        that: a gateway may have sent the request twice, and the answer is the second one's.

        Raises:
            FencedError: the stamp is not the request's incarnation, or the base commit is another one now.
            OutcomeUnknownError: it may have landed; look with `find`.
        """
        ...

    def find(self, path: TablePath, round_id: RoundId, step: int) -> int | None:
        """Return the snapshot id of a round's commit in main's ancestry, None if it is not there."""
        ...

    def file_prefix(self, path: TablePath, round_id: RoundId) -> str:
        """Return the prefix under which all data files of a round lie; no other round's files are under it."""
        ...

    def list_prefix(self, path: TablePath, prefix: str) -> tuple[str, ...]:
        """Return all files under a prefix."""
        ...

    def commit_leftovers(self, path: TablePath, ids: CommitIds) -> tuple[str, ...]:
        """Return manifests and lists that a commit with these ids wrote."""
        ...

    def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
        """Return those of `files` that any retained snapshot of the table names."""
        ...

    def delete(self, files: Collection[str]) -> None:
        """Delete files; one that is not there is no error."""
        ...

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        """Expire old snapshots beyond the configured number; return how many.

        Spared are `keep`, the head, the newest commit and the stamp.
        """
        ...

    def close(self) -> None:
        """Free what is held; calling it twice is harmless."""
        ...


LOST_COLUMNS = b"lost_columns"
"""Of a schema's metadata: a JSON object with each column that a lake table once had, and what became of it."""


@runtime_checkable
class ReadableLake(Protocol):
    """What a lake may offer besides `Lake`: its rows, for `lakeward verify`.

    They are read as any other program would read them. Code that the writers use may not be used: an error in it would
    hide itself.
    """

    def read_rows(self, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
        """Yield all live rows of a snapshot of a table, in any order; at least one batch, so that columns are known.

        `snapshot_id` is `LakeHead.snapshot_id`. Batches have the table's columns by name, and `__bucket`, `__offset`
        and `__timestamp` or none of these. The schema of the first one may have `LOST_COLUMNS` in its metadata. A
        commit that lands meanwhile changes nothing. The memory that is held may not grow with the table.

        Raises:
            LakeError: the snapshot, or a file of it, is gone or cannot be read.
        """
        ...


@runtime_checkable
class RewritableLake(ReadableLake, Protocol):
    """What a lake may offer besides `ReadableLake`: to take rows out of an append-only table, for dead letters."""

    def rewrite(self, request: RewriteRequest) -> CommitOutcome:
        """Replace all rows of a table by those of the request's files, in one snapshot on the head, sent once.

        Older snapshots stay as they are until they expire. No files: the table has no rows then. As of `Lake.commit`,
        CONFLICT means that nothing of it has landed or ever can.

        Raises:
            FencedError: the stamp is not the request's incarnation, or the table is another one now.
            OutcomeUnknownError: it may have landed, or may as long as the head is `base_snapshot`.
        """
        ...


class FormatUpgrade(NamedTuple):
    """The version of its format that a lake table had, and the one that it has now."""

    before: int
    after: int


@runtime_checkable
class UpgradableLake(Protocol):
    """What a lake may offer besides `Lake`: newer versions of its format, for `lakeward tables upgrade`."""

    def upgrade(self, path: TablePath) -> FormatUpgrade:
        """Move a table to the newest version of the format that the lake writes; one that has it stays as it is.

        A program that tiers the table is not asked: what it has begun on the table as it was is a conflict, or lands
        in the new version. Nothing but metadata is written.

        Raises:
            TableGoneError: the lake has no such table.
            CommitConflictError: other commits came first, again and again.
            LakeError: the version that the table has, or its catalog, allows no upgrade.
            OutcomeUnknownError: it may have happened.
        """
        ...


@runtime_checkable
class DescribedLake(Protocol):
    """What a lake may offer besides `Lake`: how other programs read its tables, for `lakeward query --print`."""

    def reading_lines(self, path: TablePath) -> Mapping[str, str]:
        """Return, by the name of each program, the line by which it reads a table; no secret is in any.

        Raises:
            TableGoneError: the lake has no such table.
        """
        ...


@runtime_checkable
class BucketCountsLake(Protocol):
    """What a lake may offer besides `Lake`: each partition keeps its own count of buckets (`TableSpec.bucket_counts`).

    Its readers compute the bucket of a key by the count of the partition.
    """

    keeps_bucket_counts: Literal[True]


@runtime_checkable
class LateRowsLake(Protocol):
    """What a lake may offer besides `Lake`: tables in the source's own layout take rows of partitions it has dropped.

    `TableSpec.late_rows` says of a table that there may be any. The plugin's `partitioner` and `partition_writer` then
    work without a `lake_partition` too, for splits without partition values: each row is in the partition of the
    source's that its columns name.
    """

    takes_late_rows: Literal[True]


@dataclass(frozen=True, slots=True)
class FileDifference:
    """What the lake says wrongly of one of its files: readers prune by it, and miss rows.

    `what` names it, such as `partition field day` or `lower bound of column id`. `expected` is what the file itself
    has, `found` what the lake says of it.
    """

    file: str
    what: str
    expected: str
    found: str


@runtime_checkable
class FileCheckedLake(Protocol):
    """What a lake may offer besides `ReadableLake`: whether what it says of its files is so, for `lakeward verify`."""

    def check_files(self, path: TablePath, snapshot_id: int, most: int | None) -> Iterator[FileDifference]:
        """Compare what a snapshot says of its files with the files themselves, read as in `ReadableLake.read_rows`.

        At most so many data files are looked at, None for all. `snapshot_id` is `LakeHead.snapshot_id`.

        Raises:
            LakeError: as of `read_rows`.
        """
        ...


class LakeWriter(Protocol):
    """Writes one split's records to files of the lake, in a subtask. It commits nothing."""

    def write(self, batch: SourceBatch) -> None:
        """Take some records of the split's bucket, in order.

        Raises:
            RowError: they do not fit the lake table.
            StorageError: the disk refused.
        """
        ...

    @property
    def all_rows_flushed(self) -> bool:
        """Whether all rows taken so far lie in closed files: so before the first row, and after a full file was closed.

        Such a moment is a position from which the split can be read again. It costs nothing to ask.
        """
        ...

    def roll(self) -> tuple[LakeFile, ...]:
        """Prepare a checkpoint: close what is open if it amounts to at least half the target file size.

        A smaller file stays open, and what is in it counts as not written. Deletes are written for exactly the rows of
        the closed files. May take as long as closing a file takes. Returned are all files of the split that are closed
        now (those of the progress that the writer went on from first). They hold exactly the rows that were taken up to
        the last moment at which `all_rows_flushed` was true.

        Raises:
            StorageError: the disk refused.
        """
        ...

    def close(self) -> tuple[LakeFile, ...]:
        """Close all files; everything written is in them. Nothing may be written afterwards.

        Returned are all files of the split, those of the progress that the writer went on from first.
        """
        ...

    def abort(self) -> None:
        """Delete what this writer wrote and no `roll` returned; never raises for a file that is not there.

        A completed checkpoint may name what a `roll` returned: whether it may be deleted is the coordinator's to say.
        Files of the progress that the writer went on from stay as well.
        """
        ...

    @property
    def left_out(self) -> int:
        """How many of the records taken by this writer became no row of a data file, counted as they are dropped.

        Of a primary-key table these are before images, deletes, and versions that a later change of the key replaced.
        Once closed, the rows of its data files and these are as many as the records that it took.
        """
        ...

    @property
    def timings_s(self) -> dict[str, float]:
        """Seconds spent so far, by phase: encode, upload, keys."""
        ...


class RowCheck(Protocol):
    """Says which rows of a batch do not fit the lake table. Lives in one subtask, called by one thread."""

    def __call__(self, records: pa.RecordBatch, /) -> Mapping[int, RowError]:
        """Return each row that a writer or partitioner of the table would refuse, by number, in order, and why.

        It has no side effect, and costs little where all fit. Whatever else a writer refuses suspends the table.
        """
        ...


class PartitionedRows(NamedTuple):
    """Which lake partition each row of a batch is in.

    `codes` has one int32 for each row: a place in `partitions`. A key of a partition is bytes that mean the same in
    every process.
    """

    codes: np.ndarray[Any, np.dtype[np.int32]]
    partitions: tuple[bytes, ...]


class Partitioner(Protocol):
    """Says which partition of the lake table a row belongs to. Lives in one subtask, called by one thread."""

    def partition(self, records: pa.RecordBatch) -> PartitionedRows:
        """Compute the partition of each row (with `__bucket`), for a whole batch of at least one row at once.

        Raises:
            RowError: a value does not fit the lake's column.
        """
        ...

    def partition_of(self, file: LakeFile) -> bytes:
        """Return the partition that a file of this table's present layout lies in.

        Raises:
            LakeError: it has another layout.
        """
        ...
