"""One round's checkpoints, as the coordinator drives them: one at a time, cut consistently in both directions.

Rules
* All subtasks close their gateways and say the number of their last data event; when all have, and the coordinator
  has processed the data events up to those numbers, it closes its own gateways and takes its snapshot, in one step.
  When its earlier data events are acknowledged, it triggers. Each subtask that took its snapshot is opened alone.
* Whatever ends a checkpoint (deadline, decline, loss, failed store, end of launch or round) opens both ends.
* A subtask that never registered contributes nothing. One that left is in the coordinator's part. One that was lost
  is in the coordinator's part as well: its splits came back to the books with the progress of its newest part that
  counts, before its next attempt is admitted. If it was lost while it was part of the running one, that is aborted,
  unless all parts are stored already: then its own part is what counts.
* One that registers before the cut starts with both gateways closed and is part of the checkpoint. One that registers
  after the cut cannot be in it: it starts open, and nothing of it is in either snapshot.
* Only the newest attempt of a subtask is listened to. A word on a checkpoint that is over is harmless; one on a
  checkpoint that never was is illegal.
* Numbers only grow, over launches and restores.
* While `_metadata` is written nothing is blocked and nothing expires: only the store knows what became of it. If the
  round ends meanwhile, it counts all the same, for the next round goes on from it; unless the round has committed.
* Where it may go is in `checkpoint_phases.TRANSITIONS`, looked up at every move.
"""

from __future__ import annotations

from typing import assert_never

from lakeward.errors import IllegalEventError
from lakeward.machines.checkpoint_course import MACHINE, Commands, Course
from lakeward.machines.checkpoint_members import Checkpointed, Member
from lakeward.machines.checkpoint_phases import (
    ABORTABLE,
    ALIVE,
    CUT_AHEAD,
    MEMBERS,
    TRANSITIONS,
    AttemptPhase,
    CheckpointPhase,
)
from lakeward.machines.checkpoint_protocol import (
    Admit,
    Attempt,
    CheckpointAsked,
    CheckpointsCommand,
    CheckpointsEvent,
    CheckpointStored,
    CloseAcked,
    Complete,
    DataAcked,
    DataReceived,
    Declined,
    DiscardCheckpoint,
    DiscardPart,
    FailAttempt,
    GatewayOpened,
    LaunchEnded,
    PartStored,
    RejectWord,
    RoundEnded,
    SnapshotFailed,
    SnapshotTaken,
    StoreFailed,
    SubtaskLeft,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    SubtaskWord,
    TellAborted,
    TellClose,
    TellComplete,
    TellTrigger,
    TimePassed,
)
from lakeward.machines.checkpoint_schedule import CheckpointPolicy

__all__ = ["TRANSITIONS", "AttemptPhase", "CheckpointPhase", "CheckpointPolicy", "Checkpoints"]

_IDLE, _CLOSING, _CUTTING = CheckpointPhase.IDLE, CheckpointPhase.CLOSING, CheckpointPhase.CUTTING
_SNAPPING, _DRAINING = CheckpointPhase.SNAPPING, CheckpointPhase.DRAINING
_COLLECTING, _STORING = CheckpointPhase.COLLECTING, CheckpointPhase.STORING
_ENDING, _ENDED = CheckpointPhase.ENDING, CheckpointPhase.ENDED
_OUTSIDE, _TOLD, _SHUT = AttemptPhase.OUTSIDE, AttemptPhase.TOLD, AttemptPhase.SHUT
_TRIGGERED, _TAKEN, _STORED = AttemptPhase.TRIGGERED, AttemptPhase.TAKEN, AttemptPhase.STORED
_LEFT, _GONE, _UNKNOWN = AttemptPhase.LEFT, AttemptPhase.GONE, AttemptPhase.UNKNOWN


