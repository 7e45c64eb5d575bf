"""Which leases there are and whose they are: what the source lists, what the service persisted and reports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lakeward.model.leases import RestoredLease
from lakeward.model.status import ServiceReport
from lakeward.model.tables import TableBucket

RUNNING = "running service"
LAST_START = "last start"
OLD_GENERATION = "old generation"
EARLIER_START = "earlier start"
OTHER = "other"
OWNERS = {
    RUNNING: "held by the service that runs now",
    LAST_START: "held by the last start of this service; the next one takes it over",
    OLD_GENERATION: "an old generation of this service's lease, still to be dropped by the service",
    EARLIER_START: "left by an earlier start of this service; it runs out by itself",
    OTHER: "not this service's",
}


class ListedLease(Protocol):
    """A lease as a source lists it; `expires_ms` is in milliseconds since 1970, by the source's clock."""

    @property
    def lease_id(self) -> str:
        """The id."""
        ...

    @property
    def expires_ms(self) -> int:
        """When it runs out."""
        ...

    @property
    def held(self) -> Mapping[TableBucket, int]:
        """Bucket to snapshot id."""
        ...


@runtime_checkable
class LeaseListing(Protocol):
    """What a source's lease API may offer besides `lakeward.ports.SnapshotLeases`; Fluss has no such call."""

    def listing(self) -> Sequence[ListedLease]:
        """Return all leases that the source stores."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseKnowledge:
    """All that is known of leases.

    `listed` is None where the source cannot list them. `restored` is what the state file keeps, None where there is
    none. `report` is the running service's, None where none runs.
    """

    service: str
    listed: Sequence[ListedLease] | None
    restored: RestoredLease | None
    report: ServiceReport | None


@dataclass(frozen=True, slots=True)
class LeaseLine:
    """One lease. `owner` is a key of `OWNERS`; `listed` is False where the source does not (or cannot) name it.

    `held` is the number of leased snapshots; `releasing` the buckets whose release is not confirmed, known of the
    running service's lease alone.
    """

    lease_id: str
    owner: str
    listed: bool
    generation: int | None
    held: int | None
    expires_ms: int | None
    releasing: int | None
    buckets: Mapping[str, int]


def lease_lines(known: LeaseKnowledge) -> list[LeaseLine]:
    """Bring together what is known of each lease.

    Args:
        known: from source, state file and status file.

    Returns:
        One line for each id, this service's first.
    """
    listed = {lease.lease_id: lease for lease in known.listed or ()}
    ids = {*listed, *_own_ids(known)}
    lines = [_line(known, lease_id, listed.get(lease_id)) for lease_id in ids]
    order = list(OWNERS)
    return sorted(lines, key=lambda line: (order.index(line.owner), line.lease_id))


def owner_of(known: LeaseKnowledge, lease_id: str) -> str:
    """Say whose a lease is: a key of `OWNERS`."""
    if known.report is not None and lease_id == known.report.lease_id:
        return RUNNING
    if known.restored is not None and lease_id == known.restored.lease_id and known.report is None:
        return LAST_START
    if known.restored is not None and lease_id in {old for old, _ in known.restored.old_ids}:
        return OLD_GENERATION
    if re.fullmatch(rf"{re.escape(known.service)}-\d+-[0-9a-f]{{16}}-\d+", lease_id):
        return EARLIER_START
    return OTHER


def _own_ids(known: LeaseKnowledge) -> set[str]:
    ids: set[str] = set()
    if known.report is not None and known.report.lease_id and known.report.leased:
        ids.add(known.report.lease_id)
    if known.restored is not None:
        ids |= {known.restored.lease_id, *(old for old, _ in known.restored.old_ids)}
    # Where the source lists its leases, an id that holds nothing there is nothing to show.
    return ids if known.listed is None else ids & {lease.lease_id for lease in known.listed}


def _line(known: LeaseKnowledge, lease_id: str, listed: ListedLease | None) -> LeaseLine:
    owner = owner_of(known, lease_id)
    running = known.report if owner == RUNNING else None
    held: Mapping[TableBucket, int] | None = None if listed is None else listed.held
    if held is None and owner == LAST_START and known.restored is not None:
        held = known.restored.held
    count = None if held is None else len(held)
    if count is None and running is not None:
        count = running.leased
    return LeaseLine(
        lease_id=lease_id,
        owner=owner,
        listed=listed is not None,
        generation=None if owner == OTHER else _generation(lease_id),
        held=count,
        expires_ms=None if listed is None else listed.expires_ms,
        releasing=None if running is None else running.releasing,
        buckets={str(bucket): snapshot for bucket, snapshot in sorted((held or {}).items(), key=_by_bucket)},
    )


def _by_bucket(item: tuple[TableBucket, int]) -> tuple[int, int, int]:
    return item[0].sort_key()


def _generation(lease_id: str) -> int | None:
    last = lease_id.rpartition("-")[2]
    return int(last) if last.isdigit() else None
