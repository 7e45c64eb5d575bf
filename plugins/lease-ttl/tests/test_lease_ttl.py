from __future__ import annotations

import pytest

from lakeward.errors import LeaseApiMissingError
from lakeward.hooks.backend import LeaseBackend
from lakeward.model.leases import Failover, FailoverAction, FailoverKind, Lease
from lakeward.model.tables import TableBucket
from lakeward_lease_ttl.backend import TtlLeases
from lakeward_testing.lease_conformance import LeaseBackendConformance
from lakeward_testing.lease_server import MemoryLeaseServer

BUCKET = TableBucket(7, None, 0)


class TestTtlLeases(LeaseBackendConformance):
    __test__ = True
    published = TtlLeases

    releases = False
    stateful = False
    survives_old_server = False

    @pytest.fixture
    def backend(self) -> object:
        return TtlLeases()


def test_it_lasts_ten_minutes() -> None:
    """It lasts ten minutes."""
    assert LeaseBackend("ttl", TtlLeases).default_duration_s == 600


def test_what_is_not_renewed_runs_out() -> None:
    """What is not renewed runs out."""
    server = MemoryLeaseServer()
    lease = Lease("svc-1-a-1", 1, 600.0, {BUCKET: 9}, server)
    TtlLeases().acquire(lease, {BUCKET: 9})

    server.clock.advance(601)

    assert server.leases == {}


def test_what_is_needed_no_more_runs_out_though_the_service_goes_on_renewing() -> None:
    """Within twice the duration: it may have been renewed with the rest until the end of its period."""
    server, other = MemoryLeaseServer(), TableBucket(8, None, 0)
    backend, duration_s = TtlLeases(server.clock.now), 600
    lease = Lease("svc-1-a-1", 1, duration_s, {BUCKET: 9, other: 5}, server)
    backend.acquire(lease, {BUCKET: 9, other: 5})
    for _ in range(2 * duration_s // 200):
        server.clock.advance(200)
        assert server.protects(other, 5)
        backend.acquire(lease, {other: 5})
    assert (server.protects(BUCKET, 9), server.protects(other, 5)) == (False, True)


def test_an_old_server_is_an_error() -> None:
    """An old server is an error."""
    server = MemoryLeaseServer(old_server=True)
    lease = Lease("svc-1-a-1", 1, 600.0, {BUCKET: 9}, server)

    with pytest.raises(LeaseApiMissingError):
        LeaseBackend("ttl", TtlLeases).acquire(lease, {BUCKET: 9})


@pytest.mark.parametrize("kind", list(FailoverKind))
def test_every_failover_keeps_what_there_is(kind: FailoverKind) -> None:
    """Every failover keeps what there is."""
    lease = Lease("svc-1-a-1", 1, 600.0, {}, MemoryLeaseServer())

    answer = TtlLeases().on_failover(lease, Failover(kind, 1))

    assert (answer.action, answer.restored) == (FailoverAction.KEEP, None)
