"""What every lease wrapper has to do: see each call, and change none. A wrapper's tests subclass it, with one fixture.

    class TestMine(LeaseWrapperConformance):
        __test__ = True

        @pytest.fixture
        def make_wrapper(self) -> Callable[[], object]:
            return MyWrapper

The class says with attributes what the wrapper does beside: `shows_metrics`.
"""

# ruff: noqa: S101 - a conformance suite asserts
from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from prometheus_client import CollectorRegistry

from lakeward.errors import (
    CorruptFileError,
    LakewardError,
    LeaseApiMissingError,
    LeaseError,
    OutcomeUnknownError,
    SourceError,
)
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import (
    Failover,
    FailoverAction,
    FailoverAnswer,
    FailoverKind,
    Lease,
    Protection,
    RestoredLease,
)
from lakeward.model.tables import TableBucket
from lakeward_testing.expectations import expect_error, expect_no_error, mismatch
from lakeward_testing.lease_overlap import OVERLAP_S, Meeting, troubles_at_once
from lakeward_testing.lease_server import MemoryLeaseServer
from lakeward_testing.levels import Conformance, chaos, upsert

BUCKETS = (TableBucket(7, None, 0), TableBucket(8, 3, 1))
SNAPSHOTS = {bucket: number + 10 for number, bucket in enumerate(BUCKETS)}
RESTART = Failover(FailoverKind.COORDINATOR, 0, state=b"persisted")
HOOKS = ("acquire", "release", "drop", "on_failover", "serialize_state")
ERRORS = (
    SourceError("refused"),
    LeaseApiMissingError("too old"),
    OutcomeUnknownError("no answer"),
    CorruptFileError("state", "a lease", "noise"),
)

MakeWrapper = Callable[[], object]


