"""The producer's end of one channel of an exchange: what may be sent, and what a barrier overtakes.

* Batches are numbered from 0 in the order in which they are put in, and sent in that order.
* A consumer that recovers takes nothing: where it may, the queue starts without credit until it hears from it.
* At most `window_bytes` are under way: sent, and not yet written by the consumer. A larger batch goes alone. The
  consumer says up to which sequence it has written, so that both ends never have to agree on the size of a batch.
* A barrier's place is behind all batches that were put in before. Batches that are under way cannot be overtaken;
  those that wait here can: they are kept for the checkpoint and sent all the same.
* Each barrier overtakes once. What an older, ended checkpoint asks for changes nothing.
* After its end a channel takes no batch. Barriers still have a place, at the end.
"""

from __future__ import annotations

from lakeward.machines.exchange.messages import (
    BarrierAborted,
    BarrierRequested,
    BatchesWritten,
    BatchQueued,
    EndRequested,
    KeepBatches,
    OutputCommand,
    OvertakeRequested,
    SendBatches,
    SendMark,
)
from lakeward.machines.exchange.state import OutputChannel, OutputPhase
from lakeward.machines.machine import Rule, Rules
from lakeward.model.exchange import Barrier, EndOfChannel, Overtaken

OPEN, ENDING, WRITTEN = OutputPhase.OPEN, OutputPhase.ENDING, OutputPhase.WRITTEN
Commands = tuple[OutputCommand, ...]

# --- conditions -----------------------------------------------------------------------------------------------------


def were_sent(output: OutputChannel, event: BatchesWritten) -> bool:
    """Nothing is written that was not sent."""
    return event.end <= output.sent


def were_the_last(output: OutputChannel, event: BatchesWritten) -> bool:
    """Nothing waits, and all is written."""
    return were_sent(output, event) and max(event.end, output.written) == output.queued


def all_is_written(output: OutputChannel, _: EndRequested) -> bool:
    """Nothing waits or is under way."""
    return output.written == output.queued


def is_newer(output: OutputChannel, event: BarrierRequested) -> bool:
    """The checkpoint is newer than all barriers that were sent, and than what was aborted."""
    return event.checkpoint > output.latest


def is_current(output: OutputChannel, event: OvertakeRequested) -> bool:
    """Its barrier is the newest that was sent, and has not overtaken."""
    return output.barrier is not None and output.barrier.checkpoint == event.checkpoint


def has_ended(output: OutputChannel, event: OvertakeRequested) -> bool:
    """It is older, was aborted, or has overtaken."""
    return event.checkpoint <= output.latest


# --- what is done ---------------------------------------------------------------------------------------------------


def put_in(output: OutputChannel, event: BatchQueued) -> Commands:
    """Let the batch wait for credit."""
    output.sizes[output.queued] = event.size_bytes
    output.queued += 1
    output.waiting_bytes += event.size_bytes
    return send(output)


def take_credit(output: OutputChannel, event: BatchesWritten) -> Commands:
    """Send more."""
    output.granted = True
    while output.written < event.end:
        output.under_way_bytes -= output.sizes[output.written]
        del output.sizes[output.written]
        output.written += 1
    return send(output)


def send(output: OutputChannel) -> Commands:
    """Send what there is credit for."""
    first = output.sent
    while output.sent < output.queued and output.has_credit(size_bytes := output.sizes[output.sent]):
        output.under_way_bytes += size_bytes
        output.waiting_bytes -= size_bytes
        output.sent += 1
    return (SendBatches(first, output.sent),) if first < output.sent else ()


def send_barrier(output: OutputChannel, event: BarrierRequested) -> Commands:
    """Send the barrier, past the batches that wait."""
    output.latest = event.checkpoint
    output.barrier = Barrier(event.checkpoint, output.queued, event.age_s)
    return (SendMark(output.barrier),)


def overtake(output: OutputChannel, event: OvertakeRequested) -> Commands:
    """Keep what waits before the barrier, and say so."""
    barrier, output.barrier = output.barrier, None
    first_after = 0 if barrier is None else barrier.first_after
    first = min(output.sent, first_after)
    kept = (KeepBatches(event.checkpoint, first, first_after),) if first < first_after else ()
    return (*kept, SendMark(Overtaken(event.checkpoint, first)))


def send_end(output: OutputChannel, _: EndRequested) -> Commands:
    """Say how many batches there were."""
    return (SendMark(EndOfChannel(output.queued)),)


def forget_barrier(output: OutputChannel, event: BarrierAborted) -> Commands:
    """Let it overtake no more."""
    output.latest = max(output.latest, event.checkpoint)
    if output.barrier is not None and output.barrier.checkpoint <= event.checkpoint:
        output.barrier = None
    return ()


ANY = (OPEN, ENDING, WRITTEN)
OUTPUT: Rules[OutputChannel, OutputCommand] = Rules(
    "output",
    OutputPhase,
    Rule(OPEN, BatchQueued, do=put_in),
    Rule(ENDING, BatchesWritten, when=were_the_last, to=WRITTEN, do=take_credit),
    Rule(ANY, BatchesWritten, when=were_sent, do=take_credit),
    Rule(OPEN, EndRequested, when=all_is_written, to=WRITTEN, do=send_end),
    Rule(OPEN, EndRequested, to=ENDING, do=send_end),
    Rule(ANY, BarrierRequested, when=is_newer, do=send_barrier),
    Rule(ANY, BarrierRequested),
    Rule(ANY, OvertakeRequested, when=is_current, do=overtake),
    Rule(ANY, OvertakeRequested, when=has_ended),
    Rule(ANY, BarrierAborted, do=forget_barrier),
)


class OutputQueue(OutputChannel):
    """The machine of the producer's end of one channel."""

    rules = OUTPUT
