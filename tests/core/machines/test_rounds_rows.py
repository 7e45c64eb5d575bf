"""The rules of the machine `rounds`, written by hand, one row each.

They are those of its pages (docs/explanation/exactly-once.md, machines.md) and of its module's prose, not of the
machine's own table: a wrong row there agrees with itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import pytest
from msgspec import structs

from lakeward.errors import IllegalEventError
from lakeward.machines.rounds import (
    AcquireLeases,
    CommitRound,
    Committed,
    Drained,
    EndRound,
    FinishRoundEarly,
    Forget,
    HeartbeatAnswered,
    HeartbeatFailed,
    JobStarted,
    LaunchJob,
    Leased,
    Opened,
    OpenRound,
    PauseRequested,
    Phase,
    Resumed,
    ResumeRequested,
    RoundFailed,
    RoundFenced,
    Rounds,
    RoundsCommand,
    RoundsEvent,
    SendHeartbeat,
    SnapshotsGone,
    SplitsFailing,
    Stopped,
    StopRequested,
    StopTimedOut,
    TableGone,
    Tick,
)
from lakeward.model.settings import ServiceSettings
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = ServiceSettings(
    rounds=1, renew_s=20.0, fence_s=45.0, max_round_s=600.0, yield_s=60.0, backoff_first_s=1.0, poll_s=1.0
)
SEVEN = TableAssignment(TablePath("db", "t7"), 7, 1, 0, freshness_s=30.0)
EIGHT = TableAssignment(TablePath("db", "t8"), 8, 1, 0, freshness_s=40.0)
SEVEN_AGAIN = replace(SEVEN, epoch=2)
EPOCH_7, EPOCH_8, EPOCH_7_AGAIN = TableEpoch(7, 1, 0), TableEpoch(8, 1, 0), TableEpoch(7, 2, 0)
BEAT = HeartbeatRequest(renewed=(EPOCH_7,), request=True)
BEAT_OF_TWO = HeartbeatRequest(renewed=(EPOCH_7, EPOCH_8), request=True)
GIVE_BACK = HeartbeatRequest(failed=(EPOCH_7,))
ILLEGAL: Literal["illegal"] = "illegal"


def resumed(*assignments: TableAssignment) -> Resumed:
    return Resumed(now=0.0, assignments=assignments)


def tick(now: float = 0.0) -> Tick:
    return Tick(now=now)


def answered(
    request: HeartbeatRequest,
    now: float = 0.0,
    *,
    gives: TableAssignment | None = None,
    refuses: Refusal | None = None,
) -> HeartbeatAnswered:
    """The source answers; what it refuses is table 7."""
    refused = {} if refuses is None else {7: refuses}
    return HeartbeatAnswered(now=now, request=request, response=HeartbeatResponse(0, gives, refused))


def unanswered(now: float) -> HeartbeatFailed:
    return HeartbeatFailed(now=now, cause="no answer")


def opened(splits: int = 1, *, leases: bool = False) -> Opened:
    return Opened(now=0.0, table_id=7, splits=splits, leases=leases)


def drained(now: float, failing: str = "") -> Drained:
    return Drained(now=now, table_id=7, finished_early=bool(failing), failing=failing)


def committed(now: float, table_id: int = 7, *, caught_up: bool = True) -> Committed:
    return Committed(now=now, table_id=table_id, caught_up=caught_up)


def failed(*, now: float = 0.0, permanent: bool = False) -> RoundFailed:
    return RoundFailed(now=now, table_id=7, reason="the disk is full", permanent=permanent)


def fenced(now: float, *, lost: bool) -> RoundFenced:
    return RoundFenced(now=now, table_id=7, reason="another stamp", lost=lost)


def stop(now: float = 0.0) -> StopRequested:
    return StopRequested(now=now)


def timed_out(now: float = 0.0) -> StopTimedOut:
    return StopTimedOut(now=now)


GONE = SnapshotsGone(now=0.0, table_id=7, reason="cleaned up")
PAUSE, RESUME = PauseRequested(now=44.0, path=SEVEN.path), ResumeRequested(now=44.0, path=SEVEN.path)
OPENING = (resumed(SEVEN), tick())
"""Table 7, renewed at 0. The heartbeat `BEAT` was sent at 0 and stays under way unless a row answers it."""
LEASING = (*OPENING, opened(leases=True))
RUNNING = (*OPENING, opened(), JobStarted(now=0.0, table_id=7))
COMMITTING = (*RUNNING, drained(44.0))
RESTING = (*COMMITTING, answered(BEAT, 44.0), answered(BEAT, 44.0))
"""The same, renewed at 44; no heartbeat is under way."""
SETTLING = (*RUNNING, drained(45.0))
RENEWING = (*SETTLING, answered(BEAT, 46.0))
"""The next heartbeat was sent at 46."""
BEHIND = (
    resumed(SEVEN, EIGHT),
    tick(),
    opened(),
    JobStarted(now=0.0, table_id=7),
)
"""Table 8 waits behind the round of table 7."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """After `given`, `event` leads to the phases `then` of all assigned tables, and asks for `commands`."""

    rule: str
    given: tuple[RoundsEvent, ...]
    event: RoundsEvent
    then: Mapping[int, Phase] | Literal["illegal"]
    commands: tuple[RoundsCommand, ...] = ()


ROWS = (
    # --- which table comes next ---
    Row(
        rule="nothing is opened and nothing sent before the first tick",
        given=(),
        event=resumed(SEVEN),
        then={7: Phase.WAITING},
    ),
    Row(
        rule="the table nearest to breaking its promise is opened first, and every table is renewed",
        given=(resumed(EIGHT, SEVEN),),
        event=tick(),
        then={7: Phase.OPENING, 8: Phase.WAITING},
        commands=(OpenRound(SEVEN, 1), SendHeartbeat(BEAT_OF_TWO)),
    ),
    Row(
        rule="a table that fails makes room, and waits: it does not hold another one up",
        given=BEHIND,
        event=failed(),
        then={7: Phase.BACKOFF, 8: Phase.OPENING},
        commands=(EndRound(7, "failed", "the disk is full"), OpenRound(EIGHT, 1)),
    ),
    Row(
        rule="a round that commits leaves its place to another table",
        given=BEHIND,
        event=drained(44.0),
        then={7: Phase.COMMITTING, 8: Phase.OPENING},
        commands=(CommitRound(7), OpenRound(EIGHT, 1)),
    ),
    Row(
        rule="a round makes no room for a late table before it has run for the time to yield",
        given=BEHIND,
        event=tick(59.0),
        then={7: Phase.RUNNING, 8: Phase.WAITING},
    ),
    Row(
        rule="a round makes room for a late table after the time to yield",
        given=BEHIND,
        event=tick(60.0),
        then={7: Phase.RUNNING, 8: Phase.WAITING},
        commands=(FinishRoundEarly(7, "a table that is late waits"),),
    ),
    Row(
        rule="a round whose splits fail makes room for a table that does not fail at once",
        given=BEHIND,
        event=SplitsFailing(now=1.0, table_id=7, failing=True),
        then={7: Phase.RUNNING, 8: Phase.WAITING},
        commands=(FinishRoundEarly(7, "its splits fail, and another table waits"),),
    ),
    Row(
        rule="the longest duration of a round does not count while it waits for Spark",
        given=(*OPENING, opened()),
        event=tick(700.0),
        then={7: Phase.RUNNING},
    ),
    Row(
        rule="a round that has run for its longest duration finishes early",
        given=RUNNING,
        event=tick(600.0),
        then={7: Phase.RUNNING},
        commands=(FinishRoundEarly(7, "the maximum duration is over"),),
    ),
    # --- a round ---
    Row(
        rule="no job is launched before the round's snapshots are leased",
        given=OPENING,
        event=opened(leases=True),
        then={7: Phase.LEASING},
        commands=(AcquireLeases(7),),
    ),
    Row(
        rule="a job is launched once all snapshots are leased",
        given=LEASING,
        event=Leased(now=0.0, table_id=7),
        then={7: Phase.RUNNING},
        commands=(LaunchJob(7),),
    ),
    Row(
        rule="a table without new rows is reported without a job or a commit",
        given=OPENING,
        event=opened(splits=0),
        then={7: Phase.REPORTING},
        commands=(EndRound(7, "idle"),),
    ),
    Row(
        rule="snapshots that vanished before their lease are enumerated again, as the same try",
        given=LEASING,
        event=GONE,
        then={7: Phase.OPENING},
        commands=(EndRound(7, "stale", "cleaned up"), OpenRound(SEVEN, 1)),
    ),
    Row(
        rule="snapshots of the round before that vanish once more end no second round",
        given=(*LEASING, GONE),
        event=GONE,
        then={7: Phase.OPENING},
    ),
    Row(
        rule="the end of a round's splits is not taken for that of the round after it",
        given=(*RUNNING, GONE),
        event=drained(1.0),
        then={7: Phase.OPENING},
    ),
    # --- the fence ---
    Row(
        rule="a commit starts at once within the fence time after the last renewal",
        given=RUNNING,
        event=drained(44.0),
        then={7: Phase.COMMITTING},
        commands=(CommitRound(7),),
    ),
    Row(
        rule="no commit starts once the fence time after the last renewal is over",
        given=RUNNING,
        event=drained(45.0),
        then={7: Phase.SETTLING},
    ),
    Row(
        rule="a renewal counts from when its heartbeat was sent, not from its answer",
        given=SETTLING,
        event=answered(BEAT, 46.0),
        then={7: Phase.SETTLING},
        commands=(SendHeartbeat(BEAT),),
    ),
    Row(
        rule="a commit starts with the renewal that it waited for",
        given=RENEWING,
        event=answered(BEAT, 47.0),
        then={7: Phase.COMMITTING},
        commands=(CommitRound(7),),
    ),
    Row(
        rule="a heartbeat without an answer renews nothing and lets no commit start",
        given=RENEWING,
        event=unanswered(47.0),
        then={7: Phase.SETTLING},
    ),
    Row(
        rule="a table whose heartbeat was refused is not committed but forgotten, without a report",
        given=RENEWING,
        event=answered(BEAT, 47.0, refuses=Refusal.FENCED),
        then={},
        commands=(EndRound(7, "fenced", "the source refused to renew it: fenced"), Forget(7, "fenced")),
    ),
    Row(
        rule="a refusal ends a round that commits already",
        given=COMMITTING,
        event=answered(BEAT, 44.0, refuses=Refusal.NOT_TIERING),
        then={},
        commands=(EndRound(7, "fenced", "the source refused to renew it: not_tiering"), Forget(7, "not_tiering")),
    ),
    Row(
        rule="a refusal of an epoch does not concern the epoch after it",
        given=(*RUNNING, resumed(SEVEN_AGAIN)),
        event=answered(BEAT, 0.0, refuses=Refusal.FENCED),
        then={7: Phase.OPENING},
    ),
    Row(
        rule="a table that another service has stamped is left to it, without a report",
        given=COMMITTING,
        event=fenced(44.0, lost=True),
        then={},
        commands=(EndRound(7, "fenced", "another stamp"), Forget(7, "fenced")),
    ),
    Row(
        rule="a round on another base commit fails, and its table stays",
        given=COMMITTING,
        event=fenced(44.0, lost=False),
        then={7: Phase.BACKOFF},
        commands=(EndRound(7, "failed", "another stamp"),),
    ),
    Row(
        rule="a newer epoch ends the round under the older one, and releases and deletes nothing of it",
        given=RUNNING,
        event=answered(BEAT, gives=SEVEN_AGAIN),
        then={7: Phase.OPENING},
        commands=(
            EndRound(7, "fenced", "assigned again under epoch 2"),
            OpenRound(SEVEN_AGAIN, 2),
            SendHeartbeat(HeartbeatRequest(renewed=(EPOCH_7_AGAIN,), request=True)),
        ),
    ),
    Row(
        rule="an epoch that is assigned a second time changes nothing of its round",
        given=RUNNING,
        event=answered(BEAT, gives=SEVEN),
        then={7: Phase.RUNNING},
        commands=(SendHeartbeat(BEAT),),
    ),
    Row(
        rule="a table that was dropped is forgotten with its round",
        given=RUNNING,
        event=TableGone(now=0.0, table_id=7),
        then={},
        commands=(EndRound(7, "dropped", "the table was dropped"), Forget(7, "dropped")),
    ),
    Row(
        rule="a newer epoch ends the commit under the older one as well",
        given=COMMITTING,
        event=structs.replace(resumed(SEVEN_AGAIN), now=44.0),
        then={7: Phase.OPENING},
        commands=(EndRound(7, "fenced", "assigned again under epoch 2"), OpenRound(SEVEN_AGAIN, 2)),
    ),
    # --- how a round ends ---
    Row(
        rule="what is committed is reported as finished with the next heartbeat",
        given=RESTING,
        event=committed(44.5),
        then={7: Phase.REPORTING},
        commands=(EndRound(7, "committed"), SendHeartbeat(HeartbeatRequest(finished=(EPOCH_7,), request=True))),
    ),
    Row(
        rule="a table leaves the service once its report has arrived",
        given=(*RESTING, committed(44.0)),
        event=answered(HeartbeatRequest(finished=(EPOCH_7,), request=True), 44.0),
        then={},
        commands=(Forget(7, "finished"),),
    ),
    Row(
        rule="a report that was not answered is kept, for it is sent again",
        given=(*RESTING, committed(44.0)),
        event=unanswered(44.0),
        then={7: Phase.REPORTING},
    ),
    Row(
        rule="a table with more rows is reported so that it is assigned again at once",
        given=RESTING,
        event=committed(44.5, caught_up=False),
        then={7: Phase.REPORTING},
        commands=(
            EndRound(7, "committed"),
            SendHeartbeat(HeartbeatRequest(finished=(EPOCH_7,), forced=frozenset({7}), request=True)),
        ),
    ),
    Row(
        rule="a round that left out splits that failed has failed, though the rest is committed",
        given=(*RUNNING, drained(44.0, failing="no space")),
        event=committed(44.5),
        then={7: Phase.BACKOFF},
        commands=(EndRound(7, "committed", "no space"),),
    ),
    Row(
        rule="a table that failed is not tried before its pause is over",
        given=(*RUNNING, failed()),
        event=tick(0.9),
        then={7: Phase.BACKOFF},
    ),
    Row(
        rule="a table that failed is tried again after its pause, as the next try",
        given=(*RUNNING, failed()),
        event=tick(1.0),
        then={7: Phase.OPENING},
        commands=(OpenRound(SEVEN, 2),),
    ),
    Row(
        rule="a table that failed for good waits for a person",
        given=RUNNING,
        event=failed(permanent=True),
        then={7: Phase.SUSPENDED},
        commands=(EndRound(7, "failed", "the disk is full", "the disk is full"),),
    ),
    Row(
        rule="a suspended table stays assigned: it is renewed and not reported",
        given=(*RUNNING, failed(permanent=True), answered(BEAT)),
        event=tick(1.0),
        then={7: Phase.SUSPENDED},
        commands=(SendHeartbeat(BEAT),),
    ),
    Row(
        rule="a late answer about a round that has ended changes nothing",
        given=(*RUNNING, failed()),
        event=committed(0.0),
        then={7: Phase.BACKOFF},
    ),
    Row(
        rule="an answer about a table that is not assigned changes nothing",
        given=RUNNING,
        event=committed(0.0, table_id=9),
        then={7: Phase.RUNNING},
    ),
    Row(
        rule="a round whose job still runs cannot have committed",
        given=RUNNING,
        event=committed(0.0),
        then=ILLEGAL,
    ),
    # --- pauses ---
    Row(
        rule="a running round of a paused table finishes early instead of being cut off",
        given=RUNNING,
        event=structs.replace(PAUSE, now=0.0),
        then={7: Phase.RUNNING},
        commands=(FinishRoundEarly(7, "paused"),),
    ),
    Row(
        rule="a paused table is not reported once its round is committed, for it would be assigned again",
        given=(*COMMITTING, PAUSE),
        event=committed(44.5),
        then={7: Phase.PAUSED},
        commands=(EndRound(7, "committed"),),
    ),
    Row(
        rule="a pause of a table that is not assigned holds once it is",
        given=(structs.replace(PAUSE, now=0.0),),
        event=resumed(SEVEN),
        then={7: Phase.PAUSED},
    ),
    Row(
        rule="a paused table is opened again only when a person resumes it",
        given=(*COMMITTING, PAUSE, committed(44.0)),
        event=RESUME,
        then={7: Phase.OPENING},
        commands=(OpenRound(SEVEN, 1),),
    ),
    # --- stops ---
    Row(
        rule="a stop lets a running round finish early instead of failing it",
        given=RUNNING,
        event=stop(),
        then={7: Phase.RUNNING},
        commands=(FinishRoundEarly(7, "the service stops"),),
    ),
    Row(
        rule="a running round is given up when a stop times out",
        given=(*RUNNING, stop()),
        event=timed_out(30.0),
        then={7: Phase.RETURNING},
        commands=(EndRound(7, "stopped", "the service stops"),),
    ),
    Row(
        rule="a round that has not launched its job is given up at once by a stop",
        given=LEASING,
        event=stop(),
        then={7: Phase.RETURNING},
        commands=(EndRound(7, "stopped", "the service stops"),),
    ),
    Row(
        rule="a lease that comes after a stop launches no job",
        given=(*LEASING, stop()),
        event=Leased(now=0.0, table_id=7),
        then={7: Phase.RETURNING},
    ),
    Row(
        rule="a round that ends after a stop makes room for no other one",
        given=(*BEHIND, stop()),
        event=failed(),
        then={7: Phase.RETURNING, 8: Phase.RETURNING},
        commands=(EndRound(7, "failed", "the disk is full"),),
    ),
    Row(
        rule="a table that is assigned after a stop is given back",
        given=(*OPENING, stop()),
        event=answered(BEAT, gives=EIGHT),
        then={7: Phase.RETURNING, 8: Phase.RETURNING},
        commands=(SendHeartbeat(HeartbeatRequest(failed=(EPOCH_7, EPOCH_8))),),
    ),
    Row(
        rule="a commit that is under way when a stop times out is not given up: its outcome may be unknown",
        given=(*COMMITTING, stop(44.0)),
        event=timed_out(44.0),
        then={7: Phase.COMMITTING},
    ),
    Row(
        rule="a commit is given up when a stop times out the second time",
        given=(*COMMITTING, stop(44.0), timed_out(44.0)),
        event=timed_out(45.0),
        then={7: Phase.RETURNING},
        commands=(EndRound(7, "stopped", "the service stops"),),
    ),
    Row(
        rule="a round that waits for its renewal is given up when a stop times out, and not committed",
        given=(*RENEWING, stop(46.0), timed_out(46.0)),
        event=answered(BEAT, 46.5),
        then={7: Phase.RETURNING},
        commands=(SendHeartbeat(GIVE_BACK),),
    ),
    Row(
        rule="a commit that ends after a stop is reported as finished, not as failed",
        given=(*RESTING, stop(44.0), timed_out(44.0)),
        event=committed(44.5, caught_up=False),
        then={7: Phase.REPORTING},
        commands=(EndRound(7, "committed"), SendHeartbeat(HeartbeatRequest(finished=(EPOCH_7,)))),
    ),
    Row(
        rule="the service has not stopped before its tables are given back",
        given=(*OPENING, stop()),
        event=answered(BEAT),
        then={7: Phase.RETURNING},
        commands=(SendHeartbeat(GIVE_BACK),),
    ),
    Row(
        rule="the service has stopped once its last report was answered",
        given=(*OPENING, stop(), answered(BEAT)),
        event=answered(GIVE_BACK),
        then={},
        commands=(Forget(7, "returned"), Stopped()),
    ),
    Row(
        rule="a service that has stopped takes no table",
        given=(*OPENING, stop(), answered(BEAT), answered(GIVE_BACK)),
        event=resumed(EIGHT),
        then=ILLEGAL,
    ),
    Row(
        rule="a report that fails once is sent again although the service stops",
        given=(*OPENING, stop(), answered(BEAT), unanswered(0.0)),
        event=tick(1.0),
        then={7: Phase.RETURNING},
        commands=(SendHeartbeat(GIVE_BACK),),
    ),
    Row(
        rule="a report that fails twice does not keep the service from stopping",
        given=(*OPENING, stop(), answered(BEAT), unanswered(0.0), tick(1.0)),
        event=unanswered(1.0),
        then={},
        commands=(Forget(7, "not reported: no answer"), Stopped()),
    ),
    Row(
        rule="a stop that nobody asked for cannot time out",
        given=RUNNING,
        event=timed_out(),
        then=ILLEGAL,
    ),
    # --- heartbeats ---
    Row(
        rule="one heartbeat is open at a time, however long it takes",
        given=RUNNING,
        event=tick(100.0),
        then={7: Phase.RUNNING},
    ),
    Row(
        rule="an answer to another heartbeat than the open one is illegal",
        given=RUNNING,
        event=answered(BEAT_OF_TWO),
        then=ILLEGAL,
    ),
    Row(
        rule="a second answer to a heartbeat is illegal",
        given=(*RUNNING, answered(BEAT)),
        event=answered(BEAT),
        then=ILLEGAL,
    ),
)


def seen(machine: Rounds) -> object:
    """Everything that the machine shows."""
    return (machine.tables, machine.queue, machine.next_due, machine.stopping)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_rule_holds(row: Row) -> None:
    machine = Rounds(SETTINGS)
    for event in row.given:
        machine.step(event)

    if row.then == ILLEGAL:
        before = seen(machine)
        with pytest.raises(IllegalEventError):
            machine.step(row.event)
        assert seen(machine) == before
    else:
        assert machine.step(row.event) == row.commands
        assert {table.assignment.table_id: table.phase for table in machine.tables} == row.then
