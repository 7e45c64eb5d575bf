from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lakeward.clock import SystemClock
from lakeward.model.status import CheckpointReport, RoundReport, ServiceReport, SubtaskReport, TableReport
from lakeward.observe import status_file
from lakeward.observe.format import date_time
from lakeward.storage.round_history import RoundHistory
from lakeward.storage.small_files import SmallFiles

Lakeward = Callable[..., Any]
GOOD = RoundReport(
    round_name="nyc-1-00/1-1-1",
    outcome="committed",
    started_ms=1000,
    ended_ms=61_000,
    rows=12_345,
    splits=3,
    splits_done=3,
    files=2,
    size_bytes=2048,
    rows_per_s=205.8,
    snapshot_id=55,
    timings_s={"enumerate": 0.5, "lease": 0.1, "launch": 1.5, "job": 50.0, "commit": 7.0, "read": 20.0},
    checkpoint=CheckpointReport(aborted=1),
    table="nyc.flights",
    table_id=1,
    kind="snapshots and log",
    offsets={"1/0": 12_345},
    end_offset=12_345,
    launches=2,
    failovers=1,
    checkpoints=4,
    resumed_from="nyc-0-00/1-1/chk-7",
)
BAD = replace(
    GOOD,
    table="nyc.planes",
    table_id=2,
    round_name="nyc-1-00/2-1-1",
    outcome="failed",
    ended_ms=62_000,
    reason="disk full",
    code="LW-302",
)


@pytest.fixture
def known(configured: Lakeward) -> Lakeward:
    history = RoundHistory(SmallFiles(str(Path("lakeward-state").resolve())), "nyc")
    history.add(GOOD)
    history.add(BAD)
    return configured


@pytest.fixture
def root() -> str:
    """The state root of the configuration."""
    return str(Path("lakeward-state").resolve())


def let_run(root: str, *, code: str = "", reason: str = "", state: str = "serving") -> None:
    """Let the service report that a round of a table runs, and that another table waits."""
    subtasks = tuple(SubtaskReport(one, one + 3, "box", "reading", "s", 0, 750, 99, 0.1) for one in range(2))
    report = RoundReport(
        "nyc-1-00/1-1-2", "running", 70_000, None, 1500, 3, 1, 0, 99, 5.0, None, reason=reason, code=code,
        slots=2, slots_asked=2, subtasks=subtasks,
    )  # fmt: skip
    ended = replace(report, round_name=BAD.round_name, outcome="failed", ended_ms=62_000, subtasks=())
    tables = (
        TableReport("nyc.flights", 1, "committing", "", 3, 0.0, 1, 3, report),
        TableReport("nyc.planes", 2, "backoff", "", 3, 0.0, 1, 3, ended),
    )
    now_ms = SystemClock().wall_ms()
    told = ServiceReport("nyc", "nyc-1-0123456789abcdef", os.getpid(), state, now_ms, None, tables, None, 0, 0)
    status_file.write(root, "nyc", told)


def test_rounds_are_listed_the_newest_first(known: Lakeward) -> None:
    head, first, second = known("rounds").out.splitlines()
    assert head.split()[:3] == ["ended", "table", "round"]
    assert first.startswith(f"{date_time(62_000)}  nyc.planes   2-1-1")
    assert first.endswith("[LW-302] disk full")
    assert "12,345  2.0 KiB      2  job 50 s" in second


def test_a_table_without_rounds_is_told_beside_those_that_have_some(known: Lakeward) -> None:
    said = known("rounds", "list", "nyc.flihgts")
    assert (said.code, said.out) == (0, "No round of nyc.flihgts has ended yet. There are rounds of nyc.flights.\n")


def test_rounds_of_one_table_are_listed_as_json(known: Lakeward) -> None:
    (only,) = known("rounds", "list", "nyc.flights", "-o", "json").document["rounds"]
    assert (only["round"], only["rows"], only["offsets"], only["timings_s"]["job"]) == (
        GOOD.round_name,
        12_345,
        {"1/0": 12_345},
        50.0,
    )
    assert len(known("rounds", "list", "--most", "1", "-o", "json").document["rounds"]) == 1


def test_a_round_is_shown_with_where_its_time_went(known: Lakeward) -> None:
    said = known("rounds", "show", "1-1-1").out
    for text in (
        "round nyc-1-00/1-1-1 of nyc.flights: committed",
        "2; splits came back 1 time",
        "4 completed, 1 aborted; resumed from nyc-0-00/1-1/chk-7",
        "snapshots and log: 12,345 rows, 3 of 3 splits",
        "in subtasks: reading from the source",
    ):
        assert text in said
    assert said.splitlines()[1].startswith("when ")
    assert known("rounds", "show", BAD.round_name, "-o", "json").document["code"] == "LW-302"


