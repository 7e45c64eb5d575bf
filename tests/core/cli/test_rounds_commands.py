from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.model.round_record import RoundRecord
from lakeward.observe.format import date_time
from lakeward.storage.round_history import RoundHistory
from lakeward.storage.small_files import SmallFiles

Lakeward = Callable[..., Any]
GOOD = RoundRecord(
    "nyc.flights",
    1,
    "nyc-1-00/1-1-1",
    "committed",
    "snapshots and log",
    1000,
    61_000,
    12_345,
    3,
    3,
    2,
    2048,
    55,
    {"enumerate": 0.5, "lease": 0.1, "launch": 1.5, "job": 50.0, "commit": 7.0, "read": 20.0},
    {"1/0": 12_345},
    12_345,
    launches=2,
    failovers=1,
    checkpoints=4,
    aborted=1,
    resumed_from="nyc-0-00/1-1/chk-7",
)
BAD = replace(
    GOOD,
    table="nyc.planes",
    table_id=2,
    round="nyc-1-00/2-1-1",
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
        GOOD.round,
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
    assert known("rounds", "show", BAD.round, "-o", "json").document["code"] == "LW-302"


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
