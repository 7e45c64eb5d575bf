"""A driver that was paused between its fence check and its lake commit wakes up while, or after, another one works."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from lakeward_e2e.kills import NOT_IN_GATE
from lakeward_e2e.tables import KeyTable, LogTable
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.tables import AnyTable
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]
PATIENT: dict[str, Any] = {"service_keys": {"fence_s": 60}, "heartbeat_timeout_s": 120, "commit_timeout_s": 30}
"""The pause is shorter than the fence time: the zombie's heartbeat counts as fresh when it wakes up."""


def pause_at_the_send(world: World, config: Path, table: AnyTable) -> ServiceProcess:
    """Start a service and let it stop where its fence check is behind it and its commit not yet sent."""
    point = f"send.{table.path.table}"
    world.arm(point, "stop-driver")
    zombie = world.start(config)
    world.wait_for(point)
    wait_until(lambda: zombie.stopped, "the driver to be paused")
    return zombie


def keyed_table(world: World) -> KeyTable:
    """Make a table whose first round reads KV snapshots under a lease."""
    table = KeyTable(world.store, "orders")
    table.load()
    table.snapshot()
    table.load()
    return table


@NOT_IN_GATE
def test_a_zombie_whose_successor_has_only_stamped_commits_and_deletes_nothing(world: World) -> None:
    """Both have the same epoch: the stamp alone tells them apart."""
    table = keyed_table(world)
    config = world.configure(**PATIENT)
    zombie = pause_at_the_send(world, config, table)
    # The successor is paused too, while its reader holds a lease and its first files are written.
    world.arm("writing.orders", "stop-driver")
    successor = world.start(config)
    world.wait_for("writing.orders")
    wait_until(lambda: successor.stopped, "the successor to be paused")
    files = {file for file in world.warehouse.files(table.path) if "/data/" in file}
    leases = {lease.lease_id: dict(lease.held) for lease in world.store.leases()}

    zombie.send(signal.SIGCONT)
    assert zombie.ended() == 1
    assert "a later start of this service took over" in zombie.words()
    assert world.warehouse.commits(table.path) == 0
    assert files <= world.warehouse.files(table.path)
    held = {lease.lease_id: dict(lease.held) for lease in world.store.leases()}
    successors = [lease_id for lease_id in leases if lease_id not in zombie.words() and leases[lease_id]]
    assert successors
    assert all(held[lease_id] == leases[lease_id] for lease_id in held)

    successor.send(signal.SIGCONT)
    world.until_same(table)
    assert successor.end() == 0
    world.run_once(config)
    assert world.warehouse.orphans(table.path) == set()
    assert not [lease for lease in world.store.leases() if lease.held]


@pytest.mark.parametrize("world", ["iceberg", "paimon"], indirect=True)
def test_a_zombie_whose_successor_has_committed_commits_and_deletes_nothing(world: World) -> None:
    """What the zombie read is in the lake already, by its successor's commit."""
    table = keyed_table(world)
    config = world.configure(**PATIENT)
    zombie = pause_at_the_send(world, config, table)
    world.run_once(config)
    assert world.same(table)
    files, commits = world.warehouse.files(table.path), world.warehouse.commits(table.path)

    zombie.send(signal.SIGCONT)
    assert zombie.ended() == 1
    assert "a later start of this service took over" in zombie.words()
    assert world.same(table)
    assert world.warehouse.commits(table.path) == commits
    gone = files - world.warehouse.files(table.path)
    assert not gone & named_files(world, table)
    table.load()
    world.run_once(config)
    assert world.same(table)


def named_files(world: World, table: AnyTable) -> set[str]:
    """Return every file that the table needs."""
    return world.warehouse.files(table.path) - world.warehouse.orphans(table.path)


def outcome(world: World, table: AnyTable, service: str) -> str | None:
    """Return how a table's last round ended, as a service's status file shows it."""
    report = world.table_status(table, service).get("round") or {}
    return report.get("outcome")


def test_a_fenced_service_whose_table_was_given_away_commits_nothing(world: World) -> None:
    """The tiering timeout passes while it is paused, and a service of another name takes the table."""
    log = LogTable(world.store, "events")
    log.load()
    one, two = world.configure("one"), world.configure("two")
    zombie = pause_at_the_send(world, one, log)
    log.load()
    heir = world.start(two)
    world.until_same(log)
    commits = world.warehouse.commits(log.path)

    zombie.send(signal.SIGCONT)
    given_up = {"failed", "fenced"}  # whichever it hears of first: its call timed out, the stamp, the source's refusal
    wait_until(lambda: outcome(world, log, "one") in given_up, "the fenced one to notice")
    assert zombie.alive
    assert world.same(log)
    assert world.warehouse.commits(log.path) == commits
    log.load()
    world.until_same(log)
    assert (heir.end(), zombie.end()) == (0, 0)
    assert world.same(log)
