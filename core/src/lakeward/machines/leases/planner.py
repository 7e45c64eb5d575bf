"""What the lease machine does next: the most urgent call, drops of retired ids, and the next tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakeward.machines.leases import messages as m
from lakeward.machines.leases.state import NEVER, BucketLease, Call, CallKind, LeaseState, LeaseStatus, TableLease

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.model.tables import KvSnapshot, TableBucket

Commands = tuple[m.LeasesCommand, ...]
_DROPS_AT_ONCE = 8
"""Most drops at a time: after a long outage there may be many old ids, and the server must not be flooded."""

# --- conditions -----------------------------------------------------------------------------------------------------


def renewal_is_due(leases: LeaseState, event: m.CallDue) -> bool:
    """The whole list has to be renewed; it is not empty."""
    return leases.renew_at is not None and leases.renew_at <= event.now


def verification_is_due(leases: LeaseState, event: m.CallDue) -> bool:
    """A table has snapshots that were acquired and not verified."""
    return _first(leases, event, LeaseStatus.ACQUIRED) is not None


def acquire_is_due(leases: LeaseState, event: m.CallDue) -> bool:
    """A table wants snapshots."""
    return _first(leases, event, LeaseStatus.WANTED) is not None


def release_is_due(leases: LeaseState, event: m.CallDue) -> bool:
    """The server may hold snapshots of a table that nothing needs."""
    return _first_to_release(leases, event) is not None


def release_is_left(leases: LeaseState, event: m.CallDue) -> bool:
    """The same while the service stops: each table's release is tried once more."""
    return leases.open_call is None and release_is_due(leases, event)


def _first(leases: LeaseState, event: m.CallDue, status: LeaseStatus) -> TableLease | None:
    """Return the first table that has such snapshots and whose pause is over; first those that are being read."""
    due = [
        table
        for table in leases.tables.values()
        if table.retry_at <= event.now and any(lease.status is status for lease in table.leases.values())
    ]
    return min(due, key=lambda table: not table.granted, default=None)


def _first_to_release(leases: LeaseState, event: m.CallDue) -> TableLease | None:
    for table in leases.tables.values():
        done = table.table_id in leases.tried_while_stopping if leases.stopping else table.release_at > event.now
        if not done and table.releasing:
            return table
    return None


# --- what is done ---------------------------------------------------------------------------------------------------


def renew(leases: LeaseState, event: m.CallDue) -> Commands:
    """Acquire the whole list again."""
    snapshots = [
        lease.snapshot
        for table in leases.tables.values()
        for lease in table.leases.values()
        if lease.status is not LeaseStatus.WANTED
    ]
    tables = tuple(dict.fromkeys(snapshot.bucket.table_id for snapshot in snapshots))
    return _acquire(leases, snapshots, tables, event.now, renewal=True)


def acquire_next(leases: LeaseState, event: m.CallDue) -> Commands:
    """Acquire what a table wants."""
    table = _first(leases, event, LeaseStatus.WANTED)
    assert table is not None  # noqa: S101 - the condition of the rule
    return _acquire(leases, table.with_status(LeaseStatus.WANTED), (table.table_id,), event.now)


def _acquire(
    leases: LeaseState, snapshots: list[KvSnapshot], tables: tuple[int, ...], now: float, *, renewal: bool = False
) -> Commands:
    buckets = {snapshot.bucket: snapshot.snapshot_id for snapshot in snapshots}
    added: frozenset[TableBucket] = frozenset()
    for table_id in tables:
        table = leases.tables[table_id]
        new = frozenset(bucket for bucket in buckets if bucket.table_id == table_id) - table.on_server
        leases.put(replace(table, on_server=table.on_server | new), changed=False)
        added |= new
    number = leases.send(CallKind.ACQUIRE, now, tables, snapshots, added, renewal=renewal)
    # The held snapshots may equal those last persisted, but it is not known here whether that write succeeded.
    leases.changed = leases.changed or not renewal
    return (m.CallAcquire(number, leases.lease_id, leases.generation, buckets),)


def verify_next(leases: LeaseState, event: m.CallDue) -> Commands:
    """Ask the source which of a table's acquired snapshots are gone."""
    table = _first(leases, event, LeaseStatus.ACQUIRED)
    assert table is not None  # noqa: S101 - the condition of the rule
    snapshots = tuple(table.with_status(LeaseStatus.ACQUIRED))
    return verify(leases, m.SnapshotsAcquired(now=event.now, snapshots=snapshots, tables=(table.table_id,)))


