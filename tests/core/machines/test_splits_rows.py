"""The rules of the machine `splits`, written by hand, one row each.

They are those of docs/explanation/exactly-once.md and of the module's prose, not of the machine's own table: a wrong
row there agrees with itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pytest
from msgspec import structs

from lakeward.errors import IllegalEventError
from lakeward.machines.splits import (
    Accept,
    AcceptRestored,
    AllDone,
    Assign,
    AttemptDisconnected,
    AttemptLost,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionsChecked,
    Enumeration,
    FinishEarlyRequested,
    GiveUp,
    JobEnded,
    NoMore,
    Reject,
    SendFinishEarly,
    SplitDone,
    SplitRequested,
    Splits,
    SplitsCommand,
    SplitsEvent,
    SplitsRested,
    SplitsReturned,
)
from lakeward.model.backoff import RetryPauses
from lakeward.model.splits import LogSplit, SnapshotSplit, Split
from lakeward.model.tables import TableBucket

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TableBucket(1, None, 0), TableBucket(1, None, 1)
FIRST, SECOND = LogSplit("first", A, (), 0, 10), LogSplit("second", A, (), 10, 20)
SNAPSHOT = SnapshotSplit("snapshot", B, (), 4, 70)
LIVE = structs.replace(SNAPSHOT, live=True)
ILLEGAL: Literal["illegal"] = "illegal"
Where = Literal["free", "withheld", "finished", "skipped"] | tuple[int, int]
"""Where a split stands: in one of these states, or read by this attempt of this subtask."""


def registered(subtask: int, attempt: int = 1, *restored: str) -> AttemptRegistered:
    return AttemptRegistered(now=0.0, subtask=subtask, attempt=attempt, restored=frozenset(restored))


def requests(subtask: int, attempt: int = 1) -> SplitRequested:
    return SplitRequested(now=0.0, subtask=subtask, attempt=attempt)


def done(split_id: str, end: int, subtask: int, attempt: int = 1) -> SplitDone:
    return SplitDone(now=0.0, subtask=subtask, attempt=attempt, split_id=split_id, end_offset=end)


def lost(subtask: int, attempt: int = 1) -> AttemptLost:
    return AttemptLost(now=0.0, subtask=subtask, attempt=attempt)


def disconnected(subtask: int, now: float) -> AttemptDisconnected:
    return AttemptDisconnected(now=now, subtask=subtask, attempt=1)


def reconnected(subtask: int, now: float) -> AttemptReconnected:
    return AttemptReconnected(now=now, subtask=subtask, attempt=1)


def checked(now: float) -> ConnectionsChecked:
    return ConnectionsChecked(now=now)


def rested(now: float) -> SplitsRested:
    return SplitsRested(now=now)


def late(subtask: int, attempt: int) -> Reject:
    return Reject(subtask, attempt, f"attempt {attempt} of subtask {subtask} was lost or replaced")


FINISH_EARLY, JOB_ENDED = FinishEarlyRequested(now=0.0), JobEnded(now=0.0)
ONE_READS = (registered(0), requests(0))
"""Attempt 1 of subtask 0 reads the first split."""
TWO_READ = (*ONE_READS, registered(1), requests(1))
"""Subtask 1 reads the second one."""
THIRD_WAITS = (*TWO_READ, registered(2), requests(2))
REPLACED = (*ONE_READS, registered(0, 2))
LOST_TWICE = (*ONE_READS, lost(0), registered(0, 2), requests(0, 2), lost(0, 2))
"""Two attempts were lost while they read the first split; it rests for 2 seconds."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """After `given`, `event` leaves the round's splits at `then` and asks for `commands`.

    `offsets` is what the round may commit afterwards. The round begins with `splits`, some of them restored.
    """

    rule: str
    given: tuple[SplitsEvent, ...]
    event: SplitsEvent
    then: Mapping[str, Where] | Literal["illegal"]
    commands: tuple[SplitsCommand, ...] = ()
    offsets: Mapping[TableBucket, int] = field(default_factory=dict)
    splits: tuple[Split, ...] = (FIRST, SECOND)
    finished: Mapping[str, int] = field(default_factory=dict)
    withheld: Mapping[str, int] = field(default_factory=dict)
    begun: tuple[str, ...] = ()

    def machine(self) -> Splits:
        """Make the round."""
        return Splits(
            Enumeration(self.splits, {}, (), behind=False),
            self.finished,
            self.withheld,
            begun=self.begun,
            reconnect_s=5.0,
            retries=RetryPauses(2.0, 10.0),
        )


ROWS = (
    # --- who reads what ---
    Row(
        rule="an attempt gets nothing before it asks",
        given=(),
        event=registered(0),
        then={"first": "free", "second": "free"},
    ),
    Row(
        rule="an attempt that asks gets a split",
        given=(registered(0),),
        event=requests(0),
        then={"first": (0, 1), "second": "free"},
        commands=(Assign(0, 1, FIRST),),
    ),
    Row(
        rule="no split is read by two attempts at a time",
        given=(*ONE_READS, registered(1)),
        event=requests(1),
        then={"first": (0, 1), "second": (1, 1)},
        commands=(Assign(1, 1, SECOND),),
    ),
    Row(
        rule="an attempt that finds nothing free is not sent away while others read",
        given=(*TWO_READ, registered(2)),
        event=requests(2),
        then={"first": (0, 1), "second": (1, 1)},
    ),
    Row(
        rule="an attempt that never registered gets nothing",
        given=(),
        event=requests(0),
        then=ILLEGAL,
    ),
    Row(
        rule="what an attempt read that is lost goes to the one that waits",
        given=THIRD_WAITS,
        event=lost(0),
        then={"first": (2, 1), "second": (1, 1)},
        commands=(SplitsReturned((FIRST,)), Assign(2, 1, FIRST)),
    ),
    Row(
        rule="an attempt that waited can finish what it was given",
        given=(*THIRD_WAITS, lost(0)),
        event=done("first", 10, 2),
        then={"first": "finished", "second": (1, 1)},
        commands=(Accept("first"),),
        offsets={A: 10},
    ),
    Row(
        rule="an attempt that has finished its split gets the next one when it asks",
        given=(*ONE_READS, done("first", 10, 0)),
        event=requests(0),
        then={"first": "finished", "second": (0, 1)},
        commands=(Assign(0, 1, SECOND),),
        offsets={A: 10},
    ),
    # --- which results count ---
    Row(
        rule="a split that was read to its end is accepted, and its offset may be committed",
        given=ONE_READS,
        event=done("first", 10, 0),
        then={"first": "finished", "second": "free"},
        commands=(Accept("first"),),
        offsets={A: 10},
    ),
    Row(
        rule="no offset is committed beyond a split of the bucket that is not finished",
        given=TWO_READ,
        event=done("second", 20, 1),
        then={"first": (0, 1), "second": "finished"},
        commands=(Accept("second"),),
    ),
    Row(
        rule="a split that its attempt finishes a second time is neither accepted nor rejected again",
        given=(*ONE_READS, done("first", 10, 0)),
        event=done("first", 10, 0),
        then={"first": "finished", "second": "free"},
        offsets={A: 10},
    ),
    Row(
        rule="a finished split does not get another end",
        given=(*ONE_READS, done("first", 10, 0), FINISH_EARLY),
        event=done("first", 5, 0),
        then=ILLEGAL,
    ),
    Row(
        rule="an attempt cannot finish what another one reads",
        given=TWO_READ,
        event=done("first", 10, 1),
        then=ILLEGAL,
    ),
    Row(
        rule="a split that nobody was given cannot be finished",
        given=(registered(0),),
        event=done("first", 10, 0),
        then=ILLEGAL,
    ),
    Row(
        rule="a log split does not end before its stop while the round goes on",
        given=ONE_READS,
        event=done("first", 9, 0),
        then=ILLEGAL,
    ),
    Row(
        rule="no split ends beyond its stop",
        given=(*ONE_READS, FINISH_EARLY),
        event=done("first", 11, 0),
        then=ILLEGAL,
    ),
    Row(
        rule="a snapshot does not end before its log offset, even if the round finishes early",
        given=(*ONE_READS, FINISH_EARLY),
        event=done("snapshot", 69, 0),
        then=ILLEGAL,
        splits=(SNAPSHOT,),
    ),
    Row(
        rule="only a live snapshot may stand for later records as well",
        given=ONE_READS,
        event=done("snapshot", 71, 0),
        then=ILLEGAL,
        splits=(SNAPSHOT,),
    ),
    Row(
        rule="a live snapshot ends where it was taken",
        given=ONE_READS,
        event=done("snapshot", 71, 0),
        then={"snapshot": "finished"},
        commands=(Accept("snapshot"), AllDone(incomplete=False)),
        offsets={B: 71},
        splits=(LIVE,),
    ),
    Row(
        rule="an accepted result stays accepted although its attempt is lost",
        given=(*ONE_READS, done("first", 10, 0)),
        event=lost(0),
        then={"first": "finished", "second": "free"},
        offsets={A: 10},
    ),
    # --- older attempts ---
    Row(
        rule="a newer attempt replaces the older one of its subtask, whose splits are returned",
        given=ONE_READS,
        event=registered(0, 2),
        then={"first": "free", "second": "free"},
        commands=(SplitsReturned((FIRST,)), Reject(0, 1, "replaced by attempt 2")),
    ),
    Row(
        rule="a finish of a replaced attempt is rejected",
        given=REPLACED,
        event=done("first", 10, 0),
        then={"first": "free", "second": "free"},
        commands=(late(0, 1),),
    ),
    Row(
        rule="a finish of a replaced attempt does not count for its successor that reads the same split",
        given=(*REPLACED, requests(0, 2)),
        event=done("first", 10, 0),
        then={"first": (0, 2), "second": "free"},
        commands=(late(0, 1),),
    ),
    Row(
        rule="the files of an accepted result are not rejected when its replaced attempt repeats it",
        given=(*ONE_READS, done("first", 10, 0), registered(0, 2)),
        event=done("first", 10, 0),
        then={"first": "finished", "second": "free"},
        offsets={A: 10},
    ),
    Row(
        rule="a replaced attempt gets no split",
        given=REPLACED,
        event=requests(0),
        then={"first": "free", "second": "free"},
        commands=(late(0, 1),),
    ),
    Row(
        rule="an attempt that was replaced before it had asked gets no split either",
        given=(registered(0), registered(0, 2)),
        event=requests(0),
        then={"first": "free", "second": "free"},
        commands=(late(0, 1),),
    ),
    Row(
        rule="an attempt that was lost gets no split",
        given=(registered(0), lost(0)),
        event=requests(0),
        then={"first": "free", "second": "free"},
        commands=(late(0, 1),),
    ),
    Row(
        rule="the loss of a replaced attempt takes nothing from its successor",
        given=(*REPLACED, requests(0, 2)),
        event=lost(0),
        then={"first": (0, 2), "second": "free"},
    ),
    Row(
        rule="an older attempt that registers late replaces nobody",
        given=(registered(0, 2), requests(0, 2)),
        event=registered(0, 1),
        then={"first": (0, 2), "second": "free"},
        commands=(late(0, 1),),
    ),
    Row(
        rule="an attempt that registers again keeps what it reads",
        given=ONE_READS,
        event=registered(0),
        then={"first": (0, 1), "second": "free"},
    ),
    Row(
        rule="a finish after its job has ended is rejected",
        given=(*ONE_READS, JOB_ENDED),
        event=done("first", 10, 0),
        then={"first": "free", "second": "free"},
        commands=(late(0, 1),),
    ),
    Row(
        rule="the end of a job returns what its attempts read",
        given=TWO_READ,
        event=JOB_ENDED,
        then={"first": "free", "second": "free"},
        commands=(SplitsReturned((FIRST, SECOND)),),
    ),
    Row(
        rule="what the end of a job has returned is read by the attempts of the next one",
        given=(*TWO_READ, JOB_ENDED, registered(2)),
        event=requests(2),
        then={"first": (2, 1), "second": "free"},
        commands=(Assign(2, 1, FIRST),),
    ),
    # --- connections ---
    Row(
        rule="a connection that closes takes nothing from its attempt",
        given=ONE_READS,
        event=disconnected(0, 0.0),
        then={"first": (0, 1), "second": "free"},
    ),
    Row(
        rule="an attempt that has reconnected is not given up",
        given=(*ONE_READS, disconnected(0, 0.0), reconnected(0, 4.0)),
        event=checked(5.0),
        then={"first": (0, 1), "second": "free"},
    ),
    Row(
        rule="an attempt whose connection closes a second time has as long as the first time to reconnect",
        given=(*ONE_READS, disconnected(0, 0.0), reconnected(0, 4.0), disconnected(0, 10.0)),
        event=checked(15.0),
        then={"first": (0, 1), "second": "free"},
        commands=(GiveUp(((0, 1),)),),
    ),
    Row(
        rule="an attempt that does not reconnect in time is given up, and keeps its split until it is lost",
        given=(*ONE_READS, disconnected(0, 0.0)),
        event=checked(5.0),
        then={"first": (0, 1), "second": "free"},
        commands=(GiveUp(((0, 1),)),),
    ),
    Row(
        rule="attempts whose connections closed within a moment are given up together",
        given=(*TWO_READ, disconnected(0, 0.0), disconnected(1, 1.0)),
        event=checked(5.0),
        then={"first": (0, 1), "second": (1, 1)},
        commands=(GiveUp(((0, 1), (1, 1))),),
    ),
    Row(
        rule="an attempt whose connection closed later keeps its time to reconnect",
        given=(*TWO_READ, disconnected(0, 0.0), disconnected(1, 1.5)),
        event=checked(5.0),
        then={"first": (0, 1), "second": (1, 1)},
        commands=(GiveUp(((0, 1),)),),
    ),
    Row(
        rule="an attempt is given up once",
        given=(*ONE_READS, disconnected(0, 0.0), checked(5.0), reconnected(0, 6.0), disconnected(0, 7.0)),
        event=checked(20.0),
        then={"first": (0, 1), "second": "free"},
    ),
    # --- splits that fail ---
    Row(
        rule="a split that was lost twice rests while others are read",
        given=(*LOST_TWICE, registered(1)),
        event=requests(1),
        then={"first": "free", "second": (1, 1)},
        commands=(Assign(1, 1, SECOND),),
    ),
    Row(
        rule="a split is not tried again before it has rested",
        given=(*LOST_TWICE, *TWO_READ[2:], registered(2), requests(2)),
        event=rested(1.9),
        then={"first": "free", "second": (1, 1)},
    ),
    Row(
        rule="a split that has rested goes to the attempt that waits",
        given=(*LOST_TWICE, *TWO_READ[2:], registered(2), requests(2)),
        event=rested(2.0),
        then={"first": (2, 1), "second": (1, 1)},
        commands=(Assign(2, 1, FIRST),),
    ),
    Row(
        rule="no split rests beyond the end of its job",
        given=(*LOST_TWICE, JOB_ENDED, registered(1)),
        event=requests(1),
        then={"first": (1, 1), "second": "free"},
        commands=(Assign(1, 1, FIRST),),
    ),
    # --- early finishes ---
    Row(
        rule="a round that finishes early leaves out what is not started, and tells who reads",
        given=ONE_READS,
        event=FINISH_EARLY,
        then={"first": (0, 1), "second": "skipped"},
        commands=(SendFinishEarly(0, 1),),
    ),
    Row(
        rule="a second request to finish early changes nothing",
        given=(*ONE_READS, FINISH_EARLY),
        event=FINISH_EARLY,
        then={"first": (0, 1), "second": "skipped"},
    ),
    Row(
        rule="a round that finishes early commits what a log split has read so far, and is not complete",
        given=(*ONE_READS, FINISH_EARLY),
        event=done("first", 5, 0),
        then={"first": "finished", "second": "skipped"},
        commands=(Accept("first"), AllDone(incomplete=True)),
        offsets={A: 5},
    ),
    Row(
        rule="nothing is committed that lies behind a split that was stopped",
        given=(*TWO_READ, FINISH_EARLY, done("second", 20, 1)),
        event=done("first", 5, 0),
        then={"first": "finished", "second": "finished"},
        commands=(Accept("first"), AllDone(incomplete=True)),
        offsets={A: 5},
    ),
    Row(
        rule="a split that is returned while the round finishes early is left out and not read again",
        given=(*TWO_READ, FINISH_EARLY),
        event=lost(0),
        then={"first": "skipped", "second": (1, 1)},
    ),
    # --- restored rounds ---
    Row(
        rule="a restored split whose result was accepted is not read again",
        given=(registered(0),),
        event=requests(0),
        then={"first": "finished", "second": (0, 1)},
        commands=(Assign(0, 1, SECOND),),
        offsets={A: 10},
        finished={"first": 10},
    ),
    Row(
        rule="a split whose result is withheld is not read again",
        given=(registered(0),),
        event=requests(0),
        then={"first": "withheld", "second": (0, 1)},
        commands=(Assign(0, 1, SECOND),),
        withheld={"first": 10},
    ),
    Row(
        rule="a withheld result counts only once it was sent again",
        given=(registered(0, 1, "first"),),
        event=done("first", 10, 0),
        then={"first": "finished", "second": "free"},
        commands=(Accept("first"),),
        offsets={A: 10},
        withheld={"first": 10},
    ),
    Row(
        rule="a withheld result whose attempt is lost counts as it was restored, and is not read anew",
        given=(registered(0, 1, "first"),),
        event=lost(0),
        then={"first": "finished", "second": "free"},
        commands=(AcceptRestored("first"),),
        offsets={A: 10},
        withheld={"first": 10},
    ),
    Row(
        rule="who waits for a withheld result is sent away once its attempt is lost",
        given=(registered(0, 1, "first"), registered(1), requests(1), done("second", 20, 1), requests(1)),
        event=lost(0),
        then={"first": "finished", "second": "finished"},
        commands=(AcceptRestored("first"), NoMore(1, 1), AllDone(incomplete=False)),
        offsets={A: 20},
        withheld={"first": 10},
    ),
    Row(
        rule="a live snapshot whose withheld result is never sent again ends where it had ended",
        given=(registered(0, 1, "snapshot"),),
        event=lost(0),
        then={"snapshot": "finished"},
        commands=(AcceptRestored("snapshot"), AllDone(incomplete=False)),
        offsets={B: 75},
        splits=(LIVE,),
        withheld={"snapshot": 75},
    ),
    Row(
        rule="an attempt that was lost before it sent a withheld result again does not count when it does",
        given=(registered(0, 1, "first"), lost(0)),
        event=done("first", 10, 0),
        then={"first": "finished", "second": "free"},
        commands=(late(0, 1),),
        offsets={A: 10},
        withheld={"first": 10},
    ),
    Row(
        rule="a withheld result is waited for although the round finishes early",
        given=(),
        event=FINISH_EARLY,
        then={"first": "withheld", "second": "skipped"},
        withheld={"first": 10},
    ),
    Row(
        rule="no attempt sends the result again of a split that is not withheld",
        given=(),
        event=registered(0, 1, "second"),
        then=ILLEGAL,
        withheld={"first": 10},
    ),
    Row(
        rule="a split that had begun before a restore is read although the round finishes early",
        given=(FINISH_EARLY, registered(0)),
        event=requests(0),
        then={"first": (0, 1), "second": "skipped"},
        commands=(Assign(0, 1, FIRST),),
        begun=("first",),
    ),
    # --- the end ---
    Row(
        rule="who waits is sent away once everything is finished, and not before",
        given=(*THIRD_WAITS, done("first", 10, 0)),
        event=done("second", 20, 1),
        then={"first": "finished", "second": "finished"},
        commands=(Accept("second"), NoMore(2, 1), AllDone(incomplete=False)),
        offsets={A: 20},
    ),
    Row(
        rule="an attempt that asks again after the end is sent away again",
        given=(*THIRD_WAITS, done("first", 10, 0), done("second", 20, 1)),
        event=requests(2),
        then={"first": "finished", "second": "finished"},
        commands=(NoMore(2, 1),),
        offsets={A: 20},
    ),
    Row(
        rule="the round's end is told once",
        given=(*TWO_READ, done("first", 10, 0), done("second", 20, 1)),
        event=lost(0),
        then={"first": "finished", "second": "finished"},
        offsets={A: 20},
    ),
)


def where(machine: Splits, splits: tuple[Split, ...]) -> dict[str, Where]:
    """Return where each split stands, as far as the machine shows it."""
    unfinished = {split.split_id for split in machine.unfinished}
    found: dict[str, Where] = {}
    for split in splits:
        if split.split_id in machine.skipped:
            found[split.split_id] = "skipped"
        elif split.split_id in machine.withheld:
            found[split.split_id] = "withheld"
        else:
            found[split.split_id] = "free" if split.split_id in unfinished else "finished"
    for attempt in [(subtask, number) for subtask in range(3) for number in (1, 2)]:
        for split in machine.held_by(*attempt):
            assert found[split.split_id] == "free", "two states of one split"
            found[split.split_id] = attempt
    return found


def seen(machine: Splits, splits: tuple[Split, ...]) -> object:
    """Everything that the machine shows."""
    return (
        where(machine, splits),
        machine.offsets(),
        machine.committable(),
        machine.frontier(),
        (machine.done, machine.finishing_early, machine.incomplete),
        (machine.reconnect_by, machine.rested_by),
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_rule_holds(row: Row) -> None:
    machine = row.machine()
    for event in row.given:
        machine.step(event)

    if row.then == ILLEGAL:
        before = seen(machine, row.splits)
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
        assert seen(machine, row.splits) == before
    else:
        assert machine.step(row.event) == row.commands
        assert (where(machine, row.splits), machine.offsets()) == (row.then, row.offsets)
