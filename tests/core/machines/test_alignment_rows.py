"""The rules of a consumer's alignment, written out by hand: what it does next, and what it must not do.

Nothing here is taken from the machine's own table, so a wrong row of that table is a failure here.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.exchange import AlignmentPhase, BarrierAlignment
from lakeward.machines.exchange.messages import (
    AlignmentCommand,
    AlignmentEvent,
    BarrierAborted,
    BarrierReceived,
    BatchConsumed,
    BatchReceived,
    BlockChannel,
    CancelCheckpoint,
    ChannelsEnded,
    CheckpointTriggered,
    EndReceived,
    InputComplete,
    OvertakenReceived,
    PersistBatches,
    TakeWriterSnapshot,
    TimeoutChecked,
    UnblockChannel,
)

ILLEGAL = None
IDLE, ALIGNING = AlignmentPhase.IDLE, AlignmentPhase.ALIGNING
COLLECTING, ENDED = AlignmentPhase.COLLECTING, AlignmentPhase.ENDED
TIMEOUT_S = 5.0
"""Seconds from a trigger at 0 to the snapshot of what is not aligned."""


def arrives(channel: int, sequence: int) -> BatchReceived:
    return BatchReceived(channel=channel, sequence=sequence)


def takes(channel: int, sequence: int) -> BatchConsumed:
    return BatchConsumed(channel=channel, sequence=sequence)


def barrier(channel: int, first_after: int, checkpoint: int = 1, age_s: float = 0.0) -> BarrierReceived:
    return BarrierReceived(now=0.0, channel=channel, checkpoint=checkpoint, first_after=first_after, age_s=age_s)


def overtaken(channel: int, first: int, checkpoint: int = 1) -> OvertakenReceived:
    return OvertakenReceived(now=0.0, channel=channel, checkpoint=checkpoint, first=first)


def ends(channel: int, first_after: int) -> EndReceived:
    return EndReceived(channel=channel, first_after=first_after)


def trigger(
    checkpoint: int = 1, now: float = 0.0, *, close_files: bool = False, at_once: bool = False
) -> CheckpointTriggered:
    return CheckpointTriggered(now=now, checkpoint=checkpoint, close_files=close_files, at_once=at_once)


def superseded(checkpoint: int, by: int) -> CancelCheckpoint:
    return CancelCheckpoint(checkpoint, f"superseded by {by}", decline=False)


def late_mark(channel: int) -> CancelCheckpoint:
    return CancelCheckpoint(1, f"a mark of channel {channel} came after batches that follow it", decline=True)


LATE, IN_TIME = TimeoutChecked(now=TIMEOUT_S), TimeoutChecked(now=TIMEOUT_S - 0.1)
ALIGNED = (TakeWriterSnapshot(1, unaligned=False), InputComplete(1))
UNALIGNED = TakeWriterSnapshot(1, unaligned=True)
ABORTED = CancelCheckpoint(1, "aborted", decline=False)
NOT_ALIGNED_BY_A_PEER = CancelCheckpoint(1, "a peer does not align a checkpoint that has to be aligned", decline=True)
ONE_ALIGNED = (trigger(), barrier(0, 0))
"""Channel 0 stands at its barrier, channel 1 is awaited."""
TAKEN = (arrives(0, 0), trigger(), barrier(0, 2), LATE)
"""The snapshot is taken; one more batch of channel 0 belongs to it, and channel 1's barrier is awaited."""
DRAINED = (arrives(0, 0), takes(0, 0), ends(0, 1), ends(1, 0))
DONE = (*ONE_ALIGNED, barrier(1, 0))


class Row(NamedTuple):
    """A rule of two channels: after a story, an event leads to a phase and to commands. Without them it is illegal."""

    rule: str
    story: tuple[AlignmentEvent, ...]
    event: AlignmentEvent
    phase: AlignmentPhase
    commands: tuple[AlignmentCommand, ...] | None


