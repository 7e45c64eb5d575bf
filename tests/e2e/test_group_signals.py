"""A signal to the whole process group, as systemd, `timeout` and a terminal send it: Spark's Java gets it as well.

In each phase of its life the service ends by itself, in time and without a word about errors of its own, and the next
start is right.
"""

from __future__ import annotations

import signal
from itertools import product
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.kills import chosen
from lakeward_e2e.tables import LogTable
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.tiering_messages import LakeTieringHeartbeatResponse
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.world import World

pytestmark = [pytest.mark.spark, pytest.mark.crash]
STOP_S = 6
IN_TIME_S = 75.0
"""What a stop takes at the most with these limits; a service that waits for the dead takes for ever."""
PHASES: dict[str, tuple[str, str]] = {
    "starting": ("", ""),
    "idle": ("", ""),
    "opening": ("after-stamp.events", "sleep 2"),
    "running": ("writing.events", "sleep 2"),
    "committing": ("before-lake-commit.events", "sleep 2"),
    "stopping": ("writing.events", "wait"),
}
SIGNALS = (signal.SIGTERM, signal.SIGINT)
CASES = chosen(
    product(PHASES, SIGNALS),
    [("starting", signal.SIGINT), ("running", signal.SIGTERM), ("committing", signal.SIGINT)],
)


def reach(world: World, service: ServiceProcess, table: LogTable, phase: str) -> None:
    """Wait until the service is in a phase of its life."""
    point, _ = PHASES[phase]
    if phase == "starting":
        wait_until(service.java, "Spark's Java")
    elif phase == "idle":
        world.until_same(table)
    else:
        world.wait_for(point)
    if phase == "stopping":
        service.send(signal.SIGTERM)
        wait_until(lambda: world.status()["state"] == "stopping", "the service to say that it stops")


@pytest.mark.parametrize(("phase", "number"), CASES, ids=[f"{phase}-{number.name}" for phase, number in CASES])
def test_a_signal_to_the_group_ends_the_service_in_order(world: World, phase: str, number: signal.Signals) -> None:
    """One more signal while it stops already ends it at once, as everywhere."""
    events = LogTable(world.store, "events", buckets=2)
    events.load(400)
    point, action = PHASES[phase]
    if point:
        world.arm(point, action)
    config = world.configure(service_keys={"stop_timeout_s": STOP_S})
    service = world.start(config)
    reach(world, service, events, phase)
    service.send_another(number, group=True)
    code = service.ended(IN_TIME_S)
    words = service.words()
    assert code == (128 + number if phase == "stopping" else 0), words
    assert "LW-" not in words
    assert "internal error" not in words
    assert "Traceback" not in words
    if number is signal.SIGTERM:
        world.run_once(config)
        assert world.same(events)


FLUSS = """
[service]
name = "tier"
poll_s = 0.2
stop_timeout_s = {stop_s}
renew_s = 0.5
fence_s = 4
[source]
type = "fluss"
bootstrap = "{server}"
[lake]
type = "iceberg"
warehouse = "{root}/warehouse"
[checkpoint]
root = "{root}/state"
[lease]
call_timeout_s = 3
[spark]
master = "local[1]"
ui = false
"""


def heartbeats(call: Call) -> Answer:
    """Answer as a coordinator that has no table to tier."""
    return LakeTieringHeartbeatResponse(coordinator_epoch=0) if call.api == ApiKey.LAKE_TIERING_HEARTBEAT else None


def silence(call: Call) -> Answer:
    """Take a connection, and say nothing: not even what the server can do."""
    return b"" if call.api == ApiKey.API_VERSIONS else None


def fluss_config(root: Path, server: FakeServer) -> Path:
    """Write the configuration of a service on a Fluss server."""
    file = root / "fluss.toml"
    file.write_text(FLUSS.format(root=root, server=server.endpoint, stop_s=STOP_S), encoding="utf-8")
    return file


ANSWERS = {"idle": heartbeats, "opening the source": silence}
ON_FLUSS = chosen(product(ANSWERS, SIGNALS), [("opening the source", signal.SIGINT)])


@pytest.mark.parametrize(("phase", "number"), ON_FLUSS, ids=[f"{phase}-{number.name}" for phase, number in ON_FLUSS])
def test_a_signal_to_the_group_ends_a_service_on_fluss(world: World, phase: str, number: signal.Signals) -> None:
    """The client's thread is closed on its own; it waits for nobody who is dead, and for no silent server."""
    asked = ApiKey.LAKE_TIERING_HEARTBEAT if phase == "idle" else ApiKey.API_VERSIONS
    with FakeServer(ANSWERS[phase]) as server:
        service = world.start(fluss_config(world.root, server))
        wait_until(lambda: server.asked(asked), "the service to ask the server")
        service.send_group(number)
        assert service.ended(IN_TIME_S) == 0, service.words()
    assert "error[" not in service.words()
    assert "Traceback" not in service.words()
