"""The state of the lease machine: the leases of each table, open calls, retired ids.

`LeaseState` is private to its machine: outside this package only `Leases` and `HeldLeases` are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.machines.leases.calls import Call, CallKind, RetiredLease
from lakeward.machines.leases.commands import LeasesCommand, NotProtected, ProtectionLost
from lakeward.machines.leases.table_lease import NEVER, BucketLease, LeaseStatus, TableLease
from lakeward.machines.leases.transitions import CallState, LeaseGuard
from lakeward.model.backoff import backoff_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.machines.leases.events import LeasesEvent
    from lakeward.model.tables import KvSnapshot, TableBucket

_UNKNOWN_AT_MOST = 10_000
"""Most calls of unknown outcome that are kept: a server that is silent for days must not fill the memory."""


@dataclass(frozen=True, slots=True)
class LeasesPolicy:
    """Periods in seconds. `renew_most_s` is the longest time between two renewals, however long the lease lives."""

    duration_s: float
    retry_first_s: float = 1.0
    retry_most_s: float = 60.0
    renew_most_s: float = 300.0


@dataclass(frozen=True, slots=True)
class HeldLeases:
    """The snapshots that the machine holds, for the state file, `leases list` and the hook's `Lease` argument."""

    lease_id: str
    generation: int
    held: Mapping[TableBucket, int]
    releasing: frozenset[TableBucket]
    """Not needed any more: the release is not sent yet, or failed and is tried again."""
    for_checkpoints: frozenset[TableBucket]
    """The snapshots in `held` that a checkpoint still has to read, with or without a round."""
    old_ids: tuple[tuple[str, int], ...]
    """Ids of earlier generations that are still to be dropped."""
    until: float | None
    """When the lease expires, on the holder's clock; None = unknown or never."""
    failures: int
    """Failed calls since the last successful one."""


_GUARDS = {
    CallKind.ACQUIRE: LeaseGuard.ACQUIRE,
    CallKind.VERIFY: LeaseGuard.VERIFICATION,
    CallKind.RELEASE: LeaseGuard.RELEASE,
}


