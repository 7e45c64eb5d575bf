"""The heartbeats of the machine `rounds`: when the next one is due, and what it reports and renews."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.rounds.state import REPORTED, Phase, ServicePhase
from lakeward.model.tiering import HeartbeatRequest, TableEpoch

if TYPE_CHECKING:
    from lakeward.machines.rounds.state import RoundsState

REPORT_ATTEMPTS_WHILE_STOPPING = 2
"""A report that failed so often is given up when the service stops: the source's timeout assigns the table anew."""
_URGENT = frozenset({*REPORTED, Phase.SETTLING})


def due_at(state: RoundsState) -> float | None:
    """Return when the next heartbeat is due, None while one is open or none is needed. It may have passed."""
    if state.sent is not None or state.phase is ServicePhase.STOPPED:
        return None
    renew_s = state.settings.renew_s
    # A table that has a report to send is urgent, and a round that must be renewed before it may commit.
    due = [
        0.0 if state.phases[table_id] in _URGENT else table.renewed_at + renew_s
        for table_id, table in state.assigned.items()
    ]
    if state.wants_table():
        due.append(state.poll_at)
    return max(state.no_heartbeat_before, min(due)) if due else None


def compose(state: RoundsState) -> HeartbeatRequest:
    """Build a heartbeat with every assigned table: reported as finished or failed, or else renewed."""
    tables = [(table, state.phases[table_id]) for table_id, table in sorted(state.assigned.items())]
    finished = [table for table, phase in tables if phase is Phase.REPORTING]
    return HeartbeatRequest(
        renewed=tuple(table.epoch for table, phase in tables if phase not in REPORTED),
        finished=tuple(table.epoch for table in finished),
        forced=frozenset(table.assignment.table_id for table in finished if table.forced and not state.stopping),
        failed=tuple(table.epoch for table, phase in tables if phase is Phase.RETURNING),
        request=state.wants_table(),
    )


def is_assigned_under(state: RoundsState, epoch: TableEpoch) -> bool:
    """Return whether the table of an epoch in a heartbeat is still assigned under that epoch."""
    table = state.assigned.get(epoch.table_id)
    known = None if table is None else table.assignment
    return known is not None and (known.epoch, known.coordinator_epoch) == (epoch.epoch, epoch.coordinator_epoch)
