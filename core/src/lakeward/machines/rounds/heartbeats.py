"""The heartbeats of the machine `rounds`: when the next one is due, and what it reports and renews."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.rounds.transitions import REPORTED, Phase, ServicePhase
from lakeward.model.tiering import HeartbeatRequest, TableEpoch

if TYPE_CHECKING:
    from lakeward.machines.rounds.state import RoundsState, TieringTable
    from lakeward.model.settings import ServiceSettings

REPORT_ATTEMPTS_WHILE_STOPPING = 2
"""A report that failed so often is given up when the service stops: the source's timeout assigns the table anew."""


def is_due(state: RoundsState, settings: ServiceSettings, now: float) -> bool:
    """Return whether a heartbeat is due now and none is open."""
    due = due_at(state, settings)
    return due is not None and due <= now


def due_at(state: RoundsState, settings: ServiceSettings) -> float | None:
    """Return when the next heartbeat is due, None while one is open or none is needed.

    Args:
        state: what the machine knows.
        settings: periods.

    Returns:
        Seconds on the holder's clock; it may have passed.
    """
    if state.sent is not None or state.service is ServicePhase.STOPPED:
        return None
    due = [0.0 if _is_urgent(table) else table.renewed_at + settings.renew_s for table in state.tables.values()]
    if state.wants_table(settings.max_tables):
        due.append(state.poll_at)
    return max(state.no_heartbeat_before, min(due)) if due else None


def compose(state: RoundsState, settings: ServiceSettings) -> HeartbeatRequest:
    """Build a heartbeat with every assigned table: reported as finished or failed, or else renewed.

    Args:
        state: what the machine knows.
        settings: how many tables may be in hand.

    Returns:
        The heartbeat.
    """
    tables = [state.tables[table_id] for table_id in sorted(state.tables)]
    finished = [table for table in tables if table.phase is Phase.REPORTING]
    return HeartbeatRequest(
        renewed=tuple(table.epoch for table in tables if table.phase not in REPORTED),
        finished=tuple(table.epoch for table in finished),
        forced=frozenset(table.assignment.table_id for table in finished if table.forced and not state.stopping),
        failed=tuple(table.epoch for table in tables if table.phase is Phase.RETURNING),
        request=state.wants_table(settings.max_tables),
    )


def assigned_under(state: RoundsState, epoch: TableEpoch) -> TieringTable | None:
    """Return the table of an epoch in a heartbeat, None if it is assigned under another epoch by now."""
    table = state.tables.get(epoch.table_id)
    if table is None:
        return None
    known = table.assignment
    return table if (known.epoch, known.coordinator_epoch) == (epoch.epoch, epoch.coordinator_epoch) else None


def _is_urgent(table: TieringTable) -> bool:
    """Return whether the table has a report to send, or a round that must be renewed before it may commit."""
    return table.phase in REPORTED or table.phase is Phase.SETTLING
