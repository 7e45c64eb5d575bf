"""The states of an alignment, and every transition between them.

A row gives the next state of one state and event, by guard. One step may make several moves: the last barrier starts
the alignment of a single channel, aligns it, and ends it.

An event without a row is illegal, and so is a guard that is not in its row. A mark of a checkpoint that has ended is
late, not illegal: it changes nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.exchange.events import (
    AlignmentEvent,
    BarrierAborted,
    BarrierReceived,
    BatchConsumed,
    BatchReceived,
    CheckpointTriggered,
    EndReceived,
    OvertakenReceived,
    TimeoutChecked,
)
from lakeward.machines.machine_state import MachineState

if TYPE_CHECKING:
    from collections.abc import Mapping


class AlignmentPhase(MachineState):
    """Where a consumer stands with its channels' barriers."""

    IDLE = "idle"
    """No checkpoint runs here."""
    ALIGNING = "aligning"
    """A barrier, or the trigger, has come; the writer's snapshot is not taken. A channel stops at its barrier."""
    COLLECTING = "collecting"
    """The snapshot is taken, before all barriers: batches before a barrier are kept as they arrive."""
    ENDED = "ended"
    """Every channel has ended and all of it was consumed; a checkpoint has nothing to wait for but its trigger."""


class AlignmentGuard(MachineState):
    """The condition in which an event finds the machine; it selects the next state in the row of the event."""

    UNCHANGED = "unchanged"
    """The event moves nothing: it comes late, is repeated, or other channels are still waited for."""
    STARTED = "newer checkpoint"
    """The event is the first of a checkpoint that is newer than all that ended or run here."""
    ALIGNED = "all channels aligned"
    """The subtask was triggered, and each channel is consumed up to its barrier, or ended."""
    SWITCHED = "not aligned in time"
    """The time for the alignment is over, or a peer says that it is."""
    COLLECTED = "all channels collected"
    """All that lies before each barrier has arrived, or its producer keeps it."""
    CANCELLED = "checkpoint cancelled"
    """It was aborted, or a mark came too late for a right cut."""
    DRAINED = "all channels ended"
    """Every channel has ended and all of it was consumed."""
    NOT_ALLOWED = "not allowed"
    """A gap, a blocked channel, something behind its end, or a channel that is not there. It is in no row."""


_IDLE, _ALIGNING = AlignmentPhase.IDLE, AlignmentPhase.ALIGNING
_COLLECTING, _ENDED = AlignmentPhase.COLLECTING, AlignmentPhase.ENDED
_G = AlignmentGuard

TRANSITIONS: Mapping[tuple[AlignmentPhase, type[AlignmentEvent]], Mapping[AlignmentGuard, AlignmentPhase]] = (
    MappingProxyType(
        {
            (_IDLE, BatchReceived): {_G.UNCHANGED: _IDLE},
            (_IDLE, BatchConsumed): {_G.UNCHANGED: _IDLE, _G.DRAINED: _ENDED},
            (_IDLE, BarrierReceived): {_G.UNCHANGED: _IDLE, _G.STARTED: _ALIGNING, _G.DRAINED: _ENDED},
            (_IDLE, OvertakenReceived): {_G.UNCHANGED: _IDLE, _G.STARTED: _ALIGNING, _G.DRAINED: _ENDED},
            (_IDLE, EndReceived): {_G.UNCHANGED: _IDLE, _G.DRAINED: _ENDED},
            (_IDLE, CheckpointTriggered): {_G.UNCHANGED: _IDLE, _G.STARTED: _ALIGNING, _G.DRAINED: _ENDED},
            (_IDLE, BarrierAborted): {_G.UNCHANGED: _IDLE, _G.DRAINED: _ENDED},
            (_IDLE, TimeoutChecked): {_G.UNCHANGED: _IDLE},
            (_ALIGNING, BatchReceived): {_G.UNCHANGED: _ALIGNING},
            (_ALIGNING, BatchConsumed): {_G.UNCHANGED: _ALIGNING, _G.ALIGNED: _IDLE},
            (_ALIGNING, BarrierReceived): {
                _G.UNCHANGED: _ALIGNING,
                _G.STARTED: _ALIGNING,
                _G.ALIGNED: _IDLE,
                _G.SWITCHED: _COLLECTING,
                _G.CANCELLED: _IDLE,
            },
            (_ALIGNING, OvertakenReceived): {
                _G.UNCHANGED: _ALIGNING,
                _G.STARTED: _ALIGNING,
                _G.SWITCHED: _COLLECTING,
                _G.CANCELLED: _IDLE,
            },
            (_ALIGNING, EndReceived): {_G.UNCHANGED: _ALIGNING, _G.ALIGNED: _IDLE},
            (_ALIGNING, CheckpointTriggered): {
                _G.UNCHANGED: _ALIGNING,
                _G.STARTED: _ALIGNING,
                _G.ALIGNED: _IDLE,
                _G.SWITCHED: _COLLECTING,
                _G.CANCELLED: _IDLE,
            },
            (_ALIGNING, BarrierAborted): {_G.UNCHANGED: _ALIGNING, _G.CANCELLED: _IDLE},
            (_ALIGNING, TimeoutChecked): {_G.UNCHANGED: _ALIGNING, _G.SWITCHED: _COLLECTING},
            (_COLLECTING, BatchReceived): {_G.UNCHANGED: _COLLECTING, _G.COLLECTED: _IDLE},
            (_COLLECTING, BatchConsumed): {_G.UNCHANGED: _COLLECTING},
            (_COLLECTING, BarrierReceived): {
                _G.UNCHANGED: _COLLECTING,
                _G.STARTED: _ALIGNING,
                _G.COLLECTED: _IDLE,
                _G.CANCELLED: _IDLE,
            },
            (_COLLECTING, OvertakenReceived): {
                _G.UNCHANGED: _COLLECTING,
                _G.STARTED: _ALIGNING,
                _G.COLLECTED: _IDLE,
                _G.CANCELLED: _IDLE,
            },
            (_COLLECTING, EndReceived): {_G.UNCHANGED: _COLLECTING, _G.COLLECTED: _IDLE},
            (_COLLECTING, CheckpointTriggered): {
                _G.UNCHANGED: _COLLECTING,
                _G.STARTED: _ALIGNING,
                _G.COLLECTED: _IDLE,  # it had all when it switched
            },
            (_COLLECTING, BarrierAborted): {_G.UNCHANGED: _COLLECTING, _G.CANCELLED: _IDLE},
            (_COLLECTING, TimeoutChecked): {_G.UNCHANGED: _COLLECTING, _G.COLLECTED: _IDLE},
            (_ENDED, BarrierReceived): {_G.UNCHANGED: _ENDED, _G.STARTED: _ALIGNING},
            (_ENDED, OvertakenReceived): {_G.UNCHANGED: _ENDED, _G.STARTED: _ALIGNING},
            (_ENDED, CheckpointTriggered): {_G.UNCHANGED: _ENDED, _G.STARTED: _ALIGNING},
            (_ENDED, BarrierAborted): {_G.UNCHANGED: _ENDED},
            (_ENDED, TimeoutChecked): {_G.UNCHANGED: _ENDED},
        }
    )
)
"""(state, event) to the next state by guard. Complete: what is not in it is illegal."""
