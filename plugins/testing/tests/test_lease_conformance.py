"""The conformance suite passes a right backend and catches wrong ones."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import LakewardError, OutcomeUnknownError, SourceError
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Failover, FailoverAction, FailoverAnswer, FailoverKind, Lease, Protection
from lakeward_service_kit.suites import failures, plain_part
from lakeward_testing.lease_conformance import LeaseBackendConformance
from lakeward_testing.lease_server import MemoryLeaseServer

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class AcquiresInParts(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        for bucket, snapshot in snapshots.items():
            lease.server.acquire(lease.lease_id, lease.duration_s, {bucket: snapshot})
        return Protection(lease.duration_s)


class HidesWhatTheServerMisses(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        return Protection(lease.server.acquire(lease.lease_id, lease.duration_s, snapshots).until_s)


class TakesAnUnknownReleaseForDone(Right):
    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        try:
            lease.server.release(lease.lease_id, buckets)
        except OutcomeUnknownError:
            return


class RetriesAFailedRelease(Right):
    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        try:
            lease.server.release(lease.lease_id, buckets)
        except LakewardError:
            lease.server.release(lease.lease_id, buckets)


class SwallowsFailedDrops(Right):
    @hookimpl
    def drop(self, lease: Lease) -> None:
        try:
            lease.server.drop(lease.lease_id)
        except LakewardError:
            return


class RetriesARefusedDrop(Right):
    @hookimpl
    def drop(self, lease: Lease) -> None:
        try:
            lease.server.drop(lease.lease_id)
        except SourceError:
            lease.server.drop(lease.lease_id)


class RetriesADropOfUnknownOutcome(Right):
    @hookimpl
    def drop(self, lease: Lease) -> None:
        try:
            lease.server.drop(lease.lease_id)
        except OutcomeUnknownError:
            lease.server.drop(lease.lease_id)


class TurnsAnUnknownDropIntoARefusedOne(Right):
    @hookimpl
    def drop(self, lease: Lease) -> None:
        try:
            lease.server.drop(lease.lease_id)
        except OutcomeUnknownError as error:
            message = f"drop failed: {error}"
            raise SourceError(message) from error


class DropsAllGenerations(Right):
    @hookimpl
    def drop(self, lease: Lease) -> None:
        for lease_id in (lease.lease_id, *(old for old, _ in lease.old_ids)):
            lease.server.drop(lease_id)


class EmptiesItsArguments(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        answer = lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)
        assert isinstance(snapshots, dict)
        snapshots.clear()
        return answer


class CrossesOutWhatItReleased(Right):
    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        lease.server.release(lease.lease_id, buckets)
        assert isinstance(lease.held, dict)
        for bucket in buckets:
            lease.held.pop(bucket, None)


class LetsOneLeaseWaitForAnother(Right):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        with self.lock:
            return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)


class MixesUpTwoLeases(Right):
    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection | None:
        self.lease_id = lease.lease_id
        (bucket, snapshot), *others = snapshots.items()
        lease.server.acquire(lease.lease_id, lease.duration_s, {bucket: snapshot})
        return lease.server.acquire(self.lease_id, lease.duration_s, dict(others))


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


class _Hasty(_Suite):
    """Of a backend that lets calls wait for one another, the other call never comes, however long one waits."""

    overlap_s = 0.05


# Which test of the suite finds the mistake, and what it then says.
WRONG: list[tuple[type, str, str]] = [
    (
        ChoosesItsOwnId,
        "test_acquire_protects_every_snapshot_under_the_id_it_was_given",
        r"acquire of a lease with the id 'svc-1-a-1': leases at the server: expected {'svc-1-a-1': .*, found {'mine': ",
    ),
    (
        TakesItsOwnDuration,
        "test_acquire_takes_the_duration_of_the_lease",
        r"acquire with a duration of 60.0 s; a second after its end: leases at the server: expected {}, found {'svc-",
    ),
    (
        RenewsNothing,
        "test_acquire_again_renews",
        r"acquire, called again .* to renew the lease: leases at the server: expected {'svc-1-a-1': .*, found {}$",
    ),
    (
        SwallowsErrors,
        "test_a_refused_acquire_is_an_error",
        "acquire, where the server refuses the call: expected SourceError, found no error",
    ),
    (
        SwallowsErrors,
        "test_an_acquire_without_an_answer_is_unknown",
        "acquire, where no answer of the server arrives: expected OutcomeUnknownError, found no error",
    ),
    (
        RetriesByItself,
        "test_a_refused_acquire_is_an_error",
        "acquire: expected one call of the server, found 2: the backend retried by itself",
    ),
    (
        PromisesMoreThanTheServer,
        "test_acquire_says_until_when",
        "acquire: expected `until_s` to be at most the lease's duration of 60.0 s, found 600.0",
    ),
    (AnswersNothing, "test_acquire_protects_every_snapshot", "acquire: expected a Protection, found None"),
    (
        AcquiresAllThatIsHeld,
        "test_acquire_takes_only_what_is_asked_for",
        "acquire of one snapshot, where `lease.held` has three: leases at the server: expected .*, found ",
    ),
    (
        ReleasesTheWholeLease,
        "test_release_gives_back_these_buckets_and_no_other",
        "release of two of the three buckets: leases at the server: expected {'svc-1-a-1': .*, found {}$",
    ),
    (
        NeverReleases,
        "test_a_backend_that_never_releases_calls_the_server_for_nothing_else",
        "releases = True: methods of the server that they call: expected {.*'release'.*}, found {(?!.*'release')",
    ),
    (
        SwallowsFailedReleases,
        "test_a_refused_release_is_an_error",
        "release, where the server refuses the call: expected SourceError, found no error",
    ),
    (
        DropsByReleasingWhatIsHeld,
        "test_drop_removes_the_whole_lease_even_if_its_books_are_empty",
        "drop of a lease whose `held` is empty: leases at the server: expected {}, found {'svc-1-a-1'",
    ),
    (
        DropsTheGenerationBefore,
        "test_acquire_under_a_new_generation_leaves_the_old_one_alone",
        "acquire under the id of the next generation: leases .*: expected {'svc-1-a-1'.*, found {'svc-1-a-2'",
    ),
    (
        CallsTheServerToSerialize,
        "test_serialize_state_calls_nothing",
        r"serialize_state: calls of the server: expected \[\], found \[\('acquire', 'svc-1-a-1'\)\]",
    ),
    (
        KeepsStateThatItDidNotDeclare,
        "test_serialize_state_calls_nothing",
        "serialize_state of a backend with stateful = False: expected None, found b'state'",
    ),
    (
        RestoresAfterAReader,
        "test_a_failed_reader_or_job_restores_nothing",
        "on_failover after a failed reader: on_failover changed the lease by itself; .*, found {}$",
    ),
    (
        AcquiresInParts,
        "test_a_refused_acquire_protects_nothing",
        "acquire, in several calls .* raised SourceError: leases at the server: expected {}, found {'svc-1-a-1'",
    ),
    (
        HidesWhatTheServerMisses,
        "test_acquire_says_which_snapshots_the_server_knows_to_be_gone",
        r"acquire, where the answer of `lease.server` names .*: `unavailable`: expected {TableBucket.*: 11}, found {}$",
    ),
    (
        TakesAnUnknownReleaseForDone,
        "test_a_release_without_an_answer_is_unknown",
        "release, where no answer of the server arrives: expected OutcomeUnknownError, found no error",
    ),
    (
        RetriesAFailedRelease,
        "test_a_refused_release_is_an_error",
        "release: expected one call of the server, found 2: the backend retried by itself",
    ),
    (
        RetriesAFailedRelease,
        "test_a_release_without_an_answer_is_unknown",
        "release: expected one call of the server, found 2: the backend retried by itself",
    ),
    (
        SwallowsFailedDrops,
        "test_a_refused_drop_is_an_error",
        "drop, where the server refuses the call: expected SourceError, found no error",
    ),
    (
        SwallowsFailedDrops,
        "test_a_drop_without_an_answer_is_unknown",
        "drop, where no answer of the server arrives: expected OutcomeUnknownError, found no error",
    ),
    (
        RetriesARefusedDrop,
        "test_a_refused_drop_is_an_error",
        "drop: expected one call of the server, found 2: the backend retried by itself",
    ),
    (
        RetriesADropOfUnknownOutcome,
        "test_a_drop_without_an_answer_is_unknown",
        "drop: expected one call of the server, found 2: the backend retried by itself",
    ),
    (
        TurnsAnUnknownDropIntoARefusedOne,
        "test_a_drop_without_an_answer_is_unknown",
        "drop, where no answer of the server arrives: expected OutcomeUnknownError, found SourceError: drop failed: ",
    ),
    (
        DropsAllGenerations,
        "test_drop_leaves_ids_alone_that_are_still_to_be_dropped",
        "drop of 'svc-1-a-2', with 'svc-1-a-1' in `lease.old_ids`: leases .*: expected {'svc-1-a-1'.*, found {}$",
    ),
    (
        EmptiesItsArguments,
        "test_the_arguments_are_left_as_they_are",
        "acquire: its argument `snapshots` afterwards: expected {TableBucket.*, found {}$",
    ),
    (
        CrossesOutWhatItReleased,
        "test_the_arguments_are_left_as_they_are",
        "release: `lease.held` afterwards: expected {TableBucket.*, found {}$",
    ),
    (
        LetsOneLeaseWaitForAnother,
        "test_calls_of_two_leases_overlap",
        "acquire of two leases: expected both calls inside `lease.server` at once, found .*the other lease's call did",
    ),
    (
        MixesUpTwoLeases,
        "test_calls_of_two_leases_overlap",
        "acquire of two leases at the same time: leases at the server: expected {'svc-1-a-1': .*, found ",
    ),
]


def verdicts(backend: type, wanted: str = "", suite: type[_Suite] = _Hasty) -> dict[str, str]:
    """Run the suite on a backend; return the names of the tests that failed, and their messages."""
    return failures(suite, lambda: {"hooks": LeaseBackend("wrong", backend), "server": MemoryLeaseServer()}, wanted)


def test_the_suite_finds_nothing_wrong_with_a_right_backend() -> None:
    """Otherwise what it finds would say nothing."""
    assert verdicts(Right, suite=_Suite) == {}


@pytest.mark.parametrize(("wrong", "test", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_the_suite_says_what_is_wrong_with_a_backend_that(wrong: type, test: str, message: str) -> None:
    """Each of these breaks one rule of the contract."""
    (said,) = verdicts(wrong, test).values()
    assert re.search(message, plain_part(said)), said


class HasAServerOfItsOwn:
    """Does what it is asked at its own server, one call after the other; it never calls `lease.server`."""

    def __init__(self) -> None:
        self.own = MemoryLeaseServer()
        self.lock = threading.Lock()

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        with self.lock:
            return self.own.acquire(lease.lease_id, lease.duration_s, snapshots)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        with self.lock:
            self.own.release(lease.lease_id, buckets)

    @hookimpl
    def drop(self, lease: Lease) -> None:
        with self.lock:
            self.own.drop(lease.lease_id)


def test_a_backend_with_a_server_of_its_own_may_let_calls_wait_for_its_connection() -> None:
    """The backend of the how-to does."""
    hooks = LeaseBackend("own", HasAServerOfItsOwn)
    with pytest.raises(pytest.skip.Exception, match="this backend calls a server of its own"):
        _Suite().test_calls_of_two_leases_overlap(hooks, "acquire")
    with pytest.raises(pytest.skip.Exception, match="this backend calls a server of its own"):
        _Suite().test_acquire_says_which_snapshots_the_server_knows_to_be_gone(hooks)


def test_there_is_a_mistake_for_each_wrong_backend() -> None:
    """No wrong backend is left out."""
    assert {wrong for wrong, _, _ in WRONG} == set(Right.__subclasses__())
