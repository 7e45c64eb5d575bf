"""What another user of the machine gets from the ports of a service whose round runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward_e2e import stranger
from lakeward_e2e.exchange import DAEMON, exchange_sections, exchanging_tables
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward_e2e.process import ServiceProcess
    from lakeward_e2e.world import World

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program as another user"),
]


def round_that_runs(world: World, conf: Mapping[str, str]) -> ServiceProcess:
    """Start a service, and return it once subtasks of a round exchange rows."""
    log, _ = tables = exchanging_tables(world)
    options = DAEMON | {"spark.ui.enabled": "true", "spark.ui.port": "0"} | dict(conf)
    text = ", ".join(f'"{key}" = "{value}"' for key, value in options.items())
    config = world.configure(master="local[3]", spark_keys={"conf": f"{{ {text} }}"}, **exchange_sections(*tables))
    log.load()
    world.arm("received.events", "wait")
    umask = os.umask(0o002)
    service = world.start(config, "--status-port", "0")
    os.umask(umask)
    world.wait_for("received.events")
    return service


def asked_by_a_stranger(service: ServiceProcess) -> Mapping[str, list[str]]:
    """Return what each port gave to a user that is neither the service's nor root."""
    ports = [str(port) for port in service.ports()]
    # Read from standard input: the other user may be unable to reach the file.
    words = [sys.executable, "-I", "-S", "-", *ports]
    program = Path(stranger.__file__).read_text(encoding="utf-8")
    done = subprocess.run(words, input=program, capture_output=True, encoding="utf-8", timeout=LIMIT_S, check=True)
    answer: Mapping[str, Any] = json.loads(done.stdout)
    assert answer["uid"] == stranger.NOBODY
    ports_given: Mapping[str, list[str]] = answer["ports"]
    return ports_given


def given(ports: Mapping[str, list[str]]) -> list[str]:
    """Return the names of all that the ports gave away."""
    return [name for names in ports.values() for name in names]


def test_another_user_gets_neither_what_spark_broadcasts_nor_a_file_of_state(world: World) -> None:
    """Each port of a running round is asked; the umask of the service lets its group write."""
    ports = asked_by_a_stranger(round_that_runs(world, {}))
    assert len(ports) > 5
    assert given(ports) == []
    state = world.root / "state"
    assert [path for path in (state, *state.rglob("*")) if path.stat().st_mode & 0o077] == []
    world.let_go("received.events")


def test_the_stranger_gets_it_where_the_configuration_turns_authentication_off(world: World) -> None:
    """So the test before sees what it looks for."""
    service = round_that_runs(world, {"spark.authenticate": "false"})
    wait_until(lambda: "broadcast_0_piece0" in given(asked_by_a_stranger(service)), "the stranger to get a broadcast")
    world.let_go("received.events")
