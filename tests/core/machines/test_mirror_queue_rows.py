"""The rules of the queue of mirrored tables, written by hand, one row each.

They are those of docs/explanation/fluss.md, "The tiering queue", and of the module's prose: the queue answers as a
source does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakeward.machines.rounds.mirror_queue import MirrorQueue
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Mapping

ONE, TWO = TablePath("db", "one"), TablePath("db", "two")
OWN_EPOCH = 4
"""The epoch of the coordinator that the queue stands for."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """A heartbeat arrives."""

    now: float
    request: HeartbeatRequest


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The source's tables were listed: these are mirrored here, others belong to another service."""

    now: float
    ours: tuple[int, ...]
    elsewhere: tuple[int, ...] = ()
    freshness_s: float = 10.0


@dataclass(frozen=True, kw_only=True)
class MadeDue:
    """A person wants these tables tiered now."""

    now: float
    paths: tuple[TablePath, ...]


Event = Beat | Listed | MadeDue
PATHS = {1: ONE, 2: TWO}


def epoch(table_id: int, number: int = 1) -> TableEpoch:
    return TableEpoch(table_id, number, OWN_EPOCH)


def ask(now: float = 0.0) -> Beat:
    return Beat(now=now, request=HeartbeatRequest(request=True))


def renew(*epochs: TableEpoch, now: float = 0.0) -> Beat:
    return Beat(now=now, request=HeartbeatRequest(renewed=epochs))


def finish(of: TableEpoch, now: float, *, forced: bool = False, request: bool = False) -> Beat:
    marked = frozenset({of.table_id}) if forced else frozenset[int]()
    return Beat(now=now, request=HeartbeatRequest(finished=(of,), forced=marked, request=request))


def fail(of: TableEpoch, now: float, *, request: bool = False) -> Beat:
    return Beat(now=now, request=HeartbeatRequest(failed=(of,), request=request))


def given(table_id: int, number: int = 1, waited_s: float = 0.0) -> TableAssignment:
    return TableAssignment(PATHS[table_id], table_id, number, OWN_EPOCH, 10.0, waited_s)


