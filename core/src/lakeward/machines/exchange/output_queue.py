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

from lakeward.machines.exchange import messages as m
from lakeward.machines.machine import Machine, MachineState, Rule, Rules, UndoDict
from lakeward.model.exchange import Barrier, EndOfChannel, Overtaken


class OutputPhase(MachineState):
    """The state of a channel's producer."""

    OPEN = "open"
    """Batches are put in."""
    ENDING = "ending"
    """The end was sent; batches wait, or are not written yet."""
    WRITTEN = "written"
    """The consumer has written everything."""


class OutputChannel(Machine[m.OutputEvent, m.OutputCommand]):
    """The producer's end of one channel."""

    def __init__(self, *, window_bytes: int, granted: bool = True) -> None:
        """Start empty.

        `window_bytes`: most bytes that are sent and not yet written by the consumer, > 0. `granted`: batches may be
        sent before the consumer's first `BatchesWritten`.
        """
        super().__init__()
        self.window_bytes = window_bytes
        self.granted = granted
        self.phase: OutputPhase = OutputPhase.OPEN
        self.sizes = UndoDict[int, int](self.undo)
        """By sequence: of each batch that is not written."""
        self.queued = 0
        """The sequence of the next batch that is put in."""
        self.sent = 0
        """The sequence of the next batch that is sent; those from here up to `queued` wait."""
        self.written = 0
        """The first batch that the consumer has not written: none before it is needed here."""
        self.waiting_bytes = 0
        """Bytes that wait here, for the limits of a channel and of a subtask."""
        self.under_way_bytes = 0
        """Bytes that are sent and not yet written."""
        self.barrier: Barrier | None = None
        """The newest, unless it has ended or overtaken."""
        self.latest = 0
        """The newest checkpoint that was seen."""

    @property
    def detail(self) -> str:
        """How far it is, for errors."""
        return f", {self.written} written, {self.sent} sent, {self.queued} queued, newest {self.latest}"

    def has_credit(self, size_bytes: int) -> bool:
        """Return whether a batch may be sent: it fits into the window, or is larger and nothing is under way."""
        fits = not self.under_way_bytes or self.under_way_bytes + size_bytes <= self.window_bytes
        return self.granted and fits


OPEN, ENDING, WRITTEN = OutputPhase.OPEN, OutputPhase.ENDING, OutputPhase.WRITTEN
Commands = tuple[m.OutputCommand, ...]

# --- conditions -----------------------------------------------------------------------------------------------------


def were_sent(output: OutputChannel, event: m.BatchesWritten) -> bool:
    """Nothing is written that was not sent."""
    return event.end <= output.sent


def were_the_last(output: OutputChannel, event: m.BatchesWritten) -> bool:
    """Nothing waits, and all is written."""
    return were_sent(output, event) and max(event.end, output.written) == output.queued


def is_newer(output: OutputChannel, event: m.BarrierRequested) -> bool:
    """The checkpoint is newer than all barriers that were sent, and than what was aborted."""
    return event.checkpoint > output.latest


def is_current(output: OutputChannel, event: m.OvertakeRequested) -> bool:
    """Its barrier is the newest that was sent, and has not overtaken."""
    return output.barrier is not None and output.barrier.checkpoint == event.checkpoint


# --- what is done ---------------------------------------------------------------------------------------------------


def put_in(output: OutputChannel, event: m.BatchQueued) -> Commands:
    """Let the batch wait for credit."""
    output.sizes[output.queued] = event.size_bytes
    output.queued += 1
    output.waiting_bytes += event.size_bytes
    return send(output)


def take_credit(output: OutputChannel, event: m.BatchesWritten) -> Commands:
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
    return (m.SendBatches(first, output.sent),) if first < output.sent else ()


def send_barrier(output: OutputChannel, event: m.BarrierRequested) -> Commands:
    """Send the barrier, past the batches that wait."""
    output.latest = event.checkpoint
    output.barrier = Barrier(event.checkpoint, output.queued, event.age_s)
    return (m.SendMark(output.barrier),)


def overtake(output: OutputChannel, event: m.OvertakeRequested) -> Commands:
    """Keep what waits before the barrier, and say so."""
    barrier, output.barrier = output.barrier, None
    first_after = 0 if barrier is None else barrier.first_after
    first = min(output.sent, first_after)
    kept = (m.KeepBatches(event.checkpoint, first, first_after),) if first < first_after else ()
    return (*kept, m.SendMark(Overtaken(event.checkpoint, first)))


def send_end(output: OutputChannel, _: m.EndRequested) -> Commands:
    """Say how many batches there were."""
    return (m.SendMark(EndOfChannel(output.queued)),)


def forget_barrier(output: OutputChannel, event: m.BarrierAborted) -> Commands:
    """Let it overtake no more."""
    output.latest = max(output.latest, event.checkpoint)
    if output.barrier is not None and output.barrier.checkpoint <= event.checkpoint:
        output.barrier = None
    return ()


ANY = (OPEN, ENDING, WRITTEN)
OUTPUT: Rules[OutputChannel, m.OutputCommand] = Rules(
    "output",
    OutputPhase,
    Rule(OPEN, m.BatchQueued, do=put_in),
    Rule(ENDING, m.BatchesWritten, when=were_the_last, to=WRITTEN, do=take_credit),
    Rule(ANY, m.BatchesWritten, when=were_sent, do=take_credit),
    Rule(OPEN, m.EndRequested, when=lambda output, _: output.written == output.queued, to=WRITTEN, do=send_end),
    Rule(OPEN, m.EndRequested, to=ENDING, do=send_end),
    Rule(ANY, m.BarrierRequested, when=is_newer, do=send_barrier),
    Rule(ANY, m.BarrierRequested),
    Rule(ANY, m.OvertakeRequested, when=is_current, do=overtake),
    Rule(ANY, m.OvertakeRequested, when=lambda output, event: event.checkpoint <= output.latest),
    Rule(ANY, m.BarrierAborted, do=forget_barrier),
)


class OutputQueue(OutputChannel):
    """The machine of the producer's end of one channel."""

    rules = OUTPUT
