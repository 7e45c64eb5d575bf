"""`lakeward rounds show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.open_plugins import open_history
from lakeward.cli.output import Columns
from lakeward.cli.rounds.list import round_document, why
from lakeward.errors import UsageError
from lakeward.observe.format import count, date_time, promise, seconds, size
from lakeward.storage.round_history import find_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.status import RoundReport

_MEANINGS = {
    "enumerate": "opening the lake table, listing buckets, making splits",
    "lease": "leasing KV snapshots",
    "launch": "writing the journal, planning and sending the Spark job",
    "job": "the Spark job: waiting for slots, reading, writing",
    "read": "in subtasks: reading from the source",
    "decode": "in subtasks: decoding records",
    "partition": "in subtasks: dividing rows among partitions of the lake table",
    "encode": "in subtasks: encoding files",
    "keys": "in subtasks: finding the rows that changes replace",
    "upload": "in subtasks: storing files",
    "wait": "in subtasks: waiting",
    "source": "preparing and registering the commit at the source",
    "commit": "committing to the lake",
}


@click.command("show")
@click.argument("name", metavar="ROUND")
@with_common_options
@pass_invocation
def show_round(invocation: Invocation, *, name: str) -> None:
    """Show ROUND: its full name, or TABLE_ID-EPOCH-NUMBER as `lakeward rounds list` shows it.

    If several starts of the service had a round of that short name, the newest is shown.
    """
    found = find_rounds(open_history(invocation.load()).read(), name)
    if not found:
        message = f"round {name!r}: no ended round of this name is kept; `lakeward rounds list` shows those that are"
        raise UsageError(message)
    invocation.output.show(round_document(found[0]), *_parts(found[0], others=len(found) - 1))


def _parts(one: RoundReport, others: int) -> Iterator[str | Columns]:
    yield f"round {one.round_name} of {one.table}: {one.outcome}"
    if others:
        yield f"({count(others, 'older round')} of other starts have this short name: name the full one to see it)"
    facts = list(_facts(one))
    width = max(len(name) for name, _ in facts)
    yield from (f"{name:<{width}}  {text}" for name, text in facts)
    yield ""
    yield Columns(("phase", "seconds#", "what it is"), [_phase(one, name) for name in _phases(one)])
    if one.offsets:
        yield ""
        yield Columns(("bucket", "offset after the round#"), [(b, count(n)) for b, n in one.offsets.items()])


def _facts(one: RoundReport) -> Iterator[tuple[str, str]]:
    ended_ms = one.ended_ms or one.started_ms
    yield "when", f"{date_time(one.started_ms)} to {date_time(ended_ms)}, {seconds(one.took_s)}"
    yield (
        "read",
        f"{one.kind or 'nothing'}: {count(one.rows, 'row')}, {one.splits_done} of {count(one.splits, 'split')}",
    )
    yield "wrote", f"{count(one.files, 'file')}, {size(one.size_bytes)}"
    if one.exchange is not None:
        yield "exchanged", size(one.exchange.sent_bytes)
    yield "lake snapshot", "none" if one.snapshot_id is None else str(one.snapshot_id)
    if one.complete_ms is not None:
        age = seconds(max(0.0, (ended_ms - one.complete_ms) / 1000))
        yield "complete up to", f"{date_time(one.complete_ms)}, {age} before it ended"
    if one.freshness_s is not None:
        verdict = promise(one.missed_by_s)
        yield "promised", seconds(one.freshness_s) + (f": {verdict}" if verdict else "")
    if one.end_offset is not None:
        yield "offsets", f"{count(one.end_offset)} in all buckets"
    yield "launches", f"{one.launches}; splits came back {count(one.failovers, 'time')}"
    resumed = f"; resumed from {one.resumed_from}" if one.resumed_from else ""
    yield "checkpoints", f"{one.checkpoints} completed, {one.aborted} aborted{resumed}"
    if one.reason:
        yield "why", why(one)


def _phases(one: RoundReport) -> list[str]:
    known = [name for name in _MEANINGS if name in one.timings_s]
    return [*known, *(name for name in one.timings_s if name not in _MEANINGS)]


def _phase(one: RoundReport, name: str) -> tuple[str, str, str]:
    return name, f"{one.timings_s[name]:.2f}", _MEANINGS.get(name, "")
