"""Servers of the source that do not exist or refuse: every command says so once, in bounded time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.spark
_LAKEWARD = [sys.executable, "-c", "from lakeward.cli.main import main; main()"]
_EXPECTED = "source.bootstrap: expected a server that can be reached, found none: Fluss server "
_LIMIT_S = 150
"""For a command on a busy machine, where a name is looked up and Spark is started and stopped."""
_CONFIG = """
[source]
type = "fluss"
bootstrap = "{bootstrap}"
[lake]
type = "iceberg"
warehouse = "warehouse"
[checkpoint]
root = "state"
[spark]
master = "local[1]"
ui = false
"""
AWAY = [
    ("nowhere.invalid:9123", "nowhere.invalid:9123: the host name does not resolve ("),
    ("127.0.0.1:1", "127.0.0.1:1: connection refused"),
]


def lakeward(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, where no other Spark lives."""
    began = time.monotonic()
    command = [*_LAKEWARD, *words]
    done = subprocess.run(command, cwd=place, capture_output=True, encoding="utf-8", timeout=200, check=False)
    assert time.monotonic() - began < _LIMIT_S
    return done


@pytest.fixture(params=AWAY, ids=["no such host", "nobody listens"])
def away(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A directory with a configuration, and what is wrong with it."""
    bootstrap, reason = request.param
    (tmp_path / "lakeward.toml").write_text(_CONFIG.format(bootstrap=bootstrap), encoding="utf-8")
    return tmp_path, _EXPECTED + reason


def test_a_service_ends_with_one_error_and_leaves_nothing_of_the_spark_that_it_was_starting(
    away: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, expected = away
    temporary = place / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    done = lakeward(place, "run", "--once")
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "starting, Spark master local[1]" in done.stdout
    assert done.stderr.startswith(f"error[LW-300]: {expected}")
    assert done.stderr.count("\n") == 1, done.stderr
    assert [file.name for file in temporary.iterdir() if not file.name.startswith("hsperfdata")] == []
    assert [one for one in psutil.process_iter(["cmdline"]) if str(temporary) in str(one.info["cmdline"])] == []


def test_the_checks_name_the_key_and_the_server(away: tuple[Path, str]) -> None:
    place, expected = away
    for words in (("config", "check"), ("doctor",)):
        done = lakeward(place, *words, "-o", "json")
        assert (done.returncode, done.stderr) == (1, "")
        (source,) = [check for check in json.loads(done.stdout)["checks"] if check["what"] == "source"]
        assert not source["ok"]
        assert expected in source["message"]
