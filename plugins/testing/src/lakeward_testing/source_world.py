"""What the source suite needs: the writing side, which creates tables, writes rows and takes snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Source, SourceReader

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("day", pa.string(), nullable=False),
    ]
)
"""The columns of every table of the suite. Primary key: id (and day, where partitioned by it)."""


class SourceWorld(Protocol):
    """The writing side of one running source, and a clock that the test moves.

    Snapshots are taken when `snapshot` is called and at no other time; each bucket keeps its newest two. Nothing is
    cleaned from the log unless `trim` is called.
    """

    source: Source

    def reader(self, table: TableSpec) -> SourceReader:
        """Open the source as a subtask does, from the bytes of `reader_task`; the world closes it."""
        ...

    def create(
        self,
        path: TablePath,
        *,
        primary_key: bool,
        partitioned: bool = False,
        buckets: int = 1,
        freshness_s: float = 60,
    ) -> TableSpec:
        """Create a table with the columns of `SCHEMA`, lake-enabled; bucket key id.

        A source that is declared to have no queue, keys or partitions is asked for none.
        """
        ...

    def write(self, path: TablePath, rows: Sequence[tuple[str, int, str]], day: str = "mon") -> None:
        """Write rows (operation, id, name), one call = one batch; operations are `upsert` and `delete`.

        A log table takes upserts alone, as appends.
        """
        ...

    def snapshot(self, path: TablePath) -> None:
        """Take a KV snapshot of every changed bucket now, and clean up older ones."""
        ...

    def drop(self, path: TablePath) -> None:
        """Drop a table."""
        ...

    def add_column(self, path: TablePath, name: str) -> None:
        """Add a nullable text column at the end."""
        ...

    def append_empty(self, path: TablePath, bucket: int, count: int) -> None:
        """Let a bucket's log go on by `count` offsets without records (where `has_empty_batches`)."""
        ...

    def trim(self, path: TablePath, bucket: int, before: int) -> None:
        """Delete log records below an offset."""
        ...

    def lose(self, path: TablePath, bucket: int, offset: int) -> None:
        """Lose the batch that contains an offset, as a broken server does (where `can_lose_records`)."""
        ...

    def set_lease_api(self, *, on: bool) -> None:
        """Be a server with or without the lease API (where `can_be_old`)."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        ...

    @property
    def tiering_timeout_s(self) -> float:
        """Seconds without a heartbeat after which the source gives a table away."""
        ...
