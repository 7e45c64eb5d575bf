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
    """Return whether a heartbeat is wanted now and none is under way."""
    due = due_at(state, settings)
    return due is not None and due <= now


def due_at(state: RoundsState, settings: ServiceSettings) -> float | None:
    """Return when the next heartbeat is due, None while one is under way or none is wanted.

    Args:
        state: what the machine knows.
        settings: periods.

    Returns:
        Seconds on the holder's clock; it may have passed.
    """
    if state.sent is not None or state.service is ServicePhase.STOPPED:
        return None
    due = [0.0 if _is_urgent(table) else table.renewed_at + settings.renew_s for table in state.tables.values()]
    if state.wants_table(settings.rounds):
        due.append(state.poll_at)
    return max(state.no_heartbeat_before, min(due)) if due else None


def compose(state: RoundsState, settings: ServiceSettings) -> HeartbeatRequest:
    """Name every assigned table in a heartbeat: report it, or else renew it.

    Args:
        state: what the machine knows.
        settings: how many tables may run.

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
        request=state.wants_table(settings.rounds),
    )


def assigned_under(state: RoundsState, epoch: TableEpoch) -> TieringTable | None:
    """Return the table of an epoch that a heartbeat named, None where it is assigned under another one by now."""
    table = state.tables.get(epoch.table_id)
    return table if table is not None and table.epoch == epoch else None


def _is_urgent(table: TieringTable) -> bool:
    """A report, or a round that may not commit before it is renewed."""
    return table.phase in REPORTED or table.phase is Phase.SETTLING
