"""One end of a channel between coordinator and subtask: numbers, acknowledgements, duplicates, gaps. Pure.

Rules (architecture.md, "Threads and processes")
* Data events are numbered from 1; control events have number 0 and always pass.
* Unacknowledged data events are kept, and sent again after a reconnect.
* The receiver rejects another attempt, drops a duplicate, and fails on a gap.
"""

from __future__ import annotations

from typing import NamedTuple

from lakeward.errors import ProtocolError
from lakeward.model.events import DATA_EVENTS, AnyEvent, Direction, Envelope, Heartbeat


class ChannelKey(NamedTuple):
    """Which attempt a channel belongs to; every envelope carries it."""

    round_name: str
    job_attempt: int
    subtask: int
    task_attempt: int


class Channel:
    """One end. `direction` is the direction in which this end sends."""

    def __init__(self, key: ChannelKey, direction: Direction) -> None:
        self._key = key
        self._direction: Direction = direction
        self._sent = 0
        self._received = 0
        self._unacked: tuple[Envelope, ...] = ()  # replaced, never changed: who copies a channel has another one

    def __copy__(self) -> Channel:
        """Return another end that knows the same; a machine makes one at each step that may fail."""
        other = Channel(self._key, self._direction)
        other._sent, other._received, other._unacked = self._sent, self._received, self._unacked
        return other

    @property
    def sent(self) -> int:
        """Number of the last data event that was sent."""
        return self._sent

    @property
    def acked(self) -> int:
        """Number of the last data event that the other end acknowledged."""
        return self._unacked[0].sequence - 1 if self._unacked else self._sent

    @property
    def received(self) -> int:
        """Number of the last data event that was received, to be acknowledged."""
        return self._received

    def send(self, event: AnyEvent) -> Envelope:
        """Wrap an event for the wire; data events are numbered and kept until they are acknowledged."""
        if not isinstance(event, DATA_EVENTS):
            return self._wrap(event, 0)
        self._sent += 1
        envelope = self._wrap(event, self._sent)
        self._unacked += (envelope,)
        return envelope

    def receive(self, envelope: Envelope) -> AnyEvent | None:
        """Return the event of an envelope that was received, None for a duplicate.

        Raises:
            ProtocolError: another attempt's, the wrong direction, or a gap in the numbers.
        """
        self.check(envelope)
        return self.take(envelope)

    def check(self, envelope: Envelope) -> None:
        """Raise `ProtocolError` where `receive` would; nothing is changed."""
        found = ChannelKey(envelope.round, envelope.job_attempt, envelope.subtask, envelope.task_attempt)
        if found != self._key or envelope.direction == self._direction:
            message = f"expected an event for {self._key}, found one for {found} going {envelope.direction}"
            raise ProtocolError(message)
        if envelope.sequence > self._received + 1:
            message = f"{self._key}: expected data event {self._received + 1}, found {envelope.sequence}"
            raise ProtocolError(message)
        if isinstance(envelope.event, Heartbeat) and envelope.event.acked > self._sent:
            message = f"{self._key}: expected an acknowledgement of at most {self._sent}, found {envelope.event.acked}"
            raise ProtocolError(message)

    def take(self, envelope: Envelope) -> AnyEvent | None:
        """Take an envelope that `check` has let pass; return its event, or None for a duplicate."""
        if envelope.sequence:
            if envelope.sequence <= self._received:
                return None
            self._received = envelope.sequence
        if isinstance(envelope.event, Heartbeat):
            self._acknowledge(envelope.event.acked)
        return envelope.event

    def unacked(self) -> tuple[Envelope, ...]:
        """Return the envelopes to send again after a reconnect, in order."""
        return self._unacked

    def _acknowledge(self, number: int) -> None:
        if self.acked < number:
            self._unacked = tuple(envelope for envelope in self._unacked if envelope.sequence > number)

    def _wrap(self, event: AnyEvent, sequence: int) -> Envelope:
        key = self._key
        return Envelope(
            round=key.round_name,
            job_attempt=key.job_attempt,
            subtask=key.subtask,
            task_attempt=key.task_attempt,
            direction=self._direction,
            sequence=sequence,
            event=event,
        )
