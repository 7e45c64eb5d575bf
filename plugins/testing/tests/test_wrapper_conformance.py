"""The suite for lease wrappers passes the shipped ones and says what is wrong with others."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from lakeward.errors import LakewardError, SourceError
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Lease, Protection
from lakeward.observe.lease_calls import LeaseAudit, LeaseMetrics
from lakeward_service_kit.suites import failures, plain_part
from lakeward_testing.wrapper_conformance import HOOKS, LeaseWrapperConformance, ScriptedBackend, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lakeward.model.tables import TableBucket

    Around = Generator[None, Any, Any]


class TestLeaseMetrics(LeaseWrapperConformance):
    __test__ = True
    published = LeaseMetrics

    @pytest.fixture
    def make_wrapper(self) -> Callable[[], object]:
        return LeaseMetrics


class TestLeaseAudit(LeaseWrapperConformance):
    __test__ = True
    published = LeaseAudit
    shows_metrics = False

    @pytest.fixture
    def make_wrapper(self) -> Callable[[], object]:
        return LeaseAudit


class Right:
    """Counts drops, and passes everything on."""

    def __init__(self) -> None:
        self.drops = Counter("drops", "Drops.", registry=None)

    def register_metrics(self, registry: CollectorRegistry) -> None:
        registry.register(self.drops)

    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        return (yield)

    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Around:
        self.drops.inc()
        return (yield)


class SwallowsErrors(Right):
    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Around:
        try:
            return (yield)
        except LakewardError:
            return None


class TurnsUnknownIntoRefused(Right):
    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        try:
            return (yield)
        except LakewardError as error:
            message = f"acquire failed: {error}"
            raise SourceError(message) from error


class ForgetsTheAnswer(Right):
    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        yield


class ProlongsTheLease(Right):
    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        answer = yield
        return Protection(2 * (answer.until_s or 0.0), answer.unavailable, answer.protects)


class HidesThatNothingIsProtected(Right):
    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        answer = yield
        return answer if answer.protects else Protection(60.0)


class EmptiesItsArguments(Right):
    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        answer = yield
        snapshots.clear()
        return answer


class HoldsALeaseOfItsOwn(Right):
    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        lease.server.acquire("spare", lease.duration_s, snapshots)
        return (yield)


class RemembersAnswers(Right):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Protection] = {}

    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        answer = yield
        return self.seen.setdefault(lease.lease_id, answer)


class NeverYields(Right):
    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Around:
        if lease.lease_id:
            return None
        return (yield)


class YieldsTwice(Right):
    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Around:
        yield
        return (yield)


class StopsTheEndOfTheProcess(Right):
    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Around:
        try:
            return (yield)
        except (KeyboardInterrupt, SystemExit):
            return None


class LetsOneLeaseWaitForAnother(Right):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Around:
        with self.lock:
            return (yield)


class StaysBrokenAfterAnError(Right):
    def __init__(self) -> None:
        super().__init__()
        self.broken: Exception | None = None

    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Around:
        if self.broken is not None:
            raise self.broken
        try:
            return (yield)
        except LakewardError as error:
            self.broken = error
            raise


class TakesABrokenBackendForOneThatWorks(Right):
    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        try:
            return (yield)
        except LakewardError:
            raise
        except Exception:  # noqa: BLE001 - wrong on purpose
            return Protection(lease.duration_s)


class StopsTheEndOfTheProcessInAcquire(Right):
    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        try:
            return (yield)
        except (KeyboardInterrupt, SystemExit):
            return Protection(lease.duration_s)


class LetsOneAcquireWaitForAnother(Right):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        with self.lock:
            return (yield)


class LetsTheCoordinatorWaitForAcquires(Right):
    def __init__(self) -> None:
        super().__init__()
        self.places = threading.Semaphore(2)

    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        with self.places:
            return (yield)

    @hookimpl(wrapper=True)
    def serialize_state(self, lease: Lease) -> Around:
        with self.places, self.places:
            return (yield)


class StaysBrokenAfterAnErrorOfAcquire(Right):
    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    @hookimpl(wrapper=True)
    def acquire(self, lease: Lease, snapshots: dict[TableBucket, int]) -> Around:
        if self.broken:
            message = "circuit open"
            raise SourceError(message)
        try:
            return (yield)
        except SourceError:
            self.broken = True
            raise


class CrossesOutWhatIsDropped(Right):
    @hookimpl(wrapper=True)
    def drop(self, lease: Lease) -> Around:
        assert isinstance(lease.held, dict)
        lease.held.clear()
        return (yield)


class NeedsArguments(Right):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class ShowsNoMetrics(Right):
    def register_metrics(self, registry: CollectorRegistry) -> None:
        return


ONE_FOR_ALL = Counter("of_all_services", "Calls.", registry=None)


class SharesItsMetricsWithOtherServices(Right):
    def register_metrics(self, registry: CollectorRegistry) -> None:
        GLOBAL.register(ONE_FOR_ALL)


GLOBAL = CollectorRegistry()


class WrapsNothing(Right):
    @hookimpl
    def drop(self, lease: Lease) -> None:  # type: ignore[override]  # wrong on purpose: no wrapper
        return None


WRONG: list[tuple[type, str, str]] = [
    (
        SwallowsErrors,
        "test_an_error_passes_through_as_it_is",
        r"drop, where the backend raises SourceError\('refused'\): expected LakewardError, found no error",
    ),
    (
        TurnsUnknownIntoRefused,
        "test_an_error_passes_through_as_it_is",
        r"acquire: expected SourceError\('refused'\), found SourceError\('acquire failed: refused'\)",
    ),
    (ForgetsTheAnswer, "test_the_answer_of_the_backend_comes_back", "acquire: expected a Protection, found None"),
    (
        ProlongsTheLease,
        "test_the_answer_of_the_backend_comes_back",
        r"acquire: another answer than the backend's: expected .*until_s=42.0.*, found Protection\(until_s=84.0",
    ),
    (
        HidesThatNothingIsProtected,
        "test_what_is_not_protected_stays_unprotected",
        "acquire: `protects` of its answer, where the backend's says False: expected False, found True",
    ),
    (
        EmptiesItsArguments,
        "test_the_arguments_are_left_as_they_are",
        "acquire: its argument `snapshots` afterwards: expected {TableBucket.*, found {}$",
    ),
    (
        HoldsALeaseOfItsOwn,
        "test_the_server_is_called_by_the_backend_alone",
        r"acquire: calls of the server by the wrapper itself: expected \[\], found \[\('acquire', 'spare'\)\]",
    ),
    (
        RemembersAnswers,
        "test_each_lease_gets_its_own_answer",
        r"acquire for generations 1, 2 and 1: `until_s` .*: expected \[1.0, 2.0, 3.0\], found \[1.0, 2.0, 1.0\]",
    ),
    (
        NeverYields,
        "test_each_call_reaches_the_backend_once",
        "drop, where the backend raises none: expected no error, found .*: drop raised RuntimeError: .* did not yield",
    ),
    (
        YieldsTwice,
        "test_each_call_reaches_the_backend_once",
        "drop, where the backend raises none: expected no error, found .*: drop raised RuntimeError: .* second yield",
    ),
    (
        StopsTheEndOfTheProcess,
        "test_the_end_of_the_process_is_not_held_up",
        "drop, where KeyboardInterrupt ends the process: expected KeyboardInterrupt, found no error",
    ),
    (
        LetsOneLeaseWaitForAnother,
        "test_calls_of_two_leases_overlap",
        "drop of two leases: expected both calls inside the backend at once, found .*the other lease's call did not",
    ),
    (
        StaysBrokenAfterAnError,
        "test_the_call_after_an_error_works",
        "drop, after a call of it that the backend refused: expected no error, found SourceError: refused",
    ),
    (
        ShowsNoMetrics,
        "test_metrics_of_two_services",
        "register_metrics: expected metrics in the registry that was given, found none",
    ),
    (
        SharesItsMetricsWithOtherServices,
        "test_metrics_of_two_services",
        "register_metrics: expected metrics in the registry that was given, found none",
    ),
    (
        TakesABrokenBackendForOneThatWorks,
        "test_a_backends_own_exception_is_still_its_own",
        "acquire, where the backend raises KeyError: expected LeaseError, found no error",
    ),
    (
        StopsTheEndOfTheProcessInAcquire,
        "test_the_end_of_the_process_is_not_held_up",
        "acquire, where KeyboardInterrupt ends the process: expected KeyboardInterrupt, found no error",
    ),
    (
        LetsOneAcquireWaitForAnother,
        "test_calls_of_two_leases_overlap",
        "acquire of two leases: expected both calls inside the backend at once, found .*the other lease's call did not",
    ),
    (
        LetsTheCoordinatorWaitForAcquires,
        "test_calls_of_two_leases_overlap",
        "serialize_state of one lease and acquire of another: expected both calls inside the backend at once, found ",
    ),
    (
        StaysBrokenAfterAnErrorOfAcquire,
        "test_the_call_after_an_error_works",
        "acquire, after a call of it that the backend refused: expected no error, found SourceError: circuit open",
    ),
    (
        CrossesOutWhatIsDropped,
        "test_the_arguments_are_left_as_they_are",
        "drop: `lease.held` afterwards: expected {TableBucket.*, found {}$",
    ),
    (
        NeedsArguments,
        "test_each_call_reaches_the_backend_once",
        "make_wrapper: a service makes a wrapper without arguments: expected no error, found TypeError: .*'name'",
    ),
    (WrapsNothing, "test_each_call_reaches_the_backend_once", "expected hookimpl.* on drop, found a plain one"),
]


class Hasty(LeaseWrapperConformance):
    """Of a wrapper that lets calls wait for one another, the other call never comes, however long one waits."""

    overlap_s = 0.05


def verdicts(wrapper: type, wanted: str = "", suite: type[LeaseWrapperConformance] = Hasty) -> dict[str, str]:
    """Run the suite on a wrapper; return the names of the tests that failed, and their messages."""

    def fixtures() -> dict[str, object]:
        backend = ScriptedBackend()
        return {"make_wrapper": wrapper, "backend": backend, "hooks": wrapped(wrapper, backend)}

    return failures(suite, fixtures, wanted)


def test_the_suite_finds_nothing_wrong_with_a_right_wrapper() -> None:
    assert verdicts(Right, suite=LeaseWrapperConformance) == {}


@pytest.mark.parametrize(("wrong", "test", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_the_suite_says_what_is_wrong_with_a_wrapper_that(wrong: type, test: str, message: str) -> None:
    (said,) = verdicts(wrong, test).values()
    assert re.search(message, plain_part(said)), said


@hookimpl(wrapper=True)
def swallowing(self: object, lease: Lease) -> Around:
    """Answer nothing where the backend raises, whatever it is."""
    try:
        return (yield)
    except BaseException:  # noqa: BLE001 - wrong on purpose
        return None


@hookimpl(wrapper=True)
def staying_broken(self: Any, lease: Lease) -> Around:  # noqa: ANN401 - a wrapper
    """Raise the first error with each later call."""
    if error := getattr(self, "broken", None):
        raise error
    try:
        return (yield)
    except LakewardError as error:
        self.broken = error
        raise


LOCK = threading.Lock()


@hookimpl(wrapper=True)
def locking(self: object, lease: Lease) -> Around:
    """Let one lease wait for another."""
    with LOCK:
        return (yield)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize(
    ("mistake", "test"),
    [
        (swallowing, "test_a_backends_own_exception_is_still_its_own"),
        (swallowing, "test_the_end_of_the_process_is_not_held_up"),
        (staying_broken, "test_the_call_after_an_error_works"),
    ],
)
def test_the_suite_looks_at_every_hook(hook: str, mistake: Callable[..., Around], test: str) -> None:
    wrong = type("Wrong", (), {hook: mistake})
    (said,) = verdicts(wrong, test).values()
    assert said.startswith(f"AssertionError: {hook}, "), said


@pytest.mark.parametrize("hook", ["release", "on_failover"])
def test_the_suite_lets_calls_of_every_hook_overlap(hook: str) -> None:
    wrong = type("Wrong", (), {hook: locking})
    (said,) = verdicts(wrong, "test_calls_of_two_leases_overlap").values()
    assert said.startswith(f"AssertionError: {hook} of two leases: expected both calls inside the backend"), said


def test_there_is_a_mistake_for_each_wrong_wrapper() -> None:
    assert {wrong for wrong, _, _ in WRONG} == set(Right.__subclasses__())
