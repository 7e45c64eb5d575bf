"""Stopping: in time, with what is whole committed; at once, with nothing lost; for good, with the lease dropped."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from lakeward.storage.service_state import ServiceStateStore
from lakeward.storage.small_files import SmallFiles
from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]
STOP_S = 20


def slow_tables(world: World) -> tuple[LogTable, KeyTable]:
    """Make tables that take half a minute and more."""
    log, keyed = LogTable(world.store, "events", buckets=3), KeyTable(world.store, "orders", buckets=2)
    log.load(20_000)
    keyed.load(400)
    keyed.snapshot()
    keyed.load(400)
    world.arm("each-write.events", "sleep 0.4", always=True)
    world.arm("each-write.orders", "sleep 0.4", always=True)
    world.arm("writing.events", "seen")
    return log, keyed


def quicken(world: World) -> None:
    """Let writers work at their own speed again."""
    world.disarm("each-write.events")
    world.disarm("each-write.orders")


def test_sigterm_commits_what_is_whole_and_keeps_the_lease_id(world: World) -> None:
    """Log splits stop where they are; snapshot splits that were begun run to their end."""
    log, keyed = slow_tables(world)
    config = world.configure(service_keys={"stop_timeout_s": STOP_S})
    service = world.start(config)
    world.wait_for("writing.events")
    asked = time.monotonic()
    service.send(signal.SIGTERM)
    assert service.ended() == 0
    assert time.monotonic() - asked < STOP_S + 10  # Spark itself takes its time to end
    part = world.warehouse.rows(log)
    assert 0 < len(part) < len(log.rows())
    assert len(set(part)) == len(part)
    assert set(part) <= set(log.rows())
    assert not [lease for lease in world.store.leases() if lease.held]
    state = ServiceStateStore(SmallFiles(str(world.root / "state"))).load("tier")
    assert state is not None
    assert state.lease_backend == "fluss"
    assert state.lease_state

    quicken(world)
    world.run_once(config)
    assert world.same(log, keyed)
    world.run_once(config)
    world.assert_clean(log, keyed)


def test_a_second_signal_stops_at_once_and_the_next_start_is_right(world: World) -> None:
    """The second one does not wait for anything: here a writer stands still."""
    log, keyed = slow_tables(world)
    world.arm("writing.events", "wait")
    config = world.configure(service_keys={"stop_timeout_s": 60})
    service = world.start(config)
    world.wait_for("writing.events")
    service.send(signal.SIGINT)
    wait_until(lambda: world.status()["state"] == "stopping", "the service to say that it stops")
    asked = time.monotonic()
    service.send_another(signal.SIGINT)
    assert service.ended() == 128 + signal.SIGINT
    assert time.monotonic() - asked < 5
    quicken(world)
    world.run_once(config)
    assert world.same(log, keyed)
    log.load()
    keyed.load()
    world.run_once(config)
    assert world.same(log, keyed)


def test_final_drops_a_lease_whose_releases_failed(world: World) -> None:
    """A stop keeps such a lease in the books, for the next start; `--final` drops it."""
    keyed = KeyTable(world.store, "orders")
    keyed.load()
    keyed.snapshot()
    world.arm("before-release", "raise the lease server is ill", always=True)
    config = world.configure()
    service = world.run_once(config)
    assert world.same(keyed)
    assert [lease for lease in world.store.leases() if lease.held]
    assert "the lease server is ill" in service.words()
    assert world.start(config, "--once", "--final").ended() == 0
    assert world.store.leases() == ()