class Checkpoints(Course):
    """The machine of one round."""

    def phase_of(self, attempt: Attempt) -> AttemptPhase:
        """Return where an attempt stands; all but the newest of its subtask are gone."""
        return self._members.phase_of(attempt)

    def step(self, event: CheckpointsEvent) -> tuple[CheckpointsCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event, or a checkpoint that never was; nothing was changed.
        """
        self._check(event)
        match event:
            case TimePassed() | CheckpointAsked():
                commands = self._time_passed(event)
            case SubtaskRegistered():
                commands = self._registered(event)
            case SnapshotTaken():
                commands = self._snapshot_taken(event)
            case SnapshotFailed():
                commands = self._fail(event, event.reason)
            case CheckpointStored():
                commands = self._whole(event)
            case StoreFailed():
                commands = self._store_failed(event)
            case LaunchEnded():
                commands = self._lose(self._members.of(ALIVE), event, "the launch ended")
            case RoundEnded():
                commands = self._end_round(event)
            case _:
                commands = self._hear(event)
        return tuple(commands)

    # --- what attempts say ----------------------------------------------------------------------------------

    def _hear(self, event: SubtaskWord) -> Commands:
        member = self._members.speaker(event)
        if member is None:
            return self._reject(event)
        if isinstance(event, Checkpointed):
            return self._late(event) if self._is_late(member, event) else self._on_checkpoint(member, event)
        match event:
            case SubtaskReconnected():
                return self._say_again(member)
            case SubtaskLost():
                return self._lose([member], event, f"attempt {event.attempt} of subtask {event.subtask} was lost")
            case SubtaskLeft():
                return self._left(member, event)
            case DataReceived():
                member.received = max(member.received, event.number)
            case DataAcked():
                member.acked = max(member.acked, event.number)
            case _:
                assert_never(event)
        return self._advance(event)

    def _on_checkpoint(self, member: Member, event: Checkpointed) -> Commands:
        match event:
            case CloseAcked():
                return self._close_acked(member, event)
            case GatewayOpened():
                return self._taken(member, event)
            case PartStored():
                return self._part_stored(member, event)
            case Declined():
                return self._declined(member, event)
            case _:
                assert_never(event)

    def _close_acked(self, member: Member, event: CloseAcked) -> Commands:
        if member.phase is not _TOLD:
            return []
        member.cut_at = event.sent
        self._move_attempt(member, _SHUT, event)
        return self._advance(event)

    def _taken(self, member: Member, cause: GatewayOpened | PartStored) -> Commands:
        if member.phase is not _TRIGGERED:
            return []
        self._move_attempt(member, _TAKEN, cause)
        return [self._open(member)]

    def _part_stored(self, member: Member, event: PartStored) -> Commands:
        commands = self._taken(member, event)  # the word that it was taken may have been lost with a connection
        if member.phase is _TAKEN:
            self._parts[member.key] = (event.part, event.snapshot)
            self._move_attempt(member, _STORED, event)
        return [*commands, *self._advance(event)]

    def _declined(self, member: Member, event: Declined) -> Commands:
        if member.phase is _STORED:
            return []
        return self._fail(event, f"subtask {event.subtask} declined: {event.reason}")

    def _left(self, member: Member, event: SubtaskLeft) -> Commands:
        """What it did before the cut is in the coordinator's part; if it sent anything since, its own is missing."""
        if member.phase is _LEFT:
            return []
        commands: Commands = []
        if member.phase is _TAKEN:
            commands = self._abort(event, f"subtask {member.subtask} left before its part was stored", (member,))
        self._move_attempt(member, _LEFT, event)
        return [*commands, *self._advance(event)]

    def _say_again(self, member: Member) -> Commands:
        """Say what it may have missed; it answers as it did before."""
        if member.phase is _TOLD:
            return [TellClose(*member.key, self._latest)]
        if member.phase in {_TRIGGERED, _TAKEN}:
            return [TellTrigger(*member.key, self._latest)]
        if member.phase is _OUTSIDE and self.running is None and self._latest:
            told = TellComplete if self._latest in self._completed else TellAborted
            return [told(*member.key, self._latest)]
        return []

    def _is_late(self, member: Member, event: Checkpointed) -> bool:
        """Tell a word on a checkpoint that is over, or that this attempt is not part of, from one that counts."""
        return event.checkpoint != self.running or member.phase not in MEMBERS

    def _late(self, event: SubtaskWord) -> Commands:
        if not isinstance(event, PartStored) or event.checkpoint in self._completed:
            return []
        if event.checkpoint == self.running and (event.subtask, event.attempt) in self._parts:
            return []  # said twice by one that left or was lost since; its part counts
        return [DiscardPart(event.checkpoint, event.part)]

    def _reject(self, event: SubtaskWord) -> Commands:
        if isinstance(event, SubtaskLost):
            return []
        reason = f"attempt {event.attempt} of subtask {event.subtask} was lost or replaced"
        return [*self._late(event), RejectWord(event.subtask, event.attempt, reason)]

    # --- the way of a checkpoint ----------------------------------------------------------------------------

    def _time_passed(self, event: TimePassed | CheckpointAsked) -> Commands:
        if isinstance(event, CheckpointAsked):
            if self._phase is not _IDLE:
                return []
            self._schedule.ask(event.now)
        if self.next_due is None or event.now < self.next_due:
            return []
        if self._phase is _IDLE:
            return self._start(event)
        silent = self._members.unacked() if self._phase is _DRAINING else []
        lost = [FailAttempt(*m.key, f"{m.sent} events were sent to it, {m.acked} acknowledged") for m in silent]
        return [*self._fail(event, f"not complete in time, still {self._phase.value}"), *lost]

    def _snapshot_taken(self, event: SnapshotTaken) -> Commands:
        self._snapshot = event.snapshot
        for member in self._members.of(MEMBERS):
            member.sent = event.sent[member.key]
        self._move(_DRAINING, event)
        return self._advance(event)

    def _whole(self, event: CheckpointStored) -> Commands:
        if self._phase is _ENDING:
            self._move(_ENDED, event)
            return [DiscardCheckpoint(event.checkpoint) if self._superseded else Complete(event.checkpoint)]
        self._completed.add(event.checkpoint)
        for member in self._members:
            if member.key in self._parts:
                member.counts = (event.checkpoint, self._parts[member.key][1])
        self._schedule.succeed()
        self._finish(event, _IDLE)
        told = [TellComplete(*member.key, event.checkpoint) for member in self._members.of(ALIVE)]
        return [*told, Complete(event.checkpoint)]

    def _store_failed(self, event: StoreFailed) -> Commands:
        if self._phase is _STORING:
            return self._fail(event, event.reason)
        self._move(_ENDED, event)
        return [DiscardCheckpoint(event.checkpoint)]  # what says that it was given up is all that is left of it

    # --- its other ends -------------------------------------------------------------------------------------

    def _end_round(self, event: RoundEnded) -> Commands:
        self._superseded = self._superseded or event.superseded
        if self._phase in ABORTABLE:
            return self._abort(event, "the round ended")
        for member in self._members.of(MEMBERS):
            self._move_attempt(member, _OUTSIDE, event)
        self._move(_ENDING if self._phase in {_STORING, _ENDING} else _ENDED, event)
        return []

    def _registered(self, event: SubtaskRegistered) -> Commands:
        older = self._members.newest(event.subtask)
        lost = self._lose([older] if older else [], event, f"attempt {event.attempt} replaces its predecessor")
        member = self._members.add(event)
        member.down_closed = self._phase in CUT_AHEAD
        self._move_attempt(member, _SHUT if member.down_closed else _OUTSIDE, event)
        return [*lost, Admit(*member.key, self._latest, self._latest if member.down_closed else None)]

    # --- what may happen ------------------------------------------------------------------------------------

    def _check(self, event: CheckpointsEvent) -> None:
        """Raise before anything is changed if this may not happen here."""
        legal = (self._phase, type(event)) in TRANSITIONS
        match event:
            case SubtaskRegistered():
                legal = legal and self.phase_of((event.subtask, event.attempt)) is _UNKNOWN
            case SnapshotTaken():
                everybody = all(member.key in event.sent for member in self._members.of(MEMBERS))
                asked = self._phase is CheckpointPhase.SNAPPING and event.checkpoint == self._latest
                legal = legal and asked and everybody
            case SnapshotFailed() | CheckpointStored() | StoreFailed():
                legal = legal and event.checkpoint == self._latest
            case TimePassed() | CheckpointAsked() | LaunchEnded() | RoundEnded():
                pass
            case _:
                legal = legal and self._may_say(event)
        if not legal:
            raise self._illegal(event)

    def _may_say(self, event: SubtaskWord) -> bool:
        if (self.phase_of((event.subtask, event.attempt)), type(event)) not in TRANSITIONS:
            return False
        if not isinstance(event, Checkpointed):
            return True
        member = self._members.speaker(event)
        early = member is not None and event.checkpoint == self.running and member.too_early(event)
        return event.checkpoint <= self._latest and not early

    def _illegal(self, event: CheckpointsEvent) -> IllegalEventError:
        state = f"{self._phase.value}, checkpoint {self._latest}"
        if isinstance(event, SubtaskRegistered | SubtaskWord):
            state = f"{state}, attempt {self.phase_of((event.subtask, event.attempt)).value}"
        return IllegalEventError(MACHINE, state, event)
