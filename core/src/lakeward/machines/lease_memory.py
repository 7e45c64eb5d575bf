"""What the lease machine remembers: claims, calls under way, earlier ids; and what keeps them in order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.machines.lease_calls import Call, OldId, State
from lakeward.machines.lease_ledger import ENDLESS, Claim, Slot, Standing
from lakeward.machines.lease_protocol import CallKind, LeaseBooks, LeasesCommand, LeasesPolicy, Lost, NotProtected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.tables import KvSnapshot, TableBucket

_UNKNOWN_AT_MOST = 10_000
"""Calls of unknown outcome that are remembered; a server that is silent for days must not fill the memory."""


class LeaseMemory:
    """The machine's memory. `out` collects the commands of one step; `dirty` says that the books changed in it."""

    def __init__(self, policy: LeasesPolicy, base_id: str) -> None:
        self.policy = policy
        self.base_id = base_id
        self.generation = 1
        self.claims: dict[int, Claim] = {}
        self.old: dict[str, OldId] = {}
        self.calls: dict[int, Call] = {}
        self.unknown: dict[int, Call] = {}
        self.last_call = 0
        self.flight: int | None = None
        self.until: float | None = None
        self.renew_at: float | None = None
        self.failures = 0
        self.endless = False
        self.state = State.FRESH
        self.tried: set[int | str] = set()
        self.out: list[LeasesCommand] = []
        self.dirty = False

    @property
    def books(self) -> LeaseBooks:
        """What is held now."""
        return LeaseBooks(
            lease_id=self.lease_id,
            generation=self.generation,
            held={b: slot.snapshot.snapshot_id for claim in self.claims.values() for b, slot in claim.slots.items()},
            releasing=frozenset(bucket for claim in self.claims.values() for bucket in claim.releasing),
            old_ids=tuple((old.lease_id, old.generation) for old in self.old.values()),
            for_checkpoints=frozenset(b for claim in self.claims.values() for b in claim.needed_by_checkpoint()),
            until=self.until,
            failures=self.failures,
        )

    @property
    def lease_id(self) -> str:
        """Return the current id."""
        return f"{self.base_id}-{self.generation}"

    def claim(self, table_id: int) -> Claim:
        """Return a table's claim, a new one if there is none."""
        return self.claims.setdefault(table_id, Claim(table_id))

    def of(self, call: Call) -> list[Claim]:
        """Return the claims that a call was for, as far as they are left."""
        return [self.claims[table_id] for table_id in call.tables if table_id in self.claims]

    def unchanged(self, call: Call) -> list[tuple[Claim, Slot]]:
        """Return the slots that still ask for what the call was for."""
        found = []
        for snapshot in call.snapshots:
            claim = self.claims.get(snapshot.bucket.table_id)
            slot = claim.slots.get(snapshot.bucket) if claim is not None else None
            if claim is not None and slot is not None and slot.snapshot.snapshot_id == snapshot.snapshot_id:
                found.append((claim, slot))
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
        """Note a call under the current id as the one under way."""
        self.last_call += 1
        self.flight = self.last_call
        self.calls[self.last_call] = call
        return self.last_call

    def remember(self, number: int, call: Call) -> None:
        """Remember the id of an acquire that may still take effect, for the day when it is answered after all."""
        self.unknown[number] = replace(call, tables=(), snapshots=(), buckets=frozenset())
        if len(self.unknown) > _UNKNOWN_AT_MOST:
            del self.unknown[min(self.unknown)]

    def pause(self, failures: int) -> float:
        """Return seconds to wait after so many failures in a row."""
        doubled = self.policy.retry_first_s * 2.0 ** min(failures - 1, 32)
        return min(doubled, self.policy.retry_most_s)

    def forget(self, old: OldId) -> None:
        """Cross an earlier id out."""
        del self.old[old.lease_id]
        self.dirty = True

    def refuse(self, claim: Claim, gone: frozenset[KvSnapshot], reason: str) -> None:
        """Answer a round's open question with no."""
        claim.refuse()
        self.out.append(NotProtected(claim.table_id, gone, reason))
        self.dirty = True

    def gone(self, call: Call, gone: Iterable[KvSnapshot], reason: str) -> None:
        """Let snapshots go that vanished, and tell who had asked for them, was reading them or had still to."""
        by_table: dict[int, set[KvSnapshot]] = {}
        names = {(snapshot.bucket, snapshot.snapshot_id) for snapshot in gone}
        for _, slot in self.unchanged(call):
            if (slot.snapshot.bucket, slot.snapshot.snapshot_id) in names:
                by_table.setdefault(slot.snapshot.bucket.table_id, set()).add(slot.snapshot)
        for table_id, snapshots in by_table.items():
            claim = self.claims[table_id]
            asked = frozenset(s for s in snapshots if s.bucket in (claim.waiting or ()))
            lost = frozenset(snapshots - asked)
            if asked:
                self.refuse(claim, asked, reason)
            if lost:
                self.out.append(Lost(table_id, lost, reason))
            claim.lose([s.bucket for s in snapshots])
            self.dirty = True

    def renumber(self, now: float, *, unsettled: bool = False) -> None:
        """Start a new generation, unless nothing was ever done under the current id."""
        flight = self.flight if self.flight is not None and self.is_lease_call(self.flight) else None
        if not (unsettled or flight is not None or any(claim.on_server for claim in self.claims.values())):
            return
        self.old[self.lease_id] = OldId(self.lease_id, self.generation, self.expiry(now), flight, unsettled)
        covered = ENDLESS if self.until is None else self.until
        for claim in self.claims.values():
            claim.start_over(covered)
        self.generation += 1
        self.flight = self.until = self.renew_at = None
        self.state = State.STOPPING if self.state is State.STOPPING else State.IDLE
        self.dirty = True

    def is_lease_call(self, number: int) -> bool:
        """Say whether a call under way goes to the lease backend."""
        return self.calls[number].kind is not CallKind.VERIFY

    def expiry(self, now: float) -> float:
        """Until when an id that is given up now may live on the server."""
        return ENDLESS if self.endless else now + self.policy.duration_s

    def let_run_out(self, now: float) -> None:
        """Forget what time itself has settled."""
        # Without an earlier id everything was acquired under the current one.
        for claim in self.claims.values() if self.old else ():
            lost = claim.uncovered(now)
            if lost:
                claim.lose([snapshot.bucket for snapshot in lost])
                self.out.append(Lost(claim.table_id, lost, "the lease ran out before it could be taken anew"))
                self.dirty = True
        for old in [old for old in self.old.values() if old.expires <= now and old.flight is None]:
            self.forget(old)
        if self.has_run_out(now):
            for claim in self.claims.values():
                claim.on_server.clear()
            self.until = None
            self.dirty = True

    def has_run_out(self, now: float) -> bool:
        """Say whether the current lease holds nothing that is wanted and has expired."""
        idle = self.flight is None and not any(claim.slots for claim in self.claims.values())
        return idle and self.until is not None and self.until <= now

    def taken_over(self) -> bool:
        """Say whether all that may be read is verified under the current id."""
        return all(
            claim.slots[bucket].standing is Standing.VERIFIED
            for claim in self.claims.values()
            for bucket in claim.granted
        )

    def drops_open(self) -> int:
        """Count the drops under way."""
        return sum(call.kind is CallKind.DROP for call in self.calls.values())

    def lease_calls_open(self) -> bool:
        """Say whether any call to the lease backend is under way."""
        return any(call.kind is not CallKind.VERIFY for call in self.calls.values())
