"""`lakeward rounds list`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from msgspec import structs

from lakeward.cli.invocation import Invocation, pass_invocation, take_duration, with_common_options
from lakeward.cli.open_plugins import open_history
from lakeward.cli.output import Columns
from lakeward.cli.service_line import see_service
from lakeward.clock import SystemClock
from lakeward.model.patterns import matches
from lakeward.model.tables import TablePath
from lakeward.observe.format import count, date_time, promise, seconds, size
from lakeward.observe.round_facts import longest_phase, why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.status import RoundReport, TableReport

_RESULT = ("outcome", "kind", "took", "promise", "rows#", "size#", "files#")
_NAMES = ("ended", "table", "round", *_RESULT, "most of its time", "why")
_RUNNING = ("started", "table", "round", "state", "for", "rows#", "splits done#", "slots#", "attempts#", "why it fails")
_LIKE_MOST = 3
"""Tables that are named where the one that was asked for has no round."""
_FAILED = frozenset({"failed", "fenced"})


@click.command("list")
@click.argument("table", metavar="[DB.TABLE]", required=False)
@click.option("--failed", is_flag=True, help="Only rounds that failed, or of which splits fail now.")
@click.option(
    "--since",
    metavar="TIME",
    callback=take_duration,
    help="Only rounds that ended, or run, in the last 90s, 10m, 2h, 3d.",
)
@click.option(
    "--most", type=click.IntRange(min=1), default=20, show_default=True, help="Ended rounds that are listed, at most."
)
@with_common_options
@pass_invocation
def list_rounds(invocation: Invocation, *, table: str | None, failed: bool, since: float | None, most: int) -> None:
    """List the rounds that run and those that have ended, of DB.TABLE or of all tables, the newest first.

    A pattern such as `db.*` means all tables that it matches.

    The service keeps 100 of each table that have ended, across restarts: the newest 50, and 50 spread over the last
    day, those that failed first. Rounds that found nothing to do are left out. No service needs to run. `promise` says
    of a committed round whether the lake, at its end, was as recent as promised.

    Rounds that run come first, as the service reported them last: their phase, the attempts of their subtasks, and the
    newest error of a subtask whose splits were not read since.
    """
    path = None if table is None else TablePath.parse(table)
    loaded = invocation.load()
    seen, every = see_service(loaded), open_history(loaded).read()
    after_ms = None if since is None else SystemClock().wall_ms() - round(since * 1000)
    wanted = _Wanted(path, after_ms, failed=failed)
    report = seen.report if seen.running else None
    told, seen_ms = ((), 0) if report is None else (report.running, report.written_ms)
    asked = (pair for pair in told if wanted.has(pair[1], pair[0].path))
    running = sorted(asked, key=lambda pair: (-pair[1].started_ms, pair[0].path))
    found = [one for one in every if wanted.has(one, one.table)][:most]
    parts: list[str | Columns] = [Columns(_NAMES, [_row(one) for one in found]) if found else _nothing(wanted, every)]
    if running:
        rows = [_running_row(table, one, seen_ms) for table, one in running]
        parts = ["Running:", Columns(_RUNNING, rows), "", "Ended:", *parts]
    document = {
        "running": [_running_document(table, one, seen_ms) for table, one in running],
        "rounds": [round_document(one) for one in found],
    }
    invocation.output.show(document, *parts)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which rounds are listed: of the tables that a name or a pattern matches, ended since a time, failed ones only."""

    path: TablePath | None
    after_ms: int | None
    failed: bool

    def has(self, one: RoundReport, table: str) -> bool:
        """Return whether a round of a table is one of them. A running one has failed where its splits fail."""
        if self.path is not None and not matches(str(self.path), TablePath.parse(table)):
            return False
        if self.after_ms is not None and one.ended_ms is not None and one.ended_ms < self.after_ms:
            return False
        return not self.failed or one.outcome in _FAILED or (one.ended_ms is None and bool(one.reason))


def round_document(one: RoundReport) -> dict[str, object]:
    """Return a round as JSON has it: its report, with the names that scripts know."""
    fields = structs.asdict(one)
    exchanged = None if one.exchange is None else one.exchange.sent_bytes
    return {"round": fields.pop("round_name"), **fields, "aborted": one.aborted, "exchanged_bytes": exchanged}


def _running_document(table: TableReport, one: RoundReport, seen_ms: int) -> dict[str, object]:
    ours = {"table": table.path, "table_id": table.table_id, "state": table.status, "seen_ms": seen_ms}
    return round_document(one) | ours


def _running_row(table: TableReport, one: RoundReport, seen_ms: int) -> tuple[object, ...]:
    # Of its subtasks, since its checkpoint if it went on from one.
    attempts = max((subtask.attempt for subtask in one.subtasks), default=0)
    return (
        date_time(one.started_ms),
        table.path,
        one.short_name,
        table.status,
        seconds(max(0, seen_ms - one.started_ms) / 1000),
        count(one.rows),
        f"{one.splits_done} of {one.splits}",
        f"{one.slots} of {one.slots_asked}" if one.slots_asked else "",
        count(attempts) if attempts else "",
        why(one),
    )


def _nothing(wanted: _Wanted, every: Sequence[RoundReport]) -> str:
    path = wanted.path
    of = "" if path is None else f" of {path}"
    if wanted.failed or wanted.after_ms is not None:
        what = "failed" if wanted.failed else "ended"
        return f"No round{of} has {what}{'' if wanted.after_ms is None else ' since then'}."
    if path is None or not every:
        return f"No round{of} has ended yet."
    known = sorted({one.table for one in every})
    like = difflib.get_close_matches(str(path), known, n=_LIKE_MOST)
    return f"No round{of} has ended yet. There are rounds of {', '.join(like or known[:_LIKE_MOST])}."


def _row(one: RoundReport) -> tuple[object, ...]:
    return (
        "" if one.ended_ms is None else date_time(one.ended_ms),
        one.table,
        one.short_name,
        one.outcome,
        one.kind,
        seconds(one.took_s),
        promise(one.missed_by_s),
        count(one.rows),
        size(one.size_bytes),
        count(one.files),
        longest_phase(one),
        why(one),
    )
