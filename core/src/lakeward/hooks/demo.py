"""What a source or lake package may publish in addition, so that `lakeward demo --source NAME` can show it.

The plugin objects of the groups `lakeward.source` and `lakeward.lake` may implement these protocols too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from lakeward.model.tables import TableBucket, TablePath

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


@runtime_checkable
class DemonstratedSource(Protocol):
    """A source plugin that can start a private throw-away cluster."""

    def demo_cluster(
        self, directory: Path, catalog: str, warehouse: str, report: Callable[[str], None]
    ) -> AbstractContextManager[DemoCluster]:
        """Run a cluster for the length of a `with` block; its data and logs are in a directory that is made if missing.

        `catalog` is the address of the lake's catalog, which the cluster shares with us, `warehouse` the lake's
        warehouse as the catalog names it. `report` is called with one line of progress at a time.

        Raises:
            UsageError: something has to be installed first; says what.
            LakewardError: the cluster cannot be had here; says why.
        """
        ...

    def demo_store(self, address: str) -> DemoStore:
        """Open the cluster to write; for any process of this machine."""
        ...


@dataclass(frozen=True, slots=True)
class SharedCatalog:
    """A lake's catalog that other programs on this machine may use. `options` are the keys of `[lake]`."""

    address: str
    warehouse: str
    options: Mapping[str, str]


@runtime_checkable
class SharedLake(Protocol):
    """A lake plugin that can serve its catalog to a source's cluster."""

    def share_catalog(self, warehouse: Path) -> AbstractContextManager[SharedCatalog]:
        """Serve the catalog of a directory for the length of a `with` block."""
        ...
