"""What the exchange of a launch has moved, all subtasks together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.exchange import RECOVERY_PHASES
from lakeward.model.results import sum_timings
from lakeward.model.status import ExchangeReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.coordinator.rounds.plan import ExchangePlan
    from lakeward.coordinator.rounds.task_attempt import TaskAttempt


def exchange_report(
    planned: ExchangePlan, attempts: Iterable[TaskAttempt], first_checkpoint_s: float | None
) -> ExchangeReport:
    """Return what the subtasks of a launch have moved between them; `attempts` has each subtask's newest.

    `first_checkpoint_s`: seconds to the completion of the launch's first checkpoint, None while it has none.
    """
    reports = (attempt.progress for attempt in attempts)
    figures = [report.exchange for report in reports if report is not None and report.exchange is not None]
    received = [one.received_bytes for one in figures]
    total = sum(received)
    return ExchangeReport(
        sent_bytes=sum(one.sent_bytes for one in figures),
        received_bytes=total,
        queued_bytes=sum(one.queued_bytes for one in figures),
        credit_wait_s=round(sum(one.credit_wait_s for one in figures), 3),
        skew=round(max(received) * len(received) / total, 2) if total else 1.0,
        first_checkpoint_s=first_checkpoint_s,
        recovery=min((one.recovery for one in figures if one.recovery), key=RECOVERY_PHASES.index, default=""),
        recovery_bytes=sum(one.recovery_bytes for one in figures),
        recovered_bytes=sum(one.recovered_bytes for one in figures),
        spill_bytes=sum(one.spill_bytes for one in figures),
        kept_spill_bytes=sum(one.kept_spill_bytes for one in figures),
        markers_missing=sum(one.markers_missing for one in figures),
        spill_places=planned.checkpoint.spill_places,
        spill_quota_bytes=planned.checkpoint.spill_quota,
        timings_s=sum_timings(one.timings_s for one in figures),
    )
