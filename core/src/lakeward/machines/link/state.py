"""What is known of one attempt's link to the coordinator."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from lakeward.errors import ProtocolError
from lakeward.machines.link.messages import LinkCommand, LinkEvent
from lakeward.machines.machine import Machine, MachineState

if TYPE_CHECKING:
    from lakeward.machines.transport.channel import Channel
    from lakeward.model.events import Envelope, Register


class LinkPhase(MachineState):
    """The phase of a link."""

    NEW = "new"
    """Nothing was connected yet."""
    REGISTERING = "registering"
    """The first connection is being opened, or the coordinator waits for other subtasks; there is no deployment yet."""
    CONNECTED = "connected"
    """Envelopes go both ways."""
    RECONNECTING = "reconnecting"
    """The connection was lost, another one is being opened; data events wait."""
    CLOSED = "closed"
    """The subtask ended, the coordinator refused it, or it was silent for longer than the fence time."""


class LinkState(Machine[LinkEvent, LinkCommand]):
    """The link of one attempt, its channel, and when the coordinator was heard."""

    def __init__(self, round_name: str, job_attempt: int, register: Register, fence_s: float) -> None:
        """Start with nothing connected; `register` has no attempt number yet.

        After `fence_s` seconds of silence, > 0, the subtask stops.
        """
        super().__init__()
        self.round_name = round_name
        self.job_attempt = job_attempt
        self.register = register
        self.fence_s = fence_s
        self.phase = LinkPhase.NEW
        self.channel: Channel | None = None
        """None before the deployment; a step that changes it changes a copy."""
        self.done: Envelope | None = None
        """`SubtaskDone`, once it was sent."""
        self.last_received = 0.0
        """When something was received last, in seconds."""
        self.asked: float | None = None
        """When the first heartbeat was sent that is not answered yet; before the deployment, when the coordinator last
        said that it waits for others."""

    @property
    def sent(self) -> int:
        """Number of the last data event that was sent."""
        return self.channel.sent if self.channel is not None else 0

    def silent_s(self, now: float) -> float:
        """Return for how many seconds nothing was received."""
        return now - self.last_received

    def unanswered_s(self, now: float) -> float:
        """Return for how many seconds heartbeats have gone unanswered; 0 if none has.

        Before the deployment, seconds since the coordinator said that it waits for others; 0 where it did not.
        """
        return 0.0 if self.asked is None else now - self.asked

    def open_channel(self) -> Channel:
        """Return the channel, to be read."""
        if self.channel is None:
            message = "link: there is no channel before the attempt is deployed"
            raise ProtocolError(message)
        return self.channel

    def changed_channel(self) -> Channel:
        """Return a copy of the channel, which is to be changed and takes its place."""
        self.channel = copy(self.open_channel())
        return self.channel
