"""The façade over the hooks: loading, order of wrappers, errors, checked answers, tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import (
    CorruptFileError,
    LeaseApiMissingError,
    LeaseError,
    OutcomeUnknownError,
    PluginError,
    SourceError,
)
from lakeward.hooks.backend import FALLBACK_DURATION_S, LeaseBackend
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
from lakeward_testing.lease_server import MemoryLeaseServer

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

BUCKET = TableBucket(7, None, 0)
LEASE = Lease("svc-1-a-1", 1, 60.0, {BUCKET: 9}, MemoryLeaseServer())
READER = Failover(FailoverKind.READER, 1)


class Scripted:
    """Answers each hook with what the test gave, or raises it."""

    def __init__(self, answer: object = None) -> None:
        self.answer = answer

    def _give(self) -> object:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> object:
        return self._give()

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> object:
        return self._give()

    @hookimpl
    def drop(self, lease: Lease) -> object:
        return self._give()

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> object:
        return self._give()

    @hookimpl
    def serialize_state(self, lease: Lease) -> object:
        return self._give()


class Minimal:
    """Only the three hooks that a backend must have."""

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        return Protection(60.0)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        return None

    @hookimpl
    def drop(self, lease: Lease) -> None:
        return None


def _call(hooks: LeaseBackend, hook: str) -> object:
    arguments: dict[str, tuple[object, ...]] = {
        "acquire": (LEASE, {BUCKET: 9}),
        "release": (LEASE, frozenset({BUCKET})),
        "on_failover": (LEASE, READER),
    }
    return getattr(hooks, hook)(*arguments.get(hook, (LEASE,)))


HOOKS = ["acquire", "release", "drop", "on_failover", "serialize_state"]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_backends_own_exception_becomes_a_lease_error_that_names_it(hook: str) -> None:
    with pytest.raises(LeaseError, match=rf"lease backend 'mine': {hook} raised KeyError: 'x'") as caught:
        _call(LeaseBackend("mine", Scripted(KeyError("x"))), hook)

    assert caught.value.backend == "mine"


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("error", [OutcomeUnknownError, LeaseApiMissingError, SourceError])
def test_our_own_errors_pass_through(hook: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="as it was"):
        _call(LeaseBackend("mine", Scripted(error("as it was"))), hook)


@pytest.mark.parametrize("error", [TimeoutError("slow"), ConnectionResetError("gone")])
def test_a_lost_connection_is_unknown_and_not_failed(error: Exception) -> None:
    with pytest.raises(OutcomeUnknownError, match="lease backend 'mine': acquire: no answer"):
        _call(LeaseBackend("mine", Scripted(error)), "acquire")


def test_corrupt_state_is_told_as_it_is() -> None:
    with pytest.raises(CorruptFileError):
        _call(LeaseBackend("mine", Scripted(CorruptFileError("f", "x", "y"))), "on_failover")


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        ("acquire", None),
        ("acquire", {"until": 5}),
        ("acquire", Protection("soon")),  # type: ignore[arg-type]  # nonsense on purpose
        ("acquire", Protection(-1.0)),
        ("acquire", Protection(float("nan"))),
        ("acquire", Protection(float("inf"))),
        ("acquire", Protection(1.0, protects="yes")),  # type: ignore[arg-type]  # nonsense on purpose
        ("acquire", Protection(1.0, [BUCKET])),  # type: ignore[arg-type]  # nonsense on purpose
        ("acquire", Protection(1.0, {BUCKET: 8})),
        ("acquire", Protection(1.0, {TableBucket(8, None, 0): 9})),
        ("release", True),
        ("drop", "done"),
        ("on_failover", "keep"),
        ("on_failover", FailoverAnswer("keep")),  # type: ignore[arg-type]  # nonsense on purpose
        ("on_failover", FailoverAnswer(FailoverAction.KEEP, RestoredLease("x", 1, {}))),
        ("serialize_state", "text"),
        ("serialize_state", bytearray(b"x")),
    ],
)
def test_nonsense_is_a_lease_error_that_names_the_backend(hook: str, answer: object) -> None:
    with pytest.raises(LeaseError, match=f"lease backend 'mine': {hook}: expected"):
        _call(LeaseBackend("mine", Scripted(answer)), hook)


@pytest.mark.parametrize("restored", ["x", RestoredLease("", 1, {}), RestoredLease("x", 1, {"bucket": 1})])  # type: ignore[dict-item]  # nonsense on purpose
def test_a_restored_lease_is_checked(restored: object) -> None:
    answer = FailoverAnswer(FailoverAction.ACQUIRE, restored)  # type: ignore[arg-type]  # nonsense on purpose

    with pytest.raises(LeaseError, match="lease backend 'mine'"):
        LeaseBackend("mine", Scripted(answer)).on_failover(LEASE, Failover(FailoverKind.COORDINATOR, 0, state=b""))


def test_two_of_the_five_hooks_may_be_left_out() -> None:
    hooks = LeaseBackend("mine", Minimal)

    assert hooks.on_failover(LEASE, READER) == FailoverAnswer(FailoverAction.KEEP)
    assert hooks.serialize_state(LEASE) is None
    assert hooks.default_duration_s == FALLBACK_DURATION_S


class NoDrop:
    @hookimpl
    def acquire(self, lease: Lease) -> None: ...

    @hookimpl
    def release(self, lease: Lease) -> None: ...


class Misspelt(Minimal):
    @hookimpl
    def aquire(self, lease: Lease) -> None: ...


class WrongArgument(Minimal):
    @hookimpl
    def drop(self, lease: Lease, now: float) -> None: ...  # type: ignore[override]  # wrong on purpose


class NeedsArguments(Minimal):
    def __init__(self, url: str) -> None: ...


class Timeless(Minimal):
    default_duration_s = 0


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        (NoDrop, "missing drop"),
        (Misspelt, "aquire"),
        (WrongArgument, "now"),
        (NeedsArguments, "url"),
        (Timeless, "default_duration_s"),
        (object(), "missing acquire, release, drop"),
    ],
)
def test_a_backend_that_breaks_the_contract_is_refused_by_name(backend: object, said: str) -> None:
    with pytest.raises(PluginError, match="lease backend 'mine'") as caught:
        LeaseBackend("mine", backend)

    assert said in str(caught.value)


class Noted:
    """A wrapper that notes when it was entered and left."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Generator[None, object, object]:
        self.log.append(f"into {self.name}")
        answer = yield
        self.log.append(f"out of {self.name}")
        return answer


def test_the_first_wrapper_is_the_outermost() -> None:
    log: list[str] = []

    LeaseBackend("mine", Minimal, [("first", Noted("first", log)), ("second", Noted("second", log))]).drop(LEASE)

    assert log == ["into first", "into second", "out of second", "out of first"]


def test_a_wrapper_that_is_none_is_refused() -> None:
    with pytest.raises(PluginError, match="lease wrapper 'w': expected hookimpl"):
        LeaseBackend("mine", Minimal, [("w", Scripted())])
