"""A lease server that loses, delays and forgets plays against the machine; what is told as protected is protected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakeward.machines.leases import (
    Acquired,
    CallAcquire,
    CallDrop,
    CallFailed,
    CallOutcomeUnknown,
    CallRelease,
    CallVerify,
    CheckpointsRead,
    CoordinatorChanged,
    Done,
    Leases,
    LeasesCommand,
    LeasesEvent,
    LeasesPolicy,
    LeaseTick,
    NotProtected,
    Persist,
    Protect,
    Protected,
    ProtectionLost,
    Restored,
    Retain,
    StartGeneration,
    Unprotect,
    Verified,
)
from lakeward.model.leases import Protection, RestoredLease
from lakeward.model.tables import KvSnapshot, TableBucket
from lakeward_mutants.leases import LEASES

if TYPE_CHECKING:
    from collections.abc import Callable

DURATION_S = 600.0
CALL_TIMEOUT_S = 30.0
SERVER_OFFSET_S = 1_000_000.0
"""The server's clock is far from the holder's; only periods may count."""
BUCKETS = [TableBucket(table, None, bucket) for table in (1, 2) for bucket in (0, 1)]
LeaseCall = CallAcquire | CallRelease | CallDrop
Call = LeaseCall | CallVerify
PREDECESSOR = "svc-0-00000000000000aa-3"
PATIENCE_S = 200.0
"""Three pauses between retries, and well below the duration: expiry must not hide a leak."""
OUTCOMES = ["ok", "ok", "ok", "failed", "lost before", "lost after", "timed out"]


@dataclass
class Server:
    """Leases by id, with expiry; snapshots that exist. It never looks whether a leased snapshot exists."""

    leases: dict[str, dict[TableBucket, int]] = field(default_factory=dict)
    expiry: dict[str, float] = field(default_factory=dict)
    gone: set[tuple[TableBucket, int]] = field(default_factory=set)

    def take(self, call: LeaseCall, now: float) -> None:
        if isinstance(call, CallAcquire):
            self.leases.setdefault(call.lease_id, {}).update(call.snapshots)
            self.expiry[call.lease_id] = now + SERVER_OFFSET_S + DURATION_S
        elif isinstance(call, CallRelease):
            for bucket in call.buckets:
                self.leases.get(call.lease_id, {}).pop(bucket, None)
        else:
            self.leases.pop(call.lease_id, None)

    def expire(self, now: float) -> None:
        for lease_id in [i for i in self.leases if self.expiry[i] < now + SERVER_OFFSET_S]:
            del self.leases[lease_id]

    def protects(self, bucket: TableBucket, snapshot_id: int) -> bool:
        return any(held.get(bucket) == snapshot_id for held in self.leases.values())


class LeaseGame(RuleBasedStateMachine):
    """The rules of the game; every invariant is checked after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Leases(LeasesPolicy(duration_s=DURATION_S), "svc-1-00000000000000aa")
        self.server = Server()
        self.now = 100.0
        self.seq = 0
        self.pending: dict[int, tuple[Call, float]] = {}
        self.late: dict[int, LeaseCall] = {}
        self.written = self.machine.held_leases
        self.acquired: dict[tuple[str, TableBucket], tuple[int, int]] = {}
        self.verify_sent: dict[int, int] = {}
        self.verified: dict[tuple[TableBucket, int], int] = {}
        self.asked: dict[int, dict[TableBucket, int]] = {}
        self.reading: dict[TableBucket, int] = {}
        self.kept: dict[TableBucket, int] = {}
        self.covered: set[TableBucket] = set()
        """Those of `kept` that were verified: from then on there is no moment without protection."""
        self.verify_ids: dict[int, str] = {}
        self.exposed: set[TableBucket] = set()
        self.used_ids: list[str] = []
        self.inherited: dict[TableBucket, int] = {}
        """What a checkpoint in the store needs and the predecessor's lease protects, though its state names none."""
        self.read = True
        """Whether the checkpoints were read."""

    # --- playing -------------------------------------------------------------------------------------------------

    def play(self, event: LeasesEvent) -> None:
        for command in self.machine.step(event):
            self.seq += 1
            self.perform(command)

    def perform(self, command: LeasesCommand) -> None:
        match command:
            case Persist():
                self.written = self.machine.held_leases
            case CallAcquire() | CallRelease() | CallDrop():
                self.check_call(command)
                self.pending[command.call] = (command, self.now)
            case CallVerify():
                self.verify_sent[command.call] = self.seq
                self.verify_ids[command.call] = self.machine.held_leases.lease_id
                self.pending[command.call] = (command, self.now)
            case Protected():
                self.check_protected(self.asked.pop(command.table_id))
            case NotProtected():
                asked = self.asked.pop(command.table_id)
                assert all(asked[s.bucket] == s.snapshot_id for s in command.gone)
                for bucket in asked:
                    if bucket not in self.machine.held_leases.held:
                        self.reading.pop(bucket, None)
                        self.keep_no_more(bucket)
            case ProtectionLost():
                for snapshot in command.snapshots:
                    self.reading.pop(snapshot.bucket, None)
                    self.keep_no_more(snapshot.bucket)

    def keep_no_more(self, bucket: TableBucket) -> None:
        self.inherited.pop(bucket, None)
        self.kept.pop(bucket, None)
        self.covered.discard(bucket)

    def check_call(self, call: LeaseCall) -> None:
        busy = [c for c, _ in self.pending.values() if not isinstance(c, CallVerify)]
        assert all(c.lease_id != call.lease_id for c in busy), "two calls for one id"
        if isinstance(call, CallAcquire):
            assert self.written.lease_id == call.lease_id, "an id is used that was not persisted"
            assert call.snapshots.items() <= self.written.held.items(), "an acquire is sent before it is persisted"
            assert call.snapshots, "an empty acquire"
            if call.lease_id not in self.used_ids:
                self.used_ids.append(call.lease_id)
            assert call.lease_id == self.used_ids[-1], "an id that was given up is used again"
        elif isinstance(call, CallRelease):
            assert call.buckets.isdisjoint(self.machine.held_leases.held), "a wanted bucket is released"
        else:
            assert call.lease_id != self.machine.held_leases.lease_id, "the current id is dropped"

    def check_protected(self, asked: dict[TableBucket, int]) -> None:
        lease_id = self.machine.held_leases.lease_id
        for bucket, snapshot_id in asked.items():
            got, when = self.acquired[lease_id, bucket]
            assert got == snapshot_id, "told as protected, another snapshot was acquired"
            assert self.verified.get((bucket, snapshot_id), -1) > when, "told as protected, not verified afterwards"
        self.reading.update(asked)
        self.exposed.difference_update(asked)

    def finish(self, number: int, *, late: bool = False) -> None:
        """The call takes effect and is answered."""
        call = self.late.pop(number) if late else self.pending.pop(number)[0]
        if isinstance(call, CallVerify):
            missing = frozenset(s for s in call.snapshots if (s.bucket, s.snapshot_id) in self.server.gone)
            for s in set(call.snapshots) - missing:
                self.verified[s.bucket, s.snapshot_id] = self.verify_sent[number]
            self.play(Verified(now=self.now, call=number, missing=missing))
            if self.verify_ids[number] == self.machine.held_leases.lease_id:
                there = {s.bucket: s.snapshot_id for s in set(call.snapshots) - missing}
                self.covered |= {b for b, i in self.kept.items() if there.get(b) == i and self.server.protects(b, i)}
            return
        self.server.take(call, self.now)
        if isinstance(call, CallAcquire):
            if call.lease_id == self.machine.held_leases.lease_id and not late:
                for bucket, snapshot_id in call.snapshots.items():
                    self.acquired[call.lease_id, bucket] = (snapshot_id, self.seq)
            self.play(Acquired(now=self.now, call=number, protection=Protection(DURATION_S)))
        else:
            self.play(Done(now=self.now, call=number))

    def forget_lost(self, number: int, outcome: str) -> None:
        """The call's outcome becomes unknown."""
        call, _ = self.pending.pop(number)
        if not isinstance(call, CallVerify):
            if outcome == "lost after":
                self.server.take(call, self.now)
            elif outcome == "timed out":
                self.late[number] = call
        self.play(CallOutcomeUnknown(now=self.now, call=number, reason=outcome))

    def pass_time(self, until: float) -> None:
        """Go on in steps, as the shell does: time-outs of calls and due times are kept."""
        while self.now < until:
            due = [self.machine.next_due, *(sent + CALL_TIMEOUT_S for _, sent in self.pending.values()), until]
            times = [t for t in due if t is not None and t > self.now]
            self.now = min(times)
            for number in [n for n, (_, sent) in self.pending.items() if sent + CALL_TIMEOUT_S <= self.now]:
                self.forget_lost(number, "timed out")
            self.play(LeaseTick(now=self.now))
            self.server.expire(self.now)
            self.let_the_predecessor_run_out()

    def let_the_predecessor_run_out(self) -> None:
        """Nobody renews its lease: what is not taken over by then is lost."""
        self.inherited = {b: i for b, i in self.inherited.items() if PREDECESSOR in self.server.leases or self.holds(b)}

    def holds(self, bucket: TableBucket) -> bool:
        return bucket in self.server.leases.get(self.machine.held_leases.lease_id, {})

    # --- rules ---------------------------------------------------------------------------------------------------

    @initialize(
        snapshots=st.dictionaries(st.sampled_from(BUCKETS), st.integers(1, 2)),
        inherited=st.dictionaries(st.sampled_from(BUCKETS), st.integers(1, 2)),
        read_at_once=st.booleans(),
    )
    def restore(
        self, snapshots: dict[TableBucket, int], inherited: dict[TableBucket, int], *, read_at_once: bool
    ) -> None:
        """Some games start with a predecessor's lease; it may hold more than its state says."""
        self.inherited = {bucket: number for bucket, number in inherited.items() if bucket not in snapshots}
        if not snapshots and not self.inherited:
            return
        self.server.leases[PREDECESSOR] = snapshots | self.inherited
        self.server.expiry[PREDECESSOR] = self.now + SERVER_OFFSET_S + DURATION_S
        lease = RestoredLease(PREDECESSOR, 3, snapshots)
        self.reading.update(snapshots)
        self.read = False
        self.play(
            Restored(now=self.now, lease=lease, snapshots=tuple(KvSnapshot(b, i, 0) for b, i in snapshots.items()))
        )
        if read_at_once:
            self.read_checkpoints()
            for number in [n for n, (call, _) in self.pending.items() if isinstance(call, CallDrop)]:
                self.finish(number)

    @rule(
        table=st.sampled_from([1, 2]), ids=st.lists(st.integers(1, 3), min_size=2, max_size=2), many=st.integers(1, 2)
    )
    def protect(self, table: int, ids: list[int], many: int) -> None:
        asked = {TableBucket(table, None, n): ids[n] for n in range(many)}
        self.asked[table] = asked
        for bucket, snapshot_id in asked.items():
            if self.inherited.get(bucket, snapshot_id) != snapshot_id:
                del self.inherited[bucket]
            if self.reading.get(bucket, snapshot_id) != snapshot_id:
                del self.reading[bucket]
            if self.kept.get(bucket, snapshot_id) != snapshot_id:
                self.keep_no_more(bucket)  # a round that starts afresh has given its checkpoint up
        snapshots = tuple(KvSnapshot(bucket, snapshot_id, 7) for bucket, snapshot_id in asked.items())
        self.play(Protect(now=self.now, table_id=table, snapshots=snapshots))

    @rule(buckets=st.sets(st.sampled_from(BUCKETS), min_size=1))
    def unprotect(self, buckets: set[TableBucket]) -> None:
        for bucket in buckets:
            self.reading.pop(bucket, None)
            for asked in self.asked.values():
                asked.pop(bucket, None)
        self.asked = {table: asked for table, asked in self.asked.items() if asked}
        self.play(Unprotect(now=self.now, buckets=frozenset(buckets)))

    @rule(table=st.sampled_from([1, 2]), ids=st.dictionaries(st.integers(0, 1), st.integers(1, 3)))
    def retain(self, table: int, ids: dict[int, int]) -> None:
        """A checkpoint has completed, or was given up; where a round reads another snapshot, that one stays first."""
        needed = {TableBucket(table, None, n): snapshot_id for n, snapshot_id in ids.items()}
        for bucket in [b for b, i in self.kept.items() if b.table_id == table and needed.get(b) != i]:
            self.keep_no_more(bucket)
        self.inherited = {b: i for b, i in self.inherited.items() if b.table_id != table}
        self.kept |= needed
        snapshots = tuple(KvSnapshot(bucket, snapshot_id, 7) for bucket, snapshot_id in needed.items())
        self.play(Retain(now=self.now, table_id=table, snapshots=snapshots))

    @precondition(lambda self: not self.read)
    @rule()
    def read_checkpoints(self) -> None:
        """The store answers: what its checkpoints need is said, then that this is all."""
        for table in (1, 2):
            needed = {b: i for b, i in (self.kept | self.inherited).items() if b.table_id == table}
            self.kept |= needed
            snapshots = tuple(KvSnapshot(bucket, snapshot_id, 7) for bucket, snapshot_id in needed.items())
            self.play(Retain(now=self.now, table_id=table, snapshots=snapshots))
        self.read = True
        self.play(CheckpointsRead(now=self.now))

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.pending)))
        outcome = data.draw(st.sampled_from(OUTCOMES))
        if outcome == "ok":
            self.finish(number)
        elif outcome == "failed":
            del self.pending[number]
            self.play(CallFailed(now=self.now, call=number, reason="refused"))
        else:
            self.forget_lost(number, outcome)

    @precondition(lambda self: self.pending)
    @rule()
    def answer_all(self) -> None:
        """The server is well for a while: else a verification after an acquire would be rare."""
        for _ in range(6):
            if self.pending:
                self.finish(min(self.pending))
                self.what_is_read_is_protected()
                self.what_a_checkpoint_needs_is_protected()

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        """A call that had timed out takes effect after all."""
        before = dict(self.server.leases.get(self.machine.held_leases.lease_id, {}))
        self.finish(data.draw(st.sampled_from(sorted(self.late))), late=True)
        assert self.server.leases.get(self.machine.held_leases.lease_id, {}) == before, (
            "a late call changed the current id"
        )

    @rule(seconds=st.sampled_from([0.5, 5.0, 29.0, 60.0, 150.0, 450.0]))
    def wait(self, seconds: float) -> None:
        self.pass_time(self.now + seconds)

    @rule(bucket=st.sampled_from(BUCKETS), snapshot_id=st.integers(1, 3))
    def clean_up(self, bucket: TableBucket, snapshot_id: int) -> None:
        """The server's clean-up takes what nobody leases."""
        if not self.server.protects(bucket, snapshot_id):
            self.server.gone.add((bucket, snapshot_id))

    @rule(lost=st.booleans())
    def change_coordinator(self, lost: bool) -> None:
        if lost:
            self.server.leases.clear()
            self.exposed.update(self.reading)
            self.covered.clear()
            self.inherited.clear()
        self.play(CoordinatorChanged(now=self.now))

    @rule()
    def start_generation(self) -> None:
        self.play(StartGeneration(now=self.now))

    # --- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def what_is_read_is_protected(self) -> None:
        for bucket, snapshot_id in self.reading.items():
            if bucket not in self.exposed:
                assert self.server.protects(bucket, snapshot_id), f"{bucket} is read without protection"

    @invariant()
    def what_a_checkpoint_needs_is_protected(self) -> None:
        for bucket in self.covered:
            assert self.server.protects(bucket, self.kept[bucket]), f"a checkpoint's snapshot of {bucket} is let go"

    @invariant()
    def what_a_checkpoint_in_the_store_needs_stays_with_its_lease(self) -> None:
        for bucket, snapshot_id in self.inherited.items():
            assert self.server.protects(bucket, snapshot_id), f"the predecessor's snapshot of {bucket} is let go"

    @invariant()
    def due_lies_ahead(self) -> None:
        assert self.machine.next_due is None or self.machine.next_due > self.now

    def teardown(self) -> None:
        """When the server answers again every question is answered, and what nobody needs is given back."""
        self.calm(lambda: not self.asked)
        assert not self.asked, "a round was never answered"
        self.unprotect(set(BUCKETS))
        if not self.read:
            self.read_checkpoints()
        for table in (1, 2):
            self.retain(table, {})
        self.calm(lambda: not any(self.server.leases.values()) and not self.machine.held_leases.old_ids)
        assert not any(self.server.leases.values()), "a lease leaked"
        assert not self.machine.held_leases.releasing
        assert not self.machine.held_leases.old_ids

    def calm(self, reached: Callable[[], bool]) -> None:
        latest = self.now + PATIENCE_S
        while self.now < latest:
            while self.pending or self.late:
                self.finish(min(self.pending or self.late), late=not self.pending)
                self.what_is_read_is_protected()
            if reached():
                return
            self.now = self.machine.next_due or latest
            self.server.expire(self.now)
            self.play(LeaseTick(now=self.now))


GAME = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
)
HUNT = settings(GAME, phases=[Phase.generate])
"""A mutant only has to die; how small its counterexample is does not matter."""


def test_the_machine_wins_against_a_server_that_loses_delays_and_forgets() -> None:
    """All invariants hold after every step, and nothing leaks at the end."""
    run_state_machine_as_test(LeaseGame, settings=GAME)


@pytest.mark.parametrize(("target", "name", "wrong"), [pytest.param(*wrong, id=name) for name, wrong in LEASES.items()])
@pytest.mark.mutant
def test_the_game_finds_the_mutant_that(
    monkeypatch: pytest.MonkeyPatch, target: type, name: str, wrong: object
) -> None:
    """A machine with this fault loses the game."""
    monkeypatch.setattr(target, name, wrong)

    with pytest.raises(AssertionError):
        run_state_machine_as_test(LeaseGame, settings=HUNT)
