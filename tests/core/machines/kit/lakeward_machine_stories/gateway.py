"""Stories of a gateway that has one restored event to send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.machines.checkpoints.gateway import AbortFor, CloseFor, Gateway, MessageReceived, OpenFor, Started
from lakeward.model.checkpoints import BlockedEvent, Origin
from lakeward.model.events import AckClose, SplitFinished
from lakeward.model.results import WriteResult
from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from lakeward.machines.checkpoints.gateway import GatewayEvent


def finish(name: str, origin: Origin | None = None) -> SplitFinished:
    """A data event that can be told from others."""
    return SplitFinished(result=WriteResult(name, TableBucket(1, None, 0), 10, -1, 1, ()), origin=origin)


OLD = Origin(1, 3, 4, 9)
RESTORED = BlockedEvent(OLD, finish("restored").result)
A, B, C = finish("a"), finish("b"), finish("c")
CONTROL = AckClose(checkpoint=1, sent=0)

STORIES: tuple[tuple[GatewayEvent, ...], ...] = (
    (),
    (Started(),),
    (MessageReceived(A),),
    (CloseFor(5),),
    (CloseFor(5), MessageReceived(A), MessageReceived(B)),
    (CloseFor(5), MessageReceived(A), OpenFor(5)),
    (CloseFor(5), MessageReceived(A), AbortFor(5)),
    (CloseFor(5), MessageReceived(A), CloseFor(6)),
)
TRIED: tuple[GatewayEvent, ...] = (
    Started(),
    MessageReceived(C),
    MessageReceived(CONTROL),
    *(kind(number) for kind in (CloseFor, OpenFor, AbortFor) for number in (4, 5, 6, 7)),
)
ILLEGAL = ()


def new() -> Gateway:
    """A gateway whose attempt has not started."""
    return Gateway(restored=[RESTORED])
