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
* Only messages of a subtask's newest attempt count; one of an attempt that is gone is rejected. A message about a
  checkpoint that has ended changes nothing; one about a checkpoint that never existed is illegal.
* Checkpoint numbers only grow, also across launches and restores.
* The first checkpoint of a launch that recovers does not wait for the interval.
* A checkpoint of which a commit is to be made closes all files, unless the one before it that did was aborted.
* A subtask that is not ready declines a checkpoint, which is aborted then, but counts as no failure.
* While `_metadata` is being written no gateway is closed and no deadline applies: only the store knows the outcome. If
  the round ends meanwhile, the checkpoint still counts, for the next round is restored from it; unless the round has
  committed.

One step may make several moves: the last acknowledgement of a close ends CLOSING, and CUTTING as well when all data
events were processed (`ParticipantsChanged`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakeward.machines.checkpoints import messages as m
from lakeward.machines.checkpoints.state import (
    ALIVE,
    PARTICIPATING,
    RUNNING,
    AttemptState,
    CheckpointPhase,
    CheckpointsState,
    ParticipantPhase,
)
from lakeward.machines.machine import Rule, Rules
from lakeward.model.events import NOT_READY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


Commands = tuple[m.CheckpointsCommand, ...]
Message = m.CloseAcked | m.GatewayOpened | m.PartStored | m.Declined
"""The messages of an attempt that are about a checkpoint."""
IDLE, CLOSING, CUTTING = CheckpointPhase.IDLE, CheckpointPhase.CLOSING, CheckpointPhase.CUTTING
SNAPPING, DRAINING = CheckpointPhase.SNAPPING, CheckpointPhase.DRAINING
COLLECTING, STORING = CheckpointPhase.COLLECTING, CheckpointPhase.STORING
ENDING, ENDED = CheckpointPhase.ENDING, CheckpointPhase.ENDED
UNKNOWN, NOT_PARTICIPATING = ParticipantPhase.UNKNOWN, ParticipantPhase.NOT_PARTICIPATING
CLOSE_SENT, CLOSED = ParticipantPhase.CLOSE_SENT, ParticipantPhase.CLOSED
TRIGGERED, TAKEN, STORED = ParticipantPhase.TRIGGERED, ParticipantPhase.TAKEN, ParticipantPhase.STORED
FINISHED, GONE = ParticipantPhase.FINISHED, ParticipantPhase.GONE

# --- conditions of the round ----------------------------------------------------------------------------------------


def is_due(state: CheckpointsState, event: m.TimePassed) -> bool:
    """It is time for a checkpoint, and somebody is there to take part."""
    due = state.schedule.due
    if due is None or not (event.now >= due or event.at_once or (event.recovers and not state.begun)):
        return False
    return state.any_alive


def is_overdue(state: CheckpointsState, event: m.TimePassed) -> bool:
    """The deadline has passed."""
    return event.now >= state.schedule.deadline


def is_new(state: CheckpointsState, event: m.SubtaskRegistered) -> bool:
    """The attempt is newer than all of its subtask."""
    return state.phase_of(event.key) is UNKNOWN


def is_alive(state: CheckpointsState, event: m.SubtaskLost) -> bool:
    """The attempt is the newest one, and has neither finished nor gone."""
    return state.phase_of(event.key) in ALIVE


def all_are_closed(state: CheckpointsState, _: m.ParticipantsChanged) -> bool:
    """Every participant has closed its gateway."""
    return all(state.phases[one.key] is CLOSED for one in state.participants())


def all_is_received(state: CheckpointsState, _: m.ParticipantsChanged) -> bool:
    """The coordinator has processed what every participant sent before it closed."""
    return all(one.received >= one.closed_after for one in state.participants())


def all_is_acked(state: CheckpointsState, _: m.ParticipantsChanged) -> bool:
    """Every participant has acknowledged what the coordinator sent before its cut."""
    return not any(one.has_unacked for one in state.participants())


def all_are_stored(state: CheckpointsState, _: m.ParticipantsChanged) -> bool:
    """Every participant's part is stored."""
    return all(state.phases[one.key] is STORED for one in state.participants())


def is_whole(state: CheckpointsState, event: m.SnapshotTaken) -> bool:
    """It is the snapshot of this checkpoint, and knows of every participant."""
    return is_newest(state, event) and all(one.key in event.sent for one in state.participants())


def is_newest(
    state: CheckpointsState, event: m.SnapshotTaken | m.SnapshotFailed | m.CheckpointStored | m.StoreFailed
) -> bool:
    """It is about the newest checkpoint."""
    return event.checkpoint == state.latest


def is_superseded(state: CheckpointsState, event: m.CheckpointStored) -> bool:
    """No round will be restored from the checkpoint."""
    return is_newest(state, event) and state.superseded


def counts(_: CheckpointsState, event: m.ParticipantFailed) -> bool:
    """It is a failure of checkpoints, of which a few in a row are tolerated."""
    return event.counts


# --- conditions of an attempt ---------------------------------------------------------------------------------------


def is_before_cut(state: CheckpointsState, _: m.SubtaskRegistered) -> bool:
    """A checkpoint runs and the coordinator's snapshot is still to come."""
    return state.phase in (CLOSING, CUTTING)


def is_current(state: CheckpointsState, event: Message) -> bool:
    """It is about the running checkpoint."""
    return event.checkpoint == state.running


def is_over(state: CheckpointsState, event: Message) -> bool:
    """It is about a checkpoint that has ended."""
    return was_started(state, event) and not is_current(state, event)


def was_started(state: CheckpointsState, event: Message) -> bool:
    """It is about a checkpoint that runs or has ended."""
    return event.checkpoint <= state.latest


def is_repeated(state: CheckpointsState, event: m.CloseAcked) -> bool:
    """It says again what it said before."""
    return is_current(state, event) and event.sent == state.attempts[event.subtask].closed_after


def missed_an_end(state: CheckpointsState, _: m.SubtaskReconnected) -> bool:
    """The end of the newest checkpoint may have been lost with the connection."""
    return state.running is None and bool(state.latest)


# --- from the start of a checkpoint to its store --------------------------------------------------------------------


def start(state: CheckpointsState, event: m.TimePassed) -> Commands:
    """Let all close their gateways."""
    state.latest += 1
    state.begun = True
    state.schedule = replace(state.schedule, started=event.now)
    return _inform(state, state.alive(), m.CheckpointStarted)


def go_on(state: CheckpointsState, _: object) -> Commands:
    """Advance as far as all participants allow."""
    return state.follow(m.ParticipantsChanged())


def take_cut(state: CheckpointsState, _: m.ParticipantsChanged) -> Commands:
    """Close the gateways to all participants, and take the snapshot."""
    participants = state.participants()
    for one in participants:
        state.change(replace(one, down_closed=True))
    close = m.CloseDownGateways(state.latest, tuple(one.key for one in participants))
    return (close, m.TakeSnapshot(state.latest))


def note_snapshot(state: CheckpointsState, event: m.SnapshotTaken) -> Commands:
    """Keep the coordinator's snapshot until all parts are stored."""
    state.snapshot = event.snapshot
    state.step_due = event.step_due
    for one in state.participants():
        state.change(replace(one, sent_before_cut=event.sent[one.key]))
    return go_on(state, event)


def trigger(state: CheckpointsState, event: m.ParticipantsChanged) -> Commands:
    """Let all take their snapshots."""
    state.closes_files = state.step_due and not state.step_missed
    return (*_inform(state, state.participants(), m.CutDelivered), *go_on(state, event))


def store(state: CheckpointsState, _: m.ParticipantsChanged) -> Commands:
    """Write the checkpoint."""
    return (m.StoreCheckpoint(state.latest, state.snapshot, tuple(state.parts.values())),)


# --- the ends of a checkpoint ---------------------------------------------------------------------------------------


def complete(state: CheckpointsState, event: m.CheckpointStored) -> Commands:
    """Tell all that live."""
    state.completed |= {event.checkpoint}
    for one in tuple(state.attempts.values()):
        if one.key in state.parts:
            state.change(replace(one, newest_part=(event.checkpoint, state.parts[one.key][1])))
    state.schedule = replace(state.schedule, failures=0)
    state.step_missed = False
    _inform(state, state.participants(), m.ParticipationEnded)
    _forget_checkpoint(state, event.now)
    return (*(m.SendComplete(*one.key, event.checkpoint) for one in state.alive()), m.Complete(event.checkpoint))


def discard(_: CheckpointsState, event: m.CheckpointStored | m.StoreFailed) -> Commands:
    """Delete it; if it failed, only its `_abandoned` mark remains."""
    return (m.DiscardCheckpoint(event.checkpoint),)


def abort(state: CheckpointsState, event: m.ParticipantFailed) -> Commands:
    """Abort the checkpoint; nothing is wrong with checkpoints."""
    return _abort(state, event.now, event.reason)


def fail(state: CheckpointsState, event: m.ParticipantFailed | m.SnapshotFailed | m.StoreFailed) -> Commands:
    """Abort the checkpoint, and count a failure."""
    return _fail(state, event.now, event.reason)


def time_out(phase: CheckpointPhase) -> Callable[[CheckpointsState, m.TimePassed], Commands]:
    """Fail a checkpoint that is still in this phase at its deadline."""
    return lambda state, event: _fail(state, event.now, f"not complete in time, still {phase.value}")


def fail_silent(state: CheckpointsState, event: m.TimePassed) -> Commands:
    """The same while acknowledgements are awaited; fail those over that live and acknowledge nothing."""
    silent = [one for one in state.participants() if one.has_unacked]
    return (
        *time_out(DRAINING)(state, event),
        *(
            m.FailAttempt(*one.key, f"{one.sent_before_cut} events were sent to it, {one.acked} acknowledged")
            for one in silent
        ),
    )


def abort_at_end(state: CheckpointsState, event: m.RoundEnded) -> Commands:
    """Abort the checkpoint: the round takes none any more."""
    note_superseded(state, event)
    return _abort(state, event.now, "the round ended")


def leave_to_store(state: CheckpointsState, event: m.RoundEnded) -> Commands:
    """Wait for the store alone."""
    _inform(state, state.participants(), m.ParticipationEnded)
    return note_superseded(state, event)


def note_superseded(state: CheckpointsState, event: m.RoundEnded) -> Commands:
    """Note whether the round has committed."""
    state.superseded = state.superseded or event.superseded
    return ()


def _fail(state: CheckpointsState, now: float, reason: str) -> Commands:
    commands = _abort(state, now, reason)
    failures = state.schedule.failures + 1
    if failures > state.schedule.settings.tolerated:
        failures = 0
        commands += (m.FailRound(f"checkpoint {state.latest}, one too many in a row that failed: {reason}"),)
    state.schedule = replace(state.schedule, failures=failures)
    return commands


def _abort(state: CheckpointsState, now: float, reason: str) -> Commands:
    """Open the gateways at both ends of all participants, then report the abort."""
    commands = _inform(state, state.participants(), m.CheckpointFailed)
    state.step_missed = state.step_missed or state.closes_files
    _forget_checkpoint(state, now)
    return (*commands, m.Abort(state.latest, reason))


def _forget_checkpoint(state: CheckpointsState, now: float) -> None:
    state.snapshot = None
    state.parts = {}
    state.step_due = state.closes_files = False
    state.schedule = state.schedule.ended(now)


# --- attempts -------------------------------------------------------------------------------------------------------


def _inform(
    state: CheckpointsState, attempts: Collection[AttemptState], event: Callable[[m.Attempt], object]
) -> Commands:
    """Take the event of each of these attempts that follows from what happened to the checkpoint."""
    return tuple(
        command
        for one in attempts
        for command in state.attempt_rules.step(state, state.phases, one.key, event(one.key))
    )


def to_attempt(state: CheckpointsState, event: m.SubtaskEvent) -> Commands:
    """It is the business of one attempt."""
    return state.attempt_rules.step(state, state.phases, event.key, event, state.phase_of(event.key))


def register(state: CheckpointsState, event: m.SubtaskRegistered) -> Commands:
    """Admit an attempt; its predecessor is lost."""
    older = [one for one in state.alive() if one.key[0] == event.subtask]
    returned = _lose(state, older, event.now, f"attempt {event.attempt} replaces its predecessor")
    state.add(AttemptState(event.key))
    # Unless the loss of its predecessor aborted the checkpoint, it is admitted in the midst of it.
    return (*returned, *state.attempt_rules.step(state, state.phases, event.key, event, UNKNOWN))


def lose_attempt(state: CheckpointsState, event: m.SubtaskLost) -> Commands:
    """Return its splits."""
    reason = f"attempt {event.attempt} of subtask {event.subtask} was lost"
    return _lose(state, [state.attempts[event.subtask]], event.now, reason)


def end_launch(state: CheckpointsState, event: m.LaunchEnded) -> Commands:
    """Return the splits of all."""
    state.begun = False
    return _lose(state, state.alive(), event.now, "the launch ended")


def _lose(state: CheckpointsState, lost: Collection[AttemptState], now: float, reason: str) -> Commands:
    """Open the gateways at both ends of all others if the checkpoint is aborted, then return the splits of these."""
    took_part = [one for one in lost if state.phases[one.key] in PARTICIPATING]
    _inform(state, lost, m.AttemptGone)
    commands: Commands = ()
    if took_part:
        commands += state.follow(m.ParticipantFailed(now=now, reason=reason))
    for one in lost:
        counted = state.parts.get(one.key)
        checkpoint, snapshot = one.newest_part or (None, None)
        if counted is not None:
            checkpoint, snapshot = state.latest, counted[1]
        commands += (m.ReturnSplits(*one.key, checkpoint, snapshot),)
    return commands


def admit(state: CheckpointsState, event: m.SubtaskRegistered) -> Commands:
    """Deploy it with open gateways."""
    return (m.Admit(*event.key, state.latest, None),)


def admit_closed(state: CheckpointsState, event: m.SubtaskRegistered) -> Commands:
    """Deploy it with both gateways closed."""
    state.change(replace(state.attempts[event.subtask], down_closed=True))
    return (m.Admit(*event.key, state.latest, state.latest),)


def send_close(state: CheckpointsState, event: m.CheckpointStarted | m.SubtaskReconnected) -> Commands:
    """Let it close its gateway; said again with a new connection, it answers as it did before."""
    return (m.SendClose(*event.key, state.latest),)


def send_trigger(state: CheckpointsState, event: m.CutDelivered | m.SubtaskReconnected) -> Commands:
    """Let it take its snapshot; as `send_close`."""
    return (m.SendTrigger(*event.key, state.latest, state.closes_files),)


def send_end_again(state: CheckpointsState, event: m.SubtaskReconnected) -> Commands:
    """As `send_close`."""
    send = m.SendComplete if state.latest in state.completed else m.SendAborted
    return (send(*event.key, state.latest),)


def note_closed(state: CheckpointsState, event: m.CloseAcked) -> Commands:
    """Wait for what it sent before."""
    state.change(replace(state.attempts[event.subtask], closed_after=event.sent))
    return go_on(state, event)


def note_received(state: CheckpointsState, event: m.DataReceived) -> Commands:
    """Count what has arrived from it."""
    one = state.attempts[event.subtask]
    if event.number > one.received:
        state.change(replace(one, received=event.number))
    return ()


def note_acked(state: CheckpointsState, event: m.DataAcked) -> Commands:
    """Count what has arrived at it."""
    one = state.attempts[event.subtask]
    if event.number > one.acked:
        state.change(replace(one, acked=event.number))
    return ()


def receive_last(state: CheckpointsState, event: m.DataReceived) -> Commands:
    """Count it; it may be the last one before the cut."""
    return (*note_received(state, event), *go_on(state, event))


def ack_last(state: CheckpointsState, event: m.DataAcked) -> Commands:
    """Count it; it may be the last one that is awaited after the cut."""
    return (*note_acked(state, event), *go_on(state, event))


def open_gateway(state: CheckpointsState, event: m.GatewayOpened | m.PartStored) -> Commands:
    """Open the gateway to it: it took its snapshot."""
    return open_one(state, state.attempts[event.subtask])


def open_one(state: CheckpointsState, one: AttemptState) -> Commands:
    """Let the coordinator's data events out to an attempt."""
    state.change(replace(one, down_closed=False))
    return (m.OpenDownGateway(*one.key, state.latest),)


def keep_part(state: CheckpointsState, event: m.PartStored) -> Commands:
    """Keep its part until all are stored."""
    state.parts = {**state.parts, event.key: (event.part, event.snapshot)}
    return go_on(state, event)


def open_and_keep_part(state: CheckpointsState, event: m.PartStored) -> Commands:
    """The same; `GatewayOpened` was lost with a connection."""
    return (*open_gateway(state, event), *keep_part(state, event))


def decline(state: CheckpointsState, event: m.Declined) -> Commands:
    """Abort the checkpoint; that a subtask is not ready is no failure."""
    reason = f"subtask {event.subtask} declined: {event.reason}"
    return state.follow(m.ParticipantFailed(now=event.now, reason=reason, counts=event.reason != NOT_READY))


def finish_without_part(state: CheckpointsState, event: m.SubtaskFinished) -> Commands:
    """Abort the checkpoint: what it did after its snapshot is in the coordinator's part of no checkpoint."""
    reason = f"subtask {event.subtask} finished before its part was stored"
    return state.follow(m.ParticipantFailed(now=event.now, reason=reason))


def abort_attempt(state: CheckpointsState, event: m.CheckpointFailed) -> Commands:
    """Open the gateways at both ends."""
    one = state.attempts[event.key[0]]
    opened = open_one(state, one) if one.down_closed else ()
    return (*opened, m.SendAborted(*one.key, state.latest))


def discard_late(state: CheckpointsState, event: m.PartStored) -> Commands:
    """Delete a part that came too late to count.

    A repeated message of an attempt that has since finished or been lost is not late: its part counts.
    """
    if event.checkpoint in state.completed:
        return ()
    if event.checkpoint == state.running and event.key in state.parts:
        return ()
    return (m.DiscardPart(event.checkpoint, event.part),)


def reject(_: CheckpointsState, event: m.SubtaskEvent) -> Commands:
    """Cancel an attempt that is gone."""
    reason = f"attempt {event.attempt} of subtask {event.subtask} was lost or replaced"
    return (m.RejectMessage(*event.key, reason),)


def reject_part(state: CheckpointsState, event: m.PartStored) -> Commands:
    """The same; its part came too late."""
    return (*discard_late(state, event), *reject(state, event))


OTHERS = (NOT_PARTICIPATING, CLOSE_SENT, TRIGGERED, TAKEN, STORED, FINISHED)
"""The phases in which the numbers of an attempt's data events are not waited for."""
MESSAGES = (m.CloseAcked, m.GatewayOpened, m.Declined)
"""All that are about a checkpoint but `PartStored`."""
ATTEMPT_RULES: Rules[CheckpointsState, m.CheckpointsCommand] = Rules(
    "attempts",
    ParticipantPhase,
    Rule(UNKNOWN, m.SubtaskRegistered, when=is_before_cut, to=CLOSED, do=admit_closed),
    Rule(UNKNOWN, m.SubtaskRegistered, to=NOT_PARTICIPATING, do=admit),
    Rule(ALIVE, m.AttemptGone, to=GONE),
    # The checkpoint goes on or ends.
    Rule(NOT_PARTICIPATING, m.CheckpointStarted, to=CLOSE_SENT, do=send_close),
    Rule(CLOSED, m.CutDelivered, to=TRIGGERED, do=send_trigger),
    Rule(STORED, m.ParticipationEnded, to=NOT_PARTICIPATING),
    Rule(PARTICIPATING, m.CheckpointFailed, to=NOT_PARTICIPATING, do=abort_attempt),
    # Messages about the running checkpoint.
    Rule(CLOSE_SENT, m.CloseAcked, when=is_current, to=CLOSED, do=note_closed),
    Rule((CLOSED, TRIGGERED, TAKEN, STORED), m.CloseAcked, when=is_repeated),
    Rule(TRIGGERED, m.GatewayOpened, when=is_current, to=TAKEN, do=open_gateway),
    Rule((TAKEN, STORED), m.GatewayOpened, when=is_current),
    Rule(TRIGGERED, m.PartStored, when=is_current, to=STORED, do=open_and_keep_part),
    Rule(TAKEN, m.PartStored, when=is_current, to=STORED, do=keep_part),
    Rule(STORED, m.PartStored, when=is_current),
    Rule((CLOSE_SENT, CLOSED, TRIGGERED, TAKEN), m.Declined, when=is_current, do=decline),
    Rule(STORED, m.Declined, when=is_current),
    # Messages that change nothing.
    Rule(PARTICIPATING, m.PartStored, when=is_over, do=discard_late),
    Rule(PARTICIPATING, MESSAGES, when=is_over),
    Rule((NOT_PARTICIPATING, FINISHED), m.PartStored, when=was_started, do=discard_late),
    Rule((NOT_PARTICIPATING, FINISHED), MESSAGES, when=was_started),
    # What else happens to it.
    Rule(CLOSE_SENT, m.SubtaskReconnected, do=send_close),
    Rule((TRIGGERED, TAKEN), m.SubtaskReconnected, do=send_trigger),
    Rule(NOT_PARTICIPATING, m.SubtaskReconnected, when=missed_an_end, do=send_end_again),
    Rule((CLOSED, STORED, NOT_PARTICIPATING, FINISHED), m.SubtaskReconnected),
    Rule(TAKEN, m.SubtaskFinished, to=FINISHED, do=finish_without_part),
    Rule((CLOSE_SENT, CLOSED, TRIGGERED, STORED), m.SubtaskFinished, to=FINISHED, do=go_on),
    Rule((NOT_PARTICIPATING, FINISHED), m.SubtaskFinished, to=FINISHED),
    Rule(CLOSED, m.DataReceived, do=receive_last),
    Rule(OTHERS, m.DataReceived, do=note_received),
    Rule(CLOSED, m.DataAcked, do=ack_last),
    Rule(OTHERS, m.DataAcked, do=note_acked),
    # It is gone.
    Rule(GONE, m.PartStored, when=was_started, do=reject_part),
    Rule(GONE, MESSAGES, when=was_started, do=reject),
    Rule(GONE, (m.SubtaskReconnected, m.SubtaskFinished, m.DataReceived, m.DataAcked), do=reject),
)
WAITING = (IDLE, *RUNNING, STORING, ENDING, ENDED)
"""All phases except SNAPPING, in which no other event may come."""
RULES: Rules[CheckpointsState, m.CheckpointsCommand] = Rules(
    "checkpoints",
    CheckpointPhase,
    Rule(IDLE, m.TimePassed, when=is_due, to=CLOSING, do=start),
    Rule(CLOSING, m.ParticipantsChanged, when=all_are_closed, to=CUTTING, do=go_on),
    Rule(CUTTING, m.ParticipantsChanged, when=all_is_received, to=SNAPPING, do=take_cut),
    Rule(SNAPPING, m.SnapshotTaken, when=is_whole, to=DRAINING, do=note_snapshot),
    Rule(DRAINING, m.ParticipantsChanged, when=all_is_acked, to=COLLECTING, do=trigger),
    Rule(COLLECTING, m.ParticipantsChanged, when=all_are_stored, to=STORING, do=store),
    Rule((*RUNNING, STORING), m.ParticipantsChanged),
    Rule(STORING, m.CheckpointStored, when=is_newest, to=IDLE, do=complete),
    # What aborts it.
    Rule(DRAINING, m.TimePassed, when=is_overdue, to=IDLE, do=fail_silent),
    *(
        Rule(phase, m.TimePassed, when=is_overdue, to=IDLE, do=time_out(phase))
        for phase in (CLOSING, CUTTING, COLLECTING)
    ),
    Rule(WAITING, m.TimePassed),
    Rule(RUNNING, m.ParticipantFailed, when=counts, to=IDLE, do=fail),
    Rule(RUNNING, m.ParticipantFailed, to=IDLE, do=abort),
    Rule(STORING, m.ParticipantFailed),  # its part is being stored with the others
    Rule(SNAPPING, m.SnapshotFailed, when=is_newest, to=IDLE, do=fail),
    Rule(STORING, m.StoreFailed, when=is_newest, to=IDLE, do=fail),
    # Attempts.
    Rule((IDLE, *RUNNING, STORING), m.SubtaskRegistered, when=is_new, do=register),
    Rule(WAITING, m.SubtaskLost, when=is_alive, do=lose_attempt),
    Rule(WAITING, m.SubtaskLost),
    Rule(WAITING, m.LaunchEnded, do=end_launch),
    Rule(
        WAITING,
        (m.SubtaskReconnected, m.SubtaskFinished, m.DataReceived, m.DataAcked, *MESSAGES, m.PartStored),
        do=to_attempt,
    ),
    # The end of the round.
    Rule(RUNNING, m.RoundEnded, to=ENDED, do=abort_at_end),
    Rule((STORING, ENDING), m.RoundEnded, to=ENDING, do=leave_to_store),
    Rule((IDLE, ENDED), m.RoundEnded, to=ENDED, do=note_superseded),
    Rule(ENDING, m.CheckpointStored, when=is_superseded, to=ENDED, do=discard),
    Rule(ENDING, m.CheckpointStored, when=is_newest, to=ENDED, do=lambda _, event: (m.Complete(event.checkpoint),)),
    Rule(ENDING, m.StoreFailed, when=is_newest, to=ENDED, do=discard),
)


class CheckpointCoordinator(CheckpointsState):
    """The machine of one round."""

    rules = RULES
    attempt_rules = ATTEMPT_RULES
