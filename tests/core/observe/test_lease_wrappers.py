"""The shipped lease wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from lakeward.errors import SourceError
from lakeward.hooks.backend import LeaseBackend
from lakeward.hooks.discovery import load
from lakeward.hooks.markers import hookimpl
from lakeward.hooks.plugins import WRAPPER_GROUP
from lakeward.model.leases import Lease, Protection
from lakeward.model.tables import TableBucket
from lakeward.observe.lease_calls import CALLS, DURATION, HELD, UNPROTECTED, LeaseAudit, LeaseMetrics
from lakeward_testing.clock import FakeClock
from lakeward_testing.lease_server import REFUSED, MemoryLeaseServer

if TYPE_CHECKING:
    from collections.abc import Mapping

BUCKET = TableBucket(7, None, 0)


class Backend:
    """Takes two seconds for an acquire; protects nothing under the id `open`."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        self.clock.advance(2.0)
        lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)
        return Protection(60.0, protects=lease.lease_id != "open")

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        lease.server.release(lease.lease_id, buckets)

    @hookimpl
    def drop(self, lease: Lease) -> None:
        lease.server.drop(lease.lease_id)


def _lease(server: MemoryLeaseServer, lease_id: str = "svc-1-a-1") -> Lease:
    return Lease(lease_id, 1, 60.0, {BUCKET: 9}, server)


def test_metrics_count_and_time_each_call_by_its_outcome() -> None:
    clock, registry, server = FakeClock(), CollectorRegistry(), MemoryLeaseServer()
    hooks = LeaseBackend("mine", Backend(clock), [("metrics", LeaseMetrics(clock))], registry=registry)
    hooks.acquire(_lease(server), {BUCKET: 9})
    server.script(REFUSED)
    with pytest.raises(SourceError):
        hooks.acquire(_lease(server), {BUCKET: 9})

    assert registry.get_sample_value(CALLS, {"hook": "acquire", "outcome": "ok"}) == 1
    assert registry.get_sample_value(CALLS, {"hook": "acquire", "outcome": "SourceError"}) == 1
    assert registry.get_sample_value(f"{DURATION}_sum", {"hook": "acquire"}) == 4.0
    assert registry.get_sample_value(HELD) == 1


def test_an_acquire_that_protects_nothing_is_seen_in_a_metric() -> None:
    clock, registry, server = FakeClock(), CollectorRegistry(), MemoryLeaseServer()
    hooks = LeaseBackend("mine", Backend(clock), [("metrics", LeaseMetrics(clock))], registry=registry)

    hooks.acquire(_lease(server), {BUCKET: 9})
    assert registry.get_sample_value(UNPROTECTED) == 0
    hooks.acquire(_lease(server, "open"), {BUCKET: 9})
    assert registry.get_sample_value(UNPROTECTED) == 1


def test_audit_writes_one_line_for_each_call() -> None:
    clock, server = FakeClock(), MemoryLeaseServer()
    hooks = LeaseBackend("mine", Backend(clock), [("audit", LeaseAudit(clock))])
    with capture_logs() as lines:
        hooks.acquire(_lease(server), {BUCKET: 9})
        hooks.release(_lease(server), frozenset({BUCKET}))
        server.script(REFUSED)
        with pytest.raises(SourceError):
            hooks.drop(_lease(server))

    assert [(line["hook"], line["outcome"], line["seconds"]) for line in lines] == [
        ("acquire", "ok", 2.0),
        ("release", "ok", 0.0),
        ("drop", "SourceError", 0.0),
    ]
    assert {line["lease_id"] for line in lines} == {"svc-1-a-1"}


@pytest.mark.parametrize(("name", "made"), [("metrics", LeaseMetrics), ("audit", LeaseAudit)])
def test_both_wrappers_are_found_by_name(name: str, made: type) -> None:
    found = load(WRAPPER_GROUP, name)

    assert found is made or isinstance(found, made)
