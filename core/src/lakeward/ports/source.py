"""The ports of a source: `Source` in the driver, `SourceReader` in a subtask.

Threads: the driver calls a `Source` from several worker threads at once. A `SourceReader` lives in one subtask, or in
the driver while it replays dead letters, and is called by one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakeward.model.batches import SourceBatch
    from lakeward.model.splits import LogSplit, SnapshotSplit, Split
    from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath, TableSpec
    from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, LakeRecord
    from lakeward.ports.leases import SnapshotLeases


class TableQueue(Protocol):
    """Where a service gets the tables that it tiers: the queue of a source, or also tables that it schedules itself."""

    def heartbeat(self, request: HeartbeatRequest, /) -> HeartbeatResponse:
        """Renew, finish, fail and request tables of the tiering queue in one call.

        Raises:
            SourceError: refused as a whole; no effect.
            OutcomeUnknownError: no answer.
        """
        ...

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """Ask the queue to assign these tables at once.

        Return False where the source has no such call: the tables come when their freshness has passed.
        """
        ...


class Source(TableQueue, Protocol):
    """A streaming store that tables are read from; the driver's half."""

    name: str
    leases: SnapshotLeases

    def tables(self) -> Sequence[TableSpec]:
        """Return all tables that are to be tiered (data lake enabled); one that cannot be described is `unreadable`.

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
        """Return the state of every bucket (of every partition) ordered by `sort_key`; asked in one batch.

        Raises:
            TableGoneError: dropped, or its id is another one now.
            SourceError: the source cannot answer.
        """
        ...

    def missing_snapshots(self, snapshots: Collection[KvSnapshot]) -> frozenset[KvSnapshot]:
        """Return those of `snapshots` that cannot be read any more (batched)."""
        ...

    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        """Return the time of the oldest record not contained in `offsets`, in ms since 1970; None if there is none.

        A source without write times (`UntimedSource`) always returns None.
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
        """Store the offsets of a lake commit that is about to be made: all buckets, the next offset to tier of each.

        Return the path of the stored file, which the lake commit names (`CommitRequest.source_path`); empty where the
        source stores none.
        """
        ...

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """Register a lake snapshot. Idempotent: the same call twice is one registration.

        `prepared` is what `prepare` had returned; `offsets` has all buckets.

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


@dataclass(frozen=True, slots=True)
class SplitSize:
    """What reading a split will give, as far as the source knows before: rows, and bytes that it keeps them in."""

    rows: int | None
    size_bytes: int | None


@runtime_checkable
class SizedSource(Protocol):
    """A source that knows how large splits are without reading them; `lakeward plan` shows it. Optional."""

    def split_sizes(self, table: TableSpec, splits: Sequence[Split]) -> Sequence[SplitSize]:
        """Return the size of each split, in their order; None for what is unknown. Asked in one batch.

        Raises:
            TableGoneError: the table was dropped.
            SourceError: the source cannot answer.
        """
        ...


@runtime_checkable
class UntimedSource(Protocol):
    """A source whose records may have no write times. Optional: one that does not say has them.

    Without them `pending_since_ms` returns None though records wait, `__timestamp` is -1 ms as that of a snapshot's
    row, and for how long rows have waited is unknown.
    """

    has_write_times: bool


def has_write_times(source: Source) -> bool:
    """Return whether a source knows when each record was written."""
    return source.has_write_times if isinstance(source, UntimedSource) else True


class SourceReader(Protocol):
    """A source in a subtask. Made by the source plugin from the bytes of `Source.reader_task`.

    It gives the columns of `TableSpec.schema`: of a table with `left_out`, fewer than the source has.
    """

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

        The first `skip_rows` rows are left out, without decoding them where the format allows it.

        Raises:
            SnapshotGoneError: its files are gone.
            CorruptFileError: it has fewer rows than are to be left out.
        """
        ...

    def close(self) -> None:
        """Free what is held. A read that hangs may still be under way on another thread."""
        ...