class ScriptedBackend:
    """Notes each call, with a copy of its arguments, and answers what the test gave; raises it where it is an error."""

    def __init__(self) -> None:
        """Start without calls; until told otherwise each answer is that of a backend which works."""
        self.calls: list[tuple[object, ...]] = []
        self.answers: dict[str, object] = {
            "acquire": Protection(42.0, {BUCKETS[0]: 10}),
            "on_failover": FailoverAnswer(FailoverAction.ACQUIRE, RestoredLease("svc-0-a-1", 1, dict(SNAPSHOTS))),
            "serialize_state": b"\x00state",
        }
        self.during: Callable[[Lease], None] = lambda _: None

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> object:
        """Note it."""
        return self._answer("acquire", lease, dict(snapshots))

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> object:
        """Note it."""
        return self._answer("release", lease, frozenset(buckets))

    @hookimpl
    def drop(self, lease: Lease) -> object:
        """Note it."""
        return self._answer("drop", lease)

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> object:
        """Note it."""
        return self._answer("on_failover", lease, failover)

    @hookimpl
    def serialize_state(self, lease: Lease) -> object:
        """Note it."""
        return self._answer("serialize_state", lease)

    def _answer(self, hook: str, lease: Lease, *arguments: object) -> object:
        self.calls.append((hook, lease.lease_id, *arguments))
        self.during(lease)
        answer = self.answers.get(hook)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class LeaseWrapperConformance(Conformance):
    """The suite. Every test calls a backend through the wrapper, as the core does."""

    __test__ = False

    shows_metrics = True
    """It has a method `register_metrics`. False: it shows none."""
    overlap_s = OVERLAP_S
    """Seconds that a call waits inside for another lease's call, before the suite says that they do not overlap."""

    @pytest.fixture
    def make_wrapper(self) -> MakeWrapper:
        """Return what makes a fresh wrapper: its class, or a function without arguments."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self) -> ScriptedBackend:
        """Return the backend behind the wrapper."""
        return ScriptedBackend()

    @pytest.fixture
    def hooks(self, make_wrapper: MakeWrapper, backend: ScriptedBackend) -> LeaseBackend:
        """Return the backend as the core calls it, wrapped."""
        return wrapped(make_wrapper, backend)

    # --- basic ---------------------------------------------------------------------------------------------------

    def test_each_call_reaches_the_backend_once_with_its_arguments(
        self, hooks: LeaseBackend, backend: ScriptedBackend
    ) -> None:
        """A wrapper neither calls for itself, nor twice, nor with something else."""
        expected = []
        for hook in HOOKS:
            with expect_no_error(f"{hook}, where the backend raises none"):
                call(hooks, hook, _lease())
            expected.append(hook)
            found = [one[0] for one in backend.calls]
            assert found == expected, mismatch(f"{hook}: hooks of the backend that were called so far", expected, found)

        for hook, one, made in zip(
            HOOKS,
            backend.calls,
            [
                ("acquire", "svc-1-a-1", SNAPSHOTS),
                ("release", "svc-1-a-1", frozenset(BUCKETS)),
                ("drop", "svc-1-a-1"),
                ("on_failover", "svc-1-a-1", RESTART),
                ("serialize_state", "svc-1-a-1"),
            ],
            strict=True,
        ):
            assert one == made, mismatch(f"{hook}: the call that reached the backend", made, one)

    @pytest.mark.parametrize("hook", HOOKS)
    def test_the_answer_of_the_backend_comes_back(
        self, hooks: LeaseBackend, backend: ScriptedBackend, hook: str
    ) -> None:
        """What is protected until when is the backend's to say."""
        found, expected = call(hooks, hook, _lease()), backend.answers.get(hook)
        assert found == expected, mismatch(f"{hook}: another answer than the backend's", expected, found)

    def test_what_is_not_protected_stays_unprotected(self, hooks: LeaseBackend, backend: ScriptedBackend) -> None:
        """The operator is warned of it."""
        backend.answers["acquire"] = Protection(None, protects=False)

        answer = hooks.acquire(_lease(), dict(SNAPSHOTS))
        where = "acquire: `protects` of its answer, where the backend's says False"
        assert not answer.protects, mismatch(where, False, answer.protects)

    @pytest.mark.parametrize("hook", HOOKS)
    def test_the_arguments_are_left_as_they_are(self, hooks: LeaseBackend, backend: ScriptedBackend, hook: str) -> None:
        """The core goes on to use them."""
        backend.answers["acquire"] = Protection(42.0)
        snapshots, lease = dict(SNAPSHOTS), _lease()
        call(hooks, hook, lease, snapshots)

        assert snapshots == SNAPSHOTS, mismatch(f"{hook}: its argument `snapshots` afterwards", SNAPSHOTS, snapshots)
        held = dict(lease.held)
        assert held == SNAPSHOTS, mismatch(f"{hook}: `lease.held` afterwards", SNAPSHOTS, held)

    def test_the_server_is_called_by_the_backend_alone(self, hooks: LeaseBackend) -> None:
        """A lease that a wrapper holds is one that nobody knows of."""
        server = MemoryLeaseServer()
        for hook in HOOKS:
            call(hooks, hook, _lease(server))
            assert server.calls == [], mismatch(f"{hook}: calls of the server by the wrapper itself", [], server.calls)

    # --- upsert: the same call again -----------------------------------------------------------------------------

    @upsert
    def test_a_repeated_call_reaches_the_backend_again(self, hooks: LeaseBackend, backend: ScriptedBackend) -> None:
        """A renewal that is answered from memory renews nothing."""
        for hook in HOOKS:
            backend.calls.clear()
            for _ in range(3):
                call(hooks, hook, _lease())
            calls = len(backend.calls)
            assert calls == 3, f"{hook}, called 3 times: expected 3 calls of the backend, found {calls}"  # noqa: PLR2004

    @upsert
    def test_each_lease_gets_its_own_answer(self, hooks: LeaseBackend, backend: ScriptedBackend) -> None:
        """The old generation and the new one overlap."""
        answers: list[float | None] = []
        for generation in (1, 2, 1):
            backend.answers["acquire"] = Protection(float(len(answers) + 1))
            answers.append(hooks.acquire(_lease(generation=generation), dict(SNAPSHOTS)).until_s)

        expected = [1.0, 2.0, 3.0]
        said = mismatch("acquire for generations 1, 2 and 1: `until_s` of the answers", expected, answers)
        assert answers == expected, said

    # --- chaos ---------------------------------------------------------------------------------------------------

    @chaos
    @pytest.mark.parametrize("hook", HOOKS)
    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_an_error_passes_through_as_it_is(
        self, hooks: LeaseBackend, backend: ScriptedBackend, hook: str, error: LakewardError
    ) -> None:
        """A refused call is tried again, an unknown one starts a new generation: the kind of error decides."""
        backend.answers[hook] = error

        with expect_error(LakewardError, f"{hook}, where the backend raises {error!r}") as caught:
            call(hooks, hook, _lease())

        assert caught.value is error, f"{hook}: expected {error!r}, found {caught.value!r}"
        calls = len(backend.calls)
        assert calls == 1, f"{hook}: expected one call of the backend, found {calls}: the wrapper tried again by itself"

    @chaos
    @pytest.mark.parametrize("hook", HOOKS)
    def test_a_backends_own_exception_is_still_its_own(
        self, hooks: LeaseBackend, backend: ScriptedBackend, hook: str
    ) -> None:
        """The core names the backend for it."""
        backend.answers[hook] = KeyError("x")

        with expect_error(LeaseError, f"{hook}, where the backend raises KeyError", match="KeyError"):
            call(hooks, hook, _lease())

    @chaos
    @pytest.mark.parametrize("hook", HOOKS)
    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_the_end_of_the_process_is_not_held_up(
        self, hooks: LeaseBackend, backend: ScriptedBackend, hook: str, error: type[BaseException]
    ) -> None:
        """A second signal ends a service at once."""
        backend.answers[hook] = error()

        with expect_error(error, f"{hook}, where {error.__name__} ends the process"):
            call(hooks, hook, _lease())

    @chaos
    @pytest.mark.parametrize("hook", HOOKS)
    def test_the_call_after_an_error_works(self, hooks: LeaseBackend, backend: ScriptedBackend, hook: str) -> None:
        """Errors are the ordinary course of a long-lived service."""
        good = backend.answers.get(hook)
        backend.answers[hook] = SourceError("refused")
        with expect_error(SourceError, f"{hook}, where the backend raises SourceError"):
            call(hooks, hook, _lease())
        backend.answers[hook] = good

        with expect_no_error(f"{hook}, after a call of it that the backend refused"):
            call(hooks, hook, _lease())

        found = [one[0] for one in backend.calls]
        assert found == [hook, hook], mismatch(f"{hook}, twice: calls of the backend", [hook, hook], found)

    @chaos
    @pytest.mark.parametrize("hook", HOOKS)
    def test_calls_of_two_leases_overlap(self, hooks: LeaseBackend, backend: ScriptedBackend, hook: str) -> None:
        """Hooks of different lease ids run on threads of their own; a hung one may hold up no other."""
        # Only the coordinator calls `serialize_state`, never twice at once; a hung acquire must not hold it up.
        other = "acquire" if hook == "serialize_state" else hook
        meeting = Meeting(self.overlap_s)
        backend.during = lambda lease: meeting.enter(lease.lease_id)

        troubles = troubles_at_once(
            lambda: call(hooks, other, _lease(generation=1)), lambda: call(hooks, hook, _lease(generation=2))
        )

        which = f"{hook} of two leases" if other == hook else f"{hook} of one lease and {other} of another"
        assert not troubles, f"{which}: expected both calls inside the backend at once, found {troubles}"

    @chaos
    def test_metrics_of_two_services_in_one_process_are_apart(self, make_wrapper: MakeWrapper) -> None:
        """Each service gives its own registry; a metric in the global one would collide."""
        self.needs("shows_metrics")
        for _ in range(2):
            registry = CollectorRegistry()
            hooks = wrapped(make_wrapper, ScriptedBackend(), registry)
            hooks.acquire(_lease(), dict(SNAPSHOTS))

            assert list(registry.collect()), (
                "register_metrics: expected metrics in the registry that was given, found none"
            )


