"""The rules of a gateway, written out by hand: what it does next, and what it must not do.

Nothing here is taken from the machine's own table, so a wrong row of that table is a failure here.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lakeward.errors import IllegalEventError
from lakeward.machines.checkpoints.gateway import (
    AbortFor,
    CloseFor,
    Gateway,
    GatewayClosed,
    GatewayCommand,
    GatewayEvent,
    GatewayPhase,
    MessageReceived,
    OpenFor,
    Pass,
    Started,
)
from lakeward.model.checkpoints import BlockedEvent, Origin
from lakeward.model.events import AckClose, RequestSplit, SplitFinished
from lakeward.model.results import WriteResult
from lakeward.model.tables import TableBucket

OPEN, CLOSED = GatewayPhase.OPEN, GatewayPhase.CLOSED
ILLEGAL = None


def finish(name: str, origin: Origin | None = None) -> SplitFinished:
    """A data event that can be told from others."""
    return SplitFinished(result=WriteResult(name, TableBucket(1, None, 0), 10, -1, 1, ()), origin=origin)


OLD = Origin(1, 3, 4, 9)
A, B, RESTORED = finish("a"), finish("b"), finish("restored", OLD)
CONTROL = AckClose(checkpoint=1, sent=0)
SENDS_A, SENDS_B = MessageReceived(A), MessageReceived(B)


class Start(NamedTuple):
    """How a gateway is made."""

    latest: int = 0
    closed_for: int | None = None
    restored: tuple[BlockedEvent, ...] = ()


NEW = Start()
GOES_ON = Start(restored=(BlockedEvent(OLD, finish("restored").result),))
MEETS_A_CHECKPOINT = Start(latest=6, closed_for=6)
GOES_ON_AND_MEETS_A_CHECKPOINT = GOES_ON._replace(latest=6, closed_for=6)


class Row(NamedTuple):
    """A rule: after a story, an event leads to a phase and to commands. Without commands it is illegal."""

    rule: str
    start: Start
    story: tuple[GatewayEvent, ...]
    event: GatewayEvent
    phase: GatewayPhase
    commands: tuple[GatewayCommand, ...] | None


ROWS = (
    # --- what passes ------------------------------------------------------------------------------------------------
    Row("an open gateway passes a data event at once", NEW, (), SENDS_A, OPEN, (Pass(A),)),
    Row("a closed gateway holds a data event", NEW, (CloseFor(5),), SENDS_A, CLOSED, ()),
    Row(
        "a closed gateway holds a request for a split as well",
        NEW,
        (CloseFor(5),),
        MessageReceived(RequestSplit()),
        CLOSED,
        (),
    ),
    Row(
        "a control event passes a closed gateway, and what is held stays",
        NEW,
        (CloseFor(5), SENDS_A),
        MessageReceived(CONTROL),
        CLOSED,
        (Pass(CONTROL),),
    ),
    # --- what closes it ---------------------------------------------------------------------------------------------
    Row("a new checkpoint closes it, and it says so", NEW, (), CloseFor(5), CLOSED, (GatewayClosed(5),)),
    Row("a repeated close is answered again", NEW, (CloseFor(5),), CloseFor(5), CLOSED, (GatewayClosed(5),)),
    Row("an older checkpoint's close is not answered", NEW, (CloseFor(5),), CloseFor(4), CLOSED, ()),
    Row(
        "a newer checkpoint takes over a closed gateway, and what is held stays held",
        NEW,
        (CloseFor(5), SENDS_A),
        CloseFor(6),
        CLOSED,
        (GatewayClosed(6),),
    ),
    Row("a checkpoint that was opened here does not close it", NEW, (CloseFor(5), OpenFor(5)), CloseFor(5), OPEN, ()),
    Row("a checkpoint that was aborted here does not close it", NEW, (CloseFor(5), AbortFor(5)), CloseFor(5), OPEN, ()),
    Row("an abort that overtakes its close keeps that from closing", NEW, (AbortFor(5),), CloseFor(5), OPEN, ()),
    Row(
        "a late abort of an older checkpoint does not let a newer one that ended close it again",
        NEW,
        (CloseFor(5), OpenFor(5), AbortFor(4)),
        CloseFor(5),
        OPEN,
        (),
    ),
    Row(
        "an older checkpoint closes nothing once a newer one is over",
        NEW,
        (CloseFor(5), OpenFor(5)),
        CloseFor(4),
        OPEN,
        (),
    ),
    Row("an attempt that starts later knows which checkpoints are over", Start(latest=5), (), CloseFor(5), OPEN, ()),
    # --- what opens it ----------------------------------------------------------------------------------------------
    Row(
        "its own snapshot opens it, and what was held is sent in order",
        NEW,
        (CloseFor(5), SENDS_A, SENDS_B),
        OpenFor(5),
        OPEN,
        (Pass(A), Pass(B)),
    ),
    Row(
        "the abort of its checkpoint opens it, and what was held is sent in order",
        NEW,
        (CloseFor(5), SENDS_A, SENDS_B),
        AbortFor(5),
        OPEN,
        (Pass(A), Pass(B)),
    ),
    Row(
        "the abort of a newer checkpoint that it never saw opens it",
        NEW,
        (CloseFor(5), SENDS_A),
        AbortFor(6),
        OPEN,
        (Pass(A),),
    ),
    Row("an older checkpoint's abort opens nothing", NEW, (CloseFor(5), SENDS_A), AbortFor(4), CLOSED, ()),
    Row("an older checkpoint's snapshot opens nothing", NEW, (CloseFor(5), SENDS_A), OpenFor(4), CLOSED, ()),
    Row(
        "the abort of a checkpoint that a newer one took over from opens nothing",
        NEW,
        (CloseFor(5), SENDS_A, CloseFor(6)),
        AbortFor(5),
        CLOSED,
        (),
    ),
    Row(
        "what was held for an older checkpoint is sent when the newer one opens",
        NEW,
        (CloseFor(5), SENDS_A, CloseFor(6), SENDS_B, AbortFor(5)),
        OpenFor(6),
        OPEN,
        (Pass(A), Pass(B)),
    ),
    Row("opened twice, it sends what was held once", NEW, (CloseFor(5), SENDS_A, OpenFor(5)), OpenFor(5), OPEN, ()),
    Row(
        "a late abort of what its snapshot opened changes nothing",
        NEW,
        (CloseFor(5), OpenFor(5)),
        AbortFor(5),
        OPEN,
        (),
    ),
    Row("a late message of an older snapshot changes nothing", NEW, (CloseFor(5), OpenFor(5)), OpenFor(4), OPEN, ()),
    Row("a checkpoint that never closed it cannot open it", NEW, (CloseFor(5), SENDS_A), OpenFor(6), CLOSED, ILLEGAL),
    Row("no snapshot of an unknown checkpoint is taken while it is open", NEW, (), OpenFor(1), OPEN, ILLEGAL),
    # --- what was restored ------------------------------------------------------------------------------------------
    Row("the start sends what was restored, under its origin", GOES_ON, (), Started(), OPEN, (Pass(RESTORED),)),
    Row("a repeated start sends nothing again", GOES_ON, (Started(),), Started(), OPEN, ()),
    Row("what was restored is sent before what is new", GOES_ON, (), SENDS_A, OPEN, (Pass(RESTORED), Pass(A))),
    Row(
        "what was restored is sent before the gateway says that it is closed",
        GOES_ON,
        (),
        CloseFor(5),
        CLOSED,
        (Pass(RESTORED), GatewayClosed(5)),
    ),
    # --- admitted while a checkpoint runs ---------------------------------------------------------------------------
    Row("admitted in mid-checkpoint, it starts closed", MEETS_A_CHECKPOINT, (), SENDS_A, CLOSED, ()),
    Row(
        "admitted in mid-checkpoint, it sends nothing restored at its start",
        GOES_ON_AND_MEETS_A_CHECKPOINT,
        (),
        Started(),
        CLOSED,
        (),
    ),
    Row(
        "admitted in mid-checkpoint, it is not opened by the abort of the one before",
        MEETS_A_CHECKPOINT,
        (SENDS_A,),
        AbortFor(5),
        CLOSED,
        (),
    ),
    Row(
        "admitted in mid-checkpoint, it sends what was restored first once that one opens it",
        GOES_ON_AND_MEETS_A_CHECKPOINT,
        (Started(), SENDS_A),
        OpenFor(6),
        OPEN,
        (Pass(RESTORED), Pass(A)),
    ),
)


def observed(gateway: Gateway) -> tuple[object, ...]:
    """All that a gateway shows."""
    return (gateway.phase, gateway.closed_for, gateway.latest, gateway.held)


@pytest.mark.parametrize("row", ROWS, ids=[row.rule for row in ROWS])
def test_a_gateway_keeps_this_rule(row: Row) -> None:
    start = row.start
    gateway = Gateway(latest=start.latest, closed_for=start.closed_for, restored=start.restored)
    for event in row.story:
        gateway.step(event)
    if row.commands is ILLEGAL:
        before = observed(gateway)
        with pytest.raises(IllegalEventError):
            gateway.step(row.event)
        assert observed(gateway) == before
    else:
        assert gateway.step(row.event) == row.commands
    assert gateway.phase is row.phase
