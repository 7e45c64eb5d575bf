"""The leases and their owners, from what the source lists and what the service persisted and reports."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lakeward.model.leases import RestoredLease
from lakeward.model.status import ServiceReport
from lakeward.model.tables import KvSnapshot, TableBucket

RUNNING = "running service"
LAST_START = "last start"
OLD_GENERATION = "old generation"
EARLIER_START = "earlier start"
OTHER = "other"
OWNERS = {
    RUNNING: "held by the service that runs now",
    LAST_START: "held by the last start of this service; the next one takes it over",
    OLD_GENERATION: "an old generation of this service's lease, still to be dropped by the service",
    EARLIER_START: "left by an earlier start of this service; it expires by itself",
    OTHER: "not this service's",
}

HELD = "held"
EXPIRED = "expired"
MISSING = "missing"
UNKNOWN = "unknown"
STATUSES = {
    HELD: "the source has it",
    EXPIRED: "the source has it, but it has expired: nothing is protected",
    MISSING: "the source does not have it: nothing is protected",
    UNKNOWN: "the source cannot be asked",
}


class ListedLease(Protocol):
    """A lease as a source lists it; `expires_ms` is in milliseconds since 1970, by the source's clock."""

    @property
    def lease_id(self) -> str:
        """The id."""
        ...

    @property
    def expires_ms(self) -> int:
        """When it expires."""
        ...

    @property
    def held(self) -> Mapping[TableBucket, int]:
        """Bucket to snapshot id."""
        ...


@runtime_checkable
class LeaseListing(Protocol):
    """What a source's lease API may offer besides `lakeward.ports.SnapshotLeases`; Fluss has no such call."""

    def list_leases(self) -> Sequence[ListedLease]:
        """Return all leases that the source stores."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseKnowledge:
    """All that is known of leases.

    `listed` is None where the source cannot list them. `restored` is what the state file keeps, None where there is
    none. `report` is the running service's, None where none runs. `gone` are those snapshots of `restored` that the
    source cannot read any more, None where it was not asked. `now_ms` is in milliseconds since 1970.
    """

    service: str
    listed: Sequence[ListedLease] | None
    restored: RestoredLease | None
    report: ServiceReport | None
    gone: Collection[KvSnapshot] | None = None
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class LeaseLine:
    """One lease. `owner` is a key of `OWNERS`; `listed` is False where the source does not (or cannot) name it.

    `held` is the number of leased snapshots; `releasing` the buckets whose release is not confirmed, known of the
    running service's lease alone. `status` is a key of `STATUSES`: what the source says of it; `differences` has
    one message for each snapshot on which this service and the source disagree.
    """

    lease_id: str
    owner: str
    listed: bool
    generation: int | None
    held: int | None
    expires_ms: int | None
    releasing: int | None
    buckets: Mapping[str, int]
    status: str = UNKNOWN
    differences: tuple[str, ...] = ()


def lease_lines(known: LeaseKnowledge) -> list[LeaseLine]:
    """Combine what is known of each lease: a line for each id, this service's first."""
    listed = {lease.lease_id: lease for lease in known.listed or ()}
    ids = {*listed, *_own_ids(known)}
    lines = [_line(known, lease_id, listed.get(lease_id)) for lease_id in ids]
    order = list(OWNERS)
    return sorted(lines, key=lambda line: (order.index(line.owner), line.lease_id))


def owner_of(known: LeaseKnowledge, lease_id: str) -> str:
    """Return the owner of a lease: a key of `OWNERS`."""
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
    held, others = set[str](), set[str]()
    if known.report is not None and known.report.lease_id and known.report.leased:
        held.add(known.report.lease_id)
    if known.restored is not None:
        (held if known.restored.held else others).add(known.restored.lease_id)
        others |= {old for old, _ in known.restored.old_ids}
    # Where the source lists its leases, an id that holds nothing, here and there, is nothing to show.
    return held | (others if known.listed is None else others & {lease.lease_id for lease in known.listed})


def _line(known: LeaseKnowledge, lease_id: str, listed: ListedLease | None) -> LeaseLine:
    owner = owner_of(known, lease_id)
    running = known.report if owner == RUNNING else None
    held: Mapping[TableBucket, int] | None = None if listed is None else listed.held
    own = known.restored.held if known.restored is not None and known.restored.lease_id == lease_id else {}
    if held is None and owner in {LAST_START, RUNNING} and own:
        held = own
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
        status=_status(known, listed),
        differences=tuple(_differences(known, listed, own)),
    )


def _status(known: LeaseKnowledge, listed: ListedLease | None) -> str:
    if listed is not None:
        return HELD if listed.expires_ms > known.now_ms else EXPIRED
    return UNKNOWN if known.listed is None else MISSING


def _differences(known: LeaseKnowledge, listed: ListedLease | None, own: Mapping[TableBucket, int]) -> Iterator[str]:
    """Compare what the state file says is held with what the source lists, and with what it can still read."""
    gone = {snapshot.bucket: snapshot.snapshot_id for snapshot in known.gone or ()}
    for bucket, snapshot in sorted(own.items(), key=_by_bucket):
        there = snapshot if listed is None else listed.held.get(bucket)
        if there != snapshot:
            found = "none" if there is None else f"snapshot {there}"
            yield f"bucket {bucket}: this service holds snapshot {snapshot}, the source lists {found}"
        if gone.get(bucket) == snapshot:
            yield f"bucket {bucket}: snapshot {snapshot}, which this service holds, cannot be read any more"
    if listed is not None and own:
        for bucket, snapshot in sorted(listed.held.items(), key=_by_bucket):
            if bucket not in own:
                yield f"bucket {bucket}: the source lists snapshot {snapshot}, this service does not hold it"


def _by_bucket(item: tuple[TableBucket, int]) -> tuple[int, int, int]:
    return item[0].sort_key()


def _generation(lease_id: str) -> int | None:
    last = lease_id.rpartition("-")[2]
    return int(last) if last.isdigit() else None
