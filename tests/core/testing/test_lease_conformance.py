"""The conformance suite passes a right backend and catches wrong ones."""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import LakewardError
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Failover, FailoverAction, FailoverAnswer, FailoverKind, Lease, Protection
from lakeward.testing.lease_conformance import LeaseBackendConformance
from lakeward.testing.lease_server import MemoryLeaseServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.model.tables import TableBucket


class Right:
    """Acquires, renews, releases, drops; keeps nothing."""

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        lease.server.release(lease.lease_id, buckets)

    @hookimpl
    def drop(self, lease: Lease) -> None:
        lease.server.drop(lease.lease_id)

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer | None:
        return None

    @hookimpl
    def serialize_state(self, lease: Lease) -> bytes | None:
        return None


class ChoosesItsOwnId(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        return lease.server.acquire("mine", lease.duration_s, snapshots)


class TakesItsOwnDuration(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        return lease.server.acquire(lease.lease_id, 86_400.0, snapshots)


class RenewsNothing(Right):
    def __init__(self) -> None:
        self.seen: set[str] = set()

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        if lease.lease_id in self.seen:
            return Protection(lease.duration_s)
        self.seen.add(lease.lease_id)
        return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)


class SwallowsErrors(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        try:
            return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)
        except LakewardError:
            return Protection(lease.duration_s)


class RetriesByItself(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        try:
            return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)
        except LakewardError:
            return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)


class PromisesMoreThanTheServer(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)
        return Protection(10 * lease.duration_s)


class AnswersNothing(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)
        return None


class AcquiresAllThatIsHeld(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        return lease.server.acquire(lease.lease_id, lease.duration_s, lease.held)


class ReleasesTheWholeLease(Right):
    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        lease.server.drop(lease.lease_id)


class NeverReleases(Right):
    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        return


class SwallowsFailedReleases(Right):
    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        try:
            lease.server.release(lease.lease_id, buckets)
        except LakewardError:
            return


class DropsByReleasingWhatIsHeld(Right):
    @hookimpl
    def drop(self, lease: Lease) -> None:
        lease.server.release(lease.lease_id, frozenset(lease.held))


class DropsTheGenerationBefore(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        lease.server.drop(f"{lease.lease_id.rpartition('-')[0]}-{lease.generation - 1}")
        return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)


class CallsTheServerToSerialize(Right):
    @hookimpl
    def serialize_state(self, lease: Lease) -> bytes | None:
        lease.server.acquire(lease.lease_id, lease.duration_s, lease.held)
        return None


class KeepsStateThatItDidNotDeclare(Right):
    @hookimpl
    def serialize_state(self, lease: Lease) -> bytes | None:
        return b"state"


class RestoresAfterAReader(Right):
    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer | None:
        if failover.kind is FailoverKind.READER:
            lease.server.drop(lease.lease_id)
        return FailoverAnswer(FailoverAction.KEEP)


class TestRightBackend(LeaseBackendConformance):
    """A right backend passes every test of the suite."""

    __test__ = True

    stateful = False
    survives_old_server = False

    @pytest.fixture
    def backend(self) -> object:
        return Right()


class _Suite(LeaseBackendConformance):
    stateful = False
    survives_old_server = False


def _parameters(test: Any) -> Iterator[dict[str, object]]:  # noqa: ANN401 - a test function with its marks
    """Yield the arguments of each case of a test, as pytest would."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    for values in itertools.product(*(mark.args[1] for mark in marks)):
        yield dict(zip((mark.args[0] for mark in marks), values, strict=True))


def _verdicts(backend: type) -> list[str]:
    """Run every test of the suite and return the names of those that failed."""
    failed = []
    for name, test in inspect.getmembers(_Suite, inspect.isfunction):
        if not name.startswith("test_"):
            continue
        for case in _parameters(test):
            arguments: dict[str, object] = {
                "hooks": LeaseBackend("wrong", backend),
                "server": MemoryLeaseServer(),
                **case,
            }
            wanted = inspect.signature(test).parameters
            try:
                test(_Suite(), **{key: value for key, value in arguments.items() if key in wanted})
            except pytest.skip.Exception:
                continue
            except (AssertionError, LakewardError, pytest.fail.Exception):
                failed.append(name)
    return failed


def test_the_suite_finds_nothing_wrong_with_a_right_backend() -> None:
    """Otherwise what it finds would say nothing."""
    assert _verdicts(Right) == []


@pytest.mark.parametrize("wrong", Right.__subclasses__(), ids=lambda backend: backend.__name__)
def test_the_suite_catches_a_backend_that(wrong: type) -> None:
    """Each of these breaks one rule of the contract."""
    assert _verdicts(wrong) != []
