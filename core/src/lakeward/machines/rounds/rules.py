"""The machine of all tables: which table is tiered next, and the phases of each round.

Rules
* One heartbeat is open at a time. It renews every assigned table, whatever its phase: a table that failed or is
  paused stays assigned and waits out its back-off, for the source assigns one reported as failed again at once.
* Of the waiting tables, the one nearest to breaking its promised freshness is opened first. While one waits that has
  broken it, a round that has run for `yield_s` finishes early: no table waits behind the long round of another one.
* A round whose splits fail again and again finishes early as soon as a table waits whose last round did not fail, and
  a table that failed waits behind those that were due before its pause was over. A round that leaves out splits that
  failed has failed, also if the rest of it was committed.
* A commit needs a renewal younger than the fence time; otherwise the table waits (SETTLING) for the next heartbeat.
  A renewal counts from when its heartbeat was sent.
* A table that the source refuses is forgotten at once and never reported.
* A failing table never affects another one. One that keeps failing while others are served is suspended; as long as
  no other table is served either, the cause is not the table, and it is tried again for as long as that lasts.
* A round that commits, or waits to, leaves its place to another one, up to `COMMITS_MOST` of them.
* Each step ends with what a `Tick` would do, so that nothing that is already due waits for the next tick.

An event goes to the service first (`RULES`), from there to the heartbeat or to the tables that it concerns. An answer
about a round (`Opened` ... `RoundFenced`) can be late: it is ignored wherever the table has no round. Where the table
has one, an answer that this round cannot give is illegal, with two exceptions that reach the next round after
`SnapshotsGone` opened the table again: a second `SnapshotsGone`, and `Drained` of the round that was ended.
`SnapshotsGone` after everything was read is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lakeward.machines.machine import Rule, Rules
from lakeward.machines.rounds import messages as m
from lakeward.machines.rounds.state import (
    REPORTED,
    HeartbeatPhase,
    RoundsState,
    SentHeartbeat,
    ServicePhase,
    Target,
    TieringTable,
)
from lakeward.machines.rounds.table_rules import TABLE_RULES, to_table
from lakeward.model.backoff import backoff_s

if TYPE_CHECKING:
    from collections.abc import Callable

    Row = Rule[RoundsState, m.RoundsCommand]

Event = TypeVar("Event")
Commands = tuple[m.RoundsCommand, ...]

# --- the heartbeat --------------------------------------------------------------------------------------------------


def is_due(rounds: RoundsState, event: m.Tick) -> bool:
    """A heartbeat is due, and none is open."""
    due = rounds.heartbeat_due()
    return due is not None and due <= event.now


def is_of_sent(rounds: RoundsState, event: m.HeartbeatAnswered) -> bool:
    """The answer is one to the heartbeat that was sent."""
    return rounds.sent is not None and rounds.sent.request == event.request


def send_heartbeat(rounds: RoundsState, event: m.Tick) -> Commands:
    """Renew, report and request."""
    rounds.sent = SentHeartbeat(rounds.compose_heartbeat(), event.now)
    return (m.SendHeartbeat(rounds.sent.request),)


def take_answer(rounds: RoundsState, event: m.HeartbeatAnswered) -> Commands:
    """Forget reported and refused tables, renew the others, and add the table that was assigned."""
    sent_at, now, response = _close_heartbeat(rounds).at, event.now, event.response
    rounds.heartbeat_failures, rounds.no_heartbeat_before = 0, 0.0
    commands: Commands = ()
    for epoch in (*event.request.finished, *event.request.failed):
        if _is_reported(rounds, epoch.table_id) and rounds.is_assigned_under(epoch):
            commands += to_table(rounds, m.TableReported(now=now, table_id=epoch.table_id))
    for epoch in event.request.renewed:
        if rounds.is_assigned_under(epoch):
            table_id, refusal = epoch.table_id, response.refused.get(epoch.table_id)
            commands += to_table(
                rounds,
                m.TableRenewed(now=now, table_id=table_id, sent_at=sent_at)
                if refusal is None
                else m.TableRefused(now=now, table_id=table_id, refusal=refusal),
            )
    if response.assignment is not None:
        rounds.poll_at = now
        commands += to_table(rounds, m.TableAssigned(now=now, assignment=response.assignment, renewed_at=sent_at))
    elif event.request.request:
        rounds.poll_at = now + rounds.settings.poll_s
    return commands


def take_failure(rounds: RoundsState, event: m.HeartbeatFailed) -> Commands:
    """Renew nothing; send the reports again after a growing pause."""
    request, settings = _close_heartbeat(rounds).request, rounds.settings
    rounds.heartbeat_failures += 1
    pause = backoff_s(rounds.heartbeat_failures, settings.backoff_first_s, settings.renew_s / 3)
    rounds.no_heartbeat_before = event.now + pause
    commands: Commands = ()
    for epoch in (*request.finished, *request.failed):
        if _is_reported(rounds, epoch.table_id) and rounds.is_assigned_under(epoch):
            commands += to_table(rounds, m.ReportFailed(now=event.now, table_id=epoch.table_id, cause=event.cause))
    return commands


def _close_heartbeat(rounds: RoundsState) -> SentHeartbeat:
    sent, rounds.sent = rounds.sent, None
    assert sent is not None  # noqa: S101 - without one the event has no row
    return sent


def _is_reported(rounds: RoundsState, table_id: int) -> bool:
    return rounds.phases.get(table_id) in REPORTED


HEARTBEAT_RULES: Rules[RoundsState, m.RoundsCommand] = Rules(
    "heartbeat",
    HeartbeatPhase,
    Rule(HeartbeatPhase.RESTING, m.Tick, when=is_due, to=HeartbeatPhase.UNDER_WAY, do=send_heartbeat),
    Rule((HeartbeatPhase.RESTING, HeartbeatPhase.UNDER_WAY), m.Tick),
    Rule(HeartbeatPhase.UNDER_WAY, m.HeartbeatAnswered, when=is_of_sent, to=HeartbeatPhase.RESTING, do=take_answer),
    Rule(HeartbeatPhase.UNDER_WAY, m.HeartbeatFailed, to=HeartbeatPhase.RESTING, do=take_failure),
)

# --- the service ----------------------------------------------------------------------------------------------------


def has_nothing_left(rounds: RoundsState, _: m.Tick) -> bool:
    """No table is assigned any more, and no heartbeat is open."""
    return not rounds.assigned and rounds.sent is None


def has_no_targets(rounds: RoundsState, _: m.Targets) -> bool:
    """It serves until targets are reached, and they were not given yet."""
    return rounds.once and rounds.targets is None


def to_heartbeat(rounds: RoundsState, event: m.HeartbeatAnswered | m.HeartbeatFailed | m.Tick) -> Commands:
    """It is the business of the heartbeat."""
    rule = rounds.heartbeat_rules.find(rounds, rounds.heartbeat, event)
    if isinstance(rule.to, HeartbeatPhase):
        rounds.heartbeat = rule.to
    return rule.execute(rounds, event)


def take_over(rounds: RoundsState, event: m.Resumed) -> Commands:
    """Know the tables of the last start."""
    return tuple(
        command
        for assignment in event.assignments
        for command in to_table(rounds, m.TableAssigned(now=event.now, assignment=assignment, renewed_at=event.now))
    )


def set_targets(rounds: RoundsState, event: m.Targets) -> Commands:
    """Serve until these are reached."""
    rounds.targets = dict.fromkeys(event.paths, Target())
    return ()


def reach_target(rounds: RoundsState, event: m.TargetReached) -> Commands:
    """One of them is reached."""
    rounds.set_target(event.path, Target(reached=True))
    return ()


def pause(rounds: RoundsState, event: m.PauseRequested) -> Commands:
    """Pause a table, now or once it is assigned."""
    rounds.paused |= {event.path}
    return _to_each(rounds, rounds.of_path(event.path), m.TablePaused, event.now)


def resume(rounds: RoundsState, event: m.ResumeRequested) -> Commands:
    """Let a paused or suspended table wait for a round again."""
    rounds.paused -= {event.path}
    return _to_each(rounds, rounds.of_path(event.path), m.TableResumed, event.now)


def stop(rounds: RoundsState, event: m.StopRequested) -> Commands:
    """Give tables without a round back, let running rounds finish early, and let commits end."""
    return _to_each(rounds, list(rounds.assigned.values()), m.ServiceStops, event.now)


def stop_waiting(rounds: RoundsState, event: m.StopTimedOut) -> Commands:
    """Give up rounds that are not committed; a commit in progress is given up only at the second time."""
    commands = _to_each(rounds, list(rounds.assigned.values()), m.RoundGivenUp, event.now)
    rounds.timed_out = True
    return commands


def stopped(rounds: RoundsState, _: m.Tick) -> Commands:
    """Let the service end."""
    return (m.Stopped(rounds.missed_targets()),)


def _to_each(rounds: RoundsState, tables: list[TieringTable], event: Callable[..., object], now: float) -> Commands:
    return tuple(
        command for table in tables for command in to_table(rounds, event(now=now, table_id=table.assignment.table_id))
    )


S = ServicePhase
RULES: Rules[RoundsState, m.RoundsCommand] = Rules(
    "service",
    ServicePhase,
    Rule(S.STARTING, m.Tick, to=S.SERVING),
    Rule(S.STOPPING, m.Tick, when=has_nothing_left, to=S.STOPPED, do=stopped),
    Rule((S.SERVING, S.STOPPING, S.STOPPED), m.Tick),
    Rule((S.STARTING, S.SERVING, S.STOPPING), m.Resumed, do=take_over),
    Rule((S.SERVING, S.STOPPING), (m.HeartbeatAnswered, m.HeartbeatFailed), do=to_heartbeat),
    Rule(tuple(S), m.Answer.__args__, do=to_table),
    # After a stop they only show which targets were missed.
    Rule((S.STARTING, S.STOPPING, S.STOPPED), m.Targets, when=has_no_targets, do=set_targets),
    Rule(tuple(S), m.TargetReached, do=reach_target),
    Rule(tuple(S), m.PauseRequested, do=pause),
    Rule(tuple(S), m.ResumeRequested, do=resume),
    Rule((S.STARTING, S.SERVING), m.StopRequested, to=S.STOPPING, do=stop),
    Rule(S.STOPPING, m.StopRequested, do=stop),
    Rule(S.STOPPED, m.StopRequested),
    Rule((S.STOPPING, S.STOPPED), m.StopTimedOut, do=stop_waiting),
)


class Rounds(RoundsState):
    """The machine. See the module's rules."""

    rules = RULES
    heartbeat_rules = HEARTBEAT_RULES
    table_rules = TABLE_RULES

    def take(self, event: m.RoundsEvent) -> Commands:
        """Do what an event asks for, stop if all targets of `once` are settled, and do what is due."""
        self.now = event.now
        self._next_due = self._tables = None
        commands = self.follow(event)
        if self.targets_are_settled():
            commands += self.follow(m.StopRequested(now=event.now))
        return commands if self.phase is S.STARTING else (*commands, *self._do_what_is_due(event.now))

    def _do_what_is_due(self, now: float) -> Commands:
        """Do what is due now: early finishes, retries, waiting tables, the heartbeat, the end."""
        commands: Commands = ()
        for table_id, table in tuple(self.assigned.items()):
            if table.finish_by is not None and table.finish_by <= now:
                why = "the maximum duration is over"
                commands += to_table(self, m.RoundOverdue(now=now, table_id=table_id, reason=why))
            elif table.retry_at is not None and table.retry_at <= now:
                commands += to_table(self, m.RetryDue(now=now, table_id=table_id))
        free = self.free_places()
        for table in self.first_waiting(free) if free > 0 else ():
            commands += to_table(self, m.RoundMayOpen(now=now, table_id=table.assignment.table_id))
        while (at := self.next_yield(now)) is not None and at <= now:
            first = self.first_to_yield()
            why = "its splits fail, and another table waits" if first.failing else "a table that is late waits"
            commands += to_table(self, m.RoundOverdue(now=now, table_id=first.assignment.table_id, reason=why))
        return (*commands, *to_heartbeat(self, m.Tick(now=now)), *self.follow(m.Tick(now=now)))
