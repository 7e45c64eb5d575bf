"""`lakeward upkeep` in this process: what it says is due, and whom it asks to do it."""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.clock import SystemClock
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import LakeHead
from lakeward.model.status import ServiceReport, TableReport, UpkeepReport
from lakeward.model.tables import TablePath
from lakeward.model.upkeep import FileCounts, OrphanFile, UpkeepPlan, UpkeepTask
from lakeward.observe import status_file
from lakeward.observe.control import read_control
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from lakeward_service_kit.command_line import Lakeward

FLIGHTS = TablePath("nyc", "flights")
ORPHANS = (OrphanFile("/w/flights/data/a.parquet", 1000, 1), OrphanFile("/w/flights/data/r/b.parquet", 24, 2))
LAST = UpkeepReport("compaction", "committed", 1, 7, 2048, 0, files_after=1, size_bytes_after=1024)


@pytest.fixture
def kept(flights: Lakeward, monkeypatch: pytest.MonkeyPatch) -> Lakeward:
    """The command line with a lake in which two merges of a table are due."""
    assert flights("tables").code == 0  # the lake's module is imported
    tasks = (UpkeepTask(0, 5, 1000, b""), UpkeepTask(1, 3, 24, b""))
    offered = {
        "plan_upkeep": lambda _, path, upkeep_id, most: UpkeepPlan(path, upkeep_id, "compaction", tasks[:most]),
        "commit_upkeep": lambda *_: pytest.fail("nothing may be committed"),
        "count_files": lambda *_: FileCounts(9, 4096, 8, 2, 30),
        "find_orphans": lambda _, path, kept, before_ms: tuple(
            one for one in ORPHANS if not one.path.startswith(tuple(kept))
        ),
        "delete": lambda _, files: Path("deleted").write_text("\n".join(files), encoding="utf-8"),
    }
    # A class of its own: Python remembers of a class which protocols it has.
    puddle = importlib.import_module("puddle_lake")
    monkeypatch.setattr(puddle, "Puddle", type("KeptPuddle", (puddle.Puddle,), offered))
    head = LakeHead(FLIGHTS, 1, "/w", 5, Incarnation("nyc", 1, "0" * 16), None)
    Path("head.pickle").write_bytes(pickle.dumps(head))
    return flights


def runs(root: Path) -> None:
    """Leave the report of a service that runs."""
    table = TableReport("nyc.flights", 1, "idle", "", 0, None, 0, 0, None, upkeep=LAST)
    now_ms = SystemClock().wall_ms()
    report = ServiceReport(
        "nyc", "nyc-1-0123456789abcdef", os.getpid(), "serving", now_ms, None, (table,), None, 0, 0, started_ms=now_ms
    )
    status_file.write(str(root / "lakeward-state"), "nyc", report)


def planned(lakeward: Lakeward) -> dict[str, Any]:
    """Return what a plan says of the one table."""
    said = lakeward("upkeep", "plan", "nyc.flights", "-o", "json")
    assert said.code == 0, said
    (one,) = said.document["tables"]
    found: dict[str, Any] = one
    return found


def test_a_plan_says_what_is_due_and_what_the_table_has(kept: Lakeward) -> None:
    one = planned(kept)
    assert (one["next"], one["tasks"], one["files"], one["size_bytes"]) == ("compaction", 2, 8, 1024)
    assert one["counts"] == {
        "data_files": 9,
        "size_bytes": 4096,
        "small_files": 8,
        "delete_files": 2,
        "deleted_rows": 30,
    }
    assert "compaction" in kept("upkeep", "plan", "nyc.*").out


def test_a_plan_says_what_the_last_upkeep_did_while_a_service_reports(kept: Lakeward, tmp_path: Path) -> None:
    assert planned(kept)["last"] is None
    runs(tmp_path)
    assert planned(kept)["last"]["files_after"] == 1
    assert "7 files of 2.0 KiB became 1" in kept("upkeep", "plan", "nyc.flights").out


def test_a_table_that_was_never_tiered_needs_nothing(kept: Lakeward) -> None:
    Path("head.pickle").unlink()
    assert planned(kept)["next"] == "nothing: no service has tiered it yet"


def test_a_lake_without_upkeep_says_so(flights: Lakeward) -> None:
    said = flights("upkeep", "plan", "nyc.flights")
    assert said.code == 2
    assert "no upkeep" in said.err


def test_a_running_service_is_asked(kept: Lakeward, tmp_path: Path) -> None:
    runs(tmp_path)
    said = kept("upkeep", "run", "nyc.flights")
    assert said.code == 0, said
    assert "once it has free slots" in said.out
    assert read_control(str(tmp_path / "lakeward-state"), "nyc").upkeep == {"nyc.flights": 1}


def test_where_no_service_runs_the_command_says_how_to_go_on(kept: Lakeward, tmp_path: Path) -> None:
    said = kept("upkeep", "run", "nyc.flights")
    assert said.code == 2
    assert "lakeward run --once" in said.err
    assert read_control(str(tmp_path / "lakeward-state"), "nyc").upkeep == {}


def test_files_that_nothing_names_are_shown_and_stay(kept: Lakeward, tmp_path: Path) -> None:
    runs(tmp_path)
    said = kept("upkeep", "orphans", "nyc.flights")
    assert said.code == 0, said
    assert "2 files of 1.0 KiB that nothing names" in said.out
    assert "/w/flights/data/a.parquet" in said.out
    assert not Path("deleted").exists()


def test_they_are_deleted_where_that_is_asked_but_for_those_of_rounds_that_are_not_settled(
    kept: Lakeward, tmp_path: Path
) -> None:
    runs(tmp_path)
    round_id = RoundId(Incarnation("nyc", 1, "0" * 16), 1, 1, 1)
    journal = RoundJournal.begun(round_id, FLIGHTS, None, None, "/w/flights/data/r/")
    JournalStore(SmallFiles(str(tmp_path / "lakeward-state")), "nyc").write(journal)
    said = kept("upkeep", "orphans", "nyc.*", "--delete", "--yes", "-o", "json")
    assert said.code == 0, said
    (one,) = said.document["tables"]
    assert (one["deleted"], [file["path"] for file in one["files"]]) == (True, ["/w/flights/data/a.parquet"])
    assert Path("deleted").read_text(encoding="utf-8") == "/w/flights/data/a.parquet"


def test_nothing_is_looked_for_without_the_state_of_the_service_that_tiers_the_table(kept: Lakeward) -> None:
    said = kept("upkeep", "orphans", "nyc.flights")
    assert said.code == 2
    assert "only the state says" in said.err


def test_files_of_a_commit_that_may_be_under_way_are_not_asked_for(kept: Lakeward, tmp_path: Path) -> None:
    runs(tmp_path)
    said = kept("upkeep", "orphans", "nyc.flights", "--older-than", "12h")
    assert said.code == 2
    assert "at least 1d" in said.err
