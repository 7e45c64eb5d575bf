"""The coordinator's machine for one round's checkpoints: one at a time, each a consistent cut in both directions.

Rules
* All subtasks close their gateways and report the number of their last data event. When all have, and the coordinator
  has processed the data events up to those numbers, it closes its own gateways and takes its snapshot, in one step.
  When its earlier data events are acknowledged, it triggers. The gateway to a subtask opens when that subtask has
  taken its snapshot, independently of the others.
* Whatever ends a checkpoint (deadline, decline, loss, failed store, end of launch or round) opens the gateways at both
  ends.
* A subtask that never registered contributes nothing. The work of a subtask that finished is in the coordinator's
  part. So is that of a lost one: its splits are returned, with the progress in its newest part of a completed
  checkpoint, before its next attempt is admitted. If it was part of the running checkpoint, that is aborted; but if all
  parts are stored already, its own part counts.
* An attempt that registers before the cut starts with both gateways closed and is part of the checkpoint. One that
  registers after the cut is not part of it: it starts open, and nothing of it is in either snapshot.
* Only messages of a subtask's newest attempt count. A message about a checkpoint that has ended changes nothing; one
  about a checkpoint that never existed is illegal.
* Checkpoint numbers only grow, also across launches and restores.
* While `_metadata` is being written no gateway is closed and no deadline applies: only the store knows the outcome. If
  the round ends meanwhile, the checkpoint still counts, for the next round is restored from it; unless the round has
  committed.
* `transitions.TRANSITIONS` gives the next state; every state is looked up there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from lakeward.errors import IllegalEventError
from lakeward.machines.checkpoints.attempts import MACHINE, AttemptState, AttemptStates
from lakeward.machines.checkpoints.commands import (
    Abort,
    Admit,
    CheckpointsCommand,
    CloseDownGateways,
    Complete,
    DiscardCheckpoint,
    DiscardPart,
    FailAttempt,
    FailRound,
    OpenDownGateway,
    RejectMessage,
    ReturnSplits,
    SendAborted,
    SendClose,
    SendComplete,
    SendTrigger,
    StoreCheckpoint,
    TakeSnapshot,
)
from lakeward.machines.checkpoints.events import (
    Attempt,
    CheckpointsEvent,
    CheckpointStored,
    CloseAcked,
    DataAcked,
    DataReceived,
    Declined,
    GatewayOpened,
    LaunchEnded,
    PartStored,
    RoundEnded,
    SnapshotFailed,
    SnapshotTaken,
    StoreFailed,
    SubtaskEvent,
    SubtaskFinished,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TimePassed,
)
from lakeward.machines.checkpoints.schedule import Schedule
from lakeward.machines.checkpoints.transitions import (
    ABORTABLE,
    ALIVE,
    BEFORE_CUT,
    TRANSITIONS,
    CheckpointGuard,
    CheckpointPhase,
    ParticipantPhase,
)
from lakeward.machines.machine_state import next_state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lakeward.model.settings import CheckpointSettings

Commands = list[CheckpointsCommand]
CheckpointMessage = CloseAcked | GatewayOpened | PartStored | Declined
"""The messages of an attempt that are about a checkpoint."""


class CheckpointCoordinator:
    """The machine of one round."""

    def __init__(self, settings: CheckpointSettings, *, now: float, latest: int = 0) -> None:
        """Start with no checkpoint.

        Args:
            settings: how often, how long, how many failures.
            now: seconds.
            latest: the highest number used so far for a checkpoint of this round, restored ones included.
        """
        self._schedule = Schedule(settings, now)
        self._phase = CheckpointPhase.IDLE
        self._latest = latest
        self._attempts = AttemptStates()
        self._completed: set[int] = set()
        self._snapshot: object = None
        self._parts: dict[Attempt, tuple[object, object]] = {}
        self._superseded = False
        """No round will be restored from a checkpoint of this round."""

    @property
    def phase(self) -> CheckpointPhase:
        """The phase of the round's checkpoints."""
        return self._phase

    @property
    def latest(self) -> int:
        """The highest number so far; while a checkpoint runs, its number."""
        return self._latest

    @property
    def running(self) -> int | None:
        """The checkpoint that runs or is being stored, None for none."""
        return None if self._phase in {CheckpointPhase.IDLE, CheckpointPhase.ENDED} else self._latest

    @property
    def failures(self) -> int:
        """How many in a row have failed."""
        return self._schedule.failures

    @property
    def next_due(self) -> float | None:
        """When the machine next needs a `TimePassed`, in seconds; None while it waits for no time."""
        if self._phase in ABORTABLE:
            return self._schedule.deadline
        return self._schedule.due if self._phase is CheckpointPhase.IDLE and self._attempts.alive() else None

    def phase_of(self, attempt: Attempt) -> ParticipantPhase:
        """Return the phase of an attempt; all but the newest of a subtask are gone."""
        return self._attempts.phase_of(attempt)

    def step(self, event: CheckpointsEvent) -> tuple[CheckpointsCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: the table does not allow this event here; nothing was changed.
        """
        guard = self._check(event)
        if self._phase is CheckpointPhase.IDLE and isinstance(event, DataReceived | DataAcked):
            return tuple(self._take(event, guard))  # one number changes, no state: most events by far are like this
        if isinstance(event, TimePassed) and guard is CheckpointGuard.UNCHANGED:
            return ()  # most of the others
        before = self._copied()
        try:
            return tuple(self._take(event, guard))
        except BaseException:
            vars(self).update(before)
            raise

    def _copied(self) -> dict[str, object]:
        """Return everything that a step changes, as it is now."""
        return {
            **vars(self),
            "_schedule": self._schedule.copy(),
            "_attempts": self._attempts.copy(),
            "_completed": set(self._completed),
            "_parts": dict(self._parts),
        }

    def _take(self, event: CheckpointsEvent, guard: CheckpointGuard) -> Commands:
        """Do what an event that is legal asks for."""
        match event:
            case TimePassed():
                commands = self._time_passed(event, guard)
            case SubtaskRegistered():
                commands = self._registered(event)
            case SnapshotTaken():
                commands = self._snapshot_taken(event)
            case SnapshotFailed():
                commands = self._fail(event, event.reason)
            case CheckpointStored():
                commands = self._stored(event)
            case StoreFailed():
                commands = self._store_failed(event)
            case LaunchEnded():
                commands = self._lose(self._attempts.alive(), event, "the launch ended")
            case RoundEnded():
                commands = self._end_round(event, guard)
            case _:
                commands = self._subtask_event(event, guard)
        return commands

    # --- which events are legal -----------------------------------------------------------------------------

    def _check(self, event: CheckpointsEvent) -> CheckpointGuard:
        """Return the guard of an event; raise before anything is changed if the table does not allow the event."""
        guard = self._guard(event)
        row = TRANSITIONS.get((self._phase, type(event)), {})
        phase = None
        if isinstance(event, SubtaskRegistered | SubtaskEvent):
            phase = self.phase_of((event.subtask, event.attempt))
            row = TRANSITIONS.get((phase, type(event)), {}) if row else row
        if guard not in row:
            attempt = "" if phase is None else f", attempt {phase.value}"
            state = f"{self._phase.value}, checkpoint {self._latest}{attempt}"
            raise IllegalEventError(MACHINE, f"{state} ({guard.value})", event)
        return guard

    def _guard(self, event: CheckpointsEvent) -> CheckpointGuard:
        match event:
            case TimePassed():
                start = self._phase is CheckpointPhase.IDLE
                at_due = CheckpointGuard.DUE if start else CheckpointGuard.CHECKPOINT_ENDS
                passed = self.next_due is not None and (event.now >= self.next_due or (start and event.at_once))
                guard = at_due if passed else CheckpointGuard.UNCHANGED
            case LaunchEnded() | RoundEnded():
                other = CheckpointGuard.UNCHANGED if isinstance(event, LaunchEnded) else CheckpointGuard.ALWAYS
                guard = CheckpointGuard.CHECKPOINT_ENDS if self._phase in ABORTABLE else other
            case SnapshotTaken():
                complete = all(state.key in event.sent for state in self._attempts.participants())
                known = event.checkpoint == self._latest and complete
                guard = CheckpointGuard.ALWAYS if known else CheckpointGuard.UNKNOWN_CHECKPOINT
            case SnapshotFailed() | CheckpointStored() | StoreFailed():
                known = event.checkpoint == self._latest
                guard = CheckpointGuard.CHECKPOINT_ENDS if known else CheckpointGuard.UNKNOWN_CHECKPOINT
            case SubtaskRegistered():
                before_cut = self._phase in BEFORE_CUT
                guard = CheckpointGuard.BEFORE_CUT if before_cut else CheckpointGuard.AFTER_CUT
            case CloseAcked() | GatewayOpened() | PartStored() | Declined():
                guard = self._message_guard(event)
            case _:
                guard = self._attempt_guard(event)
        return guard

    def _attempt_guard(self, event: SubtaskEvent) -> CheckpointGuard:
        """Return the guard of an event that is about an attempt and about no checkpoint."""
        state = self._attempts.sender(event)
        if state is None or state.phase is ParticipantPhase.FINISHED:
            return CheckpointGuard.UNCHANGED
        match event:
            case SubtaskLost():
                aborts = state.participates and self._phase in ABORTABLE
                return CheckpointGuard.CHECKPOINT_ENDS if aborts else CheckpointGuard.LOST
            case SubtaskFinished():
                aborts = state.phase is ParticipantPhase.TAKEN
                return CheckpointGuard.CHECKPOINT_ENDS if aborts else CheckpointGuard.COUNTS
            case _:
                return CheckpointGuard.UNCHANGED

    def _message_guard(self, event: CheckpointMessage) -> CheckpointGuard:
        if event.checkpoint > self._latest:
            return CheckpointGuard.UNKNOWN_CHECKPOINT
        state = self._attempts.sender(event)
        if state is None or event.checkpoint != self.running or not state.participates:
            return CheckpointGuard.UNCHANGED
        if isinstance(event, Declined):
            stored = state.phase is ParticipantPhase.STORED
            return CheckpointGuard.UNCHANGED if stored else CheckpointGuard.CHECKPOINT_ENDS
        if isinstance(event, CloseAcked) and state.phase is not ParticipantPhase.CLOSE_SENT:
            repeated = event.sent == state.closed_after
            return CheckpointGuard.UNCHANGED if repeated else CheckpointGuard.COUNTS
        return CheckpointGuard.COUNTS

    # --- events of attempts ---------------------------------------------------------------------------------

    def _registered(self, event: SubtaskRegistered) -> Commands:
        older = self._attempts.newest(event.subtask)
        lost = self._lose([older] if older else [], event, f"attempt {event.attempt} replaces its predecessor")
        state = self._attempts.add(event)
        state.down_closed = self._phase in BEFORE_CUT  # unless the loss of its predecessor aborted the checkpoint
        self._move_attempt(state, self._guard(event), event)
        return [*lost, Admit(*state.key, self._latest, self._latest if state.down_closed else None)]

    def _subtask_event(self, event: SubtaskEvent, guard: CheckpointGuard) -> Commands:
        state = self._attempts.sender(event)
        if state is None:
            return self._reject(event)
        match event:
            case SubtaskReconnected():
                return self._send_again(state)
            case SubtaskLost():
                return self._lose([state], event, f"attempt {event.attempt} of subtask {event.subtask} was lost")
            case SubtaskFinished():
                return self._subtask_finished(state, event, guard)
            case DataReceived():
                state.received = max(state.received, event.number)
            case DataAcked():
                state.acked = max(state.acked, event.number)
            case _:
                late = guard is CheckpointGuard.UNCHANGED
                return self._discard_late(event) if late else self._message(state, event)
        return self._advance(event)

    def _message(self, state: AttemptState, event: CheckpointMessage) -> Commands:
        """Handle a message about the running checkpoint from an attempt that is part of it."""
        match event:
            case CloseAcked():
                state.closed_after = event.sent
                self._move_attempt(state, CheckpointGuard.COUNTS, event)
                return self._advance(event)
            case GatewayOpened():
                return self._snapshot_of(state, event)
            case PartStored():
                return self._part_stored(state, event)
            case Declined():
                reason = f"subtask {event.subtask} declined: {event.reason}"
                return self._fail(event, reason) if event.counts else self._abort(event, reason)
            case _:
                assert_never(event)

    def _snapshot_of(self, state: AttemptState, cause: GatewayOpened | PartStored) -> Commands:
        """Open the gateway to an attempt that took its snapshot; a repeated message opens nothing."""
        first = state.phase is ParticipantPhase.TRIGGERED
        self._move_attempt(state, CheckpointGuard.COUNTS, cause)
        return [self._open_gateway(state)] if first else []

    def _part_stored(self, state: AttemptState, event: PartStored) -> Commands:
        commands: Commands = []
        if state.phase is ParticipantPhase.TRIGGERED:  # `GatewayOpened` may have been lost with a connection
            commands = self._snapshot_of(state, event)
        if state.phase is ParticipantPhase.TAKEN:
            self._parts[state.key] = (event.part, event.snapshot)
        self._move_attempt(state, CheckpointGuard.COUNTS, event)
        return [*commands, *self._advance(event)]

    def _subtask_finished(self, state: AttemptState, event: SubtaskFinished, guard: CheckpointGuard) -> Commands:
        """Remove an attempt that finished; abort if it opened after its snapshot and its part is not stored."""
        if guard is CheckpointGuard.UNCHANGED:
            return []
        commands: Commands = []
        if guard is CheckpointGuard.CHECKPOINT_ENDS:
            commands = self._abort(event, f"subtask {state.subtask} finished before its part was stored", (state,))
        self._move_attempt(state, CheckpointGuard.COUNTS, event)
        return [*commands, *self._advance(event)]

    def _send_again(self, state: AttemptState) -> Commands:
        """Send again what may have been lost with a connection; the attempt answers as it did before."""
        if state.phase is ParticipantPhase.CLOSE_SENT:
            return [SendClose(*state.key, self._latest)]
        if state.phase in {ParticipantPhase.TRIGGERED, ParticipantPhase.TAKEN}:
            return [SendTrigger(*state.key, self._latest)]
        if state.phase is ParticipantPhase.NOT_PARTICIPATING and self.running is None and self._latest:
            send = SendComplete if self._latest in self._completed else SendAborted
            return [send(*state.key, self._latest)]
        return []

    def _discard_late(self, event: SubtaskEvent) -> Commands:
        """Delete a part that came too late to count; other late messages change nothing."""
        if not isinstance(event, PartStored) or event.checkpoint in self._completed:
            return []
        if event.checkpoint == self.running and (event.subtask, event.attempt) in self._parts:
            return []  # a repeated message of an attempt that has finished or was lost since; its part counts
        return [DiscardPart(event.checkpoint, event.part)]

    def _reject(self, event: SubtaskEvent) -> Commands:
        if isinstance(event, SubtaskLost):
            return []
        reason = f"attempt {event.attempt} of subtask {event.subtask} was lost or replaced"
        return [*self._discard_late(event), RejectMessage(event.subtask, event.attempt, reason)]

    # --- from the start of a checkpoint to its store --------------------------------------------------------

    def _time_passed(self, event: TimePassed, guard: CheckpointGuard) -> Commands:
        if guard is CheckpointGuard.DUE:
            return self._start(event)
        draining = self._phase is CheckpointPhase.DRAINING
        silent = [state for state in self._attempts.participants() if draining and state.has_unacked]
        failed = [
            FailAttempt(*state.key, f"{state.sent_before_cut} events were sent to it, {state.acked} acknowledged")
            for state in silent
        ]
        return [*self._fail(event, f"not complete in time, still {self._phase.value}"), *failed]

    def _start(self, cause: TimePassed) -> Commands:
        self._latest += 1
        self._schedule.start(cause.now)
        self._move(CheckpointGuard.DUE, cause)
        alive = self._attempts.alive()
        for state in alive:
            self._move_attempt(state, CheckpointGuard.DUE, cause)
        return [SendClose(*state.key, self._latest) for state in alive]

    def _advance(self, cause: CheckpointsEvent) -> Commands:
        """Advance as far as all participants allow."""
        participants = self._attempts.participants()
        if self._phase is CheckpointPhase.CLOSING:
            if any(state.phase is not ParticipantPhase.CLOSED for state in participants):
                return []
            self._move(CheckpointGuard.ALL_CLOSED, cause)
        if self._phase is CheckpointPhase.CUTTING and all(one.received >= one.closed_after for one in participants):
            return self._take_cut(participants, cause)
        if self._phase is CheckpointPhase.DRAINING and not any(state.has_unacked for state in participants):
            return self._trigger(participants, cause)
        stored = all(state.phase is ParticipantPhase.STORED for state in participants)
        if self._phase is CheckpointPhase.COLLECTING and stored:
            self._move(CheckpointGuard.ALL_STORED, cause)
            return [StoreCheckpoint(self._latest, self._snapshot, tuple(self._parts.values()))]
        return []

    def _take_cut(self, participants: list[AttemptState], cause: CheckpointsEvent) -> Commands:
        self._move(CheckpointGuard.ALL_RECEIVED, cause)
        for state in participants:
            state.down_closed = True
        close = CloseDownGateways(self._latest, tuple(state.key for state in participants))
        return [close, TakeSnapshot(self._latest)]

    def _snapshot_taken(self, event: SnapshotTaken) -> Commands:
        self._snapshot = event.snapshot
        for state in self._attempts.participants():
            state.sent_before_cut = event.sent[state.key]
        self._move(CheckpointGuard.ALWAYS, event)
        return self._advance(event)

    def _trigger(self, participants: list[AttemptState], cause: CheckpointsEvent) -> Commands:
        self._move(CheckpointGuard.ALL_ACKED, cause)
        for state in participants:
            self._move_attempt(state, CheckpointGuard.ALL_ACKED, cause)
        triggers = [SendTrigger(*state.key, self._latest) for state in participants]
        return [*triggers, *self._advance(cause)]

    # --- the ends of a checkpoint ---------------------------------------------------------------------------

    def _stored(self, event: CheckpointStored) -> Commands:
        if self._phase is CheckpointPhase.ENDING:
            self._move(CheckpointGuard.CHECKPOINT_ENDS, event)
            return [DiscardCheckpoint(event.checkpoint) if self._superseded else Complete(event.checkpoint)]
        self._completed.add(event.checkpoint)
        for state in self._attempts:
            if state.key in self._parts:
                state.newest_part = (event.checkpoint, self._parts[state.key][1])
        self._schedule.succeed()
        self._finish(event)
        sends = [SendComplete(*state.key, event.checkpoint) for state in self._attempts.alive()]
        return [*sends, Complete(event.checkpoint)]

    def _store_failed(self, event: StoreFailed) -> Commands:
        if self._phase is CheckpointPhase.STORING:
            return self._fail(event, event.reason)
        self._move(CheckpointGuard.CHECKPOINT_ENDS, event)
        return [DiscardCheckpoint(event.checkpoint)]  # only its `_abandoned` mark remains

    def _end_round(self, event: RoundEnded, guard: CheckpointGuard) -> Commands:
        self._superseded = self._superseded or event.superseded
        if guard is CheckpointGuard.CHECKPOINT_ENDS:
            return self._abort(event, "the round ended")
        for state in self._attempts.participants():
            self._move_attempt(state, CheckpointGuard.CHECKPOINT_ENDS, event)
        self._move(CheckpointGuard.ALWAYS, event)
        return []

    def _fail(self, cause: CheckpointsEvent, reason: str) -> Commands:
        commands = self._abort(cause, reason)
        if self._schedule.fail():
            commands.append(FailRound(f"checkpoint {self._latest}, one too many in a row that failed: {reason}"))
        return commands

    def _abort(self, cause: CheckpointsEvent, reason: str, lost: Collection[AttemptState] = ()) -> Commands:
        """Open the gateways at both ends of all participants except lost ones, then report the abort."""
        commands: Commands = []
        for state in self._attempts.participants():
            if state not in lost:
                if state.down_closed:
                    commands.append(self._open_gateway(state))
                commands.append(SendAborted(*state.key, self._latest))
        self._finish(cause)
        return [*commands, Abort(self._latest, reason)]

    def _finish(self, cause: CheckpointsEvent) -> None:
        for state in self._attempts.participants():
            self._move_attempt(state, CheckpointGuard.CHECKPOINT_ENDS, cause)
        self._snapshot = None
        self._parts = {}
        self._schedule.end(cause.now)
        self._move(CheckpointGuard.CHECKPOINT_ENDS, cause)

    def _lose(self, states: Iterable[AttemptState], cause: CheckpointsEvent, reason: str) -> Commands:
        """Remove lost attempts: first open the gateways at both ends of all others, then return the splits."""
        lost = [state for state in states if state.phase in ALIVE]
        commands: Commands = []
        if self._phase in ABORTABLE and any(state.participates for state in lost):
            commands = self._abort(cause, reason, lost)
        for state in lost:
            part = state.newest_part
            if state.key in self._parts:
                part = (self._latest, self._parts[state.key][1])
            self._move_attempt(state, CheckpointGuard.LOST, cause)
            checkpoint, snapshot = part or (None, None)
            commands.append(ReturnSplits(*state.key, checkpoint, snapshot))
        return commands

    def _open_gateway(self, state: AttemptState) -> OpenDownGateway:
        state.down_closed = False
        return OpenDownGateway(*state.key, self._latest)

    # --- moves: only these change a state -------------------------------------------------------------------

    def _move(self, guard: CheckpointGuard, cause: CheckpointsEvent) -> None:
        self._phase = next_state(MACHINE, TRANSITIONS, self._phase, cause, guard)

    def _move_attempt(self, state: AttemptState, guard: CheckpointGuard, cause: CheckpointsEvent) -> None:
        state.move(guard, cause)
