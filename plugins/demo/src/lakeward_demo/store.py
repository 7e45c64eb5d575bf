"""A store that the demo writes to: the embedded one, or a private Fluss cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakeward.model.tables import TableBucket, TablePath

EMBEDDED, FLUSS = "embedded", "fluss"
"""The stores that there are."""
SnapshotKey = tuple[int, ...]
"""Names one KV snapshot of a table; what the numbers mean is the source's own."""


@dataclass(frozen=True, slots=True)
class DemoTable:
    """A table of the demo. `tiered` is False for one whose data lake is not enabled: it is mirrored."""

    path: TablePath
    columns: pa.Schema
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    buckets: int = 1
    tiered: bool = True


@dataclass(frozen=True, slots=True)
class SnapshotCount:
    """KV snapshots of a table so far: how many were taken, and how many the clean-up has deleted."""

    taken: int
    deleted: int


class DemoStore(Protocol):
    """Where the demo writes, and what it reads; one process and one thread at a time use one."""

    def create(self, table: DemoTable) -> None:
        """Create a table, fresh within seconds."""
        ...

    def load(self, table: DemoTable, rows: pa.Table, change: str | None = None) -> None:
        """Write rows; the column `change` says insert, update or delete, and is no column of the table."""
        ...

    def settle(self, table: DemoTable) -> None:
        """Wait until each bucket that has rows has a KV snapshot, where the source takes them by itself."""
        ...

    def snapshots(self, table: DemoTable) -> SnapshotCount:
        """Count the table's KV snapshots."""
        ...

    def superseded(self, table: DemoTable) -> frozenset[SnapshotKey]:
        """Return the snapshots that only a lease keeps from the clean-up."""
        ...

    def ends(self, table: DemoTable) -> Mapping[TableBucket, int]:
        """Return the end of each bucket's log."""
        ...

    def registered(self, table: DemoTable) -> Mapping[TableBucket, int]:
        """Return the offsets of the newest lake snapshot that the source knows of."""
        ...

    def leases(self) -> int:
        """Count the leases that are held."""
        ...

    def close(self) -> None:
        """Free what is held; calling it twice is harmless."""
        ...


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A source that runs for the demo only. `options` are the keys of `[source]`, `address` what `store` takes."""

    address: str
    options: Mapping[str, str]