ROWS = (
    # --- aligning ---------------------------------------------------------------------------------------------------
    Row("a trigger alone takes no snapshot", (), trigger(), ALIGNING, ()),
    Row("a channel that has come to its barrier stops", (trigger(),), barrier(0, 0), ALIGNING, (BlockChannel(0),)),
    Row("a channel goes on up to its barrier", (trigger(), arrives(0, 0)), barrier(0, 1), ALIGNING, ()),
    Row("a channel stops once it is consumed up to its barrier", (trigger(), arrives(0, 0), barrier(0, 1)), takes(0, 0),
        ALIGNING, (BlockChannel(0),)),
    Row("a channel that stands at its barrier is not consumed", (*ONE_ALIGNED, arrives(0, 0)), takes(0, 0), ALIGNING,
        ILLEGAL),
    Row("the others are consumed while one stands at its barrier", (*ONE_ALIGNED, arrives(1, 0)), takes(1, 0), ALIGNING,
        ()),
    Row("a barrier that is not reached takes no snapshot", (*ONE_ALIGNED, arrives(1, 0)), barrier(1, 1), ALIGNING, ()),
    Row(
        "the last channel at its barrier takes the snapshot, then all go on",
        ONE_ALIGNED,
        barrier(1, 0),
        IDLE,
        (*ALIGNED, UnblockChannel(0)),
    ),
    Row(
        "the last batch before the last barrier takes the snapshot",
        (*ONE_ALIGNED, arrives(1, 0), barrier(1, 1)),
        takes(1, 0),
        IDLE,
        (*ALIGNED, UnblockChannel(0)),
    ),
    Row("all barriers take no snapshot before the trigger", (barrier(0, 0),), barrier(1, 0), ALIGNING,
        (BlockChannel(1),)),
    Row("the trigger takes the snapshot where all barriers were quicker", (barrier(0, 0), barrier(1, 0)), trigger(),
        IDLE, (*ALIGNED, UnblockChannel(0), UnblockChannel(1))),
    Row("a channel that ended counts as aligned at its end", ONE_ALIGNED, ends(1, 0), IDLE,
        (*ALIGNED, UnblockChannel(0))),
    Row("a channel that ends with batches before its end is not aligned", (*ONE_ALIGNED, arrives(1, 0)), ends(1, 1),
        ALIGNING, ()),
    Row(
        "batches that arrive at a channel which stands are not kept, and wait",
        ONE_ALIGNED,
        arrives(0, 0),
        ALIGNING,
        (),
    ),
    # --- not aligned in time ----------------------------------------------------------------------------------------
    Row("time that is not over takes no snapshot", ONE_ALIGNED, IN_TIME, ALIGNING, ()),
    Row("time that is over takes no snapshot before the trigger", (barrier(0, 0),), LATE, ALIGNING, ()),
    Row("time that is over takes the snapshot, and channels go on", ONE_ALIGNED, LATE, COLLECTING,
        (UNALIGNED, UnblockChannel(0))),
    Row(
        "time that is over keeps what was received before the barrier and not consumed",
        (arrives(0, 0), arrives(0, 1), arrives(0, 2), takes(0, 0), trigger(), barrier(0, 2)),
        LATE,
        COLLECTING,
        (UNALIGNED, PersistBatches(1, 0, 1, 2)),
    ),
    Row("the time counts from the trigger that a barrier tells of", (trigger(),), barrier(0, 1, age_s=TIMEOUT_S),
        COLLECTING, (UNALIGNED,)),
    Row(
        "the trigger takes the snapshot at once where the time is over by then",
        (barrier(0, 1),),
        trigger(now=TIMEOUT_S),
        COLLECTING,
        (UNALIGNED,),
    ),
    Row("a trigger that meets a recovery does not wait", (arrives(0, 0),), trigger(at_once=True), COLLECTING,
        (UNALIGNED, PersistBatches(1, 0, 0, 1))),
    Row("a trigger that closes files waits, whatever it meets", (arrives(0, 0),),
        trigger(close_files=True, at_once=True), ALIGNING, ()),
    Row("a checkpoint that closes files is never unaligned", (trigger(close_files=True), barrier(0, 0)), LATE, ALIGNING,
        ()),
    Row(
        "a repeated trigger does not take back that files are closed",
        (trigger(close_files=True), trigger()),
        LATE,
        ALIGNING,
        (),
    ),
    Row(
        "a peer that does not align takes the snapshot, and keeps its own share",
        (arrives(0, 0), arrives(0, 1), trigger(), barrier(0, 2)),
        overtaken(0, 1),
        COLLECTING,
        (UNALIGNED, PersistBatches(1, 0, 0, 1)),
    ),
    Row("a peer that does not align takes no snapshot before the trigger", (), overtaken(0, 0), ALIGNING,
        (BlockChannel(0),)),
    Row(
        "a peer that does not align what closes files costs the checkpoint",
        (trigger(close_files=True), barrier(0, 1)),
        overtaken(0, 0),
        IDLE,
        (NOT_ALIGNED_BY_A_PEER,),
    ),
    Row(
        "a trigger that closes files after a peer did not align costs the checkpoint",
        (overtaken(0, 0),),
        trigger(close_files=True),
        IDLE,
        (NOT_ALIGNED_BY_A_PEER, UnblockChannel(0)),
    ),
    # --- collecting -------------------------------------------------------------------------------------------------
    Row("a batch before the barrier is kept as it arrives", TAKEN, arrives(0, 1), COLLECTING,
        (PersistBatches(1, 0, 1, 2),)),
    Row("a batch of a channel whose barrier is not known is kept", TAKEN, arrives(1, 0), COLLECTING,
        (PersistBatches(1, 1, 0, 1),)),
    Row("a batch behind the barrier is not kept", (*TAKEN, arrives(0, 1)), arrives(0, 2), COLLECTING, ()),
    Row("what was kept is consumed all the same", TAKEN, takes(0, 0), COLLECTING, ()),
    Row("a channel does not stop while batches are collected", (*TAKEN, takes(0, 0), arrives(0, 1)), takes(0, 1),
        COLLECTING, ()),
    Row("the share is not whole before all barriers", (*TAKEN, arrives(0, 1)), LATE, COLLECTING, ()),
    Row("the share is not whole before the batches of each barrier", TAKEN, barrier(1, 0), COLLECTING, ()),
    Row("the last batch before a barrier makes the share whole", (*TAKEN, barrier(1, 0)), arrives(0, 1), IDLE,
        (PersistBatches(1, 0, 1, 2), InputComplete(1))),
    Row("the last barrier makes the share whole", (*TAKEN, arrives(0, 1)), barrier(1, 0), IDLE, (InputComplete(1),)),
    Row("a channel that ends makes the share whole", (*TAKEN, arrives(0, 1)), ends(1, 0), IDLE, (InputComplete(1),)),
    Row("what the producer keeps makes the share whole", (*TAKEN, barrier(1, 0)), overtaken(0, 1), IDLE,
        (InputComplete(1),)),
    Row("the share is whole at once where nothing is awaited", (arrives(0, 0), barrier(0, 1), barrier(1, 0), trigger()),
        LATE, IDLE, (UNALIGNED, PersistBatches(1, 0, 0, 1), InputComplete(1), UnblockChannel(1))),
    Row(
        "a barrier that comes after kept batches that follow it costs the checkpoint",
        (*TAKEN, arrives(1, 0)),
        barrier(1, 0),
        IDLE,
        (late_mark(1),),
    ),
    Row(
        "a producer that keeps what is kept already costs the checkpoint",
        (*TAKEN, arrives(0, 1)),
        overtaken(0, 0),
        IDLE,
        (late_mark(0),),
    ),
    Row(
        "a barrier that comes after consumed batches that follow it costs the checkpoint",
        (trigger(), arrives(0, 0), takes(0, 0)),
        barrier(0, 0),
        IDLE,
        (late_mark(0),),
    ),
    Row("a producer that keeps its share does not make the others' whole", TAKEN, overtaken(0, 1), COLLECTING, ()),
    Row("a channel that ends does not make the others' share whole", TAKEN, ends(0, 2), COLLECTING, ()),
    Row("a repeated trigger takes no second snapshot", TAKEN, trigger(), COLLECTING, ()),
    Row(
        "a late trigger makes the share whole where nothing is awaited",
        (arrives(0, 0), barrier(0, 1), barrier(1, 0)),
        trigger(now=TIMEOUT_S),
        IDLE,
        (UNALIGNED, PersistBatches(1, 0, 0, 1), InputComplete(1), UnblockChannel(1)),
    ),
    # --- older and newer checkpoints --------------------------------------------------------------------------------
    Row("an older barrier stops nothing", (trigger(2),), barrier(0, 0, 1), ALIGNING, ()),
    Row("an older trigger takes no snapshot", (barrier(0, 0, 2), barrier(1, 0, 2)), trigger(1), ALIGNING, ()),
    Row("an older producer's share does not end the alignment", (trigger(2),), overtaken(0, 0, 1), ALIGNING, ()),
    Row("an older checkpoint's abort cancels nothing", (trigger(2), barrier(0, 0, 2)), BarrierAborted(1), ALIGNING, ()),
    Row("an older checkpoint's abort cancels nothing that is collected", (trigger(2), TimeoutChecked(now=TIMEOUT_S)),
        BarrierAborted(1), COLLECTING, ()),
    Row("an older barrier makes no share whole", (*TAKEN, arrives(0, 1)), barrier(1, 0, 0), COLLECTING, ()),
    Row(
        "a newer barrier supersedes, and channels that stood go on",
        ONE_ALIGNED,
        barrier(1, 0, 2),
        ALIGNING,
        (superseded(1, 2), UnblockChannel(0), BlockChannel(1)),
    ),
    Row(
        "a newer producer's share supersedes, and channels that stood go on",
        ONE_ALIGNED,
        overtaken(1, 0, 2),
        ALIGNING,
        (superseded(1, 2), UnblockChannel(0), BlockChannel(1)),
    ),
    Row("a newer trigger does not take over the barriers of an older one", ONE_ALIGNED, trigger(2), ALIGNING,
        (superseded(1, 2), UnblockChannel(0))),
    Row("a newer trigger supersedes what is collected", TAKEN, trigger(2), ALIGNING, (superseded(1, 2),)),
    Row("a newer barrier supersedes what is collected", TAKEN, barrier(1, 0, 2), ALIGNING,
        (superseded(1, 2), BlockChannel(1))),
    Row("a newer producer's share supersedes what is collected", TAKEN, overtaken(1, 0, 2), ALIGNING,
        (superseded(1, 2), BlockChannel(1))),
    Row("a checkpoint that is complete does not start again", DONE, trigger(), IDLE, ()),
    Row("a late barrier of what is complete stops nothing", DONE, barrier(0, 0), IDLE, ()),
    Row("a late share of what is complete starts nothing", DONE, overtaken(0, 0), IDLE, ()),
    # --- aborts -----------------------------------------------------------------------------------------------------
    Row("an abort lets channels that stand go on", ONE_ALIGNED, BarrierAborted(1), IDLE, (ABORTED, UnblockChannel(0))),
    Row("an abort of a newer checkpoint ends the older one", ONE_ALIGNED, BarrierAborted(2), IDLE,
        (ABORTED, UnblockChannel(0))),
    Row("an abort ends what is collected", TAKEN, BarrierAborted(1), IDLE, (ABORTED,)),
    Row("nothing is kept after an abort", (*TAKEN, BarrierAborted(1)), arrives(0, 1), IDLE, ()),
    Row("a barrier after the abort stops nothing", (*ONE_ALIGNED, BarrierAborted(1)), barrier(1, 0), IDLE, ()),
    Row("a trigger after the abort starts nothing", (BarrierAborted(1),), trigger(), IDLE, ()),
    Row("a barrier after an abort that overtook it stops nothing", (BarrierAborted(1),), barrier(0, 0), IDLE, ()),
    Row(
        "an older checkpoint's late abort does not let a newer one start again",
        (BarrierAborted(2), BarrierAborted(1)),
        trigger(2),
        IDLE,
        (),
    ),
    Row("time means nothing after an abort", (*ONE_ALIGNED, BarrierAborted(1)), LATE, IDLE, ()),
    # --- what cannot be ---------------------------------------------------------------------------------------------
    Row("a batch that is missing is not skipped", (), arrives(0, 1), IDLE, ILLEGAL),
    Row("a batch does not arrive twice", (arrives(0, 0),), arrives(0, 0), IDLE, ILLEGAL),
    Row("the writer takes nothing that has not arrived", (trigger(),), takes(0, 0), ALIGNING, ILLEGAL),
    Row("nothing arrives behind the end of a channel", (ends(0, 0),), arrives(0, 0), IDLE, ILLEGAL),
    Row("a channel does not end before a batch that arrived", (arrives(0, 0),), ends(0, 0), IDLE, ILLEGAL),
    Row("a channel does not end before its barrier", (trigger(), barrier(0, 1)), ends(0, 0), ALIGNING, ILLEGAL),
    Row("a channel ends once", (ends(0, 0),), ends(0, 0), IDLE, ILLEGAL),
    Row("a barrier does not lie behind the end of its channel", (ends(0, 0),), barrier(0, 1), IDLE, ILLEGAL),
    Row("a channel has one barrier of a checkpoint", (barrier(0, 1),), barrier(0, 2), ALIGNING, ILLEGAL),
    Row("a producer keeps nothing behind its barrier", (barrier(0, 1),), overtaken(0, 2), ALIGNING, ILLEGAL),
    Row("a channel that there is not has no barrier", (trigger(),), barrier(2, 0), ALIGNING, ILLEGAL),
    # --- the end ----------------------------------------------------------------------------------------------------
    Row("a channel that ended does not end all", (arrives(1, 0),), ends(0, 0), IDLE, ()),
    Row("all is over once every channel has ended and is consumed", (ends(0, 0), arrives(1, 0), ends(1, 1)),
        takes(1, 0), ENDED, (ChannelsEnded(),)),
    Row("the last end is all where everything is consumed", (arrives(0, 0), takes(0, 0), ends(0, 1)), ends(1, 0), ENDED,
        (ChannelsEnded(),)),
    Row(
        "a snapshot is taken before the end is told",
        (trigger(), ends(0, 0)),
        ends(1, 0),
        ENDED,
        (*ALIGNED, ChannelsEnded()),
    ),
    Row("after the end a checkpoint waits for its trigger alone", DRAINED, trigger(), ENDED, ALIGNED),
    Row("after the end a late barrier waits for the trigger", DRAINED, barrier(0, 1), ALIGNING, (BlockChannel(0),)),
    Row("after the end an aborted checkpoint does not start", (*DRAINED, BarrierAborted(1)), trigger(), ENDED, ()),
    Row("after the end an abort leaves it ended", (*DRAINED, barrier(0, 1)), BarrierAborted(1), ENDED,
        (ABORTED, UnblockChannel(0))),
    Row("after the end a producer's share waits for the trigger", DRAINED, overtaken(0, 1), ALIGNING,
        (BlockChannel(0),)),
    Row("after the end a mark before what was consumed costs the checkpoint", DRAINED, barrier(0, 0), ENDED,
        (late_mark(0),)),
    Row("after the end a share before what was consumed costs the checkpoint", DRAINED, overtaken(0, 0), ENDED,
        (late_mark(0),)),
    Row("after the end a late barrier of what is complete changes nothing", (*DRAINED, trigger()), barrier(0, 1), ENDED,
        ()),
    Row("after the end a late share of what is complete changes nothing", (*DRAINED, trigger()), overtaken(0, 1), ENDED,
        ()),
    Row("after the end an abort of what never started changes nothing", DRAINED, BarrierAborted(1), ENDED, ()),
    Row("after the end time means nothing", DRAINED, LATE, ENDED, ()),
    Row("nothing arrives after the end", DRAINED, arrives(0, 1), ENDED, ILLEGAL),
)  # fmt: skip


def observed(machine: BarrierAlignment) -> tuple[object, ...]:
    """All that an alignment shows."""
    channels = [(machine.received(one), machine.consumed(one), machine.may_consume(one)) for one in (0, 1)]
    return (machine.phase, machine.checkpoint, machine.latest, machine.deadline, channels)


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_an_alignment_keeps_this_rule(row: Row) -> None:
    machine = BarrierAlignment(2, aligned_timeout_s=TIMEOUT_S, unaligned=True)
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
