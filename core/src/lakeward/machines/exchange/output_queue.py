"""The producer's end of one channel of an exchange: what may be sent, and what a barrier overtakes. Pure.

Rules
* Batches are numbered from 0 in the order in which they are put in, and sent in that order.
* A consumer that recovers takes nothing: where it may, the queue starts without credit until it hears from it.
* At most `window_bytes` are under way: sent, and not yet written by the consumer. A larger batch goes alone. The
  consumer says up to which sequence it has written, so that both ends never have to agree on the size of a batch.
* A barrier's place is behind all batches that were put in before. Batches that are under way cannot be overtaken;
  those that wait here can: they are kept for the checkpoint and sent all the same.
* Each barrier overtakes once. What an older, ended checkpoint asks for changes nothing.
* After its end a channel takes no batch. Barriers still have a place, at the end.
* `TRANSITIONS` gives the next state; every state is looked up there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from lakeward.machines.exchange.events import BarrierAborted
from lakeward.machines.machine_state import MachineState, next_state
from lakeward.model.exchange import Barrier, EndOfChannel, Overtaken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.exchange import ChannelMark

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchQueued:
    """A batch is put in; its sequence is `queued` before the step. `size_bytes` as the producer counts it."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class BatchesWritten:
    """The consumer has written all batches before `end` (`ChannelReceiver.on_credit`). Late or repeated: no change."""

    end: int


@dataclass(frozen=True, slots=True)
class BarrierRequested:
    """The subtask was triggered `age_s` seconds ago: everything that was put in so far is before the barrier."""

    checkpoint: int
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class OvertakeRequested:
    """The checkpoint is not aligned any more: its barrier overtakes what waits here."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class EndRequested:
    """Nothing more is put in."""


OutputEvent = BatchQueued | BatchesWritten | BarrierRequested | OvertakeRequested | EndRequested | BarrierAborted

# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendBatches:
    """Send the batches from `first` up to `end`, in order."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class SendMark:
    """Send a mark at once, past the batches. Those that wait are sent after it."""

    mark: ChannelMark


@dataclass(frozen=True, slots=True)
class KeepBatches:
    """Keep the waiting batches from `first` up to `end` for the checkpoint; they are sent as well."""

    checkpoint: int
    first: int
    end: int


OutputCommand = SendBatches | SendMark | KeepBatches

# --- states -----------------------------------------------------------------------------------------------------


class OutputPhase(MachineState):
    """The state of a channel's producer."""

    OPEN = "open"
    """Batches are put in."""
    ENDING = "ending"
    """The end was sent; batches wait, or are not written yet."""
    WRITTEN = "written"
    """The consumer has written everything."""


class OutputGuard(MachineState):
    """The condition in which an event finds the queue; it selects the next state in the row of the event."""

    ALWAYS = "always"
    """The row has one next state."""
    NEWER = "newer checkpoint"
    """The checkpoint is newer than all barriers that were sent, and than what was aborted."""
    CURRENT = "current checkpoint"
    """Its barrier is the newest that was sent, and has not overtaken."""
    ENDED = "ended checkpoint"
    """It is older, was aborted, or has overtaken."""
    WAITING = "batches wait"
    """A batch is not written."""
    WRITTEN = "all written"
    """The consumer has written all batches."""
    NOT_ALLOWED = "not allowed"
    """More was written than was sent, or a barrier that was not sent is to overtake. It is in no row."""


_OPEN, _ENDING, _WRITTEN = OutputPhase.OPEN, OutputPhase.ENDING, OutputPhase.WRITTEN
_G = OutputGuard

TRANSITIONS: Mapping[tuple[OutputPhase, type[OutputEvent]], Mapping[OutputGuard, OutputPhase]] = MappingProxyType(
    {
        (_OPEN, BatchQueued): {_G.ALWAYS: _OPEN},
        (_OPEN, BatchesWritten): {_G.WAITING: _OPEN, _G.WRITTEN: _OPEN},
        (_OPEN, BarrierRequested): {_G.NEWER: _OPEN, _G.ENDED: _OPEN},
        (_OPEN, OvertakeRequested): {_G.CURRENT: _OPEN, _G.ENDED: _OPEN},
        (_OPEN, EndRequested): {_G.WAITING: _ENDING, _G.WRITTEN: _WRITTEN},
        (_OPEN, BarrierAborted): {_G.ALWAYS: _OPEN},
        (_ENDING, BatchesWritten): {_G.WAITING: _ENDING, _G.WRITTEN: _WRITTEN},
        (_ENDING, BarrierRequested): {_G.NEWER: _ENDING, _G.ENDED: _ENDING},
        (_ENDING, OvertakeRequested): {_G.CURRENT: _ENDING, _G.ENDED: _ENDING},
        (_ENDING, BarrierAborted): {_G.ALWAYS: _ENDING},
        (_WRITTEN, BatchesWritten): {_G.WRITTEN: _WRITTEN},
        (_WRITTEN, BarrierRequested): {_G.NEWER: _WRITTEN, _G.ENDED: _WRITTEN},
        (_WRITTEN, OvertakeRequested): {_G.CURRENT: _WRITTEN, _G.ENDED: _WRITTEN},
        (_WRITTEN, BarrierAborted): {_G.ALWAYS: _WRITTEN},
    }
)
"""(state, event) to the next state by guard. Complete: what is not in it is illegal."""