BOTH = (Listed(now=0.0, ours=(1, 2)),)
IN_HAND = (*BOTH, ask())
"""Table 1 is in hand under its first epoch; table 2 is due."""
BOTH_IN_HAND = (*IN_HAND, ask())
FINISHED = (*BOTH_IN_HAND, finish(epoch(1), 5.0))
"""Table 1 is due again at 15."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """After `before`, `event` is answered with `assignment` and `refused`, and the queue knows the tables `known`."""

    rule: str
    before: tuple[Event, ...]
    event: Event
    assignment: TableAssignment | None = None
    refused: Mapping[int, Refusal] = field(default_factory=dict)
    known: frozenset[int] = frozenset({1, 2})
    due_since: float | None = None
    """Since when the most overdue table has been due after the event."""


ROWS = (
    # --- what is due ---
    Row(
        rule="a new table is due at once, under its first epoch",
        before=BOTH,
        event=ask(),
        assignment=given(1),
        due_since=0.0,
    ),
    Row(
        rule="a heartbeat that does not ask is given nothing",
        before=BOTH,
        event=renew(),
        due_since=0.0,
    ),
    Row(
        rule="no table is given to two rounds at a time",
        before=BOTH_IN_HAND,
        event=ask(),
    ),
    Row(
        rule="a finished table is not due before its freshness has passed",
        before=FINISHED,
        event=ask(14.9),
    ),
    Row(
        rule="a finished table is due once its freshness has passed, under a new epoch",
        before=FINISHED,
        event=ask(17.0),
        assignment=given(1, 2, waited_s=2.0),
    ),
    Row(
        rule="a table that is finished and forced is due at once",
        before=BOTH_IN_HAND,
        event=finish(epoch(1), 5.0, forced=True, request=True),
        assignment=given(1, 2),
    ),
    Row(
        rule="a table that failed is due at once, under a new epoch",
        before=BOTH_IN_HAND,
        event=fail(epoch(1), 5.0, request=True),
        assignment=given(1, 2),
    ),
    Row(
        rule="the table that has been due for longest comes first",
        before=(*IN_HAND, fail(epoch(1), 3.0)),
        event=ask(5.0),
        assignment=given(2, waited_s=5.0),
        due_since=3.0,
    ),
    Row(
        rule="a person makes a table due that is fresh",
        before=FINISHED,
        event=MadeDue(now=6.0, paths=(ONE,)),
        due_since=6.0,
    ),
    Row(
        rule="a person does not make a table due that is in hand",
        before=BOTH_IN_HAND,
        event=MadeDue(now=6.0, paths=(ONE,)),
    ),
    Row(
        rule="a table that waits longer already is not set back when a person makes it due",
        before=BOTH,
        event=MadeDue(now=6.0, paths=(ONE, TWO)),
        due_since=0.0,
    ),
    Row(
        rule="a list of the same tables makes none of them due",
        before=FINISHED,
        event=Listed(now=6.0, ours=(1, 2)),
    ),
    # --- what is refused ---
    Row(
        rule="a table in hand is renewed under its epoch",
        before=BOTH_IN_HAND,
        event=renew(epoch(1), epoch(2)),
    ),
    Row(
        rule="an older epoch is fenced, and takes nothing from the newer one",
        before=(*BOTH_IN_HAND, fail(epoch(1), 5.0, request=True)),
        event=finish(epoch(1), 6.0, request=True),
        refused={1: Refusal.FENCED},
    ),
    Row(
        rule="a table that nobody has in hand is not renewed",
        before=FINISHED,
        event=renew(epoch(1), now=6.0),
        refused={1: Refusal.NOT_TIERING},
    ),
    Row(
        rule="a table that is reported twice is due as the first report says",
        before=FINISHED,
        event=finish(epoch(1), 9.0, forced=True),
        refused={1: Refusal.NOT_TIERING},
    ),
    Row(
        rule="a table that was never listed is gone",
        before=BOTH_IN_HAND,
        event=renew(epoch(3)),
        refused={3: Refusal.GONE},
    ),
    Row(
        rule="a refusal of one table takes nothing from another one in the same heartbeat",
        before=(*BOTH_IN_HAND, renew(epoch(1), epoch(2), now=50.0), renew(epoch(3), epoch(2), now=100.0)),
        event=ask(120.0),
        assignment=given(1, 2),
    ),
    # --- tables that leave ---
    Row(
        rule="a table that was dropped in its round is refused as gone",
        before=(*BOTH_IN_HAND, Listed(now=1.0, ours=(2,))),
        event=renew(epoch(1), now=1.0),
        refused={1: Refusal.GONE},
    ),
    Row(
        rule="a table that went to another service in its round is refused as not ours",
        before=(*BOTH_IN_HAND, Listed(now=1.0, ours=(2,), elsewhere=(1,))),
        event=renew(epoch(1), now=1.0),
        refused={1: Refusal.NOT_TIERING},
    ),
    Row(
        rule="a table that left in its round is known for as long as a heartbeat names it",
        before=(*BOTH_IN_HAND, Listed(now=1.0, ours=(2,)), renew(epoch(1), epoch(2), now=50.0)),
        event=Listed(now=110.0, ours=(2,)),
    ),
    Row(
        rule="a table that left in its round is forgotten once no heartbeat has named it for a minute",
        before=(*BOTH_IN_HAND, Listed(now=1.0, ours=(2,)), renew(epoch(1), epoch(2), now=50.0)),
        event=Listed(now=110.1, ours=(2,)),
        known=frozenset({2}),
    ),
    Row(
        rule="a table that left without a round is forgotten at once",
        before=BOTH,
        event=Listed(now=1.0, ours=(2,)),
        known=frozenset({2}),
        due_since=0.0,
    ),
    Row(
        rule="a table that left is given to no round",
        before=(*BOTH_IN_HAND, Listed(now=1.0, ours=(2,))),
        event=fail(epoch(1), 1.0, request=True),
        refused={1: Refusal.GONE},
    ),
    Row(
        rule="a table that left in its round and comes back does not go on under its old epoch",
        before=(*BOTH_IN_HAND, Listed(now=1.0, ours=(2,)), Listed(now=2.0, ours=(1, 2))),
        event=renew(epoch(1), now=2.0),
        refused={1: Refusal.NOT_TIERING},
        due_since=2.0,
    ),
    # --- rounds that fall silent ---
    Row(
        rule="a table in hand is not given away within a minute after its last heartbeat",
        before=(*BOTH_IN_HAND, renew(epoch(1), epoch(2), now=30.0)),
        event=ask(90.0),
    ),
    Row(
        rule="a table that no heartbeat has named for more than a minute is given to another round",
        before=(*BOTH_IN_HAND, renew(epoch(2), now=30.0)),
        event=ask(60.1),
        assignment=given(1, 2),
    ),
    Row(
        rule="a heartbeat that comes late still renews what was given to nobody else",
        before=BOTH_IN_HAND,
        event=renew(epoch(1), epoch(2), now=600.0),
    ),
)


def answer(queue: MirrorQueue, event: Event) -> HeartbeatResponse:
    """Give the queue an event; what is no heartbeat is answered with nothing."""
    match event:
        case Beat():
            return queue.heartbeat(event.now, event.request)
        case Listed():
            tables = {table_id: (PATHS[table_id], event.freshness_s) for table_id in event.ours}
            queue.update(event.now, tables, event.elsewhere)
        case MadeDue():
            queue.make_due(event.now, event.paths)
    return HeartbeatResponse(OWN_EPOCH, None, {})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_rule_holds(row: Row) -> None:
    queue = MirrorQueue(OWN_EPOCH)
    for event in row.before:
        answer(queue, event)

    assert answer(queue, row.event) == HeartbeatResponse(OWN_EPOCH, row.assignment, row.refused)
    assert (queue.table_ids, queue.oldest_due(row.event.now)) == (row.known, row.due_since)
