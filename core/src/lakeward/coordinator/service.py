"""The service: carries out what `machines/rounds` commands, on one event loop that owns all state.

Whatever can block runs in `calls.call` and comes back as an event. A service that learns that a later start of
itself has taken over (its stamp on a lake table, or its state file) stops at once: it reports nothing, releases
nothing and deletes nothing of its successor's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.calls import call
from lakeward.coordinator.desk import RoundDesk
from lakeward.coordinator.ending import drop_own_lease, hand_back, let_jobs_leave, let_upkeep_end, settle_lease
from lakeward.coordinator.leasekeeper import LeaseKeeper
from lakeward.coordinator.reporter import Reporter
from lakeward.coordinator.server import SubtaskServer
from lakeward.coordinator.startup import lease_of_checkpoint, restore_lease, resume
from lakeward.coordinator.targets import Targets as OnceTargets
from lakeward.errors import FencedError, LakewardError, SparkError, UsageError
from lakeward.machines.leases import (
    CoordinatorChanged,
    Forsake,
    Leases,
    LeasesPolicy,
    LeaseStop,
    Protect,
    Retain,
    Unprotect,
)
from lakeward.machines.rounds import (
    AcquireLeases,
    BeatAnswered,
    BeatFailed,
    CommitRound,
    CutRound,
    EndRound,
    Forget,
    LaunchJob,
    Leased,
    OpenRound,
    PauseAsked,
    Phase,
    ResumeAsked,
    Resumed,
    RoundFailed,
    Rounds,
    RoundsCommand,
    RoundsEvent,
    SendBeat,
    SnapshotsGone,
    StopAsked,
    Stopped,
    StopTimedOut,
    Targets,
    Tick,
)
from lakeward.model.checkpoints import LeaseCopy
from lakeward.model.leases import FailoverAction
from lakeward.model.splits import snapshots_of
from lakeward.model.tiering import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from lakeward.coordinator.parts import Parts, ServiceOptions
    from lakeward.model.leases import Failover
    from lakeward.model.tables import KvSnapshot, TableBucket, TablePath
    from lakeward.model.tiering import Beat

_TURN_S = 0.25
"""Longest sleep of the loop: silence of subtasks, pauses asked and reports are looked at in between."""
_NAMED_MOST = 3
_DROPPED = frozenset({"dropped", Refusal.GONE.value})
_log = structlog.get_logger("lakeward.service")


@dataclass(frozen=True, slots=True)
class ServiceEnd:
    """How the service ended. `failed` lists, for `--once`, tables short of their target, with the reason."""

    failed: tuple[tuple[TablePath, str], ...] = ()
    superseded_by: str = ""
    started: bool = True
    """False where it was asked to stop before it served; nothing was changed that the next start does not find."""


class Service:
    """One run of the service."""

    def __init__(self, parts: Parts, options: ServiceOptions) -> None:
        """Put the parts together; nothing is started.

        Args:
            parts: what it works with.
            options: how it behaves.
        """
        self.parts = parts
        self.options = options
        self.secret = secrets.token_bytes(32)
        self.rounds = Rounds(options.rounds)
        self.targets = OnceTargets()
        self.keeper = LeaseKeeper(
            Leases(LeasesPolicy(duration_s=parts.lease_duration_s), str(parts.incarnation)),
            parts.backend,
            parts.source,
            parts.clock,
            duration_s=parts.lease_duration_s,
            timeout_s=options.lease_timeout_s,
            owner=self,
            persist=self._persist,
        )
        self.desk = RoundDesk(self)
        self.reporter = Reporter(self)
        self.server = SubtaskServer(self.secret, self.desk.find_job)
        self.port = 0
        self.state_word = "starting"
        self._events: deque[RoundsEvent] = deque()
        self._draining = False
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        self._starting: asyncio.Timeout | None = None
        self._stop_asked = False
        self._stopped: Stopped | None = None
        self._lease_stopped = asyncio.Event()
        self._superseded = ""
        self._broken: BaseException | None = None
        self._end_by = float("inf")
        """When a service that is broken ends, whatever is still waited for."""
        self._jobs_gone = False
        self._writing = asyncio.Lock()
        self._next_write: asyncio.Task[None] | None = None
        self._coordinator_epoch: int | None = None
        self._paused: frozenset[str] = frozenset()
        self._resumed: Mapping[str, int] | None = None
        self._lease_state: bytes | None = None
        self._checked = 0.0
        self._stray: frozenset[TableBucket] = frozenset()
        """Held by the last start, needed by no table in hand; a checkpoint may need them."""
        self._review_at = 0.0
        self._lost: set[tuple[TableBucket, int]] = set()

    # --- life -----------------------------------------------------------------------------------------------

    async def serve(self) -> ServiceEnd:
        """Run until stopped (or, with `once`, until every target is settled).

        Returns:
            How it ended.

        Raises:
            LakewardError: it could not start.
        """
        self.loop = asyncio.get_running_loop()
        self.port = await self.server.start(self.options.bind, self.options.port)
        keeping = asyncio.create_task(self.keeper.run())
        keeping.add_done_callback(self._task_over)
        started = False
        try:
            started = await self._start_in_time()
            if started:
                await self._turns()
            if not started:
                _log.warning("stopped before the start was over; the next start begins where this one did")
            elif self._superseded:
                if self._beating is not None:
                    await asyncio.wait({self._beating}, timeout=self.options.beat_timeout_s)
                await drop_own_lease(self.keeper, self.parts.backend, self.parts.state, self.options.lease_timeout_s)
            else:
                await let_upkeep_end(self.desk, self.parts.clock, self.options.stop_timeout_s)
                self.hold_checkpoints()
                self.keeper.step(LeaseStop(now=self.now(), final=self.options.final))
                await settle_lease(self.keeper, self._lease_stopped, self.options.lease_timeout_s)
                await self._persist_quietly()
            await let_jobs_leave(self.desk, self.parts.clock)
        finally:
            keeping.cancel()
            self.desk.cancel_all()
            await self.server.close()
            self.state_word = "stopped"
            self.reporter.report(force=True)
        # A wrong use of ours is no wrong use by the person at the keyboard.
        if isinstance(self._broken, LakewardError) and not isinstance(self._broken, UsageError):
            raise self._broken
        if self._broken is not None:
            how = "stopped in order" if self._stopped is not None else "gave up what it had in hand"
            message = f"internal error, the service {how}: {type(self._broken).__name__}: {self._broken}"
            raise LakewardError(message) from self._broken
        return ServiceEnd(self._stopped.failed if self._stopped else (), self._superseded, started)

    def stop(self) -> None:
        """Ask the service to end: rounds end early, what is whole is committed, the lease id is kept.

        A start comes to its end first, so that what the last start had in hand is settled in order; it is given up
        after `stop_timeout_s`.
        """
        if self._stop_asked:
            return
        self._stop_asked = True
        if self.state_word == "starting":
            self.state_word = "stopping"
            if self._starting is not None:
                self._starting.reschedule(self.loop.time() + self.options.stop_timeout_s)
        else:
            self._stop()

    def post(self, event: RoundsEvent) -> None:
        """Give the rounds machine an event and carry out what it commands; events from within wait their turn."""
        self._events.append(event)
        if self._draining:
            return
        self._draining = True
        try:
            while self._events and not self._superseded:
                for command in self.rounds.step(self._events.popleft()):
                    self._carry_out(command)
        finally:
            self._draining = False
            self._wake.set()

    def spawn(self, work: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        """Run a coroutine as a task of the service's own; an error nobody expected ends the service."""
        task = self.loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._task_over)
        return task

    def wake(self) -> None:
        """Let the loop look around at once."""
        self._wake.set()

    def now(self) -> float:
        """Seconds on the service's clock."""
        return self.parts.clock.now()

    async def failover(self, failover: Failover) -> None:
        """Tell the lease backend of a failure; its own trouble with that is logged, the round goes on.

        Where it answers RELEASE, the snapshots of the splits that came back are let go, and their tables' rounds are
        enumerated afresh.
        """
        try:
            answer = await self.keeper.failover(failover)
        except LakewardError as error:
            _log.warning("the lease backend failed at a failover", reason=str(error))
            return
        if answer.action is FailoverAction.RELEASE:
            self._forsake(failover)

    def _forsake(self, failover: Failover) -> None:
        held = self.keeper.books.held
        given_up = [one for one in snapshots_of(failover.returned) if held.get(one.bucket) == one.snapshot_id]
        if not given_up:
            return
        self.keeper.step(Forsake(now=self.now(), buckets=frozenset(one.bucket for one in given_up)))
        reason = f"the lease backend released {_named(given_up)} after a failure ({failover.kind.value})"
        for table_id in {one.bucket.table_id for one in given_up}:
            _log.warning("enumerating afresh", table_id=table_id, reason=reason)
            self.desk.restorer.distrust(table_id, reason)
            self.post(SnapshotsGone(now=self.now(), table_id=table_id, reason=reason))

    def superseded(self, by: str) -> None:
        """A later start of this service took over: stop at once; only what it cannot know of is given back."""
        if not self._superseded:
            _log.error("a later start of this service took over", by=by)
            self._superseded = by
            self._wake.set()

    def release(self, table_id: int, buckets: Collection[TableBucket]) -> None:
        """Give up the snapshots of buckets whose end is durable, while their round goes on."""
        held = frozenset(bucket for bucket in self.keeper.books.held if bucket in set(buckets))
        if held:
            _log.info("released what a checkpoint holds", table_id=table_id, buckets=len(held))
            self.keeper.step(Unprotect(now=self.now(), buckets=held))

    def hold_checkpoints(self) -> None:
        """Tell the lease what checkpoints need now, where that has changed."""
        for table_id, snapshots in self.desk.restorer.news():
            self.keeper.step(Retain(now=self.now(), table_id=table_id, snapshots=snapshots))

    @property
    def snapshots_lost(self) -> int:
        """How many snapshots were found to be gone although they were needed, since this start."""
        return len(self._lost)

    def snapshots_gone(self, table_id: int, gone: Collection[KvSnapshot], why: str) -> None:
        """Say which snapshots are gone that a round, or a checkpoint, needed; an open round starts afresh.

        Args:
            table_id: their table.
            gone: the snapshots; none where a reader could not say which.
            why: how that is known.
        """
        for one in sorted(gone, key=lambda one: one.bucket.sort_key()):
            _log.warning(
                "a snapshot is gone", table_id=table_id, bucket=str(one.bucket), snapshot_id=one.snapshot_id, why=why
            )
        self._lost |= {(one.bucket, one.snapshot_id) for one in gone}
        reason = f"{_named(gone)}: {why}" if gone else why
        self.desk.restorer.distrust(table_id, reason)
        if not gone or not {one.bucket for one in gone}.isdisjoint(one.bucket for one in self.desk.snapshots(table_id)):
            self.post(SnapshotsGone(now=self.now(), table_id=table_id, reason=reason))

    def lease_copy(self) -> LeaseCopy | None:
        """Return the lease as it was last persisted: a checkpoint asks no backend."""
        state = self._lease_state
        return None if state is None else LeaseCopy(self.parts.backend.name, self.keeper.books.lease_id, state)

    # --- the lease's owner ----------------------------------------------------------------------------------

    def lease_protected(self, table_id: int) -> None:
        """See `LeaseOwner`; a loss that was said with it may have opened the round anew."""
        if (table_id, Phase.LEASING) in {(one.offer.table_id, one.phase) for one in self.rounds.in_hand}:
            self.desk.leased(table_id)
            self.post(Leased(now=self.now(), table_id=table_id))

    def lease_refused(self, table_id: int, gone: frozenset[KvSnapshot], reason: str) -> None:
        """See `LeaseOwner`."""
        if gone:
            self.snapshots_gone(table_id, gone, reason)
        else:
            self.post(RoundFailed(now=self.now(), table_id=table_id, reason=reason, permanent=False))

    def lease_lost(self, table_id: int, snapshots: frozenset[KvSnapshot], reason: str) -> None:
        """See `LeaseOwner`; what neither a round nor a checkpoint needs was an earlier start's."""
        needed = {*self.desk.snapshots(table_id), *self.desk.restorer.needed(table_id)}
        names = {(one.bucket, one.snapshot_id) for one in needed}
        lost = [one for one in snapshots if (one.bucket, one.snapshot_id) in names]
        if lost:
            self.snapshots_gone(table_id, lost, reason)

    def lease_stopped(self) -> None:
        """See `LeaseOwner`."""
        self._lease_stopped.set()

    # --- inside ---------------------------------------------------------------------------------------------

    async def _start_in_time(self) -> bool:
        """Start; False where a stop was asked for and the start did not come to its end in time."""
        try:
            # A stop that was asked for before has the time from now on.
            async with asyncio.timeout(self.options.stop_timeout_s if self._stop_asked else None) as self._starting:
                await self._start()
        except TimeoutError:
            if self._starting is None or not self._starting.expired():
                raise
            return False
        if self._stop_asked:
            self._stop()
        else:
            self.state_word = "serving"
        return True

    def _stop(self) -> None:
        self.state_word = "stopping"
        self.post(StopAsked(now=self.now()))
        self.loop.call_later(self.options.stop_timeout_s, lambda: self.post(StopTimedOut(now=self.now())))
        self.loop.call_later(self.options.stop_timeout_s * 2, lambda: self.post(StopTimedOut(now=self.now())))

    async def _start(self) -> None:
        state = await call(self.parts.state.load, what="read the service's state")
        # The tables first: from our first write on, the last start's state is gone.
        resumed = await resume(self.parts, state, self.options.heartbeat_timeout_s)
        offers = tuple(offer for offer in resumed if self.options.included(offer.path))
        for offer in set(resumed) - set(offers):  # excluded since then
            await hand_back(self.parts.source, offer)
        if self.options.once:
            paths = await self.targets.aim(self.parts.source, self.parts.lake, self.options.included)
            # What is in hand is settled by its round, though it may have nothing left to do but to be reported.
            self.post(Targets(now=self.now(), paths=paths | {offer.path for offer in offers}))
        if offers:
            self.post(Resumed(now=self.now(), offers=offers))
        copy = None if state is not None else await lease_of_checkpoint(self.desk.restorer)
        released = await restore_lease(self.keeper, state, self.parts.backend.name, self.now(), copy)
        await self._persist()
        kept = {offer.table_id for offer in offers}
        self._stray = frozenset(bucket for bucket in self.keeper.books.held if bucket.table_id not in kept)
        await self.desk.sweep_again()
        self.desk.restorer.distrust_those_that_need(released, "the lease backend released its snapshots at the start")
        self._let_stray_go()

    def _let_stray_go(self) -> None:
        """Let go what the last start held and nobody needs; until the store was read, a checkpoint may need it."""
        self.hold_checkpoints()
        self._review_at = self.now() + self.parts.lease_duration_s / 3
        if not self.desk.restorer.known:
            self._review_at = self.now() + self.options.rounds.fence_s
            return
        in_hand = {status.offer.table_id for status in self.rounds.in_hand}
        stray = frozenset(bucket for bucket in self._stray if bucket.table_id not in in_hand)
        self._stray = frozenset()
        if stray:
            self.keeper.step(Unprotect(now=self.now(), buckets=stray))

    async def _review(self) -> None:
        """See whether checkpoints of tables without a round are still valid; as often as the lease is renewed."""
        await self.desk.review_checkpoints()
        self._let_stray_go()

    async def _turns(self) -> None:
        last = self.now()
        while self._stopped is None and not self._superseded:
            if self.now() >= self._end_by:
                _log.error("the service did not come to its end in order; the next start goes on with what is left")
                return
            now = self.now()
            if now - last > self.options.rounds.fence_s:
                await self._check_state()
            elif now - self._checked > self.options.rounds.fence_s / 2:
                self._checked = now
                self.spawn(self._check_state)
            last = now
            self._tick()
            self.reporter.report()
            self._wake.clear()
            due = self.rounds.next_due
            wait = _TURN_S if due is None else min(_TURN_S, max(0.0, due - self.now()))
            alarm = self.loop.call_later(wait, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                alarm.cancel()

    def _tick(self) -> None:
        if self._superseded:
            return
        self._read_control()
        self._look_at_jobs()
        due = self.rounds.next_due
        if due is not None and due <= self.now():
            self.post(Tick(now=self.now()))
        self.hold_checkpoints()
        if self.now() >= self._review_at:
            self._review_at = float("inf")
            self.spawn(self._review)
        self.keeper.tick()
        self.desk.tick()

    def _look_at_jobs(self) -> None:
        gone = self.parts.jobs.gone()
        if gone is None or self._jobs_gone:
            return
        self._jobs_gone = True
        if self._stop_asked:
            # A signal to the whole process group reaches Spark's Java as well; rounds go on from their checkpoints.
            _log.warning("no job can run any more, while the service stops", reason=gone)
        elif self._broken is None:
            _log.error("no job can run any more, the service stops", reason=gone)
            self._broken = SparkError(gone)
            self.stop()

    async def _check_state(self) -> None:
        """See whether a successor is at work: asked after a pause, and where nothing was written for a while."""
        if by := await self.parts.state.overtaken():
            self.superseded(by)

    def _read_control(self) -> None:
        resumed, wanted = self.options.resumed(), self.options.paused()
        for name in wanted - self._paused:
            self.post(PauseAsked(now=self.now(), path=self.options.path(name)))
        # What was asked before this start is of no meaning to it: nothing is suspended yet.
        known = resumed if self._resumed is None else self._resumed
        again = {name for name, times in resumed.items() if times != known.get(name)} - wanted
        for name in sorted(again | (self._paused - wanted)):
            self.post(ResumeAsked(now=self.now(), path=self.options.path(name)))
        self._paused, self._resumed = wanted, resumed

    def _carry_out(self, command: RoundsCommand) -> None:
        match command:
            case SendBeat():
                self._beating = self.spawn(partial(self._beat, command.beat))
            case OpenRound():
                self.desk.open(command.offer, command.attempt)
            case AcquireLeases():
                snapshots = self.desk.snapshots(command.table_id)
                self.keeper.step(Protect(now=self.now(), table_id=command.table_id, snapshots=snapshots))
            case LaunchJob():
                self.desk.launch(command.table_id)
            case CutRound():
                self.desk.cut(command.table_id)
            case CommitRound():
                self.desk.commit(command.table_id)
            case EndRound():
                self._end(command)
            case Forget():
                self._forget(command)
            case Stopped():
                self._stopped = command

    def _forget(self, command: Forget) -> None:
        if command.reason == Refusal.GONE.value:
            self.desk.restorer.distrust(command.table_id, "its table was dropped")
        self.reporter.forget(command.table_id, command.reason)
        if command.reason in _DROPPED:
            self.spawn(partial(self.desk.forget_table, command.table_id))
        self.spawn(self._persist_quietly)

    def _end(self, command: EndRound) -> None:
        self.desk.end(command.table_id, command.outcome, command.reason)
        held = frozenset(bucket for bucket in self.keeper.books.held if bucket.table_id == command.table_id)
        if held:
            self.keeper.step(Unprotect(now=self.now(), buckets=held))

    async def _beat(self, beat: Beat) -> None:
        try:
            answer = await call(
                lambda: self.parts.source.heartbeat(beat), what="heartbeat", timeout_s=self.options.beat_timeout_s
            )
        except LakewardError as error:
            _log.warning("heartbeat failed", reason=str(error))
            self.post(BeatFailed(now=self.now(), cause=str(error)))
            return
        if self._coordinator_epoch not in (None, answer.coordinator_epoch):
            self.keeper.step(CoordinatorChanged(now=self.now()))
        self._coordinator_epoch = answer.coordinator_epoch
        if answer.offer is not None:
            answer = replace(answer, offer=self.options.as_promised(answer.offer))
        self.post(BeatAnswered(now=self.now(), beat=beat, answer=answer))
        if beat.renewed or answer.offer is not None:
            await self._persist_quietly()
        if self._superseded and answer.offer is not None and not self.parts.state.may_be_known(answer.offer):
            await hand_back(self.parts.source, answer.offer)

    async def _persist(self) -> None:
        """Write the state as it is now or later; all who ask while a write is under way share the next one."""
        if self._next_write is None:
            self._next_write = self.loop.create_task(self._write_state())
            self._next_write.add_done_callback(_look_at)
        await asyncio.shield(self._next_write)

    async def _write_state(self) -> None:
        async with self._writing:
            self._next_write = None
            await self._write_state_now()

    async def _write_state_now(self) -> None:
        if self._superseded:
            message = "the state file belongs to a later start of this service"
            raise FencedError(message, self._superseded)
        try:
            lease = self.keeper.state()
            books = self.keeper.books
            ids = (books.lease_id, *(lease_id for lease_id, _ in books.old_ids))
            await self.parts.state.save(self.rounds.in_hand, lease, self.now(), ids)
            self._lease_state, self._checked = lease, self.now()
        except FencedError as error:
            self.superseded(error.by)
            raise

    async def _persist_quietly(self) -> None:
        try:
            await self._persist()
        except FencedError:
            return
        except LakewardError as error:
            _log.error("the service's state could not be written", reason=str(error))

    def _task_over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("internal error", exc_info=error)
            self._broken = error
            # What failed may be what the machine waits for: two time limits of a stop, and one for its last words.
            self._end_by = min(self._end_by, self.now() + self.options.stop_timeout_s * 3)
            self.stop()


def _look_at(task: asyncio.Task[None]) -> None:
    """Take the error of a write whose askers have all been cancelled: then nobody else does."""
    if not task.cancelled():
        task.exception()


def _named(snapshots: Collection[KvSnapshot]) -> str:
    """Name snapshots for people, the first ones where they are many."""
    ordered = sorted(snapshots, key=lambda one: one.bucket.sort_key())
    words = [f"snapshot {one.snapshot_id} of bucket {one.bucket}" for one in ordered[:_NAMED_MOST]]
    more = len(ordered) - len(words)
    return ", ".join(words) + (f" and {more} more" if more else "")
