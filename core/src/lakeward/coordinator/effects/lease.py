"""Connects rounds and checkpoints with the lease: which snapshots it protects, and what follows if one is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.effects.items import OfRound
from lakeward.coordinator.effects.work import Handlers
from lakeward.coordinator.leases.restore import restore_lease
from lakeward.coordinator.rounds.effects import (
    InvalidateCheckpoints,
    KeepCheckpoint,
    LoseSnapshots,
    RejectCheckpoint,
    Supersede,
    TellBackend,
    VerifyCheckpoint,
)
from lakeward.coordinator.workers.log_fields import with_log_fields
from lakeward.errors import LakewardError
from lakeward.machines.leases import (
    AbandonLease,
    CheckpointsRead,
    CoordinatorChanged,
    LeaseStop,
    LeaseStopped,
    NotProtected,
    Protect,
    Protected,
    ProtectionLost,
    Retain,
    Unprotect,
)
from lakeward.machines.rounds import Leased, Phase, RoundFailed, SnapshotsGone
from lakeward.model.checkpoints import LeaseCopy
from lakeward.model.leases import FailoverAction
from lakeward.model.splits import snapshots_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakeward.coordinator.checkpoints.known import KnownCheckpoints
    from lakeward.coordinator.leases.driver import LeaseDriver
    from lakeward.coordinator.rounds.effects import CompleteCheckpoint
    from lakeward.coordinator.rounds.round import Round
    from lakeward.coordinator.state.persistence import StatePersistence
    from lakeward.coordinator.tables.tables import Tables
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.hooks.backend import LeaseBackend
    from lakeward.machines.leases import LeasesCommand
    from lakeward.machines.rounds import Rounds, RoundsEvent
    from lakeward.model.leases import Failover
    from lakeward.model.tables import KvSnapshot, TableBucket
    from lakeward.ports import Clock
    from lakeward.storage.service_state import ServiceState

_NAMED_MOST = 3
_log = structlog.get_logger("lakeward.service")


class LeaseProtection:
    """Keeps the snapshots leased that rounds and checkpoints need. Used on the event loop only."""

    def __init__(
        self,
        *,
        clock: Clock,
        rounds: Rounds,
        leases: LeaseDriver,
        checkpoints: KnownCheckpoints,
        tables: Tables,
        loop: EventLoop,
        persistence: StatePersistence,
        backend: LeaseBackend,
    ) -> None:
        self._clock = clock
        self._rounds = rounds
        self._leases = leases
        self._checkpoints = checkpoints
        self._tables = tables
        self._loop = loop
        self._persistence = persistence
        self._backend = backend
        self.stopped = asyncio.Event()
        """Set once the lease's last calls have ended."""
        self._stray: frozenset[TableBucket] = frozenset()
        """Buckets that the last start leased and that no assigned table needs; a checkpoint may need them."""
        self._coordinator_epoch: int | None = None
        self._lost: set[tuple[TableBucket, int]] = set()
        self._lost_of_dropped = 0

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        return Handlers(
            at_once={
                KeepCheckpoint: lambda _, effect: self.keep_checkpoint(effect),
                InvalidateCheckpoints: lambda _, effect: self.invalidate_checkpoints(effect),
                RejectCheckpoint: lambda _, effect: self._checkpoints.reject(effect.ref, effect.reason),
                VerifyCheckpoint: lambda _, effect: self._checkpoints.verify_rows(effect.ref),
                LoseSnapshots: lambda _, effect: self.lose_snapshots(effect),
                TellBackend: self._tell_backend,
                Supersede: lambda _, effect: self._loop.supersede(effect.by),
            }
        )

    def _tell_backend(self, one: Round, effect: TellBackend) -> None:
        self._loop.spawn(with_log_fields(one.facts.log_fields, partial(self.failover, effect.failover)))

    # --- called by rounds -------------------------------------------------------------------------------------

    def protect(self, table_id: int) -> None:
        """Acquire the snapshots that a table's round needs."""
        snapshots = self._snapshots(table_id)
        self._leases.step(Protect(now=self._clock.now(), table_id=table_id, snapshots=snapshots))

    def end_round(self, table_id: int) -> None:
        """Release the snapshots of a table's round, except those that its checkpoint needs."""
        self._unprotect(bucket for bucket in self._leases.held_leases.held if bucket.table_id == table_id)

    def store_checkpoint(self, effect: CompleteCheckpoint) -> None:
        """Lease what a checkpoint needs before it is written: its round may end before the store answers."""
        self._checkpoints.expect(effect.ref.table_id, effect.state)
        self.hold_checkpoints()

    def keep_checkpoint(self, effect: KeepCheckpoint) -> None:
        """Lease what the newest checkpoint needs, before what it has finished is released."""
        self._checkpoints.completed(effect.table_id, effect.needed)
        self.hold_checkpoints()
        self.release(effect.table_id, effect.finished)

    def invalidate_checkpoints(self, effect: InvalidateCheckpoints) -> None:
        """Let no round go on from a checkpoint of a table, also after a restart if it has to be durable."""
        self._checkpoints.invalidate(effect.table_id, effect.reason)
        if effect.durable:
            self._loop.spawn(self._persistence.try_write)

    def lose_snapshots(self, effect: LoseSnapshots) -> None:
        """Take note that snapshots are gone which a round needs."""
        self.snapshots_gone(effect.table_id, effect.gone, effect.why)

    def release(self, table_id: int, buckets: Collection[TableBucket]) -> None:
        """Release the snapshots of buckets that are durably finished, while their round continues."""
        wanted = set(buckets)
        held = frozenset(bucket for bucket in self._leases.held_leases.held if bucket in wanted)
        if held:
            _log.info("released what a checkpoint holds", **self._round_of(table_id), buckets=len(held))
            self._unprotect(held)

    def hold_checkpoints(self) -> None:
        """Pass changes of the snapshots that checkpoints need to the lease."""
        for table_id, snapshots in self._checkpoints.changed_needs():
            self._leases.step(Retain(now=self._clock.now(), table_id=table_id, snapshots=snapshots))

    def lease_copy(self) -> LeaseCopy | None:
        """Return the lease as it was last persisted, without a call of the backend."""
        state = self._persistence.lease_state
        return None if state is None else LeaseCopy(self._backend.name, self._leases.held_leases.lease_id, state)

    async def failover(self, failover: Failover) -> None:
        """Tell the lease backend of a failure. If the backend fails itself, that is logged and the round continues.

        If it answers RELEASE, the snapshots of the returned splits are released, and the table's round is enumerated
        again.
        """
        try:
            answer = await self._leases.failover(failover)
        except LakewardError as error:
            _log.warning("the lease backend failed at a failover", reason=str(error))
            return
        if answer.action is FailoverAction.RELEASE:
            self._abandon(failover)

    def snapshots_gone(self, table_id: int, gone: Collection[KvSnapshot], why: str) -> None:
        """Record that snapshots are gone which a round or a checkpoint needed; an open round is enumerated again.

        `gone` is empty if the reader does not know which; `why` says how that is known.
        """
        for one in _sorted(gone):
            _log.warning("a snapshot is gone", **self._round_of(table_id), **_fields(one), why=why)
        self._lost |= _ids(gone)
        self._start_afresh(table_id, gone, why)

    @property
    def snapshots_lost(self) -> int:
        """How many needed snapshots were found to be gone since this start."""
        return len(self._lost) + self._lost_of_dropped

    def forget(self, table_id: int) -> None:
        """Forget a table that the source has dropped, except its counts."""
        before = len(self._lost)
        self._lost = {one for one in self._lost if one[0].table_id != table_id}
        self._lost_of_dropped += before - len(self._lost)

    # --- called by the service --------------------------------------------------------------------------------

    def take_over(self, table_ids: Collection[int]) -> None:
        """Keep what the last start leased, for the assigned tables (`table_ids`) and for those no longer assigned."""
        held = self._leases.held_leases.held
        self._stray = frozenset(bucket for bucket in held if bucket.table_id not in table_ids)

    @property
    def renewed_every_s(self) -> float:
        """How often the lease is renewed, in seconds."""
        return self._leases.duration_s / 3

    async def run(self) -> None:
        """Make the calls of the lease until cancelled."""
        await self._leases.run(self.on_lease, self._persistence.write)

    async def restore(self, state: ServiceState | None, copy: LeaseCopy | None) -> frozenset[TableBucket]:
        """Keep leased what the last start had leased; return the buckets that the backend has released instead.

        `state` is what that start persisted, None where there is nothing; `copy` is then the newest checkpoint's.
        """
        return await restore_lease(self._leases, state, self._backend.name, self._clock.now(), copy)

    def release_stray(self) -> bool:
        """Release what the last start leased and nothing needs; return whether the store was read.

        Before the store was read, a checkpoint may need it.
        """
        self.hold_checkpoints()
        if not self._checkpoints.was_read:
            return False
        assigned = {status.assignment.table_id for status in self._rounds.tables}
        stray, self._stray = self._stray, frozenset()
        self._unprotect(bucket for bucket in stray if bucket.table_id not in assigned)
        self._leases.step(CheckpointsRead(now=self._clock.now()))
        return True

    def note_coordinator(self, epoch: int) -> None:
        """Compare the epoch of the source's coordinator with the last one: a new coordinator may have lost leases."""
        if self._coordinator_epoch not in (None, epoch):
            self._leases.step(CoordinatorChanged(now=self._clock.now()))
        self._coordinator_epoch = epoch

    def stop(self, *, final: bool) -> None:
        """Tell the lease to finish its calls; `final` also drops it."""
        self.hold_checkpoints()
        self._leases.step(LeaseStop(now=self._clock.now(), final=final))

    # --- called by the lease ----------------------------------------------------------------------------------

    def on_lease(self, command: LeasesCommand) -> None:
        """Take note of what has happened to the lease."""
        match command:
            case Protected():
                self._protected(command.table_id)
            case NotProtected():
                self._refused(command.table_id, command.gone, command.reason)
            case ProtectionLost():
                self._lost_protection(command.table_id, command.snapshots, command.reason)
            case LeaseStopped():
                self.stopped.set()
            case _:
                pass

    def _protected(self, table_id: int) -> None:
        """Let the round be launched; a loss that was reported with it may have restarted the round."""
        if (table_id, Phase.LEASING) in {(one.assignment.table_id, one.phase) for one in self._rounds.tables}:
            one = self._tables.round(table_id)
            if one is not None:
                one.facts.note_phase("lease", self._clock.wall_ms())
            self._post(table_id, Leased(now=self._clock.now(), table_id=table_id))

    def _refused(self, table_id: int, gone: frozenset[KvSnapshot], reason: str) -> None:
        """Take note that the table's snapshots could not be leased.

        A source may delete a snapshot between the enumeration and the lease. Nothing is lost then, and nobody has to
        act: the round is enumerated again. Only a checkpoint that needs the snapshot becomes useless.
        """
        if not gone:
            now = self._clock.now()
            self._post(table_id, RoundFailed(now=now, table_id=table_id, reason=reason, permanent=False))
            return
        if not _ids(gone).isdisjoint(_ids(self._checkpoints.needed(table_id))):
            self.snapshots_gone(table_id, gone, reason)
            return
        for one in _sorted(gone):
            _log.info(
                "a snapshot was superseded before it was leased", **self._round_of(table_id), **_fields(one), why=reason
            )
        self._start_afresh(table_id, gone, reason)

    def _lost_protection(self, table_id: int, snapshots: frozenset[KvSnapshot], reason: str) -> None:
        """Take note of a loss; snapshots that neither a round nor a checkpoint needs were an earlier start's."""
        needed = _ids([*self._snapshots(table_id), *self._checkpoints.needed(table_id)])
        lost = [one for one in snapshots if not _ids([one]).isdisjoint(needed)]
        if lost:
            self.snapshots_gone(table_id, lost, reason)

    # --- inside ---------------------------------------------------------------------------------------------

    def _start_afresh(self, table_id: int, gone: Collection[KvSnapshot], why: str) -> None:
        reason = f"{_named(gone)}: {why}" if gone else why
        self._checkpoints.invalidate(table_id, reason)
        needed = {one.bucket for one in self._snapshots(table_id)}
        if not gone or not needed.isdisjoint(one.bucket for one in gone):
            self._post(table_id, SnapshotsGone(now=self._clock.now(), table_id=table_id, reason=reason))

    def _snapshots(self, table_id: int) -> tuple[KvSnapshot, ...]:
        table = self._tables.get(table_id)
        return () if table is None else table.snapshots

    def _post(self, table_id: int, event: RoundsEvent) -> None:
        one = self._tables.round(table_id)
        if one is not None:
            self._loop.put(OfRound(one, event))

    def _round_of(self, table_id: int) -> Mapping[str, object]:
        """Return what a log line says of a table: its id, and its round in progress."""
        one = self._tables.round(table_id)
        return {"table_id": table_id, **({} if one is None else one.facts.log_fields)}

    def _unprotect(self, buckets: Iterable[TableBucket]) -> None:
        given_up = frozenset(buckets)
        if given_up:
            self._leases.step(Unprotect(now=self._clock.now(), buckets=given_up))

    def _abandon(self, failover: Failover) -> None:
        held = self._leases.held_leases.held
        given_up = [one for one in snapshots_of(failover.returned) if held.get(one.bucket) == one.snapshot_id]
        if not given_up:
            return
        self._leases.step(AbandonLease(now=self._clock.now(), buckets=frozenset(one.bucket for one in given_up)))
        reason = f"the lease backend released {_named(given_up)} after a failure ({failover.kind.value})"
        for table_id in {one.bucket.table_id for one in given_up}:
            _log.warning("enumerating afresh", **self._round_of(table_id), reason=reason)
            self._checkpoints.invalidate(table_id, reason)
            self._post(table_id, SnapshotsGone(now=self._clock.now(), table_id=table_id, reason=reason))


def _ids(snapshots: Iterable[KvSnapshot]) -> frozenset[tuple[TableBucket, int]]:
    return frozenset((one.bucket, one.snapshot_id) for one in snapshots)


def _sorted(snapshots: Iterable[KvSnapshot]) -> list[KvSnapshot]:
    return sorted(snapshots, key=lambda one: one.bucket.sort_key())


def _fields(snapshot: KvSnapshot) -> dict[str, object]:
    return {"bucket": str(snapshot.bucket), "snapshot_id": snapshot.snapshot_id}


def _named(snapshots: Collection[KvSnapshot]) -> str:
    """Return the names of snapshots for a message; only the first ones if there are many."""
    ordered = _sorted(snapshots)
    names = [f"snapshot {one.snapshot_id} of bucket {one.bucket}" for one in ordered[:_NAMED_MOST]]
    more = len(ordered) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
