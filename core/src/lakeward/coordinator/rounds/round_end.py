"""Says how a round ended: a line of the log, and the round's span."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakeAwayError

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.facts import RoundFacts
    from lakeward.model.status import RoundReport

_FAILED = frozenset({"failed", "fenced"})
_IDLE = "idle"
_log = structlog.get_logger("lakeward.rounds")


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
        **({} if report.snapshot_id is None else {"snapshot_id": report.snapshot_id}),
        **({"reason": report.reason} if report.reason else {}),
        **({"code": report.code} if report.code else {}),
    )