class LeaseState:
    """The state. `commands` collects the commands of a step; `changed` is true if the persisted part changed in it."""

    def __init__(self, policy: LeasesPolicy, base_id: str) -> None:
        self.policy = policy
        self.base_id = base_id
        self.generation = 1
        self.tables: dict[int, TableLease] = {}
        self.retired: dict[str, RetiredLease] = {}
        self.calls: dict[int, Call] = {}
        self.unknown: dict[int, Call] = {}
        self.last_call = 0
        self.open_call: int | None = None
        self.expires_at: float | None = None
        self.renew_at: float | None = None
        self.failures = 0
        self.never_expires = False
        self.checkpoints_read = True
        """False after a restore, until it is known what checkpoints need."""
        self.call_state = CallState.FRESH
        self.in_use = False
        """True once a snapshot was requested."""
        self.stopping = False
        self.tried_while_stopping: set[int | str] = set()
        self.commands: list[LeasesCommand] = []
        self.changed = False

    def copy(self) -> LeaseState:
        """Return a copy that can be changed without changing this."""
        copied = LeaseState.__new__(LeaseState)
        vars(copied).update(vars(self))
        copied.tables = {table_id: table.copy() for table_id, table in self.tables.items()}
        copied.retired = {lease_id: replace(retired) for lease_id, retired in self.retired.items()}
        copied.calls = dict(self.calls)
        copied.unknown = dict(self.unknown)
        copied.tried_while_stopping = set(self.tried_while_stopping)
        return copied

    @property
    def held_leases(self) -> HeldLeases:
        """The snapshots that are held now."""
        return HeldLeases(
            lease_id=self.lease_id,
            generation=self.generation,
            held={b: lease.snapshot.snapshot_id for table in self.tables.values() for b, lease in table.leases.items()},
            releasing=frozenset(bucket for table in self.tables.values() for bucket in table.releasing),
            old_ids=tuple((retired.lease_id, retired.generation) for retired in self.retired.values()),
            for_checkpoints=frozenset(b for table in self.tables.values() for b in table.needed_by_checkpoint()),
            until=self.expires_at,
            failures=self.failures,
        )

    @property
    def lease_id(self) -> str:
        """The current id: service, incarnation, generation."""
        return f"{self.base_id}-{self.generation}"

    def table(self, table_id: int) -> TableLease:
        """Return the leases of a table; empty for a new table."""
        return self.tables.setdefault(table_id, TableLease(table_id))

    def tables_of(self, call: Call) -> list[TableLease]:
        """Return the tables of a call that are still known."""
        return [self.tables[table_id] for table_id in call.tables if table_id in self.tables]

    def still_wanted(self, call: Call) -> list[tuple[TableLease, BucketLease]]:
        """Return the bucket leases that still want the snapshot that the call was for."""
        found = []
        for snapshot in call.snapshots:
            table = self.tables.get(snapshot.bucket.table_id)
            lease = table.leases.get(snapshot.bucket) if table is not None else None
            if table is not None and lease is not None and lease.snapshot.snapshot_id == snapshot.snapshot_id:
                found.append((table, lease))
        return found

    def call(
        self,
        kind: CallKind,
        now: float,
        tables: tuple[int, ...],
        snapshots: Iterable[KvSnapshot] = (),
        buckets: frozenset[TableBucket] = frozenset(),
        *,
        renewal: bool = False,
    ) -> Call:
        """Describe a call under the current id."""
        return Call(kind, self.lease_id, self.generation, now, tables, tuple(snapshots), buckets, renewal)

    def send(self, call: Call) -> int:
        """Record the open call under the current id; return its number."""
        self.last_call += 1
        self.open_call = self.last_call
        self.calls[self.last_call] = call
        return self.last_call

    def remember_unknown(self, number: int, call: Call) -> None:
        """Remember the id of an acquire of unknown outcome: it may still take effect, and be answered, later."""
        self.unknown[number] = replace(call, tables=(), snapshots=(), buckets=frozenset())
        if len(self.unknown) > _UNKNOWN_AT_MOST:
            del self.unknown[min(self.unknown)]

    def retry_pause_s(self, failures: int) -> float:
        """Return seconds to wait after so many failures in a row."""
        return backoff_s(failures, self.policy.retry_first_s, self.policy.retry_most_s)

    def forget_retired(self, retired: RetiredLease) -> None:
        """Forget a retired id: it is dropped or has expired."""
        del self.retired[retired.lease_id]
        self.changed = True

    def reject(self, table: TableLease, gone: frozenset[KvSnapshot], reason: str) -> None:
        """Reject the pending request of a table's round."""
        table.reject()
        self.commands.append(NotProtected(table.table_id, gone, reason))
        self.changed = True

    def snapshots_gone(self, call: Call, gone: Iterable[KvSnapshot], reason: str) -> None:
        """Forget snapshots that vanished; report them to the round that requested or reads them, or as lost."""
        by_table: dict[int, set[KvSnapshot]] = {}
        names = {(snapshot.bucket, snapshot.snapshot_id) for snapshot in gone}
        for _, lease in self.still_wanted(call):
            if (lease.snapshot.bucket, lease.snapshot.snapshot_id) in names:
                by_table.setdefault(lease.snapshot.bucket.table_id, set()).add(lease.snapshot)
        for table_id, snapshots in by_table.items():
            table = self.tables[table_id]
            asked = frozenset(s for s in snapshots if s.bucket in (table.requested or ()))
            lost = frozenset(snapshots - asked)
            if asked:
                self.reject(table, asked, reason)
            if lost:
                self.commands.append(ProtectionLost(table_id, lost, reason))
            table.forget_lost([s.bucket for s in snapshots])
            self.changed = True

    def start_generation(self, event: LeasesEvent, *, unsettled: bool = False) -> None:
        """Retire the current id and start a new one, unless no call was ever made under the current id."""
        open_call = self.open_call if self.open_call is not None and self.is_lease_call(self.open_call) else None
        if not (unsettled or open_call is not None or any(table.on_server for table in self.tables.values())):
            return
        self.retired[self.lease_id] = RetiredLease(
            self.lease_id, self.generation, self.expiry(event.now), open_call, unsettled
        )
        covered = NEVER if self.expires_at is None else self.expires_at
        for table in self.tables.values():
            table.start_anew(event, covered)
        self.generation += 1
        self.open_call = self.expires_at = self.renew_at = None
        self.changed = True

    def guard(self) -> LeaseGuard:
        """Return what is open at the end of the step."""
        if self.stopping:
            return LeaseGuard.CALLS_OPEN if self.lease_calls_open() else LeaseGuard.ALL_SETTLED
        if not self.in_use:
            return LeaseGuard.NOTHING_ASKED
        if self.open_call is None:
            return LeaseGuard.NO_CALL
        call = self.calls[self.open_call]
        return LeaseGuard.RENEWAL if call.renewal else _GUARDS[call.kind]

    def is_lease_call(self, number: int) -> bool:
        """Return whether an open call is one of the lease backend."""
        return self.calls[number].kind is not CallKind.VERIFY

    def expiry(self, now: float) -> float:
        """Return until when an id that is retired now may exist on the server."""
        return NEVER if self.never_expires else now + self.policy.duration_s

    def expire(self, now: float) -> None:
        """Forget what has expired: snapshots without protection, retired ids, the current lease if nobody needs it."""
        # If there is no earlier id, everything was acquired under the current one.
        for table in self.tables.values() if self.retired else ():
            lost = table.uncovered(now)
            if lost:
                table.forget_lost([snapshot.bucket for snapshot in lost])
                self.commands.append(
                    ProtectionLost(table.table_id, lost, "the lease ran out before it could be taken anew")
                )
                self.changed = True
        for retired in [
            retired for retired in self.retired.values() if retired.expires <= now and retired.open_call is None
        ]:
            self.forget_retired(retired)
        if self.has_run_out(now):
            for table in self.tables.values():
                table.on_server.clear()
            self.expires_at = None
            self.changed = True

    def has_run_out(self, now: float) -> bool:
        """Return whether the current lease has expired and nothing needs it."""
        idle = self.open_call is None and not any(table.leases for table in self.tables.values())
        return idle and self.expires_at is not None and self.expires_at <= now

    def old_leases_are_replaced(self) -> bool:
        """Return whether every snapshot that a round or a checkpoint needs is known and verified under this id."""
        return self.checkpoints_read and all(
            table.leases[bucket].status is LeaseStatus.VERIFIED
            for table in self.tables.values()
            for bucket in table.granted | table.needed_by_checkpoint()
        )

    def drops_open(self) -> int:
        """Return the number of open drops."""
        return sum(call.kind is CallKind.DROP for call in self.calls.values())

    def lease_calls_open(self) -> bool:
        """Return whether any call of the lease backend is open."""
        return any(call.kind is not CallKind.VERIFY for call in self.calls.values())
