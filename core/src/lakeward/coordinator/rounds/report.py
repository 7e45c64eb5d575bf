"""Describes a round: while it runs, and once it has ended, in the log and in the span too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakeAwayError
from lakeward.model.bad_rows import NO_BAD_ROWS
from lakeward.model.results import sum_timings
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.status import CheckpointReport, RoundReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.coordinator.rounds.facts import RoundFacts
    from lakeward.coordinator.rounds.round import Round
    from lakeward.model.exchange import ExchangeState

_log = structlog.get_logger("lakeward.rounds")
_FAILED = frozenset({"failed", "fenced"})
_IDLE = "idle"
_MS = 1000.0
_OFFSETS_MOST = 256
"""Buckets whose offsets are kept with a round; of a table with more, only their sum is."""


def report(one: Round, now_ms: int, now: float) -> RoundReport:
    """Describe a round; now in milliseconds since 1970, and in seconds on the service's clock."""
    facts, job = one.facts, one.job
    offsets = None if facts.ended_ms is None else facts.committed
    live = job if facts.ended_ms is None else None
    there, asked = (live.subtasks.there, live.subtasks.slots.asked) if live is not None else (0, 0)
    bad = NO_BAD_ROWS if job is None else job.progress.bad_rows()
    rows, size, done = job.counts() if job is not None else (0, 0, 0)
    seconds = max(((facts.ended_ms or now_ms) - facts.started_ms) / _MS, 0.001)
    files = facts.files(job.progress if job is not None else None)
    failing = live.failing.cause if live is not None else None
    return RoundReport(
        round_name=str(facts.round_id),
        outcome=facts.outcome,
        started_ms=facts.started_ms,
        ended_ms=facts.ended_ms,
        rows=rows,
        splits=len(facts.context.enumeration.splits) if facts.context is not None else 0,
        splits_done=done,
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files) or size,
        rows_per_s=rows / seconds,
        snapshot_id=facts.snapshot_id,
        code=facts.code or (failing.code if failing else ""),
        reason=facts.reason or (failing.text if failing else ""),
        timings_s=_timings(one),
        checkpoint=_checkpoint(facts),
        slots=there,
        slots_asked=asked,
        exchange=job.exchange() if job is not None else None,
        subtasks=live.subtasks.reports(now) if live is not None else (),
        lag_rows=facts.lag_rows() if facts.outcome == "committed" else None,
        table=str(facts.assignment.path),
        table_id=facts.table_id,
        kind=_kind_of_splits(facts),
        offsets={} if offsets is None or len(offsets) > _OFFSETS_MOST else {str(one): offsets[one] for one in offsets},
        end_offset=None if offsets is None else sum(offsets.values()),
        launches=0 if job is None else job.launches.number,
        failovers=facts.failovers,
        checkpoints=facts.checkpoints,
        resumed_from="" if facts.restored is None else str(facts.restored.ref),
        complete_ms=facts.complete_ms(),
        freshness_s=facts.assignment.freshness_s,
        dropped=bad.dropped,
        dead_letters=bad.dead_letters,
    )


def log_end(facts: RoundFacts, report: RoundReport) -> None:
    """Log a round that has ended, and pass its span on; `report` is of it."""
    if facts.trace is not None:
        facts.trace.ended(report, running=facts.phase, attempt=facts.number)
    outcome = facts.outcome
    failed = outcome in _FAILED or (outcome == "committed" and bool(report.reason))
    quiet = outcome == _IDLE or facts.code == LakeAwayError.code  # the service says of all tables that it is away
    log = _log.debug if quiet else _log.warning if failed else _log.info
    log(
        f"round {outcome}",
        **facts.log_fields,
        seconds=round(report.took_s, 3),
        rows=report.rows,
        files=report.files,
        size_bytes=report.size_bytes,
        **({"dropped": report.dropped} if report.dropped else {}),
        **({"dead_letters": report.dead_letters} if report.dead_letters else {}),
        **({} if report.snapshot_id is None else {"snapshot_id": report.snapshot_id}),
        **({"reason": report.reason} if report.reason else {}),
        **({"code": report.code} if report.code else {}),
    )


def _kind_of_splits(facts: RoundFacts) -> str:
    splits = facts.context.enumeration.splits if facts.context is not None else ()
    snapshots = any(isinstance(split, SnapshotSplit) for split in splits)
    log = any(isinstance(split, LogSplit) for split in splits)
    return " and ".join([*(["snapshots"] if snapshots else []), *(["log"] if log else [])])


def _checkpoint(facts: RoundFacts) -> CheckpointReport | None:
    done = facts.newest
    if done is None:
        return CheckpointReport(aborted=facts.aborted, reason=facts.abort_reason) if facts.aborted else None
    states = done.state.exchange
    return CheckpointReport(
        name=str(done.ref),
        completed_ms=done.completed_ms,
        seconds=round(done.seconds, 4),
        size_bytes=done.size_bytes,
        aborted=facts.aborted,
        reason=facts.abort_reason,
        kind=_kind(states),
        channel_bytes=sum(one.segment.held_bytes for state in states for one in state.channels),
        open_row_bytes=sum(one.held_bytes for state in states for rows in state.open_rows for one in rows.segments),
        blocked_s=round(max((state.blocked_s for state in states), default=0.0), 3),
    )


def _timings(one: Round) -> dict[str, float]:
    parts: list[Mapping[str, float]] = [one.facts.timings_s]
    if one.job is not None:
        parts += [result.timings_s for result in one.job.progress.results.values()]
        exchange = one.job.exchange()
        parts += [] if exchange is None else [exchange.timings_s]
    return {phase: round(seconds, 4) for phase, seconds in sum_timings(parts).items()}


def _kind(states: Sequence[ExchangeState]) -> str:
    if not states:
        return ""
    return "unaligned" if any(state.unaligned for state in states) else "aligned"
