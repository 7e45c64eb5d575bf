from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import CorruptFileError, LeaseApiMissingError, SourceError
from lakeward.hooks.backend import LeaseBackend
from lakeward.model.leases import Failover, FailoverAction, FailoverKind, Lease
from lakeward.model.tables import TableBucket
from lakeward_lease_fluss.backend import FlussLeaseOptions, FlussLeases
from lakeward_lease_fluss.state import pack, unpack
from lakeward_testing.lease_conformance import LeaseBackendConformance
from lakeward_testing.lease_server import REFUSED, MemoryLeaseServer

if TYPE_CHECKING:
    from collections.abc import Callable

BUCKET = TableBucket(7, None, 0)


class TestFlussLeases(LeaseBackendConformance):
    __test__ = True
    published = FlussLeases

    @pytest.fixture
    def backend(self) -> object:
        return FlussLeases()


def _lease(server: MemoryLeaseServer) -> Lease:
    return Lease("svc-1-a-4", 4, 60.0, {BUCKET: 9}, server, frozenset({TableBucket(8, 2, 1)}), (("svc-1-a-3", 3),))


def test_it_lasts_six_hours() -> None:
    """It lasts six hours."""
    assert LeaseBackend("fluss", FlussLeases).default_duration_s == 6 * 3600


@pytest.mark.parametrize(("away_h", "kept"), [(5.9, True), (6.1, False)])
def test_a_start_takes_over_what_an_outage_of_less_than_six_hours_has_left(away_h: float, kept: bool) -> None:
    """A start takes over what an outage of less than six hours has left."""
    server, backend = MemoryLeaseServer(), FlussLeases()
    first = Lease("svc-1-a-1", 1, FlussLeases.default_duration_s, {BUCKET: 9}, server)
    backend.acquire(first, {BUCKET: 9})
    state = backend.serialize_state(first)

    server.clock.advance(away_h * 3600)
    assert server.protects(BUCKET, 9) is kept
    answer = backend.on_failover(
        replace(first, lease_id="svc-1-b-2"), Failover(FailoverKind.COORDINATOR, 2, state=state)
    )
    assert answer.action is FailoverAction.ACQUIRE
    assert answer.restored is not None
    second = replace(first, lease_id="svc-1-b-2", generation=2, held=answer.restored.held)
    backend.acquire(second, second.held)
    backend.drop(first)

    server.clock.advance(5.9 * 3600)
    assert server.leases == {"svc-1-b-2": {BUCKET: 9}}


def test_an_old_server_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """An old server is warned of once."""
    server = MemoryLeaseServer(old_server=True)
    backend = FlussLeases()

    for _ in range(3):
        assert not backend.acquire(_lease(server), {BUCKET: 9}).protects
        backend.release(_lease(server), frozenset({BUCKET}))

    assert [record.name for record in caplog.records] == ["lakeward.lease.fluss"]


def test_what_the_configuration_says_reaches_the_backend() -> None:
    """What the configuration says reaches the backend."""
    hooks = LeaseBackend.load("fluss", (), FlussLeaseOptions(required=True))

    with pytest.raises(LeaseApiMissingError):
        hooks.acquire(_lease(MemoryLeaseServer(old_server=True)), {BUCKET: 9})


def test_a_refusal_is_not_taken_for_an_old_server() -> None:
    """A refusal is not taken for an old server."""
    server = MemoryLeaseServer()
    server.script(REFUSED)

    with pytest.raises(SourceError):
        FlussLeases().drop(_lease(server))


def test_the_state_has_these_bytes() -> None:
    """The state has these bytes."""
    lease = b'"id":"svc-1-a-4","generation":4,"held":[[7,null,0,9]],"pending":[[8,2,1]],"old":[["svc-1-a-3",3]]'
    body = b'{"version":1,%s}' % lease

    assert pack(_lease(MemoryLeaseServer())) == b"%08x" % zlib.crc32(body) + body


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(version=2),
        lambda state: state.pop("version"),
        lambda state: state.pop("held"),
        lambda state: state.update(held=[[1, 2]]),
        lambda state: state.update(old=7),
    ],
)
def test_state_of_another_shape_or_version_is_refused(change: Callable[[dict[str, object]], object]) -> None:
    """State of another shape or version is refused."""
    state = json.loads(pack(_lease(MemoryLeaseServer()))[8:])
    change(state)
    body = json.dumps(state).encode()

    with pytest.raises(CorruptFileError, match="lease state of backend 'fluss'"):
        unpack(b"%08x" % zlib.crc32(body) + body)


def test_every_flipped_byte_is_noticed() -> None:
    """Every flipped byte is noticed."""
    state = pack(_lease(MemoryLeaseServer()))

    for position in range(len(state)):
        damaged = state[:position] + bytes([state[position] ^ 1]) + state[position + 1 :]
        with pytest.raises(CorruptFileError):
            unpack(damaged)


@pytest.mark.parametrize("kind", [FailoverKind.READER, FailoverKind.JOB])
def test_a_failed_reader_or_job_keeps_the_lease(kind: FailoverKind) -> None:
    """A failed reader or job keeps the lease."""
    answer = FlussLeases().on_failover(_lease(MemoryLeaseServer()), Failover(kind, 1))

    assert answer.action is FailoverAction.KEEP


def test_where_leases_are_required_a_server_without_them_fails_the_round() -> None:
    """Where leases are required a server without them fails the round."""
    server = MemoryLeaseServer(old_server=True)
    backend = LeaseBackend("fluss", FlussLeases, options=FlussLeaseOptions(required=True))

    with pytest.raises(LeaseApiMissingError):
        backend.acquire(_lease(server), {BUCKET: 9})
