"""What every lease backend has to do. A backend's tests subclass it: one fixture, and what the backend can do.

    class TestMine(LeaseBackendConformance):
        __test__ = True

        @pytest.fixture
        def backend(self) -> object:
            return MyBackend()

The class says with attributes what its backend promises: `level`, `protects`, `releases`, `stateful` and others.
"""

# ruff: noqa: S101 - a conformance suite asserts
from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from lakeward.errors import CorruptFileError, OutcomeUnknownError, SourceError
from lakeward.hooks.backend import LeaseBackend
from lakeward.model.leases import Failover, FailoverAction, FailoverKind, Lease
from lakeward.model.tables import TableBucket
from lakeward_testing.clock import FakeClock
from lakeward_testing.expectations import expect_error, expect_no_error, mismatch
from lakeward_testing.lease_overlap import OVERLAP_S, Meeting, troubles_at_once
from lakeward_testing.lease_server import LOST_AFTER, LOST_BEFORE, REFUSED, MemoryLeaseServer
from lakeward_testing.levels import Conformance, chaos, upsert

DURATION_S = 60.0
SHORTEST_S, LONGEST_S = 10.0, 7 * 86_400.0
BUCKETS = (TableBucket(7, None, 0), TableBucket(7, None, 1), TableBucket(8, 3, 0))
SNAPSHOTS = {bucket: number + 10 for number, bucket in enumerate(BUCKETS)}
"""What is acquired. A backend is given a copy with each call, since one that changes it would change other tests."""
HOOKS = ("acquire", "release", "drop", "on_failover", "serialize_state")
SERVER_HOOKS = ("acquire", "release", "drop")
"""The hooks that call a server."""


