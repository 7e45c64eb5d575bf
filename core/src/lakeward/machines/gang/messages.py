"""The events and commands of the machine `gang`. An attempt is (subtask, attempt number); the numbers only grow."""

from __future__ import annotations

from msgspec import Struct

Attempt = tuple[int, int]
"""Subtask and attempt number."""

# --- events -----------------------------------------------------------------------------------------------------


class MemberRegistered(Struct, frozen=True, kw_only=True):
    """A task of the launch registered, with a number that no attempt had before."""

    subtask: int
    attempt: int


class MemberConnected(Struct, frozen=True, kw_only=True):
    """All channels of a subtask are open, and what was restored is written. Repeated, it changes nothing."""

    subtask: int
    attempt: int


class MemberFinished(Struct, frozen=True, kw_only=True):
    """A subtask has received every channel's end and closed all its files. `all_read`: every split is finished."""

    subtask: int
    attempt: int
    all_read: bool


class MemberLost(Struct, frozen=True, kw_only=True):
    """An attempt failed, was silent for too long, or its connection is gone for good."""

    subtask: int
    attempt: int
    reason: str


GangEvent = MemberRegistered | MemberConnected | MemberFinished | MemberLost

# --- commands ---------------------------------------------------------------------------------------------------


class DeployMembers(Struct, frozen=True):
    """All are there: deploy these, in this order, each with the addresses of all."""

    members: tuple[Attempt, ...]


class RefuseMember(Struct, frozen=True):
    """Tell this attempt, which is not deployed, that it does not count."""

    subtask: int
    attempt: int


class EndLaunch(Struct, frozen=True):
    """Cancel the launch, because the gang is not whole any more."""

    reason: str


class AllWritten(Struct, frozen=True):
    """Every row of the round is in a closed file; returned once."""


GangCommand = DeployMembers | RefuseMember | EndLaunch | AllWritten