def verify(leases: LeaseState, event: m.SnapshotsAcquired) -> Commands:
    """Ask the source which of these are gone."""
    number = leases.send(CallKind.VERIFY, event.now, event.tables, event.snapshots)
    return (m.CallVerify(number, event.snapshots),)


def release_next(leases: LeaseState, event: m.CallDue) -> Commands:
    """Release what nothing of a table needs."""
    table = _first_to_release(leases, event)
    assert table is not None  # noqa: S101 - the condition of the rule
    if leases.stopping:
        leases.tried_while_stopping |= {table.table_id}
    number = leases.send(CallKind.RELEASE, event.now, (table.table_id,), buckets=table.releasing)
    return (m.CallRelease(number, leases.lease_id, leases.generation, table.releasing),)


def grant(leases: LeaseState) -> Commands:
    """Tell the rounds whose snapshots are protected now; forget tables of which there is nothing to remember."""
    commands: Commands = ()
    for table in tuple(leases.tables.values()):
        if table.may_be_granted():
            leases.put(table.grant(), changed=False)
            commands += (m.Protected(table.table_id),)
        if leases.tables[table.table_id].empty:
            del leases.tables[table.table_id]
    return commands


def drop_retired(leases: LeaseState, now: float) -> Commands:
    """Drop retired ids, in parallel, once everything that may be read is verified under the current one."""
    commands: Commands = ()
    if not leases.retired or not leases.old_leases_are_replaced():
        return commands
    for retired in tuple(leases.retired.values()):
        if leases.drops_open() >= _DROPS_AT_ONCE:
            break
        tried = retired.lease_id in leases.tried_while_stopping if leases.stopping else retired.retry_at > now
        if retired.open_call is None and not tried:
            if leases.stopping:
                leases.tried_while_stopping |= {retired.lease_id}
            leases.last_call += 1
            leases.put_retired(replace(retired, open_call=leases.last_call))
            leases.calls[leases.last_call] = Call(CallKind.DROP, retired.lease_id, retired.generation, now)
            commands += (m.CallDrop(leases.last_call, retired.lease_id, retired.generation),)
    return commands


def expire(leases: LeaseState, now: float) -> Commands:
    """Forget what has expired: snapshots without protection, retired ids, the current lease if nobody needs it."""
    commands: Commands = ()
    # If there is no earlier id, everything was acquired under the current one.
    for table in tuple(leases.tables.values()) if leases.retired else ():
        lost = frozenset(lease.snapshot for lease in table.uncovered() if lease.covered_until <= now)
        if lost:
            leases.put(table.forget_lost([snapshot.bucket for snapshot in lost]))
            commands += (m.ProtectionLost(table.table_id, lost, "the lease ran out before it could be taken anew"),)
    for retired in [one for one in leases.retired.values() if one.expires <= now and one.open_call is None]:
        leases.forget_retired(retired)
    if leases.open_call is None:
        held = [lease for table in leases.tables.values() for lease in table.leases.values()]
        if leases.renew_at is not None and leases.renew_at <= now and not _acquired(held):
            leases.renew_at = None
        if not held and leases.expires_at is not None and leases.expires_at <= now:
            for table in tuple(leases.tables.values()):
                leases.put(replace(table, on_server=frozenset()))
            leases.expires_at = None
            leases.changed = True
    return commands


def due_times(leases: LeaseState) -> Iterator[float]:
    """Yield every time at which something becomes due that does not wait for a call."""
    if leases.open_call is None:
        yield from _due_calls(leases)
    if leases.retired:
        for table in leases.tables.values():
            yield from (lease.covered_until for lease in table.uncovered() if lease.covered_until < NEVER)
        room = leases.old_leases_are_replaced() and leases.drops_open() < _DROPS_AT_ONCE
        for retired in leases.retired.values():
            if retired.open_call is None:
                yield min(retired.expires, retired.retry_at) if room else retired.expires


def _due_calls(leases: LeaseState) -> Iterator[float]:
    held = [lease for table in leases.tables.values() for lease in table.leases.values()]
    if leases.renew_at is not None and _acquired(held):
        yield leases.renew_at
    if leases.expires_at is not None and not held:
        yield leases.expires_at
    for table in leases.tables.values():
        if not all(lease.verified for lease in table.leases.values()):
            yield table.retry_at
        if table.releasing:
            yield table.release_at


def _acquired(held: Iterable[BucketLease]) -> bool:
    return any(lease.status is not LeaseStatus.WANTED for lease in held)