class LeaseBackendConformance(Conformance):
    """The suite. Every test runs the backend through the façade that the core uses, against a `MemoryLeaseServer`."""

    __test__ = False

    protects = True
    """It protects snapshots. False: it never calls the server (`noop`)."""
    releases = True
    """`release` and `drop` reach the server. False: they do nothing, the server's expiry does it."""
    stateful = True
    """`serialize_state` gives bytes, and a restarted service takes its snapshots over."""
    survives_old_server = True
    """A server without the lease API degrades the protection. False: the error passes through."""
    on_reader = FailoverAction.KEEP
    on_job = FailoverAction.KEEP
    """What it answers to a failed reader, and to a job that is launched again: KEEP, RELEASE or ACQUIRE."""
    overlap_s = OVERLAP_S
    """Seconds that a call waits inside for another lease's call, before the suite says that they do not overlap."""

    @pytest.fixture
    def backend(self) -> object:
        """Return a fresh backend (the instance, or its class)."""
        raise NotImplementedError

    @pytest.fixture
    def hooks(self, backend: object) -> Iterator[LeaseBackend]:
        """Give the backend as the core calls it: opened before the first hook, closed after the last one."""
        hooks = LeaseBackend("under-test", backend)
        hooks.open()
        yield hooks
        hooks.close()

    @pytest.fixture
    def server(self) -> MemoryLeaseServer:
        """Return an empty lease server."""
        return MemoryLeaseServer(FakeClock())

    # --- acquire -------------------------------------------------------------------------------------------------

    def test_acquire_protects_every_snapshot_under_the_id_it_was_given(
        self, hooks: LeaseBackend, server: MemoryLeaseServer
    ) -> None:
        """The id is the core's: it is persisted already."""
        answer = hooks.acquire(_lease(server), dict(SNAPSHOTS))

        said = mismatch("acquire: `protects` of its answer", self.protects, answer.protects)
        assert answer.protects is self.protects, said
        expected = {"svc-1-a-1": SNAPSHOTS} if self.protects else {}
        _check_leases(server, expected, "acquire of a lease with the id 'svc-1-a-1'")

    def test_acquire_says_until_when(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """What it says may not outlive what the server holds."""
        answer = hooks.acquire(_lease(server), dict(SNAPSHOTS))

        if not self.protects:
            said = mismatch("acquire: `until_s` of a backend that protects nothing", None, answer.until_s)
            assert answer.until_s is None, said
            return
        assert answer.until_s is not None, "acquire: expected `until_s` in seconds in the answer, found None"
        assert answer.until_s <= DURATION_S, (
            f"acquire: expected `until_s` to be at most the lease's duration of {DURATION_S} s, found {answer.until_s}"
        )
        server.clock.advance(answer.until_s)
        _check_leases(server, {"svc-1-a-1": SNAPSHOTS}, f"acquire answered until_s = {answer.until_s}; at that time")

    def test_acquire_takes_the_duration_of_the_lease(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """The configured duration wins over the backend's own."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))

        server.clock.advance(DURATION_S + 1)

        _check_leases(server, {}, f"acquire with a duration of {DURATION_S} s; a second after its end")

    @upsert
    def test_acquire_takes_only_what_is_asked_for(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """`lease.held` may hold more than this call is for."""
        one = {BUCKETS[0]: 10}
        hooks.acquire(_lease(server), one)

        expected = {"svc-1-a-1": one} if self.protects else {}
        _check_leases(server, expected, "acquire of one snapshot, where `lease.held` has three")

    @upsert
    def test_acquire_again_renews(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """The whole list is sent every third of the duration; the lease must live on."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        for _ in range(6):
            server.clock.advance(DURATION_S / 3)
            hooks.acquire(_lease(server), dict(SNAPSHOTS))

        expected = {"svc-1-a-1": SNAPSHOTS} if self.protects else {}
        _check_leases(server, expected, "acquire, called again after each third of the duration to renew the lease")

    @upsert
    def test_acquire_moves_a_bucket_to_another_snapshot(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """A lease holds one snapshot per bucket."""
        hooks.acquire(_lease(server), {BUCKETS[0]: 1})
        hooks.acquire(_lease(server), {BUCKETS[0]: 2})

        expected = {"svc-1-a-1": {BUCKETS[0]: 2}} if self.protects else {}
        _check_leases(server, expected, "acquire of another snapshot of a bucket that the lease holds")

    @upsert
    def test_acquire_under_a_new_generation_leaves_the_old_one_alone(
        self, hooks: LeaseBackend, server: MemoryLeaseServer
    ) -> None:
        """The core drops the old id itself, when the new one protects everything."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        hooks.acquire(_lease(server, generation=2), dict(SNAPSHOTS))

        expected = {"svc-1-a-1": SNAPSHOTS, "svc-1-a-2": SNAPSHOTS} if self.protects else {}
        _check_leases(server, expected, "acquire under the id of the next generation")

    @chaos
    def test_a_refused_acquire_is_an_error(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """Retry and back-off are the core's; nothing is swallowed."""
        self.needs("protects")
        server.script(REFUSED, REFUSED)

        with expect_error(SourceError, "acquire, where the server refuses the call"):
            hooks.acquire(_lease(server), dict(SNAPSHOTS))

        _check_one_call(server, "acquire")

    @chaos
    def test_a_refused_acquire_protects_nothing(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """A refusal is of the whole call; a backend that asks in parts gives back what the parts before it got."""
        self.needs("protects")
        server.script("", REFUSED)

        try:
            hooks.acquire(_lease(server), dict(SNAPSHOTS))
        except SourceError:
            where = "acquire, in several calls of the server of which the second is refused, raised SourceError"
            _check_leases(server, {}, where)

    @pytest.mark.parametrize("outcome", [LOST_BEFORE, LOST_AFTER])
    @chaos
    def test_an_acquire_without_an_answer_is_unknown(
        self, hooks: LeaseBackend, server: MemoryLeaseServer, outcome: str
    ) -> None:
        """Unknown is not failed."""
        self.needs("protects")
        server.script(outcome, outcome)

        with expect_error(OutcomeUnknownError, "acquire, where no answer of the server arrives"):
            hooks.acquire(_lease(server), dict(SNAPSHOTS))

        _check_one_call(server, "acquire")

    @chaos
    def test_acquire_says_which_snapshots_the_server_knows_to_be_gone(self, hooks: LeaseBackend) -> None:
        """Only what is protected may be answered as protected."""
        self.needs("protects")
        server, gone = MemoryLeaseServer(), {BUCKETS[1]: SNAPSHOTS[BUCKETS[1]]}
        server.missing = dict(gone)

        answer = hooks.acquire(_lease(server), dict(SNAPSHOTS))

        _skip_unless_called(server)
        found = dict(answer.unavailable)
        where = "acquire, where the answer of `lease.server` names a snapshot as unavailable: `unavailable`"
        assert found == gone, mismatch(where, gone, found)

    @chaos
    def test_an_old_server_never_counts_as_protection(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """Where there is no lease API the answer says so, or the error passes through."""
        self.needs("protects")
        server.old_server = True
        if not self.survives_old_server:
            with expect_error(SourceError, "acquire at a server without the lease API (survives_old_server = False)"):
                hooks.acquire(_lease(server), dict(SNAPSHOTS))
            return

        where = "at a server without the lease API (survives_old_server = True)"
        with expect_no_error(f"acquire {where}"):
            answer = hooks.acquire(_lease(server), dict(SNAPSHOTS))
        with expect_no_error(f"release {where}"):
            hooks.release(_lease(server), frozenset(BUCKETS))
        with expect_no_error(f"drop {where}"):
            hooks.drop(_lease(server))

        assert not answer.protects, mismatch(f"acquire {where}: `protects` of its answer", False, answer.protects)
        assert answer.until_s is None, mismatch(f"acquire {where}: `until_s` of its answer", None, answer.until_s)

    # --- release and drop ----------------------------------------------------------------------------------------

    def test_release_gives_back_these_buckets_and_no_other(
        self, hooks: LeaseBackend, server: MemoryLeaseServer
    ) -> None:
        """The others are still being read."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))

        hooks.release(_lease(server), frozenset(BUCKETS[:2]))

        left = {BUCKETS[2]: 12} if self.releases else SNAPSHOTS
        expected = {"svc-1-a-1": left} if self.protects else {}
        _check_leases(server, expected, "release of two of the three buckets")

    @upsert
    def test_releasing_twice_or_what_was_never_held_is_no_error(
        self, hooks: LeaseBackend, server: MemoryLeaseServer
    ) -> None:
        """A release is repeated until it is confirmed."""
        with expect_no_error("release of buckets that were never held"):
            hooks.release(_lease(server), frozenset(BUCKETS))
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        hooks.release(_lease(server), frozenset(BUCKETS))
        with expect_no_error("release of buckets that were released before"):
            hooks.release(_lease(server), frozenset(BUCKETS))

        assert not self.releases or not any(server.leases.values()), (
            f"release of all buckets: expected the server to hold no snapshot, found {server.leases}"
        )

    @chaos
    def test_a_refused_release_is_an_error(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """Otherwise the core would cross out what is still held."""
        self.needs("protects", "releases")
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        server.script(REFUSED, REFUSED)

        with expect_error(SourceError, "release, where the server refuses the call"):
            hooks.release(_lease(server), frozenset(BUCKETS))

        _check_one_call(server, "release")

    @pytest.mark.parametrize("outcome", [LOST_BEFORE, LOST_AFTER])
    @chaos
    def test_a_release_without_an_answer_is_unknown(
        self, hooks: LeaseBackend, server: MemoryLeaseServer, outcome: str
    ) -> None:
        """The core moves everything to a new id: the old one may or may not hold these buckets."""
        self.needs("protects", "releases")
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        server.script(outcome, outcome)

        with expect_error(OutcomeUnknownError, "release, where no answer of the server arrives"):
            hooks.release(_lease(server), frozenset(BUCKETS))

        _check_one_call(server, "release")

    @chaos
    def test_a_refused_drop_is_an_error(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """Otherwise the core would forget an id that still holds snapshots."""
        self.needs("protects", "releases")
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        server.script(REFUSED, REFUSED)

        with expect_error(SourceError, "drop, where the server refuses the call"):
            hooks.drop(_lease(server, held={}))

        _check_one_call(server, "drop")

    @pytest.mark.parametrize("outcome", [LOST_BEFORE, LOST_AFTER])
    @chaos
    def test_a_drop_without_an_answer_is_unknown(
        self, hooks: LeaseBackend, server: MemoryLeaseServer, outcome: str
    ) -> None:
        """When to drop it again is the core's to say."""
        self.needs("protects", "releases")
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        server.script(outcome, outcome)

        with expect_error(OutcomeUnknownError, "drop, where no answer of the server arrives"):
            hooks.drop(_lease(server, held={}))

        _check_one_call(server, "drop")

    @upsert
    def test_drop_removes_the_whole_lease_even_if_its_books_are_empty(
        self, hooks: LeaseBackend, server: MemoryLeaseServer
    ) -> None:
        """An old generation is dropped by its id alone."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))

        hooks.drop(_lease(server, held={}))
        with expect_no_error("drop of a lease that was dropped before"):
            hooks.drop(_lease(server, held={}))

        expected = {"svc-1-a-1": SNAPSHOTS} if self.protects and not self.releases else {}
        _check_leases(server, expected, "drop of a lease whose `held` is empty")

    @upsert
    def test_drop_leaves_other_ids_alone(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """The new generation is being read under."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        hooks.acquire(_lease(server, generation=2), dict(SNAPSHOTS))

        hooks.drop(_lease(server))

        assert ("svc-1-a-2" in _by_lease(server, ["svc-1-a-2"])) is self.protects, (
            f"drop of 'svc-1-a-1': expected 'svc-1-a-2' {'still' if self.protects else 'not'} to be at the server, "
            f"found {server.leases}"
        )

    @upsert
    def test_drop_leaves_ids_alone_that_are_still_to_be_dropped(
        self, hooks: LeaseBackend, server: MemoryLeaseServer
    ) -> None:
        """The core drops each of `old_ids` by a call of its own, once nothing is read under it."""
        self.needs("protects", "releases")
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        hooks.acquire(_lease(server, generation=2), dict(SNAPSHOTS))

        hooks.drop(_lease(server, generation=2, held={}, old_ids=(("svc-1-a-1", 1), ("svc-1-a-2", 2))))

        _check_leases(server, {"svc-1-a-1": SNAPSHOTS}, "drop of 'svc-1-a-2', with 'svc-1-a-1' in `lease.old_ids`")

    def test_a_backend_that_never_releases_calls_the_server_for_nothing_else(
        self, hooks: LeaseBackend, server: MemoryLeaseServer
    ) -> None:
        """What a backend says of itself is true."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        hooks.release(_lease(server), frozenset(BUCKETS))
        hooks.drop(_lease(server))

        called = {call for call, _ in server.calls}
        expected = ({"acquire"} if self.protects else set()) | ({"release", "drop"} if self.releases else set())
        where = f"acquire, release and drop of a backend with protects = {self.protects}, releases = {self.releases}"
        assert called == expected, mismatch(f"{where}: methods of the server that they call", expected, called)

    # --- all hooks -----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("hook", HOOKS)
    def test_the_arguments_are_left_as_they_are(
        self, hooks: LeaseBackend, server: MemoryLeaseServer, hook: str
    ) -> None:
        """The core goes on to use them."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        lease, snapshots = _lease(server), dict(SNAPSHOTS)

        _call(hooks, hook, lease, snapshots)

        assert snapshots == SNAPSHOTS, mismatch(f"{hook}: its argument `snapshots` afterwards", SNAPSHOTS, snapshots)
        held = dict(lease.held)
        assert held == SNAPSHOTS, mismatch(f"{hook}: `lease.held` afterwards", SNAPSHOTS, held)

    @pytest.mark.parametrize("hook", SERVER_HOOKS)
    @chaos
    def test_calls_of_two_leases_overlap(self, hooks: LeaseBackend, hook: str) -> None:
        """Hooks of different lease ids run on threads of their own; a hung one may hold up no other."""
        self.needs("protects", *(() if hook == "acquire" else ("releases",)))
        server = MemoryLeaseServer()
        leases = _lease(server), _lease(server, generation=2)
        if hook != "acquire":
            for lease in leases:
                hooks.acquire(lease, dict(SNAPSHOTS))
        server.during = Meeting(self.overlap_s).enter

        first, second = leases
        troubles = troubles_at_once(lambda: _call(hooks, hook, first), lambda: _call(hooks, hook, second))

        assert not troubles, (
            f"{hook} of two leases: expected both calls inside `lease.server` at once, found {troubles}"
        )
        _skip_unless_called(server)
        expected = {lease.lease_id: SNAPSHOTS for lease in leases} if hook == "acquire" else {}
        _check_leases(server, expected, f"{hook} of two leases at the same time")

    # --- state and fail-over -------------------------------------------------------------------------------------

    def test_serialize_state_calls_nothing(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """It runs on the coordinator's thread."""
        state = hooks.serialize_state(_lease(server))

        assert server.calls == [], mismatch("serialize_state: calls of the server", [], server.calls)
        assert (state is not None) is self.stateful, (
            f"serialize_state of a backend with stateful = {self.stateful}: "
            f"expected {'bytes' if self.stateful else None}, found {state!r}"
        )

    @chaos
    def test_a_restarted_service_gets_its_lease_back(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """Id, generation, every bucket, and the ids that were still to be dropped."""
        lease = _lease(server, generation=3, old_ids=(("svc-1-a-2", 2),))
        state = hooks.serialize_state(lease)

        answer = hooks.on_failover(_lease(server, held={}), Failover(FailoverKind.COORDINATOR, 0, state=state))

        where = "on_failover of a restarted service"
        if not self.stateful:
            said = mismatch(f"{where}, of a backend with stateful = False: `restored`", None, answer.restored)
            assert answer.restored is None, said
            return
        assert answer.restored is not None, f"{where}: expected `restored` with the lease of its state, found None"
        restored = answer.restored
        found = (restored.lease_id, restored.generation)
        assert found == ("svc-1-a-3", 3), mismatch(f"{where}: id and generation", ("svc-1-a-3", 3), found)
        held = dict(restored.held)
        assert held == SNAPSHOTS, mismatch(f"{where}: snapshots that the restored lease holds", SNAPSHOTS, held)
        old_ids = (("svc-1-a-2", 2),)
        assert restored.old_ids == old_ids, mismatch(f"{where}: ids still to be dropped", old_ids, restored.old_ids)
        said = mismatch(f"{where}: action", FailoverAction.ACQUIRE, answer.action)
        assert answer.action is FailoverAction.ACQUIRE, said

    @chaos
    def test_state_of_many_buckets_survives(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """A lease may hold ten thousand snapshots."""
        self.needs("stateful")
        held = {TableBucket(n % 3, None if n % 3 else n, n): n for n in range(10_000)}
        state = hooks.serialize_state(_lease(server, held=held))

        answer = hooks.on_failover(_lease(server, held={}), Failover(FailoverKind.COORDINATOR, 0, state=state))

        where = "on_failover with the state of a lease of 10,000 snapshots"
        assert answer.restored is not None, f"{where}: expected `restored` with the lease of its state, found None"
        found = dict(answer.restored.held)
        assert found == held, mismatch(f"{where}: snapshots that the restored lease holds", held, found)

    @chaos
    def test_a_first_start_has_nothing_to_restore(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """No bytes, no lease."""
        answer = hooks.on_failover(_lease(server, held={}), Failover(FailoverKind.COORDINATOR, 0))

        said = mismatch("on_failover at a first start, without state: `restored`", None, answer.restored)
        assert answer.restored is None, said

    @pytest.mark.parametrize("damage", [b"", b"\x00\xff not ours", b"{}"])
    @chaos
    def test_foreign_state_is_an_error_and_never_guessed_at(
        self, hooks: LeaseBackend, server: MemoryLeaseServer, damage: bytes
    ) -> None:
        """A wrong guess would leak the lease, or drop somebody else's."""
        self.needs("stateful")

        with expect_error(CorruptFileError, f"on_failover with {damage!r}, which is no state of this backend"):
            hooks.on_failover(_lease(server, held={}), Failover(FailoverKind.COORDINATOR, 0, state=damage))

    @chaos
    def test_cut_state_is_an_error(self, hooks: LeaseBackend, server: MemoryLeaseServer) -> None:
        """Half of the bytes are not half of the lease."""
        self.needs("stateful")
        state = hooks.serialize_state(_lease(server)) or b""

        for end in (1, len(state) // 2, len(state) - 1):
            with expect_error(CorruptFileError, f"on_failover with {end} of the {len(state)} bytes of a state"):
                hooks.on_failover(_lease(server, held={}), Failover(FailoverKind.COORDINATOR, 0, state=state[:end]))

    @pytest.mark.parametrize("kind", [FailoverKind.READER, FailoverKind.JOB])
    @chaos
    def test_a_failed_reader_or_job_restores_nothing(
        self, hooks: LeaseBackend, server: MemoryLeaseServer, kind: FailoverKind
    ) -> None:
        """The coordinator lives, and so does its lease."""
        hooks.acquire(_lease(server), dict(SNAPSHOTS))
        before = server.leases

        answer = hooks.on_failover(_lease(server), Failover(kind, 1))

        where = f"on_failover after a failed {kind.name.lower()}"
        assert answer.restored is None, mismatch(f"{where}: `restored`", None, answer.restored)
        said = mismatch(f"{where}: on_failover changed the lease by itself; at the server", before, server.leases)
        assert server.leases == before, said

    @chaos
    def test_each_kind_of_failover_is_answered_as_declared(
        self, hooks: LeaseBackend, server: MemoryLeaseServer
    ) -> None:
        """The core obeys each answer: what is released is enumerated afresh, as a whole table; ACQUIRE is a new id."""
        state = hooks.serialize_state(_lease(server, generation=3))
        restart = Failover(FailoverKind.COORDINATOR, 0, state=state)

        reader = hooks.on_failover(_lease(server), Failover(FailoverKind.READER, 1)).action
        job = hooks.on_failover(_lease(server), Failover(FailoverKind.JOB, 1)).action
        start = hooks.on_failover(_lease(server, held={}), restart).action

        said = mismatch("on_failover after a failed reader: action (`on_reader`)", self.on_reader, reader)
        assert reader == self.on_reader, said
        assert job == self.on_job, mismatch("on_failover after a failed job: action (`on_job`)", self.on_job, job)
        expected = FailoverAction.ACQUIRE if self.stateful else FailoverAction.KEEP
        where = f"on_failover of a restarted service, of a backend with stateful = {self.stateful}: action"
        assert start is expected, mismatch(where, expected, start)

    def test_the_default_duration_is_a_sensible_period(self, hooks: LeaseBackend) -> None:
        """Seconds; a third of it is the pace of renewal."""
        assert SHORTEST_S <= hooks.default_duration_s <= LONGEST_S, (
            f"default_duration_s: expected {SHORTEST_S} to {LONGEST_S} seconds, found {hooks.default_duration_s}"
        )


def _check_leases(server: MemoryLeaseServer, expected: dict[str, dict[TableBucket, int]], where: str) -> None:
    __tracebackhide__ = True
    found = _by_lease(server, expected)
    assert found == expected, mismatch(f"{where}: leases at the server", expected, found)


def _by_lease(server: MemoryLeaseServer, lease_ids: Iterable[str]) -> dict[str, dict[TableBucket, int]]:
    """Return what each lease holds; a backend may divide it among ids that go on with `-` behind the lease's own."""
    found: dict[str, dict[TableBucket, int]] = {}
    for own, held in server.leases.items():
        lease_id = next((one for one in lease_ids if f"{own}-".startswith(f"{one}-")), own)
        found.setdefault(lease_id, {}).update(held)
    return found


def _check_one_call(server: MemoryLeaseServer, hook: str) -> None:
    __tracebackhide__ = True
    calls = [call for call, _ in server.calls].count(hook)
    assert calls == 1, f"{hook}: expected one call of the server, found {calls}: the backend retried by itself"


def _skip_unless_called(server: MemoryLeaseServer) -> None:
    """Skip what is seen at `lease.server` alone; a backend may have a server of its own, with rules of its own."""
    if not server.calls:
        pytest.skip("this backend calls a server of its own, not `lease.server`")


def _call(hooks: LeaseBackend, hook: str, lease: Lease, snapshots: dict[TableBucket, int] | None = None) -> object:
    """Call a hook with arguments that fit it; `snapshots` are those of `acquire`, all unless given."""
    asked = dict(SNAPSHOTS) if snapshots is None else snapshots
    further: dict[str, object] = {
        "acquire": asked,
        "release": frozenset(BUCKETS),
        "on_failover": Failover(FailoverKind.READER, 1),
    }
    return getattr(hooks, hook)(lease, *([further[hook]] if hook in further else []))


def _lease(
    server: MemoryLeaseServer,
    generation: int = 1,
    held: dict[TableBucket, int] | None = None,
    old_ids: tuple[tuple[str, int], ...] = (),
) -> Lease:
    snapshots = dict(SNAPSHOTS) if held is None else held
    return Lease(f"svc-1-a-{generation}", generation, DURATION_S, snapshots, server, old_ids=old_ids)
