"""One round in words, for commands and the status page: what it did, and where its time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.observe.format import count, date_time, promise, seconds, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.status import RoundReport

SEQUENTIAL = ("enumerate", "lease", "launch", "job", "commit", "source")
"""Phases of the driver, which follow each other; the others are sums over subtasks, within `job`."""
PHASES = {
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


def why(one: RoundReport) -> str:
    """Return why a round fails or has failed, after its code; empty where it does not."""
    return f"[{one.code}] {one.reason}" if one.code and one.reason else one.reason


def phases_of(one: RoundReport) -> list[str]:
    """Return the names of the phases that a round has spent time in, those that are known first, in their order."""
    known = [name for name in PHASES if name in one.timings_s]
    return [*known, *(name for name in one.timings_s if name not in PHASES)]


def longest_phase(one: RoundReport) -> str:
    """Return the phase of the driver that took longest, with its time: `job 1 min 2 s`; empty if none is known."""
    phases = [(one.timings_s[name], name) for name in SEQUENTIAL if name in one.timings_s]
    if not phases:
        return ""
    spent, name = max(phases)
    return f"{name} {seconds(spent)}"


def round_facts(one: RoundReport) -> Iterator[tuple[str, str]]:
    """Yield what there is to tell of a round that has ended: names, and texts."""
    ended_ms = one.ended_ms or one.started_ms
    yield "when", f"{date_time(one.started_ms)} to {date_time(ended_ms)}, {seconds(one.took_s)}"
    yield (
        "read",
        f"{one.kind or 'nothing'}: {count(one.rows, 'row')}, {one.splits_done} of {count(one.splits, 'split')}",
    )
    if one.dropped:
        yield "dropped", f"{count(one.dropped, 'row')} that did not fit the lake table"
    if one.dead_letters:
        yield "dead letters", f"{count(one.dead_letters, 'row')} that did not fit the lake table"
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