def wrapped(
    make_wrapper: MakeWrapper, backend: ScriptedBackend, registry: CollectorRegistry | None = None
) -> LeaseBackend:
    """Make a wrapper, as a service does, and put it around a backend; return the backend as the core calls it.

    `make_wrapper` is the wrapper's class, or a function without arguments. In `registry`, the wrapper shows its
    metrics.
    """
    with expect_no_error("make_wrapper: a service makes a wrapper without arguments"):
        wrapper = make_wrapper()
    return LeaseBackend("under-test", backend, [("wrapper", wrapper)], registry=registry)


def call(hooks: LeaseBackend, hook: str, lease: Lease, snapshots: dict[TableBucket, int] | None = None) -> object:
    """Call a hook, a name of `HOOKS`, with arguments that fit it; return its answer.

    `acquire` asks for `snapshots`; a copy of all of the lease's unless given.
    """
    asked = dict(SNAPSHOTS) if snapshots is None else snapshots
    arguments: dict[str, object] = {"acquire": asked, "release": frozenset(BUCKETS), "on_failover": RESTART}
    further = () if hook not in arguments else (arguments[hook],)
    return getattr(hooks, hook)(lease, *further)


def _lease(server: MemoryLeaseServer | None = None, generation: int = 1) -> Lease:
    return Lease(f"svc-1-a-{generation}", generation, 60.0, dict(SNAPSHOTS), server or MemoryLeaseServer())
