from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import sys
import textwrap

import pytest
from msgspec.structs import replace
from rich.console import Console

from lakeward.model.status import CheckpointReport, ExchangeReport, RoundReport, ServiceReport, TableReport
from lakeward.observe.progress import ProgressDisplay, format_exchange
from lakeward_testing.clock import FakeClock

ROUND = RoundReport("7-1-1", "committed", 0, 1800, 12345, 4, 4, 4, 1000, 6858.3, 99, table="nyc.flights")
RUNNING = replace(ROUND, outcome="running", ended_ms=None, rows=5000, splits_done=1)
TABLE = TableReport("nyc.flights", 7, "reading", "", 1200, 3.1, 1, 12345, RUNNING)
REPORT = ServiceReport("nyc", "nyc-1-0123456789abcdef", 1, "serving", 0, None, (TABLE,), "id", 4, 0)


def plain() -> tuple[ProgressDisplay, io.StringIO]:
    out = io.StringIO()
    return ProgressDisplay(Console(file=out, width=40), FakeClock()), out


def terminal() -> tuple[ProgressDisplay, io.StringIO]:
    out = io.StringIO()
    return ProgressDisplay(Console(file=out, force_terminal=True, width=120, color_system=None), FakeClock()), out


def test_without_a_terminal_a_round_is_one_line_that_is_not_wrapped() -> None:
    progress, out = plain()
    progress.update(REPORT)
    progress.round_ended(replace(ROUND, lag_rows=0))
    serving, line = out.getvalue().splitlines()
    expected = r"\d\d:\d\d:\d\d nyc\.flights committed 12,345 rows in 1\.8 s \(6,858 rows/s\), 4 files, lag 0 rows"
    assert serving.endswith("service nyc: serving")
    assert re.fullmatch(expected, line)


def test_what_an_exchange_moved_is_in_the_rounds_line() -> None:
    progress, out = plain()
    moved = ExchangeReport(sent_bytes=13 << 20, received_bytes=13 << 20, credit_wait_s=0.4, skew=1.33)
    progress.round_ended(replace(ROUND, exchange=moved))
    assert out.getvalue().endswith(", 4 files, exchanged 13 MiB, skew 1.3, waited 0.4 s\n")


def test_what_waits_in_an_exchange_is_told_while_something_does() -> None:
    assert format_exchange(ExchangeReport(queued_bytes=2 << 20)) == "0 B, 2.0 MiB queued, skew 1.0, waited 0.0 s"


def test_how_far_a_recovery_is_is_told_until_it_is_over() -> None:
    reading = ExchangeReport(recovery="not_ready", spill_bytes=3 << 20)
    assert format_exchange(reading).endswith("waited 0.0 s, recovering: reading back, 3.0 MiB spilled")
    drained = replace(reading, recovery="draining", recovery_bytes=40 << 20, recovered_bytes=12 << 20)
    assert format_exchange(drained).endswith("recovering: 12 MiB of 40 MiB written, 3.0 MiB spilled")
    assert format_exchange(replace(drained, recovery="none")).endswith("waited 0.0 s")


def test_a_terminal_shows_a_recovery_below_the_tables() -> None:
    progress, out = terminal()
    moved = ExchangeReport(recovery="draining", recovery_bytes=40 << 20, recovered_bytes=12 << 20, spill_bytes=28 << 20)
    progress.update(replace(REPORT, tables=(replace(TABLE, round=replace(RUNNING, exchange=moved)),)))
    progress.close()
    assert "nyc.flights: recovering: 12 MiB of 40 MiB written, 28 MiB spilled" in out.getvalue()


def test_a_terminal_has_columns_for_an_exchange_where_a_table_has_one() -> None:
    cut = CheckpointReport("svc-1/7-1/chk-4", 0, 0.25, 10, kind="unaligned")
    exchanged = replace(RUNNING, exchange=ExchangeReport(sent_bytes=5 << 20, skew=2.0, credit_wait_s=7), checkpoint=cut)
    tables = (replace(TABLE, round=exchanged), replace(TABLE, path="nyc.plain"))
    progress, out = terminal()
    progress.update(replace(REPORT, tables=tables))
    progress.close()
    lines = out.getvalue().splitlines()
    head, partitioned, plain_table = (next(line for line in lines if word in line) for word in ("status", ".fl", ".pl"))
    assert head.split()[-4:] == ["exchanged", "skew", "waited", "checkpoint"]
    assert partitioned.split()[-6:] == ["5.0", "MiB", "2.0", "7.0", "s", "unaligned"]
    assert plain_table.split()[-1] == "1/4"


def test_a_round_that_failed_says_why() -> None:
    progress, out = plain()
    progress.round_ended(replace(ROUND, outcome="failed", reason="the disk [x] is full"))
    assert out.getvalue().endswith(" nyc.flights failed: the disk [x] is full\n")


