"""Stories of a gang of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.gang import GangMachine, MemberConnected, MemberFinished, MemberLost, MemberRegistered

if TYPE_CHECKING:
    from lakeward.machines.gang import GangEvent


def registered(subtask: int, attempt: int) -> MemberRegistered:
    """A task registers."""
    return MemberRegistered(subtask=subtask, attempt=attempt)


def connected(subtask: int, attempt: int) -> MemberConnected:
    """An attempt has connected."""
    return MemberConnected(subtask=subtask, attempt=attempt)


def finished(subtask: int, attempt: int, *, all_read: bool = True) -> MemberFinished:
    """An attempt has closed its files."""
    return MemberFinished(subtask=subtask, attempt=attempt, all_read=all_read)


def lost(subtask: int, attempt: int) -> MemberLost:
    """An attempt is lost."""
    return MemberLost(subtask=subtask, attempt=attempt, reason="gone")


THERE = (registered(1, 1), registered(0, 2))
CONNECTED = (*THERE, connected(0, 2), connected(1, 1))
STORIES: tuple[tuple[GangEvent, ...], ...] = (
    (),
    (registered(1, 1),),
    (registered(1, 1), lost(1, 1)),
    (registered(1, 1), registered(1, 3)),
    (registered(0, 1), registered(0, 2)),
    THERE,
    (*THERE, connected(0, 2)),
    CONNECTED,
    (*CONNECTED, finished(1, 1)),
    (*CONNECTED, finished(1, 1), finished(0, 2)),
    (*THERE, lost(0, 2)),
    (*CONNECTED, registered(0, 3)),
)
TRIED: tuple[GangEvent, ...] = (
    registered(0, 4),
    registered(1, 5),
    registered(2, 6),
    connected(0, 2),
    connected(1, 1),
    connected(0, 9),
    finished(0, 2),
    finished(1, 1),
    finished(0, 2, all_read=False),
    finished(0, 9),
    lost(0, 2),
    lost(1, 1),
    lost(0, 9),
)
ILLEGAL = ()


def new() -> GangMachine:
    """A gang of which nobody is there."""
    return GangMachine(2)
