"""What the rounds in work ask of the rest of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lakeward.coordinator.commits.upkeep import LagListener
from lakeward.coordinator.workers.background import Background

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakeward.coordinator.rounds.attempt import RoundAttempt
    from lakeward.machines.rounds import RoundsEvent
    from lakeward.model.checkpoints import LeaseCopy
    from lakeward.model.leases import Failover
    from lakeward.model.tables import KvSnapshot, TableBucket, TablePath


class RoundsLoop(Background, Protocol):
    """The service's event loop, with the machine of rounds on it."""

    superseded_by: str
    """The later start that took over, empty while there is none."""

    def post(self, event: RoundsEvent) -> None:
        """Give the machine of rounds an event."""
        ...

    def supersede(self, by: str) -> None:
        """Stop the service: a later start, named by its incarnation, took over."""
        ...


class SnapshotProtection(Protocol):
    """Who keeps the snapshots that rounds and checkpoints need."""

    def hold_checkpoints(self) -> None:
        """Tell the lease what checkpoints need now, where that has changed."""
        ...

    def release(self, table_id: int, buckets: Collection[TableBucket]) -> None:
        """Give up the snapshots of buckets whose end is durable, while their round goes on."""
        ...

    def snapshots_gone(self, table_id: int, gone: Collection[KvSnapshot], why: str) -> None:
        """Note snapshots that are gone although a round needs them; none where it is not known which."""
        ...

    def invalidate(self, table_id: int, reason: str) -> None:
        """Start a table's next round afresh, also that of a later start."""
        ...

    async def failover(self, failover: Failover) -> None:
        """Tell the lease backend of a failure."""
        ...

    def lease_copy(self) -> LeaseCopy | None:
        """Return the lease as it was last persisted."""
        ...


class RoundListener(LagListener, Protocol):
    """Who is told how rounds end."""

    def round_ended(self, attempt: RoundAttempt) -> None:
        """Remember a round that has ended."""
        ...


class TargetListener(Protocol):
    """Who knows the end offsets that `once` waits for."""

    def reached(self, path: TablePath, offsets: Mapping[TableBucket, int]) -> bool:
        """Return whether a table stands at its target with these offsets; one without a target does."""
        ...
