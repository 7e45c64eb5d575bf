"""The states of a gang, and every transition between them.

A row gives the next state of one state and event, by guard. An event without a row is illegal, and so is a guard that
is not in its row. What comes from an attempt that is no member (it was replaced, or the launch has ended) is late, not
illegal: it changes nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeward.machines.gang.protocol import GangEvent, MemberConnected, MemberFinished, MemberLost, MemberRegistered
from lakeward.machines.machine_state import MachineState

if TYPE_CHECKING:
    from collections.abc import Mapping


class GangPhase(MachineState):
    """The phase of a gang."""

    GATHERING = "gathering"
    """Not all tasks have registered; none of them is deployed."""
    CONNECTING = "connecting"
    """All are deployed; not all have every channel open and what was restored written. No checkpoint may start."""
    EXCHANGING = "exchanging"
    """All are connected."""
    WRITTEN = "written"
    """All have closed their files, and everything that the round read is in them."""
    BROKEN = "broken"
    """A member was lost: the launch ends, and nothing that still comes from it counts."""


class GangGuard(MachineState):
    """The condition in which an event finds the machine; it selects the next state in the row of the event."""

    UNCHANGED = "unchanged"
    """The event comes late or is repeated, or others are still awaited."""
    ALL_THERE = "all there"
    """The last task has registered."""
    ALL_CONNECTED = "all connected"
    """The last member has connected."""
    ALL_WRITTEN = "all written"
    """The last member has closed its files."""
    LOST = "member lost"
    """A member is gone, or another attempt has come in its place."""
    NOT_ALLOWED = "not allowed"
    """A member that has not connected, or not all of whose input is read, says that it has finished. In no row."""


_GATHERING, _CONNECTING, _EXCHANGING = GangPhase.GATHERING, GangPhase.CONNECTING, GangPhase.EXCHANGING
_WRITTEN, _BROKEN = GangPhase.WRITTEN, GangPhase.BROKEN
_UNCHANGED, _LOST = GangGuard.UNCHANGED, GangGuard.LOST

TRANSITIONS: Mapping[tuple[GangPhase, type[GangEvent]], Mapping[GangGuard, GangPhase]] = MappingProxyType(
    {
        (_GATHERING, MemberRegistered): {_UNCHANGED: _GATHERING, GangGuard.ALL_THERE: _CONNECTING},
        (_GATHERING, MemberConnected): {_UNCHANGED: _GATHERING},
        (_GATHERING, MemberFinished): {_UNCHANGED: _GATHERING},
        # Nothing was deployed yet: the task, or Spark's next try of it, registers again.
        (_GATHERING, MemberLost): {_UNCHANGED: _GATHERING, _LOST: _GATHERING},
        (_CONNECTING, MemberRegistered): {_LOST: _BROKEN},
        (_CONNECTING, MemberConnected): {_UNCHANGED: _CONNECTING, GangGuard.ALL_CONNECTED: _EXCHANGING},
        (_CONNECTING, MemberFinished): {_UNCHANGED: _CONNECTING},
        (_CONNECTING, MemberLost): {_UNCHANGED: _CONNECTING, _LOST: _BROKEN},
        (_EXCHANGING, MemberRegistered): {_LOST: _BROKEN},
        (_EXCHANGING, MemberConnected): {_UNCHANGED: _EXCHANGING},
        (_EXCHANGING, MemberFinished): {_UNCHANGED: _EXCHANGING, GangGuard.ALL_WRITTEN: _WRITTEN},
        (_EXCHANGING, MemberLost): {_UNCHANGED: _EXCHANGING, _LOST: _BROKEN},
        # Everything has arrived: who is lost now takes nothing along.
        **{
            (phase, event): {_UNCHANGED: phase}
            for phase in (_WRITTEN, _BROKEN)
            for event in (MemberRegistered, MemberConnected, MemberFinished, MemberLost)
        },
    }
)
"""(state, event) to the next state by guard. Complete: what is not in it is illegal."""
