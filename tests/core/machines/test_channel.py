"""One end of a channel: what is sent again, and until when."""

from __future__ import annotations

from lakeward.machines.channel import Channel, ChannelKey
from lakeward.model.events import Heartbeat, RequestSplit

KEY = ChannelKey("svc/1-1-1", 1, 0, 1)


def test_what_was_not_acknowledged_is_sent_again_in_order_and_nothing_else() -> None:
    up, down = Channel(KEY, "up"), Channel(KEY, "down")
    first, second, third = (up.send(RequestSplit()) for _ in range(3))
    assert down.receive(first) == RequestSplit()
    up.receive(down.send(Heartbeat(acked=down.received)))
    assert up.unacked() == (second, third)
