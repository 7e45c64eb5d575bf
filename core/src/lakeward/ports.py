"""What the core asks of the outside. Sources, lakes and clocks implement these; nothing here does anything.

Threads: the driver calls `Source`, `SnapshotLeases` and `Lake` from several worker threads at once (never two calls
for one table of a lake at a time). `SourceReader` and `LakeWriter` live in one subtask and are called by one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lakeward.checkpoint_port import CheckpointStore as CheckpointStore  # noqa: PLC0414 - it is a port as the others
from lakeward.finding_port import DescribedSource as DescribedSource  # noqa: PLC0414 - as above
from lakeward.finding_port import Finding as Finding  # noqa: PLC0414 - as above
from lakeward.jobs_port import Jobs as Jobs  # noqa: PLC0414 - as above
from lakeward.model.batches import SourceBatch as SourceBatch  # noqa: PLC0414 - as above

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.leases import Protection
    from lakeward.model.results import CommitIds, CommitOutcome, CommitRequest, LakeFile, LakeHead
    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath, TableSpec
    from lakeward.model.tiering import Beat, BeatAnswer, LakeRecord


class Clock(Protocol):
    """Time, for everything outside the machines."""

    def now(self) -> float:
        """Return seconds on the boot-time clock, which goes on while the machine is suspended."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; only for what is persisted or shown."""
        ...


class SnapshotLeases(Protocol):
    """A source's own lease API on KV snapshots (facts: Fluss 2.1)."""

    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        """Create, renew or extend a lease: its expiry becomes now + `duration_s`, listed slots are set.

        Args:
            lease_id: no `/`, under 200 characters.
            duration_s: seconds, > 0.
            snapshots: bucket to snapshot id; buckets not listed are untouched.

        Returns:
            Until when the lease lives, and snapshots that the source KNOWS to be gone (it may know of none and
            grant a lease on a snapshot that does not exist: verify).

        Raises:
            LeaseApiMissingError: the server is too old.
            SourceError: refused; no effect.
            OutcomeUnknownError: no answer.
        """
        ...

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        """Give up buckets of a lease; an unknown lease or bucket is no error. Raises as `acquire`."""
        ...

    def drop(self, lease_id: str) -> None:
        """Remove a whole lease; an unknown one is no error. Raises as `acquire`."""
        ...


class Source(Protocol):
    """A streaming store that tables are read from; the driver's half."""

    name: str
    leases: SnapshotLeases

    def tables(self) -> Sequence[TableSpec]:
        """Return all tables that are to be tiered (data lake enabled).

        Raises:
            SourceError: the source cannot answer.
        """
        ...

    def all_tables(self) -> Sequence[TableSpec]:
        """Return every table, lake-enabled or not: any of them may be mirrored. Raises as `tables`."""
        ...

    def table(self, path: TablePath) -> TableSpec:
        """Return one table as it is now.

        Raises:
            TableGoneError: there is no such table.
            SourceError: the source cannot answer.
        """
        ...

    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        """Return the state of every bucket (of every partition) in one batched look, ordered by `sort_key`.

        Raises:
            TableGoneError: dropped, or its id is another one now.
            SourceError: the source cannot answer.
        """
        ...

    def missing_snapshots(self, snapshots: Collection[KvSnapshot]) -> frozenset[KvSnapshot]:
        """Return those of `snapshots` that cannot be read any more (batched)."""
        ...

    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        """Return the time of the oldest record not contained in `offsets`, in ms since 1970; None if there is none."""
        ...

    def heartbeat(self, beat: Beat) -> BeatAnswer:
        """Renew, finish, fail and request tables of the tiering queue in one call.

        Raises:
            SourceError: refused as a whole; no effect.
            OutcomeUnknownError: no answer.
        """
        ...

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """Ask the queue to hand these tables out at once.

        Returns:
            False where the source cannot be asked for that (their freshness has to be waited for).
        """
        ...

    def lake_record(self, table: TableSpec) -> LakeRecord | None:
        """Return what the source has on record about the table's newest lake snapshot, None if nothing.

        Raises:
            SourceError: the record exists but cannot be read, or no answer.
        """
        ...

    def read_offsets(self, table: TableSpec, path: str) -> Mapping[TableBucket, int]:
        """Return the offsets in an offsets file that some tiering service prepared (`OffsetCommit.source_path`)."""
        ...

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        """Store the offsets of a lake commit that is about to be made.

        Args:
            table: the table.
            offsets: all buckets; value = the next offset to tier.

        Returns:
            The path of the stored file; it goes into the lake commit as `fluss-offsets`.
        """
        ...

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """Register a lake snapshot. Idempotent: the same call twice is one registration.

        Args:
            table: the table.
            snapshot_id: the lake's snapshot id.
            prepared: what `prepare` had returned.
            offsets: all buckets.

        Raises:
            TableGoneError: the table was dropped meanwhile.
            OutcomeUnknownError: no answer.
        """
        ...

    def reader_task(self, table: TableSpec) -> bytes:
        """Return what a subtask's reader needs to open the source (small, no secrets in clear in logs)."""
        ...

    def close(self) -> None:
        """Free what is held; calling it twice is harmless."""
        ...