def test_idle_rounds_are_not_shown() -> None:
    progress, out = plain()
    progress.round_ended(replace(ROUND, outcome="idle"))
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
    progress.round_ended(replace(ROUND, outcome="failed", reason="no disk"))
    progress.close()
    assert "nyc.flights failed: no disk" in out.getvalue()


def test_closing_twice_is_harmless() -> None:
    progress, _ = terminal()
    progress.update(REPORT)
    progress.close()
    progress.close()


def test_start_spark_page_waiting_stop_and_end_are_lines_also_without_a_terminal() -> None:
    progress, out = plain()
    progress.starting("nyc", "local[2]")
    progress.spark_started("4.1.0", "http://127.0.0.1:4040")
    progress.update(replace(REPORT, state="starting", tables=()))
    progress.update(replace(REPORT, tables=()))
    progress.update(replace(REPORT, tables=()))
    progress.update(replace(REPORT, tables=(replace(TABLE, message="waiting for Spark: 0 of 8 slots"),)))
    progress.update(REPORT)
    progress.round_ended(replace(ROUND, lag_rows=1200))
    progress.round_ended(replace(ROUND, outcome="failed", reason="no disk"))
    progress.stopping("SIGTERM", 30.0)
    progress.update(replace(REPORT, state="stopping", tables=()))
    progress.ended("stopped")
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in out.getvalue().splitlines()]
    assert lines == [
        "service nyc: starting, Spark master local[2]",
        "service nyc: Spark 4.1.0 has started, its page is http://127.0.0.1:4040",
        "service nyc: serving, waiting for a table that is due",
        "nyc.flights: waiting for Spark: 0 of 8 slots",
        "nyc.flights committed 12,345 rows in 1.8 s (6,858 rows/s), 4 files, lag 1,200 rows",
        "nyc.flights failed: no disk",
        "service nyc: SIGTERM, stopping: rounds finish early and commit within 30 s; a second signal stops at once",
        "service nyc: stopped; 1 round committed 12,345 rows, 1 round failed",
    ]


@pytest.mark.parametrize("width", [80, 60, 40])
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    out = io.StringIO()
    progress = ProgressDisplay(Console(file=out, force_terminal=True, width=width, color_system=None), FakeClock())
    running = replace(RUNNING, rows=123_456_789_012, rows_per_s=1_234_567.0, splits=12_000, splits_done=11_999)
    long = replace(TABLE, path="a_database_of_many_tables.the_table_with_the_longest_name", round=running)
    late = replace(long, lag_rows=987_654_321_098, lag_s=86_000.0, message="waiting for Spark: 0 of 1,024 slots")
    progress.update(replace(REPORT, tables=(late,)))
    progress.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert max(len(line) for line in shown.splitlines()) <= width
    assert "123,456,789,012" in shown
    assert ("987,654,321,098" in shown) is (width == 80), "a column without room for its numbers is left out"
    for number in re.findall(r"[0-9][0-9,]*\S*", shown):
        assert "\N{HORIZONTAL ELLIPSIS}" not in number
    assert "waiting for Spark: 0 of 1,024 slots" in " ".join(shown.split())


def test_what_another_process_writes_to_standard_error_stands_on_a_line_of_its_own() -> None:
    """Spark's Java and its Python workers write to the terminal that they inherit."""
    shown = on_a_terminal(
        """
        display = ProgressDisplay(console, SystemClock())
        with display.standard_error():
            display.update(REPORT)
            subprocess.run(["sh", "-c", "echo 12:00:00 ERROR of Java >&2"], check=True)
            print("ours", file=sys.stderr)
            display.update(REPORT)
        display.close()
        print("after", file=sys.stderr)
        """
    )
    lines = [re.split(r"\x1b\[2K|\r", line)[-1].strip() for line in re.split(r"\r?\n", shown)]
    plain_lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in lines]
    assert "12:00:00 ERROR of Java" in plain_lines
    assert "ours" in plain_lines
    assert plain_lines[-2] == "after"


def on_a_terminal(script: str) -> str:
    """Run a script in a process whose standard output and standard error are one terminal; return what it wrote."""
    code = (
        "import subprocess, sys\n"
        "from rich.console import Console\n"
        "from lakeward.clock import SystemClock\n"
        "from lakeward.observe.progress import ProgressDisplay\n"
        "from lakeward.model.status import RoundReport, ServiceReport, TableReport\n"
        f"REPORT = {REPORT!r}\n"
        "console = Console(soft_wrap=True)\n"
    ) + textwrap.dedent(script)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])  # noqa: S606 - our own code
    written = bytearray()
    with contextlib.suppress(OSError):  # the terminal's end on Linux
        while piece := os.read(terminal, 65536):
            written += piece
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, written.decode()
    return written.decode()
