"""Commands about all tables that a pattern matches, or that have a status; and tables that are watched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.tables import TablePath
from lakeward.observe.control import read_control
from lakeward.storage.commit_records import CommitRecord, CommitRecords
from lakeward.storage.small_files import SmallFiles
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from lakeward_service_kit.command_line import Lakeward


@pytest.fixture
def several(flights: Lakeward, tmp_path: Path) -> Lakeward:
    """The tables `nyc.flights`, `nyc.planes` and `sfo.planes`, and one that is excluded."""
    with EmbeddedStore.open(tmp_path / "store") as store:
        for name in ("nyc.planes", "nyc.secret", "sfo.planes"):
            store.create_table(TablePath.parse(name), pa.schema([("id", pa.int64())]), buckets=1)
    with (tmp_path / "lakeward.toml").open("a", encoding="utf-8") as config:
        config.write('\n[tables."nyc.secret"]\ninclude = false\n')
    return flights


def paused(tmp_path: Path) -> set[str]:
    return set(read_control(str(tmp_path / "lakeward-state"), "nyc").paused)


def test_a_pattern_pauses_and_resumes_all_that_it_matches_and_nothing_that_is_excluded(
    several: Lakeward, tmp_path: Path
) -> None:
    said = several("tables", "pause", "nyc.*", "-o", "json")
    assert said.document == {
        "tables": [{"table": name, "paused": True, "changed": True} for name in ("nyc.flights", "nyc.planes")]
    }
    assert paused(tmp_path) == {"nyc.flights", "nyc.planes"}
    assert several("tables", "pause", "*.planes").out.splitlines()[0] == "nyc.planes was paused already."
    assert several("tables", "resume", "nyc.*").out == "nyc.flights is resumed.\nnyc.planes is resumed.\n"
    assert paused(tmp_path) == {"sfo.planes"}


def test_a_paused_table_that_the_source_no_longer_has_is_resumed_by_a_pattern(
    several: Lakeward, tmp_path: Path
) -> None:
    assert several("tables", "pause", "*.planes").code == 0
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.drop_table(TablePath("sfo", "planes"))
    assert "sfo.planes is resumed." in several("tables", "resume", "*.*").out
    assert paused(tmp_path) == set()


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("tier-now",), ("accept",), ("list",)])
def test_a_pattern_that_no_table_matches_is_an_error_that_names_it(several: Lakeward, words: tuple[str, ...]) -> None:
    said = several("tables", *words, "lax.*")
    assert (said.code, said.err.startswith("error[LW-100]: lax.*: no table of the source matches; it has 3")) == (
        2,
        True,
    )


@pytest.mark.parametrize("text", ["planes*", "*", "nyc.planes.*"])
def test_a_pattern_of_another_form_is_refused(several: Lakeward, text: str) -> None:
    said = several("tables", "pause", text)
    assert (said.code, f"expected DATABASE.TABLE, found '{text}'" in said.err) == (2, True)


def test_what_cannot_be_done_for_one_table_is_done_for_the_others(several: Lakeward) -> None:
    with Path("lakeward.toml").open("a", encoding="utf-8") as config:
        config.write('[tables."sfo.*"]\nmode = "mirror"\n')
    said = several("tables", "tier-now", "*.planes")
    first, second = said.out.splitlines()
    assert first.startswith("nyc.planes is due")
    assert second.startswith("sfo.planes: [LW-100] sfo.planes is mirrored")
    assert said.code == 1
    document = several("tables", "tier-now", "*.planes", "-o", "json").document
    assert [one.get("code") for one in document["tables"]] == [None, "LW-100"]


def test_losses_of_all_tables_are_accepted_by_a_pattern(several: Lakeward, tmp_path: Path) -> None:
    records = CommitRecords(SmallFiles(str(tmp_path / "lakeward-state")), "nyc")
    with EmbeddedStore.open(tmp_path / "store") as store:
        for name in ("nyc.flights", "sfo.planes"):
            spec = store.table(TablePath.parse(name))
            records.write(CommitRecord(spec.path, spec.table_id, 5, ((None, 0, 3),), 0))
    said = several("tables", "accept", "*.*", "--yes")
    assert said.out.splitlines() == [
        "nyc.flights is tiered anew by its next round.",
        "nyc.planes: there is nothing to accept.",
        "sfo.planes is tiered anew by its next round.",
    ]
    assert [record.snapshot_id for record in records.list()] == [None, None]


def shown(said_by: Lakeward, *words: str) -> list[str]:
    return [table["path"] for table in said_by("tables", "list", *words, "-o", "json").document["tables"]]


def test_tables_are_listed_by_a_pattern_and_by_status(several: Lakeward) -> None:
    assert shown(several, "*.planes") == ["nyc.planes", "sfo.planes"]
    assert several("tables", "pause", "sfo.planes").code == 0
    assert shown(several, "--status", "paused") == ["sfo.planes"]
    assert shown(several, "nyc.*", "--status", "paused", "--status", "new") == ["nyc.flights"]
    none = several("tables", "list", "--status", "suspended", "--status", "late")
    assert (none.code, none.out.splitlines()[-1]) == (0, "None of 3 tables is late or suspended.")
    assert several("tables", "list", "--status", "asleep").code == 2


def test_tables_are_watched_until_somebody_interrupts_it(several: Lakeward) -> None:
    assert several("tables").code == 0
    command = [sys.executable, "-m", "lakeward", "tables", "list", "sfo.*", "--watch", "--every", "0.01"]
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, encoding="utf-8"
    ) as watching:
        assert watching.stdout is not None
        rows = (line for line in watching.stdout if line.startswith("sfo.planes"))
        assert [next(rows).split()[1] for _ in range(2)] == ["ok", "ok"]
        assert several("tables", "pause", "sfo.planes").code == 0
        assert next(row for row in rows if "paused" in row)
        watching.send_signal(signal.SIGINT)
        for _ in rows:
            pass
    assert watching.returncode == 0