class SourceReader(Protocol):
    """A source in a subtask. Made by the source plugin from the bytes of `Source.reader_task`."""

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        """Yield the split's records: exactly those with start <= offset < stop, then nothing.

        The last batch's `next_offset` is the split's `stop`, also where the log ends in empty batches. Columns that
        an older record lacks are null.

        Raises:
            LogTruncatedError: `start` is below what the log still has.
            TableGoneError: the table was dropped.
        """
        ...

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        """Yield the live rows of a KV snapshot, each key once, in the same order each time.

        Args:
            split: which snapshot.
            skip_rows: so many rows from the first are left out, without decoding them where the format allows it.

        Raises:
            SnapshotGoneError: its files are gone.
            CorruptFileError: it has fewer rows than are to be left out.
        """
        ...

    def close(self) -> None:
        """Free what is held."""
        ...


class Lake(Protocol):
    """A table format; the driver's half. Paths of files are full URIs or absolute paths, as the lake names them."""

    name: str

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        """Create the lake table if there is none, append new nullable columns, check that both fit.

        A lake table that belongs to an earlier table of the same name (another table id) is set aside under a
        new name, with all its data, and a fresh one is created. That is fenced like a commit: a start that was
        overtaken neither changes nor sets aside a table that a later start of the same service has created or
        stamped, whenever it wakes up.

        Args:
            table: the source's table as it is now.
            incarnation: the start that asks. A table that it creates remembers it, until there is a stamp.

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

        Returns at once where it already is. A lost race is tried again, unless the winner is a later start of the
        same service.

        Raises:
            FencedError: a later start of the same service holds the stamp.
        """
        ...

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:
        """Return what the subtasks' writers need for one round: schema, layout, pinned base, file prefix.

        The size may not grow with the number of the table's files beyond what its touched buckets need.
        """
        ...

    def new_ids(self) -> CommitIds:
        """Choose the ids of a commit that is about to be built."""
        ...

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """Check the fence, build on the metadata of that very check, send once, no retry and no clean-up.

        Returns:
            LANDED or CONFLICT: nothing of ours landed or ever can, it may be built anew. A server's word alone is
            not enough for that: a gateway may have sent the request twice, and the answer is the second one's.

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
    def whole(self) -> bool:
        """Whether all rows taken so far lie in closed files: at first, after `write` closed a full file, after `roll`.

        Such a moment is a position from which the split can be read again. It costs nothing to ask.
        """
        ...

    def roll(self) -> tuple[LakeFile, ...]:
        """Prepare a checkpoint: close what is open if it amounts to at least half the target file size.

        A smaller file stays open, and what is in it counts as not written. Deletes are written for exactly the rows
        of the closed files. May take as long as closing a file takes.

        Returns:
            All files of the split that are closed now (those of the progress that the writer went on from first).
            They hold exactly the rows that were taken up to the last moment at which the writer was `whole`.

        Raises:
            StorageError: the disk refused.
        """
        ...

    def close(self) -> tuple[LakeFile, ...]:
        """Close all files; everything written is in them. Nothing may be written afterwards.

        Returns:
            All files of the split, those of the progress that the writer went on from first.
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
