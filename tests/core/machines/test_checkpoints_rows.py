"""The rules of a round's checkpoints, written out by hand: what the coordinator does next, and what it must not do.

Nothing here is taken from the machine's own table, so a wrong row of that table is a failure here.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.checkpoints import CheckpointCoordinator, CheckpointPhase, ParticipantPhase
from lakeward.machines.checkpoints.messages import (
    Abort,
    Admit,
    Attempt,
    CheckpointsCommand,
    CheckpointsEvent,
    CheckpointStored,
    CloseAcked,
    CloseDownGateways,
    Complete,
    DataAcked,
    DataReceived,
    Declined,
    DiscardCheckpoint,
    DiscardPart,
    FailAttempt,
    FailRound,
    GatewayOpened,
    LaunchEnded,
    OpenDownGateway,
    PartStored,
    RejectMessage,
    ReturnSplits,
    RoundEnded,
    SendAborted,
    SendClose,
    SendComplete,
    SendTrigger,
    SnapshotFailed,
    SnapshotTaken,
    StoreCheckpoint,
    StoreFailed,
    SubtaskFinished,
    SubtaskLost,
    SubtaskReconnected,
    SubtaskRegistered,
    TakeSnapshot,
    TimePassed,
)
from lakeward.model.events import NOT_READY
from lakeward.model.settings import CheckpointSettings

SETTINGS = CheckpointSettings(interval_s=30, timeout_s=10, pause_s=5, tolerated=1)
"""The first checkpoint is due at 30 and has until 40. One failure in a row is tolerated."""
ILLEGAL = None
C, P = CheckpointPhase, ParticipantPhase
S0, S1, S2 = (0, 1), (1, 1), (2, 1)
"""The first attempts of three subtasks."""
NEXT0 = (0, 2)
"""The second attempt of subtask 0."""


def registers(attempt: Attempt) -> SubtaskRegistered:
    return SubtaskRegistered(now=30, subtask=attempt[0], attempt=attempt[1])


def lost(attempt: Attempt) -> SubtaskLost:
    return SubtaskLost(now=30, subtask=attempt[0], attempt=attempt[1])


def finished(attempt: Attempt) -> SubtaskFinished:
    return SubtaskFinished(now=30, subtask=attempt[0], attempt=attempt[1])


def reconnects(attempt: Attempt) -> SubtaskReconnected:
    return SubtaskReconnected(now=30, subtask=attempt[0], attempt=attempt[1])


def closed(attempt: Attempt, sent: int = 0, checkpoint: int = 1) -> CloseAcked:
    return CloseAcked(now=30, subtask=attempt[0], attempt=attempt[1], checkpoint=checkpoint, sent=sent)


def received(attempt: Attempt, number: int) -> DataReceived:
    return DataReceived(now=30, subtask=attempt[0], attempt=attempt[1], number=number)


def acked(attempt: Attempt, number: int) -> DataAcked:
    return DataAcked(now=30, subtask=attempt[0], attempt=attempt[1], number=number)


def opened(attempt: Attempt, checkpoint: int = 1) -> GatewayOpened:
    return GatewayOpened(now=30, subtask=attempt[0], attempt=attempt[1], checkpoint=checkpoint)


def stored(attempt: Attempt, checkpoint: int = 1) -> PartStored:
    part, snapshot = f"part of {attempt[0]}", f"snapshot of {attempt[0]} in {checkpoint}"
    return PartStored(
        now=30, subtask=attempt[0], attempt=attempt[1], checkpoint=checkpoint, part=part, snapshot=snapshot
    )


def declined(attempt: Attempt, checkpoint: int = 1, *, counts: bool = True) -> Declined:
    reason = "full" if counts else NOT_READY
    return Declined(now=30, subtask=attempt[0], attempt=attempt[1], checkpoint=checkpoint, reason=reason)


def snapshot(sent: dict[Attempt, int], checkpoint: int = 1) -> SnapshotTaken:
    return SnapshotTaken(now=30, checkpoint=checkpoint, snapshot="coordinator", sent=sent)


def at(now: float) -> TimePassed:
    return TimePassed(now=now)


DUE, AT_ONCE, DEADLINE = at(30), TimePassed(now=30, at_once=True), at(40)
WRITTEN, WRITTEN_LATE = CheckpointStored(now=30, checkpoint=1), CheckpointStored(now=80, checkpoint=1)
BROKEN = StoreFailed(now=30, checkpoint=1, reason="full")
LAUNCH_ENDED = LaunchEnded(now=30)
ROUND_ENDED, ROUND_COMMITTED = RoundEnded(now=30), RoundEnded(now=30, superseded=True)

TWO = (registers(S0), registers(S1))
CLOSING = (*TWO, DUE)
CUTTING = (*CLOSING, closed(S0, sent=2), closed(S1))
SNAPPING = (*CUTTING, received(S0, 2))
DRAINING = (*SNAPPING, snapshot({S0: 3, S1: 0}))
COLLECTING = (*DRAINING, acked(S0, 3))
STORING = (*COLLECTING, stored(S0), stored(S1))
COMPLETED = (*STORING, WRITTEN)
ABORTED = (*CLOSING, declined(S0))
SECOND = (*ABORTED, AT_ONCE)
"""The first checkpoint was aborted, the second one is closing."""
SECOND_COLLECTING = (
    *SECOND,
    closed(S0, checkpoint=2),
    closed(S1, checkpoint=2),
    snapshot({S0: 0, S1: 0}, checkpoint=2),
)
IN_NONE = ((S0, P.NOT_PARTICIPATING), (S1, P.NOT_PARTICIPATING))


class Row(NamedTuple):
    """A rule: after a story, an event leads to a phase and to commands. Without commands it is illegal.

    `attempts`: those whose own phase matters to the rule.
    """

    rule: str
    story: tuple[CheckpointsEvent, ...]
    event: CheckpointsEvent
    phase: CheckpointPhase
    commands: tuple[CheckpointsCommand, ...] | None
    attempts: tuple[tuple[Attempt, ParticipantPhase], ...] = ()


STARTS = (
    Row("none starts before it is due", TWO, at(29), C.IDLE, ()),
    Row(
        "one that is due closes the gateways of all that live",
        (*TWO, registers(S2), lost(S2)),
        DUE,
        C.CLOSING,
        (SendClose(*S0, 1), SendClose(*S1, 1)),
        ((S0, P.CLOSE_SENT), (S1, P.CLOSE_SENT), (S2, P.GONE)),
    ),
    Row("none starts while nobody lives", (registers(S0), lost(S0)), DUE, C.IDLE, ()),
    Row("none starts while another one runs", CLOSING, AT_ONCE, C.CLOSING, ()),
    Row("none starts before the pause after a long one is over", (*STORING, WRITTEN_LATE), at(84), C.IDLE, ()),
    Row(
        "the next one starts when the pause after a long one is over",
        (*STORING, WRITTEN_LATE),
        at(85),
        C.CLOSING,
        (SendClose(*S0, 2), SendClose(*S1, 2)),
    ),
    Row("none starts before an interval after the start of a short one", COMPLETED, at(59), C.IDLE, ()),
    Row(
        "the number after an abort is a new one",
        ABORTED,
        AT_ONCE,
        C.CLOSING,
        (SendClose(*S0, 2), SendClose(*S1, 2)),
    ),
)
UP_TO_THE_CUT = (
    Row("one acknowledgement is not all", CLOSING, closed(S0), C.CLOSING, (), ((S0, P.CLOSED), (S1, P.CLOSE_SENT))),
    Row(
        "an acknowledgement of an older checkpoint counts for nothing",
        (*SECOND, closed(S1, checkpoint=2)),
        closed(S0, checkpoint=1),
        C.CLOSING,
        (),
        ((S0, P.CLOSE_SENT),),
    ),
    Row(
        "an acknowledgement of a checkpoint that never was is illegal",
        CLOSING,
        closed(S0, checkpoint=2),
        C.CLOSING,
        ILLEGAL,
    ),
    Row("what an unknown attempt says is illegal", CLOSING, closed(S2), C.CLOSING, ILLEGAL),
    Row(
        "an attempt that was replaced is rejected, and its acknowledgement closes nothing",
        (*TWO, registers(NEXT0), DUE, closed(S1)),
        closed(S0),
        C.CLOSING,
        (RejectMessage(*S0, "attempt 1 of subtask 0 was lost or replaced"),),
        ((NEXT0, P.CLOSE_SENT),),
    ),
    Row(
        "nothing is cut while data that was sent before the close is under way",
        (*CLOSING, closed(S0, sent=2), received(S0, 1)),
        closed(S1),
        C.CUTTING,
        (),
    ),
    Row(
        "an acknowledgement that says another number than before is illegal",
        CUTTING,
        closed(S0, sent=0),
        C.CUTTING,
        ILLEGAL,
    ),
    Row(
        "the last data event closes the gateways down and takes the snapshot in one step",
        CUTTING,
        received(S0, 2),
        C.SNAPPING,
        (CloseDownGateways(1, (S0, S1)), TakeSnapshot(1)),
    ),
    Row(
        "an attempt that registers before the cut starts closed and is part of it",
        CUTTING,
        registers(S2),
        C.CUTTING,
        (Admit(*S2, 1, 1),),
        ((S2, P.CLOSED),),
    ),
    Row(
        "an attempt that was admitted in mid-checkpoint is cut with the others",
        (*CUTTING, registers(S2)),
        received(S0, 2),
        C.SNAPPING,
        (CloseDownGateways(1, (S0, S1, S2)), TakeSnapshot(1)),
    ),
    Row(
        "an attempt that was admitted in mid-checkpoint is opened by the abort on both sides",
        (*CLOSING, registers(S2)),
        declined(S0),
        C.IDLE,
        (
            SendAborted(*S0, 1),
            SendAborted(*S1, 1),
            OpenDownGateway(*S2, 1),
            SendAborted(*S2, 1),
            Abort(1, "subtask 0 declined: full"),
        ),
        ((S2, P.NOT_PARTICIPATING),),
    ),
    Row(
        "a subtask that finishes before the cut is not waited for",
        (*CLOSING, closed(S1)),
        finished(S0),
        C.SNAPPING,
        (CloseDownGateways(1, (S1,)), TakeSnapshot(1)),
        ((S0, P.FINISHED),),
    ),
    Row("the same attempt cannot register twice", TWO, registers(S0), C.IDLE, ILLEGAL),
    Row("an older attempt cannot register after a newer one", (registers(NEXT0),), registers(S0), C.IDLE, ILLEGAL),
)
AFTER_THE_CUT = (
    Row("nothing happens between the cut and the snapshot", SNAPPING, DEADLINE, C.SNAPPING, ILLEGAL),
    Row("no subtask registers between the cut and the snapshot", SNAPPING, registers(S2), C.SNAPPING, ILLEGAL),
    Row("no subtask is lost between the cut and the snapshot", SNAPPING, lost(S0), C.SNAPPING, ILLEGAL),
    Row("no data comes between the cut and the snapshot", SNAPPING, received(S0, 3), C.SNAPPING, ILLEGAL),
    Row("no late message comes between the cut and the snapshot", SNAPPING, opened(S0, 0), C.SNAPPING, ILLEGAL),
    Row("a snapshot of another checkpoint is illegal", SNAPPING, snapshot({S0: 0, S1: 0}, 2), C.SNAPPING, ILLEGAL),
    Row("a snapshot that leaves a participant out is illegal", SNAPPING, snapshot({S0: 3}), C.SNAPPING, ILLEGAL),
    Row("a snapshot that nobody asked for is illegal", DRAINING, snapshot({S0: 3, S1: 0}), C.DRAINING, ILLEGAL),
    Row(
        "a snapshot that fails opens both sides and costs this checkpoint alone",
        SNAPPING,
        SnapshotFailed(now=30, checkpoint=1, reason="no memory"),
        C.IDLE,
        (
            OpenDownGateway(*S0, 1),
            SendAborted(*S0, 1),
            OpenDownGateway(*S1, 1),
            SendAborted(*S1, 1),
            Abort(1, "no memory"),
        ),
        IN_NONE,
    ),
    Row(
        "nobody is triggered before all have what was sent to them before the cut",
        DRAINING,
        acked(S0, 2),
        C.DRAINING,
        (),
        ((S0, P.CLOSED), (S1, P.CLOSED)),
    ),
    Row(
        "the last acknowledgement triggers all",
        DRAINING,
        acked(S0, 3),
        C.COLLECTING,
        (SendTrigger(*S0, 1), SendTrigger(*S1, 1)),
        ((S0, P.TRIGGERED), (S1, P.TRIGGERED)),
    ),
    Row(
        "an attempt that registers after the cut starts open and is no part of it",
        DRAINING,
        registers(S2),
        C.DRAINING,
        (Admit(*S2, 1, None),),
        ((S2, P.NOT_PARTICIPATING),),
    ),
    Row(
        "a subtask that took its snapshot opens its own gateway alone",
        COLLECTING,
        opened(S0),
        C.COLLECTING,
        (OpenDownGateway(*S0, 1),),
        ((S0, P.TAKEN), (S1, P.TRIGGERED)),
    ),
    Row(
        "a repeated message opens nothing again",
        (*COLLECTING, opened(S0)),
        opened(S0),
        C.COLLECTING,
        (),
        ((S0, P.TAKEN),),
    ),
    Row(
        "an abort by a subtask's finish takes the others out of the checkpoint, with or without a part",
        (*COLLECTING, opened(S0), stored(S1)),
        finished(S0),
        C.IDLE,
        (SendAborted(*S1, 1), Abort(1, "subtask 0 finished before its part was stored")),
        ((S0, P.FINISHED), (S1, P.NOT_PARTICIPATING)),
    ),
    Row(
        "a message that the older checkpoint's snapshot was taken opens nothing",
        SECOND_COLLECTING,
        opened(S0, checkpoint=1),
        C.COLLECTING,
        (),
        ((S0, P.TRIGGERED),),
    ),
    Row(
        "a part of an older checkpoint is deleted and does not count",
        (*SECOND_COLLECTING, stored(S1, checkpoint=2)),
        stored(S0, checkpoint=1),
        C.COLLECTING,
        (DiscardPart(1, "part of 0"),),
        ((S0, P.TRIGGERED),),
    ),
    Row(
        "a part opens the gateway of its subtask where the message of that was lost",
        COLLECTING,
        stored(S0),
        C.COLLECTING,
        (OpenDownGateway(*S0, 1),),
        ((S0, P.STORED),),
    ),
    Row(
        "the last part starts the write of the checkpoint, with every part",
        (*COLLECTING, stored(S0), opened(S1)),
        stored(S1),
        C.STORING,
        (
            StoreCheckpoint(
                1,
                "coordinator",
                (("part of 0", "snapshot of 0 in 1"), ("part of 1", "snapshot of 1 in 1")),
            ),
        ),
    ),
    Row(
        "a subtask that finishes after it was opened again and before its part is stored aborts",
        (*COLLECTING, opened(S0)),
        finished(S0),
        C.IDLE,
        (
            OpenDownGateway(*S1, 1),
            SendAborted(*S1, 1),
            Abort(1, "subtask 0 finished before its part was stored"),
        ),
        ((S0, P.FINISHED), (S1, P.NOT_PARTICIPATING)),
    ),
    Row(
        "a subtask that finishes after its part is stored keeps it in the checkpoint",
        (*COLLECTING, stored(S0), finished(S0)),
        stored(S1),
        C.STORING,
        (
            OpenDownGateway(*S1, 1),
            StoreCheckpoint(
                1,
                "coordinator",
                (("part of 0", "snapshot of 0 in 1"), ("part of 1", "snapshot of 1 in 1")),
            ),
        ),
        ((S0, P.FINISHED),),
    ),
    Row(
        "a subtask that finishes before it acknowledged what was sent to it lets the others be triggered",
        DRAINING,
        finished(S0),
        C.COLLECTING,
        (SendTrigger(*S1, 1),),
        ((S0, P.FINISHED), (S1, P.TRIGGERED)),
    ),
    Row(
        "a subtask that finishes before it was opened again has no part in the checkpoint",
        (*COLLECTING, stored(S1)),
        finished(S0),
        C.STORING,
        (StoreCheckpoint(1, "coordinator", (("part of 1", "snapshot of 1 in 1"),)),),
        ((S0, P.FINISHED), (S1, P.STORED)),
    ),
    Row(
        "a checkpoint whose subtasks all finished before the cut holds the coordinator's part alone",
        (*CLOSING, finished(S0), finished(S1)),
        snapshot({}),
        C.STORING,
        (StoreCheckpoint(1, "coordinator", ()),),
    ),
    Row(
        "a part that is sent twice counts once",
        (*COLLECTING, stored(S0)),
        stored(S0),
        C.COLLECTING,
        (),
        ((S0, P.STORED), (S1, P.TRIGGERED)),
    ),
    Row(
        "a message that comes after the part opens nothing again",
        (*COLLECTING, stored(S0)),
        opened(S0),
        C.COLLECTING,
        (),
        ((S0, P.STORED),),
    ),
    Row("a finish that is repeated changes nothing", (*CLOSING, finished(S0)), finished(S0), C.CLOSING, ()),
    Row("who never registered cannot finish", TWO, finished(S2), C.IDLE, ILLEGAL),
    Row(
        "the store's answer about another checkpoint is illegal",
        STORING,
        CheckpointStored(now=30, checkpoint=2),
        C.STORING,
        ILLEGAL,
    ),
    Row("what is not being written cannot have been stored", COLLECTING, WRITTEN, C.COLLECTING, ILLEGAL),
    Row("no deadline applies while the checkpoint is being written", STORING, at(1000), C.STORING, ()),
    Row(
        "a checkpoint that is written is complete, and all that live hear of it",
        STORING,
        WRITTEN,
        C.IDLE,
        (SendComplete(*S0, 1), SendComplete(*S1, 1), Complete(1)),
        IN_NONE,
    ),
    Row("a repeated part of a completed checkpoint is not deleted", COMPLETED, stored(S0), C.IDLE, ()),
)
ABORTS = (
    Row("the deadline does nothing a moment too early", DRAINING, at(39.9), C.DRAINING, ()),
    Row(
        "a gateway that is open is not opened again by the abort",
        (*COLLECTING, opened(S0)),
        declined(S1),
        C.IDLE,
        (
            SendAborted(*S0, 1),
            OpenDownGateway(*S1, 1),
            SendAborted(*S1, 1),
            Abort(1, "subtask 1 declined: full"),
        ),
        IN_NONE,
    ),
    Row(
        "an answer that declines an older checkpoint aborts nothing",
        SECOND,
        declined(S0, checkpoint=1),
        C.CLOSING,
        (),
        ((S0, P.CLOSE_SENT),),
    ),
    Row("who has stored its part cannot decline", (*COLLECTING, stored(S0)), declined(S0), C.COLLECTING, ()),
    Row(
        "one failure too many in a row fails the round",
        SECOND,
        declined(S0, checkpoint=2),
        C.IDLE,
        (
            SendAborted(*S0, 2),
            SendAborted(*S1, 2),
            Abort(2, "subtask 0 declined: full"),
            FailRound("checkpoint 2, one too many in a row that failed: subtask 0 declined: full"),
        ),
        IN_NONE,
    ),
    Row(
        "a subtask that declines because it is not ready yet is no failure",
        SECOND,
        declined(S0, checkpoint=2, counts=False),
        C.IDLE,
        (SendAborted(*S0, 2), SendAborted(*S1, 2), Abort(2, "subtask 0 declined: not ready")),
        IN_NONE,
    ),
    Row(
        "a completed checkpoint starts the count of failures anew",
        (*SECOND_COLLECTING, stored(S0, 2), stored(S1, 2), CheckpointStored(now=30, checkpoint=2), AT_ONCE),
        declined(S0, checkpoint=3),
        C.IDLE,
        (SendAborted(*S0, 3), SendAborted(*S1, 3), Abort(3, "subtask 0 declined: full")),
    ),
    Row(
        "a store that fails aborts the checkpoint, whose gateways are open",
        STORING,
        BROKEN,
        C.IDLE,
        (SendAborted(*S0, 1), SendAborted(*S1, 1), Abort(1, "full")),
        IN_NONE,
    ),
)
LOSSES = (
    Row(
        "a lost subtask aborts, is no failure, and the others are opened before its splits return",
        SECOND,
        lost(S0),
        C.IDLE,
        (
            SendAborted(*S1, 2),
            Abort(2, "attempt 1 of subtask 0 was lost"),
            ReturnSplits(*S0, None, None),
        ),
        ((S0, P.GONE), (S1, P.NOT_PARTICIPATING)),
    ),
    Row("splits return once for a lost attempt", (*TWO, lost(S0)), lost(S0), C.IDLE, ()),
    Row(
        "who is no part of the checkpoint aborts nothing",
        (*DRAINING, registers(S2)),
        lost(S2),
        C.DRAINING,
        (ReturnSplits(*S2, None, None),),
    ),
    Row(
        "a newer attempt aborts, and the splits of the older one return before it is admitted open",
        CUTTING,
        registers(NEXT0),
        C.IDLE,
        (
            SendAborted(*S1, 1),
            Abort(1, "attempt 2 replaces its predecessor"),
            ReturnSplits(*S0, None, None),
            Admit(*NEXT0, 1, None),
        ),
        ((S0, P.GONE), (NEXT0, P.NOT_PARTICIPATING)),
    ),
    Row(
        "data of an attempt that was replaced counts for nothing",
        (*TWO, registers(NEXT0), DUE, closed(NEXT0, sent=2), closed(S1)),
        received(S0, 2),
        C.CUTTING,
        (RejectMessage(*S0, "attempt 1 of subtask 0 was lost or replaced"),),
    ),
    Row(
        "a part of an attempt that was replaced is deleted, and the attempt is rejected",
        (*COLLECTING, registers(NEXT0)),
        stored(S0),
        C.IDLE,
        (
            DiscardPart(1, "part of 0"),
            RejectMessage(*S0, "attempt 1 of subtask 0 was lost or replaced"),
        ),
    ),
    Row(
        "a subtask that is lost while the checkpoint is written takes its part of it along",
        STORING,
        lost(S0),
        C.STORING,
        (ReturnSplits(*S0, 1, "snapshot of 0 in 1"),),
        ((S0, P.GONE), (S1, P.STORED)),
    ),
    Row(
        "a subtask that is replaced while the checkpoint is written takes its part of it along",
        STORING,
        registers(NEXT0),
        C.STORING,
        (ReturnSplits(*S0, 1, "snapshot of 0 in 1"), Admit(*NEXT0, 1, None)),
        ((NEXT0, P.NOT_PARTICIPATING), (S1, P.STORED)),
    ),
    Row(
        "a part of an aborted checkpoint does not count for a subtask that is lost later",
        (*COLLECTING, stored(S0), declined(S1)),
        lost(S0),
        C.IDLE,
        (ReturnSplits(*S0, None, None),),
    ),
    Row(
        "a lost subtask's splits return with its part of the newest completed checkpoint",
        (*COMPLETED, AT_ONCE, declined(S1, checkpoint=2)),
        lost(S0),
        C.IDLE,
        (ReturnSplits(*S0, 1, "snapshot of 0 in 1"),),
    ),
    Row(
        "the end of a launch ends no write, and all splits return with their parts of it",
        STORING,
        LAUNCH_ENDED,
        C.STORING,
        (
            ReturnSplits(*S0, 1, "snapshot of 0 in 1"),
            ReturnSplits(*S1, 1, "snapshot of 1 in 1"),
        ),
        ((S0, P.GONE), (S1, P.GONE)),
    ),
)
BOTH_ABORTED = (SendAborted(*S0, 1), SendAborted(*S1, 1))
BOTH_OPENED = (OpenDownGateway(*S0, 1), SendAborted(*S0, 1), OpenDownGateway(*S1, 1), SendAborted(*S1, 1))
S0_IS_OPEN = (SendAborted(*S0, 1), OpenDownGateway(*S1, 1), SendAborted(*S1, 1))
WHILE_IT_RUNS: tuple[tuple[str, str, tuple[CheckpointsEvent, ...], tuple[CheckpointsCommand, ...], int], ...] = (
    ("closing", "it closes", CLOSING, BOTH_ABORTED, 1),
    ("cutting", "data is under way", CUTTING, BOTH_ABORTED, 1),
    ("draining", "it drains", DRAINING, BOTH_OPENED, 2),
    ("collecting", "it collects", COLLECTING, BOTH_OPENED, 2),
    ("collecting", "one has taken its snapshot", (*COLLECTING, opened(S0)), S0_IS_OPEN, 1),
    ("collecting", "one has stored its part", (*COLLECTING, stored(S0)), S0_IS_OPEN, 1),
)
"""What opens both sides of both subtasks then, and how many of these commands are about subtask 0."""
SILENT = {"draining": (FailAttempt(*S0, "3 events were sent to it, 0 acknowledged"),)}
"""Who lives and has not acknowledged what was sent to it before the cut."""
WHATEVER_ENDS_IT = tuple(
    row
    for phase, when, story, opens, of_0 in WHILE_IT_RUNS
    for row in (
        Row(f"the deadline while {when} opens both sides, and fails over who is silent", story, DEADLINE, C.IDLE,
            (*opens, Abort(1, f"not complete in time, still {phase}"), *SILENT.get(phase, ())), IN_NONE),
        Row(f"a subtask that declines while {when} opens both sides", story, declined(S1), C.IDLE,
            (*opens, Abort(1, "subtask 1 declined: full")), IN_NONE),
        Row(f"the end of the round while {when} opens both sides", story, ROUND_ENDED, C.ENDED,
            (*opens, Abort(1, "the round ended")), IN_NONE),
        Row(f"a subtask that is lost while {when} opens the other one's sides", story, lost(S0), C.IDLE,
            (*opens[of_0:], Abort(1, "attempt 1 of subtask 0 was lost"), ReturnSplits(*S0, None, None)),
            ((S0, P.GONE), (S1, P.NOT_PARTICIPATING))),
        Row(f"a subtask that is replaced while {when} opens the other one's sides", story, registers(NEXT0), C.IDLE,
            (*opens[of_0:], Abort(1, "attempt 2 replaces its predecessor"), ReturnSplits(*S0, None, None),
             Admit(*NEXT0, 1, None)),
            ((S0, P.GONE), (NEXT0, P.NOT_PARTICIPATING), (S1, P.NOT_PARTICIPATING))),
        Row(f"the end of the launch while {when} returns all splits", story, LAUNCH_ENDED, C.IDLE,
            (Abort(1, "the launch ended"), ReturnSplits(*S0, None, None), ReturnSplits(*S1, None, None)),
            ((S0, P.GONE), (S1, P.GONE))),
    )
)  # fmt: skip
ENDS = (
    Row(
        "a round that commits while it waits for the write still waits for it",
        (*STORING, ROUND_ENDED),
        ROUND_COMMITTED,
        C.ENDING,
        (),
    ),
    Row("a round that ends twice stays ended", (*TWO, ROUND_ENDED), ROUND_COMMITTED, C.ENDED, ()),
    Row("none starts after the round has ended", (*TWO, ROUND_ENDED), AT_ONCE, C.ENDED, ()),
    Row("nobody is admitted after the round has ended", (*TWO, ROUND_ENDED), registers(S2), C.ENDED, ILLEGAL),
    Row("a round that ends does not end what is being written", STORING, ROUND_ENDED, C.ENDING, ()),
    Row(
        "a checkpoint that completes after its round has ended counts",
        (*STORING, ROUND_ENDED),
        WRITTEN,
        C.ENDED,
        (Complete(1),),
    ),
    Row(
        "a checkpoint that completes after its round has committed is deleted",
        (*STORING, ROUND_ENDED, ROUND_COMMITTED, ROUND_ENDED),
        WRITTEN,
        C.ENDED,
        (DiscardCheckpoint(1),),
    ),
    Row(
        "a checkpoint that fails after its round has ended is deleted and fails nothing",
        (*STORING, ROUND_ENDED),
        BROKEN,
        C.ENDED,
        (DiscardCheckpoint(1),),
    ),
)
RECONNECTS = (
    Row("who missed the close is sent it again", CLOSING, reconnects(S0), C.CLOSING, (SendClose(*S0, 1),)),
    Row("who has closed is sent nothing again", CUTTING, reconnects(S0), C.CUTTING, ()),
    Row("who missed the trigger is sent it again", COLLECTING, reconnects(S0), C.COLLECTING, (SendTrigger(*S0, 1),)),
    Row("who missed an abort is sent it again", ABORTED, reconnects(S0), C.IDLE, (SendAborted(*S0, 1),)),
    Row("who missed a completion is sent it again", COMPLETED, reconnects(S0), C.IDLE, (SendComplete(*S0, 1),)),
    Row(
        "who was replaced is rejected when it reconnects",
        (*TWO, registers(NEXT0)),
        reconnects(S0),
        C.IDLE,
        (RejectMessage(*S0, "attempt 1 of subtask 0 was lost or replaced"),),
    ),
)
ROWS = (*STARTS, *UP_TO_THE_CUT, *AFTER_THE_CUT, *ABORTS, *LOSSES, *WHATEVER_ENDS_IT, *ENDS, *RECONNECTS)


def observed(machine: CheckpointCoordinator) -> tuple[object, ...]:
    """All that the coordinator shows."""
    phases = [machine.phase_of(attempt) for attempt in (S0, NEXT0, S1, S2)]
    return (machine.phase, machine.latest, machine.running, machine.failures, machine.next_due, phases)


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_the_checkpoints_of_a_round_keep_this_rule(row: Row) -> None:
    machine = CheckpointCoordinator(SETTINGS, now=0)
    for event in row.story:
        machine.step(event)
    if row.commands is ILLEGAL:
        before = observed(machine)
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
        assert observed(machine) == before
    else:
        assert machine.step(row.event) == row.commands
    assert machine.phase is row.phase
    assert [(attempt, machine.phase_of(attempt)) for attempt, _ in row.attempts] == list(row.attempts)
