"""The course of one checkpoint: from its start to the cut, to the store, and all the ways in which it ends early.

The body of the machine `checkpoints`, but for what is said to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import IllegalEventError
from lakeward.machines.checkpoint_members import Member, Members
from lakeward.machines.checkpoint_phases import (
    ABORTABLE,
    ALIVE,
    MEMBERS,
    TRANSITIONS,
    AttemptPhase,
    CheckpointPhase,
    State,
)
from lakeward.machines.checkpoint_protocol import (
    Abort,
    Attempt,
    CheckpointsCommand,
    CheckpointsEvent,
    CloseDownGateways,
    FailRound,
    GiveBack,
    OpenDownGateway,
    RoundEnded,
    StoreCheckpoint,
    TakeSnapshot,
    TellAborted,
    TellClose,
    TellTrigger,
)
from lakeward.machines.checkpoint_schedule import CheckpointPolicy, Schedule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Commands = list[CheckpointsCommand]

MACHINE = "checkpoints"
_IDLE, _ENDED = CheckpointPhase.IDLE, CheckpointPhase.ENDED
_CLOSING, _CUTTING, _SNAPPING = CheckpointPhase.CLOSING, CheckpointPhase.CUTTING, CheckpointPhase.SNAPPING
_DRAINING, _COLLECTING = CheckpointPhase.DRAINING, CheckpointPhase.COLLECTING
_STORING = CheckpointPhase.STORING
_OUTSIDE, _TOLD, _SHUT = AttemptPhase.OUTSIDE, AttemptPhase.TOLD, AttemptPhase.SHUT
_TRIGGERED, _STORED, _GONE = AttemptPhase.TRIGGERED, AttemptPhase.STORED, AttemptPhase.GONE


class Course:
    """Where a round's checkpointing stands, and how it moves."""

    def __init__(self, policy: CheckpointPolicy, *, now: float, latest: int = 0) -> None:
        """Start with none running.

        Args:
            policy: how often, how long, how patient.
            now: seconds.
            latest: the highest number that was ever given to a checkpoint of this round, restored ones included.
        """
        self._schedule = Schedule(policy, now)
        self._phase = _IDLE
        self._latest = latest
        self._members = Members()
        self._completed: set[int] = set()
        self._snapshot: object = None
        self._parts: dict[Attempt, tuple[object, object]] = {}
        self._superseded = False
        """Nobody will go on from a checkpoint of this round."""

    @property
    def phase(self) -> CheckpointPhase:
        """Where it stands."""
        return self._phase

    @property
    def latest(self) -> int:
        """The highest number so far; it is the running one's where one runs."""
        return self._latest

    @property
    def running(self) -> int | None:
        """The checkpoint that runs or is being stored, None for none."""
        return None if self._phase in {_IDLE, _ENDED} else self._latest

    @property
    def failures(self) -> int:
        """How many in a row have failed."""
        return self._schedule.failures

    @property
    def next_due(self) -> float | None:
        """When `TimePassed` has to be said, in seconds; None while nothing waits for time."""
        if self._phase in ABORTABLE:
            return self._schedule.deadline
        return self._schedule.due if self._phase is _IDLE and self._members.of(ALIVE) else None

    # --- forward --------------------------------------------------------------------------------------------

    def _start(self, cause: CheckpointsEvent) -> Commands:
        self._latest += 1
        self._schedule.start(cause.now)
        self._move(_CLOSING, cause)
        members = self._members.of(ALIVE)
        for member in members:
            self._move_attempt(member, _TOLD, cause)
        return [TellClose(*member.key, self._latest) for member in members]

    def _advance(self, cause: CheckpointsEvent) -> Commands:
        """Go on as far as everybody is."""
        members = self._members.of(MEMBERS)
        if self._phase is _CLOSING and all(member.phase is _SHUT for member in members):
            self._move(_CUTTING, cause)
        if self._phase is _CUTTING and all(member.received >= member.cut_at for member in members):
            return self._cut(members, cause)
        if self._phase is _DRAINING and not self._members.unacked():
            return self._trigger(members, cause)
        if self._phase is _COLLECTING and all(member.phase is _STORED for member in members):
            self._move(_STORING, cause)
            return [StoreCheckpoint(self._latest, self._snapshot, tuple(self._parts.values()))]
        return []

    def _cut(self, members: list[Member], cause: CheckpointsEvent) -> Commands:
        self._move(_SNAPPING, cause)
        for member in members:
            member.down_closed = True
        closed = CloseDownGateways(self._latest, tuple(member.key for member in members))
        return [closed, TakeSnapshot(self._latest)]

    def _trigger(self, members: list[Member], cause: CheckpointsEvent) -> Commands:
        self._move(_COLLECTING, cause)
        for member in members:
            self._move_attempt(member, _TRIGGERED, cause)
        told = [TellTrigger(*member.key, self._latest) for member in members]
        return [*told, *self._advance(cause)]

    # --- early ends -----------------------------------------------------------------------------------------

    def _fail(self, cause: CheckpointsEvent, reason: str) -> Commands:
        commands = self._abort(cause, reason)
        if self._schedule.fail():
            commands.append(FailRound(f"checkpoint {self._latest}, one too many in a row that failed: {reason}"))
        return commands

    def _abort(self, cause: CheckpointsEvent, reason: str, lost: Collection[Member] = ()) -> Commands:
        """Open both ends of all but those that are lost, then say so."""
        told = [member for member in self._members.of(MEMBERS) if member not in lost]
        commands: Commands = []
        for member in told:
            if member.down_closed:
                commands.append(self._open(member))
            commands.append(TellAborted(*member.key, self._latest))
        self._finish(cause, _ENDED if isinstance(cause, RoundEnded) else _IDLE)
        return [*commands, Abort(self._latest, reason)]

    def _finish(self, cause: CheckpointsEvent, phase: CheckpointPhase) -> None:
        for member in self._members.of(MEMBERS):
            self._move_attempt(member, _OUTSIDE, cause)
        self._snapshot = None
        self._parts = {}
        self._schedule.end(cause.now)
        self._move(phase, cause)

    def _lose(self, members: Iterable[Member], cause: CheckpointsEvent, reason: str) -> Commands:
        """Let attempts go: first both ends of all others are opened, then their splits come back."""
        lost = [member for member in members if member.phase in ALIVE]
        commands: Commands = []
        if self._phase in ABORTABLE and any(member.phase in MEMBERS for member in lost):
            commands = self._abort(cause, reason, lost)
        for member in lost:
            counts = member.counts
            if member.key in self._parts:
                counts = (self._latest, self._parts[member.key][1])
            self._move_attempt(member, _GONE, cause)
            checkpoint, snapshot = counts or (None, None)
            commands.append(GiveBack(*member.key, checkpoint, snapshot))
        return commands

    def _open(self, member: Member) -> OpenDownGateway:
        member.down_closed = False
        return OpenDownGateway(*member.key, self._latest)

    # --- moves ----------------------------------------------------------------------------------------------

    def _move(self, phase: CheckpointPhase, cause: CheckpointsEvent) -> None:
        self._check_move(self._phase, phase, cause)
        self._phase = phase

    def _move_attempt(self, member: Member, phase: AttemptPhase, cause: CheckpointsEvent) -> None:
        self._check_move(member.phase, phase, cause)
        member.phase = phase

    def _check_move(self, before: State, after: State, cause: CheckpointsEvent) -> None:
        if after not in TRANSITIONS.get((before, type(cause)), ()):
            raise IllegalEventError(MACHINE, f"{before.value}, which cannot become {after.value}", cause)
