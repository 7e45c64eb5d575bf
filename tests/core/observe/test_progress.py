from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from lakeward.model.status import RoundReport, ServiceReport, TableReport
from lakeward.observe.progress import ProgressDisplay

ROUND = RoundReport("7-1-1", "committed", 0, 1800, 12345, 4, 4, 4, 1000, 6858.3, 99)
RUNNING = replace(ROUND, outcome="running", ended_ms=None, rows=5000, splits_done=1)
TABLE = TableReport("nyc.flights", 7, "reading", "", 1200, 3.1, 1, 12345, RUNNING)
REPORT = ServiceReport("nyc", "nyc-1-0123456789abcdef", 1, "serving", 0, None, (TABLE,), "id", 4, 0)


def plain() -> tuple[ProgressDisplay, io.StringIO]:
    out = io.StringIO()
    return ProgressDisplay(Console(file=out, width=40)), out


def terminal() -> tuple[ProgressDisplay, io.StringIO]:
    out = io.StringIO()
    return ProgressDisplay(Console(file=out, force_terminal=True, width=120, color_system=None)), out


def test_without_a_terminal_a_round_is_one_line_that_is_not_wrapped() -> None:
    progress, out = plain()
    progress.update(replace(REPORT, tables=(replace(TABLE, lag_rows=0),)))
    progress.round_ended("nyc.flights", ROUND)
    expected = r"\d\d:\d\d:\d\d nyc\.flights committed 12,345 rows in 1\.8 s \(6,858 rows/s\), 4 files, lag 0 rows\n"
    assert re.fullmatch(expected, out.getvalue())


def test_a_round_that_failed_says_why() -> None:
    progress, out = plain()
    progress.round_ended("nyc.flights", replace(ROUND, outcome="failed", reason="the disk [x] is full"))
    assert out.getvalue().endswith(" nyc.flights failed: the disk [x] is full\n")


def test_idle_rounds_are_not_shown() -> None:
    progress, out = plain()
    progress.round_ended("nyc.flights", replace(ROUND, outcome="idle"))
    assert out.getvalue() == ""


def test_a_terminal_shows_a_line_per_table() -> None:
    progress, out = terminal()
    progress.update(REPORT)
    progress.close()
    line = next(line for line in out.getvalue().splitlines() if "nyc.flights" in line)
    for part in ("reading", "5,000", "6,858", "1/4", "1,200 rows, 3.1 s"):
        assert part in line


def test_a_terminal_shows_what_is_leased() -> None:
    progress, out = terminal()
    progress.update(REPORT)
    progress.close()
    assert "service nyc: serving, 4 snapshots leased" in out.getvalue()


def test_a_terminal_shows_failures_as_lines_too() -> None:
    progress, out = terminal()
    progress.update(REPORT)
    progress.round_ended("nyc.flights", replace(ROUND, outcome="failed", reason="no disk"))
    progress.close()
    assert "nyc.flights failed: no disk" in out.getvalue()


def test_closing_twice_is_harmless() -> None:
    progress, _ = terminal()
    progress.update(REPORT)
    progress.close()
    progress.close()
