"""The states of splits and of attempts, and every transition between them.

A row lists where a split or an attempt may go with one event, move by move: a split may come back and be handed out
again in one step. An attempt's row counts for its own events and for what befalls it through another one's. No row =
the event is illegal there. What an attempt says after it was replaced or lost is late, not illegal: it is rejected
and moves nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.machine_state import MachineState
from lakeward.machines.split_protocol import (
    AttemptLost,
    AttemptRegistered,
    CutAsked,
    JobEnded,
    SplitDone,
    SplitRequested,
    SplitsEvent,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class SplitPhase(MachineState):
    """Where a split stands."""

    UNASSIGNED = "unassigned"
    WITHHELD = "withheld"
    """Finished before a restore; the word of it is sent again by whichever attempt is given it."""
    ASSIGNED = "assigned"
    FINISHED = "finished"
    SKIPPED = "skipped"
    """Left out by a cut."""


class AttemptPhase(MachineState):
    """Where an attempt of a subtask stands."""

    UNKNOWN = "unknown"
    """Never registered, and no newer one of its subtask was."""
    READY = "ready"
    """Registered; holds nothing and asked for nothing."""
    READING = "reading"
    """Holds at least one split."""
    IDLE = "idle"
    """Asked, got nothing, and is served when a split comes back."""
    DISMISSED = "dismissed"
    """Was told that nothing will come any more."""
    GONE = "gone"
    """Lost, replaced, or its job ended."""


State = SplitPhase | AttemptPhase

_UNASSIGNED, _ASSIGNED, _WITHHELD = SplitPhase.UNASSIGNED, SplitPhase.ASSIGNED, SplitPhase.WITHHELD
_FINISHED, _SKIPPED = SplitPhase.FINISHED, SplitPhase.SKIPPED
_UNKNOWN, _READY, _READING = AttemptPhase.UNKNOWN, AttemptPhase.READY, AttemptPhase.READING
_IDLE, _DISMISSED, _GONE = AttemptPhase.IDLE, AttemptPhase.DISMISSED, AttemptPhase.GONE


def _row(*states: State) -> frozenset[State]:
    return frozenset(states)


TRANSITIONS: Mapping[tuple[State, type[SplitsEvent]], frozenset[State]] = MappingProxyType(
    {
        (_UNASSIGNED, AttemptRegistered): _row(_UNASSIGNED, _ASSIGNED),  # it came back, and somebody waits
        (_UNASSIGNED, SplitRequested): _row(_UNASSIGNED, _ASSIGNED),
        (_UNASSIGNED, SplitDone): _row(_UNASSIGNED),  # from an attempt that lost it: rejected
        (_UNASSIGNED, AttemptLost): _row(_UNASSIGNED, _ASSIGNED),
        (_UNASSIGNED, JobEnded): _row(_UNASSIGNED),
        (_UNASSIGNED, CutAsked): _row(_SKIPPED),
        (_WITHHELD, AttemptRegistered): _row(_WITHHELD, _ASSIGNED),  # its word goes to this attempt
        (_WITHHELD, SplitRequested): _row(_WITHHELD),
        (_WITHHELD, SplitDone): _row(_WITHHELD),  # from an attempt that lost it: rejected
        (_WITHHELD, AttemptLost): _row(_WITHHELD),
        (_WITHHELD, JobEnded): _row(_WITHHELD),
        (_WITHHELD, CutAsked): _row(_WITHHELD),  # all of it was read: its word still comes
        (_ASSIGNED, AttemptRegistered): _row(_ASSIGNED, _UNASSIGNED, _SKIPPED, _WITHHELD),  # its reader was replaced
        (_ASSIGNED, SplitRequested): _row(_ASSIGNED),
        (_ASSIGNED, SplitDone): _row(_ASSIGNED, _FINISHED),
        (_ASSIGNED, AttemptLost): _row(_ASSIGNED, _UNASSIGNED, _SKIPPED, _WITHHELD),
        (_ASSIGNED, JobEnded): _row(_UNASSIGNED, _SKIPPED, _WITHHELD),
        (_ASSIGNED, CutAsked): _row(_ASSIGNED),  # its reader is told and runs to an end
        (_FINISHED, AttemptRegistered): _row(_FINISHED),
        (_FINISHED, SplitRequested): _row(_FINISHED),
        (_FINISHED, SplitDone): _row(_FINISHED),
        (_FINISHED, AttemptLost): _row(_FINISHED),
        (_FINISHED, JobEnded): _row(_FINISHED),
        (_FINISHED, CutAsked): _row(_FINISHED),
        (_SKIPPED, AttemptRegistered): _row(_SKIPPED),
        (_SKIPPED, SplitRequested): _row(_SKIPPED),
        (_SKIPPED, SplitDone): _row(_SKIPPED),
        (_SKIPPED, AttemptLost): _row(_SKIPPED),
        (_SKIPPED, JobEnded): _row(_SKIPPED),
        (_SKIPPED, CutAsked): _row(_SKIPPED),
        (_UNKNOWN, AttemptRegistered): _row(_READY),
        (_UNKNOWN, AttemptLost): _row(_UNKNOWN),  # its connection ended before it registered
        (_UNKNOWN, JobEnded): _row(_UNKNOWN),
        (_UNKNOWN, CutAsked): _row(_UNKNOWN),
        (_READY, AttemptRegistered): _row(_READY, _READING, _GONE),
        (_READY, SplitRequested): _row(_READING, _IDLE, _DISMISSED),
        (_READY, SplitDone): _row(_READY),  # only what it said before, once more
        (_READY, AttemptLost): _row(_GONE),
        (_READY, JobEnded): _row(_GONE),
        (_READY, CutAsked): _row(_READY),
        (_READING, AttemptRegistered): _row(_READING, _GONE),
        (_READING, SplitRequested): _row(_READING),
        (_READING, SplitDone): _row(_READING, _READY, _IDLE),
        (_READING, AttemptLost): _row(_GONE, _READING),  # it asked for more and is served what came back
        (_READING, JobEnded): _row(_GONE),
        (_READING, CutAsked): _row(_READING),
        (_IDLE, AttemptRegistered): _row(_IDLE, _GONE, _READING, _DISMISSED),  # served, or the last split was skipped
        (_IDLE, SplitRequested): _row(_IDLE),
        (_IDLE, SplitDone): _row(_IDLE, _DISMISSED),
        (_IDLE, AttemptLost): _row(_GONE, _READING, _DISMISSED),
        (_IDLE, JobEnded): _row(_GONE),
        (_IDLE, CutAsked): _row(_IDLE),
        (_DISMISSED, AttemptRegistered): _row(_DISMISSED, _GONE),
        (_DISMISSED, SplitRequested): _row(_DISMISSED),
        (_DISMISSED, SplitDone): _row(_DISMISSED),
        (_DISMISSED, AttemptLost): _row(_GONE),
        (_DISMISSED, JobEnded): _row(_GONE),
        (_DISMISSED, CutAsked): _row(_DISMISSED),
        (_GONE, AttemptRegistered): _row(_GONE),
        (_GONE, SplitRequested): _row(_GONE),
        (_GONE, SplitDone): _row(_GONE),
        (_GONE, AttemptLost): _row(_GONE),
        (_GONE, JobEnded): _row(_GONE),
        (_GONE, CutAsked): _row(_GONE),
    }
)
"""(state, event) to the states that may follow; complete: what has no row is illegal."""
