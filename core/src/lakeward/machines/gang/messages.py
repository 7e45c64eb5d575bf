"""The events and commands of the machine `gang`. An attempt is (subtask, attempt number); the numbers only grow."""

from __future__ import annotations

from dataclasses import dataclass

Attempt = tuple[int, int]
"""Subtask and attempt number."""

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRegistered:
    """A task of the launch registered, with a number that no attempt had before."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConnected:
    """All channels of a subtask are open, and what was restored is written. Repeated, it changes nothing."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFinished:
    """A subtask has received every channel's end and closed all its files. `all_read`: every split is finished."""

    subtask: int
    attempt: int
    all_read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLost:
    """An attempt failed, was silent for too long, or its connection is gone for good."""

    subtask: int
    attempt: int
    reason: str


GangEvent = MemberRegistered | MemberConnected | MemberFinished | MemberLost

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeployMembers:
    """All are there: deploy these, in this order, each with the addresses of all."""

    members: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class RefuseMember:
    """Tell this attempt, which is not deployed, that it does not count."""

    subtask: int
    attempt: int


@dataclass(frozen=True, slots=True)
class EndLaunch:
    """Cancel the launch, because the gang is not whole any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class AllWritten:
    """Every row of the round is in a closed file; returned once."""


GangCommand = DeployMembers | RefuseMember | EndLaunch | AllWritten
