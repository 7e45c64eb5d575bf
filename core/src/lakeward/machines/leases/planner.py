"""Plans what the lease machine does next: the most urgent call, drops of retired ids, and the next tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.leases.calls import Call, CallKind
from lakeward.machines.leases.commands import CallAcquire, CallDrop, CallRelease, CallVerify, Protected
from lakeward.machines.leases.table_lease import NEVER, LeaseStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.machines.leases.state import LeaseState
    from lakeward.model.tables import KvSnapshot, TableBucket

_DROPS_AT_ONCE = 8
"""Most drops at a time: after a long outage there may be many old ids, and the server must not be flooded."""


def send_what_is_due(state: LeaseState, now: float) -> None:
    """Tell rounds whose snapshots are protected now, and send the calls that are due."""
    for table in state.tables.values():
        if table.grant():
            state.commands.append(Protected(table.table_id))
    state.tables = {table_id: table for table_id, table in state.tables.items() if not table.empty}
    if state.open_call is None:
        _next_call(state, now)
    _drop_retired(state, now)


def _next_call(state: LeaseState, now: float) -> None:
    """Send the most urgent call under the current id, if any is due."""
    if not state.stopping:
        if state.renew_at is not None and state.renew_at <= now and _renew(state, now):
            return
        tables = sorted(state.tables.values(), key=lambda table: not table.granted)
        due = [table for table in tables if table.retry_at <= now]
        for table in due:
            unverified = table.with_status(LeaseStatus.ACQUIRED)
            if unverified:
                verify(state, [lease.snapshot for lease in unverified.values()], (table.table_id,), now)
                return
        for table in due:
            wanted = table.with_status(LeaseStatus.WANTED)
            if wanted:
                _acquire(state, [lease.snapshot for lease in wanted.values()], (table.table_id,), now)
                return
    _release_next(state, now)


def _renew(state: LeaseState, now: float) -> bool:
    leases = [s for table in state.tables.values() for s in table.leases.values() if s.status is not LeaseStatus.WANTED]
    if not leases:
        state.renew_at = None
        return False
    tables = tuple(dict.fromkeys(lease.snapshot.bucket.table_id for lease in leases))
    _acquire(state, [lease.snapshot for lease in leases], tables, now, renewal=True)
    return True


def _acquire(
    state: LeaseState, snapshots: list[KvSnapshot], tables: tuple[int, ...], now: float, *, renewal: bool = False
) -> None:
    buckets = {snapshot.bucket: snapshot.snapshot_id for snapshot in snapshots}
    added: set[TableBucket] = set()
    for table_id in tables:
        table = state.tables[table_id]
        new = {bucket for bucket in buckets if bucket.table_id == table_id} - table.on_server
        table.on_server |= new
        added |= new
    call = state.call(CallKind.ACQUIRE, now, tables, snapshots, frozenset(added), renewal=renewal)
    number = state.send(call)
    # The held snapshots may equal those last persisted, but it is not known here whether that write succeeded.
    state.changed = state.changed or not renewal
    state.commands.append(CallAcquire(number, state.lease_id, state.generation, buckets))


def verify(state: LeaseState, snapshots: list[KvSnapshot], tables: tuple[int, ...], now: float) -> None:
    """Ask the source which of these are gone."""
    if snapshots:
        number = state.send(state.call(CallKind.VERIFY, now, tables, snapshots))
        state.commands.append(CallVerify(number, tuple(snapshots)))


def _release_next(state: LeaseState, now: float) -> None:
    stopping = state.stopping
    for table in state.tables.values():
        buckets = table.releasing
        if not buckets or (table.table_id in state.tried_while_stopping if stopping else table.release_at > now):
            continue
        if stopping:
            state.tried_while_stopping.add(table.table_id)
        number = state.send(state.call(CallKind.RELEASE, now, (table.table_id,), buckets=buckets))
        state.commands.append(CallRelease(number, state.lease_id, state.generation, buckets))
        return


def _drop_retired(state: LeaseState, now: float) -> None:
    """Drop retired ids, in parallel, once everything that may be read is verified under the current one."""
    if not state.retired or not state.old_leases_are_replaced():
        return
    stopping = state.stopping
    for retired in state.retired.values():
        if state.drops_open() >= _DROPS_AT_ONCE:
            return
        due = retired.lease_id not in state.tried_while_stopping if stopping else retired.retry_at <= now
        if retired.open_call is None and due:
            if stopping:
                state.tried_while_stopping.add(retired.lease_id)
            state.last_call += 1
            retired.open_call = state.last_call
            state.calls[retired.open_call] = Call(CallKind.DROP, retired.lease_id, retired.generation, now)
            state.commands.append(CallDrop(retired.open_call, retired.lease_id, retired.generation))


def due_times(state: LeaseState) -> Iterable[float]:
    """Yield every time at which something becomes due that does not wait for a call."""
    if state.open_call is None:
        yield from _due_calls(state)
    if state.retired:
        for table in state.tables.values():
            yield from (until for until in table.expirations() if until < NEVER)
        room = state.old_leases_are_replaced() and state.drops_open() < _DROPS_AT_ONCE
        for retired in state.retired.values():
            if retired.open_call is None:
                yield min(retired.expires, retired.retry_at) if room else retired.expires


def _due_calls(state: LeaseState) -> Iterable[float]:
    held = [lease for table in state.tables.values() for lease in table.leases.values()]
    if state.renew_at is not None and any(lease.status is not LeaseStatus.WANTED for lease in held):
        yield state.renew_at
    if state.expires_at is not None and not held:
        yield state.expires_at
    for table in state.tables.values():
        if any(lease.status is not LeaseStatus.VERIFIED for lease in table.leases.values()):
            yield table.retry_at
        if table.releasing:
            yield table.release_at
