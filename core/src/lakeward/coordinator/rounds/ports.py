"""What the rounds need of the rest of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lakeward.coordinator.commits.upkeep import LagListener
from lakeward.coordinator.workers.background import Background

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakeward.coordinator.rounds.attempt import RoundAttempt
    from lakeward.machines.rounds import RoundsEvent
    from lakeward.model.checkpoints import LeaseCopy
    from lakeward.model.leases import Failover
    from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath


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


class RoundListener(LagListener, Protocol):
    """Is told how rounds end."""

    def round_ended(self, attempt: RoundAttempt) -> None:
        """Record a round that has ended."""
        ...


class TargetListener(Protocol):
    """Knows the end offsets that `once` waits for."""

    def reached(self, path: TablePath, offsets: Mapping[TableBucket, int], buckets: Sequence[BucketState]) -> bool:
        """Return whether a table has reached its target with these offsets; True for a table without a target.

        Args:
            path: the table.
            offsets: the next offset to tier, by bucket.
            buckets: as the round found them.
        """
        ...
