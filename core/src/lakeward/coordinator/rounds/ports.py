"""What the rounds need of the rest of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lakeward.coordinator.workers.background import Background

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.machines.rounds import RoundsEvent
    from lakeward.model.checkpoints import LeaseCopy
    from lakeward.model.leases import Failover
    from lakeward.model.tables import KvSnapshot, TableBucket


class RoundsLoop(Background, Protocol):
    """The service's event loop, which runs the rounds machine."""

    superseded_by: str
    """The later start of this service that took over, empty while there is none."""

    def post(self, event: RoundsEvent) -> None:
        """Post an event to the rounds machine."""
        ...

    def supersede(self, by: str) -> None:
        """Stop the service: a later start, named by its incarnation, took over."""
        ...


class SnapshotProtection(Protocol):
    """Keeps the snapshots leased that rounds and checkpoints need."""

    def hold_checkpoints(self) -> None:
        """Pass changes of the snapshots that checkpoints need to the lease."""
        ...

    def release(self, table_id: int, buckets: Collection[TableBucket]) -> None:
        """Release the snapshots of buckets that are durably finished, while their round continues."""
        ...

    def snapshots_gone(self, table_id: int, gone: Collection[KvSnapshot], why: str) -> None:
        """Record that snapshots which a round needs are gone; empty where it is not known which ones."""
        ...

    def invalidate(self, table_id: int, reason: str) -> None:
        """Make a table's next round start without its checkpoint, also after a restart."""
        ...

    async def failover(self, failover: Failover) -> None:
        """Tell the lease backend of a failure."""
        ...

    def lease_copy(self) -> LeaseCopy | None:
        """Return the lease as it was last persisted."""
        ...
