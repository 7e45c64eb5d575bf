"""`lakeward rounds list`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import open_history
from lakeward.cli.output import Columns
from lakeward.model.tables import TablePath
from lakeward.observe.format import count, date_time, promise, seconds, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.round_record import RoundRecord

_RESULT = ("outcome", "kind", "took", "promise", "rows#", "size#", "files#")
_NAMES = ("ended", "table", "round", *_RESULT, "most of its time", "why")
_LIKE_MOST = 3
"""Tables that are named where the one that was asked for has no round."""
_SEQUENTIAL = ("enumerate", "lease", "launch", "job", "commit")


@click.command("list")
@click.argument("table", metavar="[DB.TABLE]", required=False)
@click.option(
    "--most", type=click.IntRange(min=1), default=20, show_default=True, help="Rounds that are listed, at most."
)
@with_common_options
@pass_invocation
def list_rounds(invocation: Invocation, *, table: str | None, most: int) -> None:
    """List the rounds that have ended, of DB.TABLE or of all tables, the newest first.

    The service keeps the newest 100 of each table, across restarts; rounds that found nothing to do are left out. No
    service needs to run. `promise` says of a committed round whether the lake, at its end, was as recent as promised.
    """
    path = None if table is None else TablePath.parse(table)
    every = open_history(invocation.load()).read()
    found = [one for one in every if path is None or one.table == str(path)][:most]
    parts = [Columns(_NAMES, [_row(one) for one in found])] if found else [_nothing(path, every)]
    invocation.output.show({"rounds": found}, *parts)


def _nothing(path: TablePath | None, every: Sequence[RoundRecord]) -> str:
    if path is None or not every:
        return f"No round{'' if path is None else f' of {path}'} has ended yet."
    known = sorted({one.table for one in every})
    like = difflib.get_close_matches(str(path), known, n=_LIKE_MOST)
    return f"No round of {path} has ended yet. There are rounds of {', '.join(like or known[:_LIKE_MOST])}."


def _row(one: RoundRecord) -> tuple[object, ...]:
    return (
        date_time(one.ended_ms),
        one.table,
        one.round.rpartition("/")[2],
        one.outcome,
        one.kind,
        seconds((one.ended_ms - one.started_ms) / 1000),
        promise(one.missed_by_s),
        count(one.rows),
        size(one.size_bytes),
        count(one.files),
        _longest(one),
        f"[{one.code}] {one.reason}" if one.code else one.reason,
    )


def _longest(one: RoundRecord) -> str:
    phases = [(one.timings_s[name], name) for name in _SEQUENTIAL if name in one.timings_s]
    if not phases:
        return ""
    spent, name = max(phases)
    return f"{name} {seconds(spent)}"