@pytest.mark.parametrize(
    ("freshness_s", "listed", "shown"),
    [(60.0, "1 min 0 s  kept ", "1 min 0 s: kept"), (48.0, "1 min 0 s  missed by 12 s ", "48 s: missed by 12 s")],
)
def test_a_round_says_whether_it_kept_the_promised_freshness(
    configured: Lakeward, freshness_s: float, listed: str, shown: str
) -> None:
    record = replace(GOOD, complete_ms=GOOD.started_ms, freshness_s=freshness_s)
    RoundHistory(SmallFiles(str(Path("lakeward-state").resolve())), "nyc").add(record)
    assert listed in configured("rounds").out
    lines = configured("rounds", "show", "1-1-1").out.splitlines()
    assert f"complete up to  {date_time(1000)}, 1 min 0 s before it ended" in lines
    assert f"promised        {shown}" in lines
    (only,) = configured("rounds", "-o", "json").document["rounds"]
    assert (only["complete_ms"], only["freshness_s"]) == (1000, freshness_s)


def test_of_a_round_whose_freshness_nobody_knows_nothing_is_claimed(known: Lakeward) -> None:
    head, first, second = known("rounds").out.splitlines()
    start, end = head.index("promise"), head.index("rows") - 2
    assert [line[start:end].strip() for line in (first, second)] == ["", ""]
    assert "promised" not in known("rounds", "show", "1-1-1").out


def test_a_round_that_is_not_kept_is_a_usage_error(known: Lakeward) -> None:
    said = known("rounds", "show", "9-9-9")
    assert said.code == 2
    assert "round '9-9-9': no ended round of this name is kept" in said.err


def test_without_rounds_it_says_so_and_creates_nothing(configured: Lakeward) -> None:
    before = sorted(Path.cwd().rglob("*"))
    assert configured("rounds").out == "No round has ended yet.\n"
    assert configured("rounds", "list", "nyc.flights").out == "No round of nyc.flights has ended yet.\n"
    assert sorted(Path.cwd().rglob("*")) == before


def test_rounds_that_run_are_listed_apart_with_the_error_that_makes_them_fail(known: Lakeward, root: str) -> None:
    let_run(root, code="LW-302", reason="subtask 1 failed: no space left")
    lines = known("rounds").out.splitlines()
    assert [lines[0], lines[3], lines[4], lines[5].split()[0]] == ["Running:", "", "Ended:", "ended"]
    assert lines[1].split()[:4] == ["started", "table", "round", "state"]
    assert lines[2].startswith(f"{date_time(70_000)}  nyc.flights  1-1-2  committing  ")
    told = ["1,500", "1 of 3", "2 of 2", "4", "[LW-302] subtask 1 failed: no space left"]
    assert [part.strip() for part in lines[2].split("  ") if part.strip()][-5:] == told
    assert len(lines) == 8


def test_rounds_that_run_are_listed_as_json_beside_those_that_have_ended(known: Lakeward, root: str) -> None:
    let_run(root, code="LW-302", reason="subtask 1 failed: no space left")
    document = known("rounds", "list", "nyc.flights", "-o", "json").document
    (running,) = document["running"]
    assert (running["round"], running["state"], running["code"]) == ("nyc-1-00/1-1-2", "committing", "LW-302")
    assert [one["attempt"] for one in running["subtasks"]] == [3, 4]
    assert [one["round"] for one in document["rounds"]] == [GOOD.round_name]


def test_rounds_that_run_on_another_table_than_the_one_asked_for_are_left_out(known: Lakeward, root: str) -> None:
    let_run(root)
    assert known("rounds", "list", "nyc.planes", "-o", "json").document["running"] == []
    assert known("rounds", "list", "nyc.planes").out.startswith("ended ")


def test_a_round_of_a_service_that_is_gone_does_not_run(known: Lakeward, root: str) -> None:
    let_run(root, state="stopped")
    assert known("rounds", "-o", "json").document["running"] == []


def names(said: Any) -> list[str]:  # noqa: ANN401 - what a command said
    return [one["round"] for one in said.document["rounds"]]


def test_rounds_are_listed_by_a_pattern_and_failed_ones_alone(known: Lakeward) -> None:
    assert names(known("rounds", "list", "nyc.*", "-o", "json")) == [BAD.round_name, GOOD.round_name]
    assert names(known("rounds", "list", "*.planes", "-o", "json")) == [BAD.round_name]
    assert names(known("rounds", "list", "--failed", "-o", "json")) == [BAD.round_name]
    assert known("rounds", "list", "nyc.flights", "--failed").out == "No round of nyc.flights has failed.\n"


def test_rounds_are_listed_since_a_time(known: Lakeward) -> None:
    history = RoundHistory(SmallFiles(str(Path("lakeward-state").resolve())), "nyc")
    history.add(replace(GOOD, round_name="nyc-1-00/1-1-2", ended_ms=SystemClock().wall_ms()))
    assert names(known("rounds", "list", "--since", "2h", "-o", "json")) == ["nyc-1-00/1-1-2"]
    assert known("rounds", "list", "--failed", "--since", "2h").out == "No round has failed since then.\n"
    wrong = known("rounds", "list", "--since", "yesterday")
    assert (wrong.code, "--since: expected a number of seconds" in wrong.err) == (2, True)
