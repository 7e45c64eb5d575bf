"""What the lease machine does next: the most urgent call, drops of earlier ids, and when time itself is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.lease_calls import Call, State
from lakeward.machines.lease_ledger import ENDLESS, Standing
from lakeward.machines.lease_protocol import (
    CallAcquire,
    CallDrop,
    CallKind,
    CallRelease,
    CallVerify,
    LeaseStopped,
    Protected,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.machines.lease_memory import LeaseMemory
    from lakeward.model.tables import KvSnapshot, TableBucket

_DROPS_AT_ONCE = 8
"""After a long outage many old ids may be left; the server is not to be flooded."""


def go_on(memory: LeaseMemory, now: float) -> None:
    """Answer what can be answered, send what is due."""
    for claim in memory.claims.values():
        if claim.grant():
            memory.out.append(Protected(claim.table_id))
    memory.claims = {table_id: claim for table_id, claim in memory.claims.items() if not claim.empty}
    if memory.flight is None:
        _next_call(memory, now)
    _drop_old(memory, now)
    if memory.state is State.STOPPING and not memory.lease_calls_open():
        memory.state = State.STOPPED
        memory.out.append(LeaseStopped())


def _next_call(memory: LeaseMemory, now: float) -> None:
    """Send the most urgent call under the current id, if any is due."""
    if memory.state is not State.STOPPING:
        if memory.renew_at is not None and memory.renew_at <= now and _renew(memory, now):
            return
        claims = sorted(memory.claims.values(), key=lambda claim: not claim.granted)
        due = [claim for claim in claims if claim.retry_at <= now]
        for claim in due:
            unverified = claim.standing_at(Standing.ACQUIRED)
            if unverified:
                verify(memory, [slot.snapshot for slot in unverified.values()], (claim.table_id,), now)
                return
        for claim in due:
            wanted = claim.standing_at(Standing.WANTED)
            if wanted:
                _acquire(memory, [slot.snapshot for slot in wanted.values()], (claim.table_id,), now)
                return
    _release_next(memory, now)


def _renew(memory: LeaseMemory, now: float) -> bool:
    slots = [s for claim in memory.claims.values() for s in claim.slots.values() if s.standing is not Standing.WANTED]
    if not slots:
        memory.renew_at = None
        return False
    tables = tuple(dict.fromkeys(slot.snapshot.bucket.table_id for slot in slots))
    _acquire(memory, [slot.snapshot for slot in slots], tables, now, renewal=True)
    return True


def _acquire(
    memory: LeaseMemory, snapshots: list[KvSnapshot], tables: tuple[int, ...], now: float, *, renewal: bool = False
) -> None:
    buckets = {snapshot.bucket: snapshot.snapshot_id for snapshot in snapshots}
    added: set[TableBucket] = set()
    for table_id in tables:
        claim = memory.claims[table_id]
        new = {bucket for bucket in buckets if bucket.table_id == table_id} - claim.on_server
        claim.on_server |= new
        added |= new
    call = memory.call(CallKind.ACQUIRE, now, tables, snapshots, frozenset(added), renewal=renewal)
    number = memory.send(call)
    memory.state = State.RENEWING if renewal else State.ACQUIRING
    # The books may be unchanged since they were persisted, but whether that went well is not known here.
    memory.dirty = memory.dirty or not renewal
    memory.out.append(CallAcquire(number, memory.lease_id, memory.generation, buckets))


def verify(memory: LeaseMemory, snapshots: list[KvSnapshot], tables: tuple[int, ...], now: float) -> None:
    """Ask the source which of these are gone."""
    if snapshots:
        number = memory.send(memory.call(CallKind.VERIFY, now, tables, snapshots))
        memory.state = State.VERIFYING
        memory.out.append(CallVerify(number, tuple(snapshots)))


def _release_next(memory: LeaseMemory, now: float) -> None:
    stopping = memory.state is State.STOPPING
    for claim in memory.claims.values():
        buckets = claim.releasing
        if not buckets or (claim.table_id in memory.tried if stopping else claim.release_at > now):
            continue
        if stopping:
            memory.tried.add(claim.table_id)
        else:
            memory.state = State.RELEASING
        number = memory.send(memory.call(CallKind.RELEASE, now, (claim.table_id,), buckets=buckets))
        memory.out.append(CallRelease(number, memory.lease_id, memory.generation, buckets))
        return


def _drop_old(memory: LeaseMemory, now: float) -> None:
    """Drop earlier ids, side by side, once everything that may be read is verified under the current one."""
    if not memory.old or not memory.taken_over():
        return
    stopping = memory.state is State.STOPPING
    for old in memory.old.values():
        if memory.drops_open() >= _DROPS_AT_ONCE:
            return
        if old.flight is None and (old.lease_id not in memory.tried if stopping else old.retry_at <= now):
            if stopping:
                memory.tried.add(old.lease_id)
            memory.last_call += 1
            old.flight = memory.last_call
            memory.calls[old.flight] = Call(CallKind.DROP, old.lease_id, old.generation, now)
            memory.out.append(CallDrop(old.flight, old.lease_id, old.generation))


def due_times(memory: LeaseMemory) -> Iterable[float]:
    """Yield every time at which something would be done, as far as no call is waited for."""
    if memory.flight is None:
        yield from _due_calls(memory)
    if memory.old:
        for claim in memory.claims.values():
            yield from (until for until in claim.cover() if until < ENDLESS)
        room = memory.taken_over() and memory.drops_open() < _DROPS_AT_ONCE
        for old in memory.old.values():
            if old.flight is None:
                yield min(old.expires, old.retry_at) if room else old.expires


def _due_calls(memory: LeaseMemory) -> Iterable[float]:
    held = [slot for claim in memory.claims.values() for slot in claim.slots.values()]
    if memory.renew_at is not None and any(slot.standing is not Standing.WANTED for slot in held):
        yield memory.renew_at
    if memory.until is not None and not held:
        yield memory.until
    for claim in memory.claims.values():
        if any(slot.standing is not Standing.VERIFIED for slot in claim.slots.values()):
            yield claim.retry_at
        if claim.releasing:
            yield claim.release_at
