"""The states of a subtask's recovery, and every transition between them.

An event without a row is illegal, and so is a guard that is not in its row. A checkpoint that has ended is late, not
illegal: it changes nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.machine_state import MachineState
from lakeward.machines.recovery.events import (
    CheckpointRequested,
    ContentRequested,
    PieceRead,
    PieceRequested,
    ProducersConnected,
    RecoveryEvent,
    RecoveryStopped,
    RowsSpilled,
    SnapshotAborted,
    SnapshotStarted,
    SpillEnded,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class RecoveryPhase(MachineState):
    """How far a subtask is with what was restored."""

    NOT_READY = "not_ready"
    """Rows are read back, or channels are opened: no checkpoint can be taken."""
    DRAINING = "draining"
    """Restored rows are written, ahead of all live ones; a checkpoint holds what is not written yet."""
    NONE = "none"
    """Everything restored is written: there is nothing to add to a checkpoint."""
    STOPPED = "stopped"
    """It failed, or the subtask ends."""


class RecoveryGuard(MachineState):
    """The condition in which an event finds the machine; it selects the next state in the row of the event."""

    UNCHANGED = "unchanged"
    """The phase stays."""
    READY = "all connected, all spilled"
    """The last of both has come."""
    DRAINED = "last sentinel taken"
    """The sentinels of all channels are consumed."""
    NOT_ALLOWED = "not allowed"
    """Twice, out of order, or nothing was asked for. It is in no row."""


_NOT_READY, _DRAINING = RecoveryPhase.NOT_READY, RecoveryPhase.DRAINING
_NONE, _STOPPED = RecoveryPhase.NONE, RecoveryPhase.STOPPED
_G = RecoveryGuard

TRANSITIONS: Mapping[tuple[RecoveryPhase, type[RecoveryEvent]], Mapping[RecoveryGuard, RecoveryPhase]] = (
    MappingProxyType(
        {
            (_NOT_READY, RowsSpilled): {_G.UNCHANGED: _NOT_READY, _G.READY: _DRAINING},
            (_NOT_READY, ProducersConnected): {_G.UNCHANGED: _NOT_READY, _G.READY: _DRAINING},
            (_NOT_READY, CheckpointRequested): {_G.UNCHANGED: _NOT_READY},
            (_NOT_READY, SnapshotAborted): {_G.UNCHANGED: _NOT_READY},
            (_NOT_READY, RecoveryStopped): {_G.UNCHANGED: _STOPPED},
            (_DRAINING, PieceRead): {_G.UNCHANGED: _DRAINING},
            (_DRAINING, SpillEnded): {_G.UNCHANGED: _DRAINING},
            (_DRAINING, PieceRequested): {_G.UNCHANGED: _DRAINING, _G.DRAINED: _NONE},
            (_DRAINING, CheckpointRequested): {_G.UNCHANGED: _DRAINING},
            (_DRAINING, SnapshotStarted): {_G.UNCHANGED: _DRAINING},
            (_DRAINING, ContentRequested): {_G.UNCHANGED: _DRAINING},
            (_DRAINING, SnapshotAborted): {_G.UNCHANGED: _DRAINING},
            (_DRAINING, RecoveryStopped): {_G.UNCHANGED: _STOPPED},
            (_NONE, CheckpointRequested): {_G.UNCHANGED: _NONE},
            (_NONE, SnapshotStarted): {_G.UNCHANGED: _NONE},
            (_NONE, ContentRequested): {_G.UNCHANGED: _NONE},
            (_NONE, SnapshotAborted): {_G.UNCHANGED: _NONE},
            (_NONE, RecoveryStopped): {_G.UNCHANGED: _STOPPED},
            # What the worker had under way, or what is in the mailbox, comes late.
            (_STOPPED, RowsSpilled): {_G.UNCHANGED: _STOPPED},
            (_STOPPED, ProducersConnected): {_G.UNCHANGED: _STOPPED},
            (_STOPPED, PieceRead): {_G.UNCHANGED: _STOPPED},
            (_STOPPED, SpillEnded): {_G.UNCHANGED: _STOPPED},
            (_STOPPED, CheckpointRequested): {_G.UNCHANGED: _STOPPED},
            (_STOPPED, SnapshotAborted): {_G.UNCHANGED: _STOPPED},
            (_STOPPED, RecoveryStopped): {_G.UNCHANGED: _STOPPED},
        }
    )
)
"""(state, event) to the next state by guard. Complete: what is not in it is illegal."""
