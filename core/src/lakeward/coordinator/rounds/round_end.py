"""Says how a round ended: a line of the log, and the round's span."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakeAwayError

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.attempt import RoundAttempt
    from lakeward.model.status import RoundReport

_FAILED = frozenset({"failed", "fenced"})
_IDLE = "idle"
_log = structlog.get_logger("lakeward.rounds")


def log_end(attempt: RoundAttempt, report: RoundReport) -> None:
    """Log a round that has ended, and pass its span on.

    Args:
        attempt: the round.
        report: of it, with its outcome.
    """
    if attempt.trace is not None:
        facts = {"attempt": attempt.number, "checkpoints": attempt.checkpoints, "failovers": attempt.failovers}
        attempt.trace.ended(report, running=attempt.phase, code=attempt.code, facts=facts)
    outcome = attempt.outcome
    failed = outcome in _FAILED or (outcome == "committed" and bool(report.reason))
    quiet = outcome == _IDLE or attempt.code == LakeAwayError.code  # the service says of all tables that it is away
    log = _log.debug if quiet else _log.warning if failed else _log.info
    log(
        f"round {outcome}",
        **attempt.log_fields,
        seconds=round(((report.ended_ms or report.started_ms) - report.started_ms) / 1000, 3),
        rows=report.rows,
        files=report.files,
        size_bytes=report.size_bytes,
        **({} if report.snapshot_id is None else {"snapshot_id": report.snapshot_id}),
        **({"reason": report.reason} if report.reason else {}),
        **({"code": attempt.code} if attempt.code else {}),
    )
