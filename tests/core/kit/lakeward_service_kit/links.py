"""A subtask's link that leads nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.transport.channel import Channel, ChannelKey

if TYPE_CHECKING:
    from lakeward.model.events import AnyEvent


class RecordingLink:
    """Keeps what was sent, and numbers it as a real one does (`lakeward.subtask.link.Link`)."""

    def __init__(self) -> None:
        """Start with nothing sent."""
        self.events: list[AnyEvent] = []
        self._channel = Channel(ChannelKey("svc/1-1-1", 1, 0, 1), "up")

    @property
    def sent(self) -> int:
        """Number of the last data event."""
        return self._channel.sent

    def send(self, event: AnyEvent) -> None:
        """Keep an event in `events`."""
        self.events.append(self._channel.send(event).event)
