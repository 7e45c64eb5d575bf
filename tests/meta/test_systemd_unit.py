"""The unit that ships is one that systemd takes, and gives a stop the time that it needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from lakeward.cli import main
from lakeward.coordinator.service import closing
from lakeward.coordinator.service import stop as ending
from lakeward.coordinator.state import state_writer as statekeeper
from lakeward.model.settings import LeaseSettings, ServiceSettings

UNIT = Path(__file__).parents[2] / "docs" / "how-to" / "lakeward.service"
BEAT_S = 30.0
"""Longest heartbeat; two may fail before a stop gives the report up."""


@pytest.fixture
def service() -> dict[str, str]:
    """The section `[Service]`."""
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign] # keys as they are written
    parser.read(UNIT, encoding="utf-8")
    return dict(parser["Service"])


def test_a_signal_goes_to_the_service_and_not_to_its_spark(service: dict[str, str]) -> None:
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")


def test_systemd_waits_longer_than_a_stop_takes_where_everything_hangs(service: dict[str, str]) -> None:
    settings = ServiceSettings()
    rounds = 2 * settings.stop_timeout_s + 2 * BEAT_S
    upkeep = settings.stop_timeout_s
    lease = LeaseSettings().call_timeout_s + statekeeper._WRITE_S
    resources = 3 * closing.CLOSE_S
    longest = rounds + upkeep + lease + ending._LEAVE_S + resources + main._END_S
    assert int(service["TimeoutStopSec"]) > longest


def test_a_wrong_configuration_is_not_tried_again(service: dict[str, str]) -> None:
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"


def test_the_command_of_the_unit_is_one_of_ours(
    service: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It gets as far as looking for the configuration."""
    program, *words = service["ExecStart"].split()
    assert Path(program).name == "lakeward"
    missing = str(tmp_path / "lakeward.toml")
    assert main.run([missing if word.endswith(".toml") else word for word in words]) == 2
    assert f"error[LW-200]: {missing}: expected a configuration file" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("/opt/lakeward/bin/lakeward", sys.executable)
    unit = tmp_path / "lakeward.service"
    unit.write_text(text.replace("User=lakeward\n", ""), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert [line for line in (done.stdout + done.stderr).splitlines() if "lakeward.service" in line] == []
    assert done.returncode == 0
