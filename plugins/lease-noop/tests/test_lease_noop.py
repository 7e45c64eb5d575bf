from __future__ import annotations

import pytest

from lakeward.model.leases import Lease
from lakeward.model.tables import TableBucket
from lakeward_lease_noop.backend import NoLeases
from lakeward_testing.lease_conformance import LeaseBackendConformance
from lakeward_testing.lease_server import MemoryLeaseServer


class TestNoLeases(LeaseBackendConformance):
    __test__ = True
    published = NoLeases

    protects = False
    releases = False
    stateful = False

    @pytest.fixture
    def backend(self) -> object:
        return NoLeases()


def test_it_says_once_that_nothing_is_protected(caplog: pytest.LogCaptureFixture) -> None:
    """It says once that nothing is protected."""
    backend = NoLeases()
    lease = Lease("svc-1-a-1", 1, 600.0, {}, MemoryLeaseServer())

    for _ in range(3):
        assert not backend.acquire(lease, {TableBucket(7, None, 0): 9}).protects

    assert [record.name for record in caplog.records] == ["lakeward.lease.noop"]