class OutputQueue:
    """The producer's end of one channel."""

    def __init__(self, *, window_bytes: int, granted: bool = True) -> None:
        """Start empty.

        Args:
            window_bytes: most bytes that are sent and not yet written by the consumer, > 0.
            granted: whether batches may be sent before the consumer's first `BatchesWritten`.
        """
        self._window = window_bytes
        self._granted = granted
        self._phase = _OPEN
        self._sizes: deque[int] = deque()
        """Of the batches that are not written, the oldest first."""
        self._written = self._sent = self._queued = 0
        """The first batch that is not written, not sent, and not yet put in."""
        self._under_way = self._waiting = 0
        """Bytes that are sent and not written, and bytes that are not sent."""
        self._barrier: Barrier | None = None
        """The newest, unless it has ended or overtaken."""
        self._latest = 0
        """The newest checkpoint that was seen."""

    @property
    def phase(self) -> OutputPhase:
        """The queue's state."""
        return self._phase

    @property
    def queued(self) -> int:
        """The sequence of the next batch that is put in."""
        return self._queued

    @property
    def sent(self) -> int:
        """The sequence of the next batch that is sent; those from here up to `queued` wait."""
        return self._sent

    @property
    def written(self) -> int:
        """The first batch that the consumer has not written: none before it is needed here."""
        return self._written

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait here, for the limits of a channel and of a subtask."""
        return self._waiting

    @property
    def under_way_bytes(self) -> int:
        """Bytes that are sent and not yet written."""
        return self._under_way

    def step(self, event: OutputEvent) -> tuple[OutputCommand, ...]:
        """Take one event.

        Args:
            event: what happened.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        guard = self._guard(event)
        detail = f", {self._written} written, {self._sent} sent, {self._queued} queued, newest {self._latest}"
        self._phase = next_state("output", TRANSITIONS, self._phase, event, guard, detail=detail)
        match event:
            case BatchQueued():
                self._sizes.append(event.size_bytes)
                self._queued += 1
                self._waiting += event.size_bytes
                return self._send()
            case BatchesWritten():
                self._granted = True
                while self._written < event.end:
                    self._under_way -= self._sizes.popleft()
                    self._written += 1
                return self._send()
            case BarrierRequested():
                return self._mark(event) if guard is _G.NEWER else ()
            case OvertakeRequested():
                return self._overtake() if guard is _G.CURRENT else ()
            case EndRequested():
                return (SendMark(EndOfChannel(self._queued)),)
            case BarrierAborted():
                self._latest = max(self._latest, event.checkpoint)
                if self._barrier is not None and self._barrier.checkpoint <= event.checkpoint:
                    self._barrier = None
                return ()
            case _:
                assert_never(event)

    def _guard(self, event: OutputEvent) -> OutputGuard:
        if isinstance(event, BatchQueued | BarrierAborted):
            return _G.ALWAYS
        if isinstance(event, BatchesWritten | EndRequested):
            written = max(event.end, self._written) if isinstance(event, BatchesWritten) else self._written
            if written > self._sent:
                return _G.NOT_ALLOWED
            return _G.WRITTEN if written == self._queued else _G.WAITING
        newer = event.checkpoint > self._latest
        if isinstance(event, BarrierRequested):
            return _G.NEWER if newer else _G.ENDED
        if newer:
            return _G.NOT_ALLOWED
        current = self._barrier is not None and self._barrier.checkpoint == event.checkpoint
        return _G.CURRENT if current else _G.ENDED

    def _mark(self, event: BarrierRequested) -> tuple[OutputCommand, ...]:
        self._latest = event.checkpoint
        self._barrier = Barrier(event.checkpoint, self._queued, event.age_s)
        return (SendMark(self._barrier),)

    def _overtake(self) -> tuple[OutputCommand, ...]:
        if self._barrier is None:
            return ()
        barrier, self._barrier = self._barrier, None
        first = min(self._sent, barrier.first_after)
        kept = (KeepBatches(barrier.checkpoint, first, barrier.first_after),) if first < barrier.first_after else ()
        return (*kept, SendMark(Overtaken(barrier.checkpoint, first)))

    def _send(self) -> tuple[OutputCommand, ...]:
        """Send what fits into the window, and a batch that is larger once nothing is under way."""
        first = self._sent
        while self._granted and self._sent < self._queued:
            size = self._sizes[self._sent - self._written]
            if self._under_way and self._under_way + size > self._window:
                break
            self._under_way += size
            self._waiting -= size
            self._sent += 1
        return (SendBatches(first, self._sent),) if first < self._sent else ()
