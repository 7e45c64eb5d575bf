"""One end of a channel: what is sent again, and until when; what it raises on, and that this changes nothing."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.errors import ProtocolError
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import Heartbeat, RequestSplit

if TYPE_CHECKING:
    from lakeward.model.events import Envelope

KEY = ChannelKey("svc/1-1-1", 1, 0, 1)


def test_what_was_not_acknowledged_is_sent_again_in_order_and_nothing_else() -> None:
    up, down = Channel(KEY, "up"), Channel(KEY, "down")
    first, second, third = (up.send(RequestSplit()) for _ in range(3))
    assert down.receive(first) == RequestSplit()
    up.receive(down.send(Heartbeat(acked=down.received)))
    assert up.unacked() == (second, third)


def illegal_envelopes(sender: Channel) -> dict[str, Envelope]:
    """Envelopes that the other end may not take after the first data event."""
    following, gap = sender.send(RequestSplit()), sender.send(RequestSplit())
    return {
        "another attempt": msgspec.structs.replace(following, task_attempt=2),
        "the wrong direction": msgspec.structs.replace(following, direction="down"),
        "a gap": gap,
        "an acknowledgement of what was never sent": sender.send(Heartbeat(acked=2)),
    }


@pytest.mark.parametrize("kind", illegal_envelopes(Channel(KEY, "up")))
def test_an_illegal_envelope_raises_and_changes_nothing(kind: str) -> None:
    up, down = Channel(KEY, "up"), Channel(KEY, "down")
    down.receive(up.send(RequestSplit()))
    down.send(RequestSplit())
    before = copy.deepcopy(vars(down))
    with pytest.raises(ProtocolError):
        down.receive(illegal_envelopes(up)[kind])
    assert vars(down) == before
