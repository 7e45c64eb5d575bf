"""A Spark master that is wrong or does not answer is one line, in bounded time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
_LAKEWARD = [sys.executable, "-c", "from lakeward.cli.main import main; main()"]


def lakeward(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, where no other Spark lives."""
    command = [*_LAKEWARD, *words]
    return subprocess.run(command, cwd=place, capture_output=True, encoding="utf-8", timeout=200, check=False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a configuration and a store."""
    assert lakeward(tmp_path, "config", "init").returncode == 0
    assert lakeward(tmp_path, "embedded", "create", "shop.orders", "--columns", "id bigint").returncode == 0
    return tmp_path


@pytest.mark.parametrize(
    ("master", "limit_s", "expected", "found"),
    [
        ("spark://127.0.0.1:1", 2, "a master at 'spark://127.0.0.1:1' that answers within 2 s", "none"),
        ("sparky://here", 60, "a Spark that starts with master 'sparky://here' on Java", "Could not parse Master URL"),
    ],
)
def test_a_master_that_is_wrong_or_away_is_one_line(
    place: Path, master: str, limit_s: int, expected: str, found: str
) -> None:
    words = ("--set", f"spark.master={master}", "--set", f"spark.connect_timeout_s={limit_s}")
    done = lakeward(place, "run", "--once", *words, "--set", "checkpoint.shared=true")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error[LW-210]: spark.master: expected {expected}")
    assert found in line.partition(", found")[2]
