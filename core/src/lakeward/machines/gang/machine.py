"""The subtasks of one launch that exchange rows: they start together and are lost together.

Rules
* Nobody is deployed before all tasks of the launch have registered: each is told where all the others are.
* A task that registers after that means that a member is gone (Spark tries a task again only if it failed): it is
  refused, and the launch ends.
* Any member that is lost ends the launch. While the gang gathers it does not: the task registers again.
* No checkpoint may start before all members are connected (`connected`).
* The round is written when every split is finished and every member has said that all its files are closed. A member
  that says so before every split is finished breaks the protocol.
* A machine lives for one launch. Messages of attempts that are no members change nothing.
* `transitions.TRANSITIONS` gives the next state; every state is looked up there.
"""

from __future__ import annotations

from typing import assert_never

from lakeward.errors import UsageError
from lakeward.machines.gang.protocol import (
    AllWritten,
    DeployMembers,
    EndLaunch,
    GangCommand,
    GangEvent,
    MemberConnected,
    MemberFinished,
    MemberLost,
    MemberRegistered,
    RefuseMember,
)
from lakeward.machines.gang.transitions import TRANSITIONS, GangGuard, GangPhase
from lakeward.machines.machine_state import next_state
from lakeward.model.partitioning import KEY_GROUPS


class GangMachine:
    """The machine of one launch."""

    def __init__(self, size: int) -> None:
        """Start with nobody there.

        Raises:
            UsageError: below 1, or more than there are key groups.
        """
        if not 1 <= size <= KEY_GROUPS:
            message = f"gang: expected 1 to {KEY_GROUPS} subtasks, found {size}"
            raise UsageError(message)
        self._size = size
        self._phase = GangPhase.GATHERING
        self._members: dict[int, int] = {}
        self._connected: frozenset[int] = frozenset()
        self._finished: frozenset[int] = frozenset()

    @property
    def phase(self) -> GangPhase:
        """The gang's phase."""
        return self._phase

    @property
    def size(self) -> int:
        """Tasks of the launch."""
        return self._size

    @property
    def there(self) -> int:
        """How many tasks have registered."""
        return len(self._members)

    def is_member(self, subtask: int, attempt: int) -> bool:
        """Return whether an attempt is a member, deployed or not."""
        return self._members.get(subtask) == attempt

    def is_connected(self, subtask: int, attempt: int) -> bool:
        """Return whether an attempt is a member and has connected."""
        return self.is_member(subtask, attempt) and subtask in self._connected

    def step(self, event: GangEvent) -> tuple[GangCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: the table does not allow this event here; nothing was changed.
        """
        guard = self._guard(event)
        detail = f", {len(self._members)} of {self._size} there"
        before = self._phase
        self._phase = next_state("gang", TRANSITIONS, before, event, guard, detail=detail)
        match event:
            case MemberRegistered():
                return self._registered(event, before)
            case MemberConnected():
                return self._connect(event, before)
            case MemberFinished():
                return self._finish(event, before)
            case MemberLost():
                return self._lose(event, guard)
            case _:
                assert_never(event)

    def _guard(self, event: GangEvent) -> GangGuard:
        if self._phase in {GangPhase.WRITTEN, GangPhase.BROKEN}:
            return GangGuard.UNCHANGED
        if isinstance(event, MemberRegistered):
            return self._guard_of_registered(event)
        if not self.is_member(event.subtask, event.attempt):
            return GangGuard.UNCHANGED
        match event:
            case MemberLost():
                return GangGuard.LOST
            case MemberConnected():
                return self._guard_of_connected(event)
            case MemberFinished():
                return self._guard_of_finished(event)
            case _:
                assert_never(event)

    def _guard_of_connected(self, event: MemberConnected) -> GangGuard:
        if self._phase is GangPhase.GATHERING:
            return GangGuard.NOT_ALLOWED
        last = self._phase is GangPhase.CONNECTING and len(self._connected | {event.subtask}) == self._size
        return GangGuard.ALL_CONNECTED if last else GangGuard.UNCHANGED

    def _guard_of_finished(self, event: MemberFinished) -> GangGuard:
        if self._phase is not GangPhase.EXCHANGING or not event.all_read:
            return GangGuard.NOT_ALLOWED
        return GangGuard.ALL_WRITTEN if len(self._finished | {event.subtask}) == self._size else GangGuard.UNCHANGED

    def _guard_of_registered(self, event: MemberRegistered) -> GangGuard:
        if event.subtask not in range(self._size):
            return GangGuard.NOT_ALLOWED
        if self._phase is not GangPhase.GATHERING:
            return GangGuard.LOST
        last = len(self._members.keys() | {event.subtask}) == self._size
        return GangGuard.ALL_THERE if last else GangGuard.UNCHANGED

    def _registered(self, event: MemberRegistered, before: GangPhase) -> tuple[GangCommand, ...]:
        if before is not GangPhase.GATHERING:
            refuse = RefuseMember(event.subtask, event.attempt)
            if self._phase is before:
                return (refuse,)
            return (refuse, EndLaunch(f"subtask {event.subtask} registered again after the launch was deployed"))
        replaced = self._members.get(event.subtask)
        self._members = {**self._members, event.subtask: event.attempt}
        refused = () if replaced is None else (RefuseMember(event.subtask, replaced),)
        if self._phase is before:
            return refused
        return (*refused, DeployMembers(tuple(sorted(self._members.items()))))

    def _connect(self, event: MemberConnected, before: GangPhase) -> tuple[GangCommand, ...]:
        if before is GangPhase.CONNECTING and self.is_member(event.subtask, event.attempt):
            self._connected |= {event.subtask}
        return ()

    def _finish(self, event: MemberFinished, before: GangPhase) -> tuple[GangCommand, ...]:
        if before is GangPhase.EXCHANGING and self.is_member(event.subtask, event.attempt):
            self._finished |= {event.subtask}
        return (AllWritten(),) if self._phase is not before else ()

    def _lose(self, event: MemberLost, guard: GangGuard) -> tuple[GangCommand, ...]:
        if guard is not GangGuard.LOST:
            return ()
        if self._phase is GangPhase.GATHERING:
            self._members = {subtask: number for subtask, number in self._members.items() if subtask != event.subtask}
            return ()
        return (EndLaunch(event.reason),)
