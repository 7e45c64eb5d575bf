"""The service's top machine: which table is tiered next, and the phases of each round.

Rules
* `TRANSITIONS` has every move of a table, of the service and of its heartbeat. This machine evaluates the guard of an
  event and looks the next state up; an event without a row raises and changes nothing.
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
"""

from __future__ import annotations

from dataclasses import replace
from heapq import nsmallest
from typing import TYPE_CHECKING

from lakeward.errors import IllegalEventError
from lakeward.machines.machine_state import State, next_state
from lakeward.machines.rounds import heartbeats
from lakeward.machines.rounds.commands import (
    AcquireLeases,
    CommitRound,
    EndRound,
    FinishRoundEarly,
    Forget,
    LaunchJob,
    OpenRound,
    RoundsCommand,
    SendHeartbeat,
    Stopped,
)
from lakeward.machines.rounds.events import (
    Committed,
    Drained,
    HeartbeatAnswered,
    HeartbeatFailed,
    JobStarted,
    Leased,
    Opened,
    PauseRequested,
    Resumed,
    ResumeRequested,
    RoundFailed,
    RoundFenced,
    RoundsEvent,
    SnapshotsGone,
    SplitsFailing,
    StopRequested,
    StopTimedOut,
    TableGone,
    TargetReached,
    Targets,
    Tick,
)
from lakeward.machines.rounds.state import RoundsState, SentHeartbeat, TableStatus, Target, TieringTable
from lakeward.machines.rounds.transitions import REPORTED, TRANSITIONS, Phase, RoundsGuard, ServicePhase
from lakeward.model.backoff import backoff_s
from lakeward.model.tiering import Refusal

if TYPE_CHECKING:
    from lakeward.model.settings import ServiceSettings
    from lakeward.model.tables import TablePath
    from lakeward.model.tiering import HeartbeatRequest, TableAssignment, TableEpoch

STALE_MOST = 5
"""This many rounds in a row without their snapshots are a failure: the source deletes them before they are leased."""
COMMITS_MOST = 32
"""So many rounds commit, or wait to, beside those that work: more slow commits are the trouble of the whole lake."""
ONCE_ATTEMPTS = 3
"""So often a table is tried while the service serves until its targets are reached."""
_MACHINE = "rounds"
_Answer = (
    Opened
    | Leased
    | JobStarted
    | SplitsFailing
    | SnapshotsGone
    | Drained
    | Committed
    | RoundFailed
    | TableGone
    | RoundFenced
)
"""Events about one table, by its id; they may be late."""


class Rounds:
    """The machine. See the module's rules."""

    def __init__(self, settings: ServiceSettings, *, once: bool = False, once_attempts: int = ONCE_ATTEMPTS) -> None:
        """Start without tables.

        Args:
            settings: periods and limits.
            once: serve until every target is reached, then stop.
            once_attempts: so often a table is tried with `once`.
        """
        self._settings = settings
        self._once = once
        self._once_attempts = once_attempts
        self._state = RoundsState()
        self._commands: list[RoundsCommand] = []
        self._event: RoundsEvent = Tick(now=0.0)
        self._cause: RoundsEvent = self._event
        """The event whose rows are looked up: first `_event`, then the events that follow from it."""
        self._next_due: tuple[float | None] | None = None
        """Cached `next_due` since the last step, None until first read."""
        self._tables: tuple[TableStatus, ...] | None = None
        """Cached `tables`, likewise."""

    def step(self, event: RoundsEvent) -> tuple[RoundsCommand, ...]:
        """Take one event.

        Args:
            event: what happened; `now` in seconds on the holder's clock, never less than in the event before.

        Returns:
            What is to be done, in this order.

        Raises:
            IllegalEventError: no row for this event; nothing was changed.
        """
        self._admit(event)
        before = dict(vars(self))
        self._state, self._commands, self._event = self._state.copy(), [], event
        try:
            self._take(event)
            self._take_what_follows()
        except BaseException:
            vars(self).update(before)
            raise
        self._next_due = self._tables = None
        return tuple(self._commands)

    @property
    def tables(self) -> tuple[TableStatus, ...]:
        """All assigned tables, ordered by table id."""
        if self._tables is None:
            self._tables = tuple(self._state.tables[table_id].status() for table_id in sorted(self._state.tables))
        return self._tables

    @property
    def queue(self) -> tuple[int, ...]:
        """The ids of the tables that wait for a round, the one that is opened next first."""
        return tuple(table.assignment.table_id for table in self._waiting())

    @property
    def next_due(self) -> float | None:
        """When the next `Tick` has something to do, None if only an event can change anything."""
        if self._next_due is None:
            self._next_due = (self._compute_next_due(),)
        return self._next_due[0]

    @property
    def stopping(self) -> bool:
        """True after `StopRequested`, or once every target of `once` is settled."""
        return self._state.stopping

    # --- one step ---------------------------------------------------------------------------------------------------

    def _admit(self, event: RoundsEvent) -> None:
        """Raise if a state that the event concerns has no row for it."""
        states = self._state.states()
        if isinstance(event, _Answer):
            phase = states.get(event.table_id, Phase.ABSENT)
            states = {"service": states["service"], "heartbeat": states["heartbeat"], event.table_id: phase}
        for name, state in states.items():
            if (state, type(event)) not in TRANSITIONS:
                owner = name if isinstance(name, str) else f"table {name}"
                raise IllegalEventError(_MACHINE, f"{owner} {state.value}", event)
        sent = self._state.sent
        if isinstance(event, HeartbeatAnswered) and sent is not None and event.request != sent.request:
            raise IllegalEventError(_MACHINE, f"{sent} under way", event)
        if isinstance(event, Targets) and (self._state.targets is not None or not self._once):
            raise IllegalEventError(_MACHINE, "targets were given" if self._once else "serving for ever", event)

    def _take(self, event: RoundsEvent) -> None:
        """Do what the event itself requires."""
        self._cause = event
        match event:
            case Tick():
                if self._state.service is ServicePhase.STARTING:
                    self._move_service(RoundsGuard.ALWAYS)
            case HeartbeatAnswered() | HeartbeatFailed():
                self._take_heartbeat(event)
            case Resumed() | Targets() | TargetReached():
                self._take_tables(event)
            case PauseRequested():
                self._pause(event.path)
            case ResumeRequested():
                self._resume(event.path)
            case StopRequested():
                self._stop()
            case StopTimedOut():
                self._stop_timed_out()
            case _:
                self._take_answer(event)

    def _take_what_follows(self) -> None:
        """Stop if all targets of `once` are settled, and do what is due."""
        if self._targets_are_settled():
            self._cause = StopRequested(now=self._event.now)
            self._stop()
        if self._state.service is not ServicePhase.STARTING:
            self._cause = Tick(now=self._event.now)
            self._do_what_is_due()

    def _take_tables(self, event: Resumed | Targets | TargetReached) -> None:
        """Handle tables and targets that are known from the start, or a target that is reached."""
        match event:
            case Resumed():
                for assignment in event.assignments:
                    self._assign(assignment, event.now)
            case Targets():
                self._state.targets = dict.fromkeys(event.paths, Target())
            case TargetReached() if self._state.targets is not None and event.path in self._state.targets:
                self._state.targets[event.path] = Target(reached=True)

    def _take_answer(self, event: _Answer) -> None:
        """Handle an answer about a round; ignore it if it is late (`RoundsGuard.UNCHANGED`)."""
        table = self._state.tables.get(event.table_id)
        if table is None:
            return
        match event, table.phase:
            case Opened(), Phase.OPENING:
                self._opened(table, event)
            case Leased(), Phase.LEASING:
                self._launch(table, RoundsGuard.ALWAYS)
            case JobStarted(), Phase.RUNNING:
                self._started(table)
            case SplitsFailing(), Phase.RUNNING:
                self._move(replace(table, failing=event.failing), RoundsGuard.ALWAYS)
            case Drained(), Phase.RUNNING:
                self._drained(replace(table, left_out=event.failing))
            case Committed(), Phase.COMMITTING if table.left_out:
                self._fail(table, table.left_out, outcome="committed")
            case Committed(), Phase.COMMITTING:
                self._end_round(table, "committed")
                self._succeeded(table, RoundsGuard.ALWAYS, forced=table.overran or not event.caught_up)
            case SnapshotsGone() | RoundFailed() | TableGone() | RoundFenced(), _:
                self._take_failure(table, event)

    def _take_failure(self, table: TieringTable, event: SnapshotsGone | RoundFailed | TableGone | RoundFenced) -> None:
        match event:
            case SnapshotsGone() if table.phase in (Phase.LEASING, Phase.RUNNING):
                self._snapshots_gone(table, event.reason)
            case RoundFailed() if table.active:
                lost = event.checkpoint_lost
                self._fail(table, event.reason, permanent=event.permanent, again_soon=lost, is_try=not lost)
            case TableGone():
                self._abandon(table, RoundsGuard.ALWAYS, "dropped", "the table was dropped", "dropped")
            case RoundFenced() if event.lost:
                self._abandon(table, RoundsGuard.LOST, "fenced", event.reason, "fenced")
            case RoundFenced() if table.active:
                self._fail(table, event.reason, again_soon=True)

    def _next(self, state: State, guard: RoundsGuard) -> State:
        """Look the next state up; raise if the table has none."""
        after = "" if self._cause is self._event else f", after {self._event!r}"
        return next_state(_MACHINE, TRANSITIONS, state, self._cause, guard, detail=after)

    def _move(self, table: TieringTable, guard: RoundsGuard) -> TieringTable:
        """Move a table to its next state; ABSENT forgets it."""
        return self._put(replace(table, phase=self._next(table.phase, guard)))

    def _move_without_round(
        self, table: TieringTable, guard: RoundsGuard, *, reason: str = "", retry_at: float | None = None
    ) -> TieringTable:
        """Move a table to its next state, and reset everything of its round."""
        phase = self._next(table.phase, guard)
        return self._put(table.without_round(phase, reason=reason, retry_at=retry_at))

    def _move_service(self, guard: RoundsGuard) -> None:
        self._state.service = self._next(self._state.service, guard)

    def _move_heartbeat(self, guard: RoundsGuard) -> None:
        self._state.heartbeat = self._next(self._state.heartbeat, guard)

    def _put(self, table: TieringTable) -> TieringTable:
        if table.phase is Phase.ABSENT:
            del self._state.tables[table.assignment.table_id]
        else:
            self._state.tables[table.assignment.table_id] = table
        return table

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def _take_heartbeat(self, event: HeartbeatAnswered | HeartbeatFailed) -> None:
        sent, self._state.sent = self._state.sent, None
        assert sent is not None  # noqa: S101 - without one the event has no row
        self._move_heartbeat(RoundsGuard.ALWAYS)
        if isinstance(event, HeartbeatAnswered):
            self._heartbeat_answered(event, sent.at)
        else:
            self._heartbeat_failed(event, sent.request)

    def _heartbeat_answered(self, event: HeartbeatAnswered, sent_at: float) -> None:
        """Forget reported and refused tables, renew the others, and add the table that was assigned."""
        state, request, response = self._state, event.request, event.response
        state.heartbeat_failures, state.no_heartbeat_before = 0, 0.0
        for epoch in (*request.finished, *request.failed):
            table = heartbeats.assigned_under(state, epoch)
            if table is not None and table.phase in REPORTED:  # accepted or refused: the report has arrived
                self._forget(table, RoundsGuard.REPORTED, "finished" if table.phase is Phase.REPORTING else "returned")
        for epoch in request.renewed:
            self._renewed(epoch, response.refused.get(epoch.table_id), sent_at)
        if response.assignment is not None:
            state.poll_at = event.now
            self._assign(response.assignment, sent_at)
        elif request.request:
            state.poll_at = event.now + self._settings.poll_s

    def _heartbeat_failed(self, event: HeartbeatFailed, request: HeartbeatRequest) -> None:
        """Renew nothing; send the reports again after a growing pause."""
        state = self._state
        state.heartbeat_failures += 1
        pause = backoff_s(state.heartbeat_failures, self._settings.backoff_first_s, self._settings.renew_s / 3)
        state.no_heartbeat_before = event.now + pause
        for epoch in (*request.finished, *request.failed):
            table = heartbeats.assigned_under(state, epoch)
            if table is None or table.phase not in REPORTED:
                continue
            table = self._put(replace(table, report_failures=table.report_failures + 1))
            if state.stopping and table.report_failures >= heartbeats.REPORT_ATTEMPTS_WHILE_STOPPING:
                self._forget(table, RoundsGuard.REPORT_GIVEN_UP, f"not reported: {event.cause}")

    def _renewed(self, epoch: TableEpoch, refusal: Refusal | None, sent_at: float) -> None:
        table = heartbeats.assigned_under(self._state, epoch)
        if table is None:
            return
        if refusal is not None:
            self._refused(table, refusal)
            return
        table = self._put(table.renewed(sent_at))
        if table.phase is Phase.SETTLING and self._may_commit(table):
            self._commit(table, RoundsGuard.RENEWED)

    def _refused(self, table: TieringTable, refusal: Refusal) -> None:
        """Forget a table that the source refused to renew."""
        outcome = "dropped" if refusal is Refusal.GONE else "fenced"
        reason = f"the source refused to renew it: {refusal.value}"
        self._abandon(table, RoundsGuard.REFUSED, outcome, reason, refusal.value)

    def _assign(self, assignment: TableAssignment, renewed_at: float) -> None:
        """Add a table. A newer epoch of an assigned one ends its round; its back-off or pause continues."""
        table = self._state.tables.get(assignment.table_id)
        deadline = self._event.now - assignment.waited_s + assignment.freshness_s
        if table is None:
            phase = self._next(Phase.ABSENT, self._unless_held_back(assignment.path, RoundsGuard.ASSIGNED))
            self._put(TieringTable(assignment, phase, deadline, renewed_at, served_before=self._state.served))
            return
        known = table.assignment
        if (assignment.coordinator_epoch, assignment.epoch) <= (known.coordinator_epoch, known.epoch):
            return
        if table.active or table.phase is Phase.REPORTING:
            self._end_round(table, "fenced", f"assigned again under epoch {assignment.epoch}")
            table = self._move_without_round(table, self._unless_held_back(assignment.path, RoundsGuard.NEWER_EPOCH))
        self._put(replace(table, assignment=assignment, deadline=deadline, renewed_at=renewed_at, report_failures=0))

    # --- a round ----------------------------------------------------------------------------------------------------

    def _opened(self, table: TieringTable, event: Opened) -> None:
        """Acquire leases, or launch the job; a table without new rows is finished at once."""
        if event.splits and event.leases:
            self._move(table, RoundsGuard.SNAPSHOTS)
            self._commands.append(AcquireLeases(table.assignment.table_id))
        elif event.splits:
            self._launch(table, RoundsGuard.SPLITS)
        else:
            self._end_round(table, "idle")
            self._succeeded(table, RoundsGuard.NO_SPLITS, forced=False)

    def _launch(self, table: TieringTable, guard: RoundsGuard) -> None:
        self._move(table, guard)
        self._commands.append(LaunchJob(table.assignment.table_id))

    def _started(self, table: TieringTable) -> None:
        """Let the round's maximum duration count from here: one that ended while it waits for slots had read nothing.

        Its table's next round would wait as long.
        """
        finish_by = None if table.finishing_early else self._event.now + self._settings.max_round_s
        self._move(replace(table, finish_by=finish_by), RoundsGuard.ALWAYS)

    def _drained(self, table: TieringTable) -> None:
        """Commit, or wait for a renewal that is fresh enough."""
        table = replace(table, finish_by=None, stale_rounds=0)
        if self._may_commit(table):
            self._commit(table, RoundsGuard.RENEWED)
        else:
            self._move(table, RoundsGuard.RENEWAL_TOO_OLD)

    def _may_commit(self, table: TieringTable) -> bool:
        """Return whether the newest renewal is younger than the fence time."""
        return self._event.now - table.renewed_at < self._settings.fence_s

    def _commit(self, table: TieringTable, guard: RoundsGuard) -> None:
        self._move(table, guard)
        self._commands.append(CommitRound(table.assignment.table_id))

    def _succeeded(self, table: TieringTable, guard: RoundsGuard, *, forced: bool) -> None:
        """Report the table as finished, or keep it if it is paused."""
        paused = table.assignment.path in self._state.paused and not self._state.stopping
        table = self._move_without_round(table, RoundsGuard.PAUSED if paused else guard)
        self._state.served += 1
        table = replace(table, attempt=0, stale_rounds=0, failures=0, queued_at=0.0, served_before=self._state.served)
        self._put(replace(table, forced=forced, report_failures=0))

    def _fail(
        self,
        table: TieringTable,
        reason: str,
        *,
        permanent: bool = False,
        again_soon: bool = False,
        is_try: bool = True,
        outcome: str = "failed",
    ) -> None:
        """End the round; retry after a pause that grows with each try, or wait for a person.

        Args:
            table: whose.
            reason: why.
            permanent: wait for a person.
            again_soon: retry after the shortest pause.
            is_try: `once` gives up after so many of them; a lost checkpoint is none, as there are only so many.
            outcome: of the round; one that failed only in part has committed the rest.
        """
        path, why = table.assignment.path, reason
        if is_try and not again_soon:
            table = self._count_failure(table)
        if table.failures >= self._settings.suspend_after and not permanent:
            permanent = True
            reason = f"{reason} ({table.failures} rounds in a row failed while other tables were served)"
        self._end_round(table, outcome, why, suspended=reason if permanent else "")
        tries = 1 if again_soon else max(table.attempt, 1)
        pause = backoff_s(tries, self._settings.backoff_first_s, self._settings.backoff_most_s)
        guard = self._unless_held_back(path, RoundsGuard.PERMANENT if permanent else RoundsGuard.RETRY_LATER)
        retry_at = self._event.now + pause if guard is RoundsGuard.RETRY_LATER else None
        table = replace(table, stale_rounds=0, queued_at=retry_at or 0.0)
        self._move_without_round(table, guard, reason=reason, retry_at=retry_at)
        self._miss_target(path, reason, final=permanent or (is_try and table.attempt >= self._once_attempts))

    def _count_failure(self, table: TieringTable) -> TieringTable:
        """Count a failure if another table was served since the last one that was counted."""
        served = self._state.served
        if served == table.served_before:
            return table
        return replace(table, failures=table.failures + 1, served_before=served)

    def _snapshots_gone(self, table: TieringTable, reason: str) -> None:
        """Enumerate the splits again without counting a failure; after too many times it is a failure."""
        stale = table.stale_rounds + 1
        if stale >= STALE_MOST:
            self._fail(table, f"its snapshots vanished {stale} times in a row before they were read: {reason}")
            return
        self._end_round(table, "stale", reason)
        guard = self._unless_held_back(table.assignment.path, RoundsGuard.ENUMERATE_AGAIN)
        table = self._move_without_round(replace(table, stale_rounds=stale), guard)
        if table.phase is Phase.OPENING:
            self._commands.append(OpenRound(table.assignment, table.attempt))

    def _finish_early(self, table: TieringTable, reason: str, *, overran: bool = False) -> None:
        """Let the round finish early; send the command once."""
        if not table.finishing_early:
            self._put(replace(table, finishing_early=True, finish_by=None, overran=overran))
            self._commands.append(FinishRoundEarly(table.assignment.table_id, reason))

    def _end_round(self, table: TieringTable, outcome: str, reason: str = "", *, suspended: str = "") -> None:
        if table.active:
            self._commands.append(EndRound(table.assignment.table_id, outcome, reason, suspended))

    def _abandon(self, table: TieringTable, guard: RoundsGuard, outcome: str, reason: str, why_forgotten: str) -> None:
        """End the round of a table that is no longer assigned, and forget the table without a report."""
        self._end_round(table, outcome, reason)
        self._forget(table, guard, why_forgotten)
        if outcome == "dropped":
            self._miss_target(table.assignment.path, "dropped", final=True)

    def _forget(self, table: TieringTable, guard: RoundsGuard, reason: str) -> None:
        self._move(table, guard)
        self._commands.append(Forget(table.assignment.table_id, reason))

    def _unless_held_back(self, path: TablePath, guard: RoundsGuard) -> RoundsGuard:
        """Return STOPPING or PAUSED if a stop or a pause holds the table back, else the given guard."""
        if self._state.stopping:
            return RoundsGuard.STOPPING
        return RoundsGuard.PAUSED if path in self._state.paused and guard is not RoundsGuard.PERMANENT else guard

    # --- pause, resume, stop ----------------------------------------------------------------------------------------

    def _pause(self, path: TablePath) -> None:
        """Pause a table; a running round finishes early and commits first, a report that was sent stays."""
        self._state.paused.add(path)
        for table in self._state.of_path(path):
            if table.phase is Phase.RUNNING:
                self._finish_early(table, "paused")
            elif table.phase in (Phase.OPENING, Phase.LEASING):
                self._end_round(table, "stopped", "paused")
                self._move_without_round(table, RoundsGuard.PAUSED)
            elif table.phase in (Phase.WAITING, Phase.BACKOFF, Phase.SUSPENDED) or (
                table.phase is Phase.REPORTING and not self._state.stopping and not self._state.is_being_reported(table)
            ):
                self._move_without_round(table, RoundsGuard.PAUSED, reason=table.reason)

    def _resume(self, path: TablePath) -> None:
        """Let a paused or suspended table wait for a round again."""
        self._state.paused.discard(path)
        for table in self._state.of_path(path):
            if table.phase in (Phase.PAUSED, Phase.SUSPENDED):
                resumed = replace(table, failures=0, queued_at=0.0)
                self._move_without_round(resumed, RoundsGuard.ALWAYS, reason=table.reason)
                targets = self._state.targets or {}
                if path in targets:
                    targets[path] = replace(targets[path], failed=False)

    def _stop(self) -> None:
        """Give tables without a round back, let running rounds finish early, and let commits end."""
        if self._state.service is ServicePhase.STOPPED:
            return
        if not self._state.stopping:
            self._move_service(RoundsGuard.ALWAYS)
        for table in list(self._state.tables.values()):
            if table.phase in (Phase.OPENING, Phase.LEASING):
                self._give_up(table)
            elif table.phase is Phase.RUNNING:
                self._finish_early(table, "the service stops")
            elif table.phase in (Phase.WAITING, Phase.BACKOFF, Phase.SUSPENDED, Phase.PAUSED):
                self._move_without_round(table, RoundsGuard.STOPPING, reason=table.reason)

    def _stop_timed_out(self) -> None:
        """Give up rounds that are not committed; a commit in progress is given up only at the second time."""
        for table in list(self._state.tables.values()):
            if table.active and (table.phase is not Phase.COMMITTING or self._state.timed_out):
                self._give_up(table)
        self._state.timed_out = True

    def _give_up(self, table: TieringTable) -> None:
        self._end_round(table, "stopped", "the service stops")
        self._move_without_round(table, RoundsGuard.STOPPING, reason=table.reason)

    # --- what is due ------------------------------------------------------------------------------------------------

    def _do_what_is_due(self) -> None:
        """Do what is due now: early finishes, retries, waiting tables, the heartbeat, the end."""
        state, now = self._state, self._event.now
        for table in list(state.tables.values()):
            if table.finish_by is not None and table.finish_by <= now:
                self._finish_early(table, "the maximum duration is over", overran=True)
            elif table.retry_at is not None and table.retry_at <= now:
                self._move_without_round(table, RoundsGuard.RETRY_DUE, reason=table.reason)
        self._open_waiting_tables()
        while (at := self._next_yield()) is not None and at <= now:
            first = self._first_to_yield()
            why = "its splits fail, and another table waits" if first.failing else "a table that is late waits"
            self._finish_early(first, why, overran=True)
        if heartbeats.is_due(state, self._settings, now):
            self._move_heartbeat(RoundsGuard.DUE)
            state.sent = SentHeartbeat(heartbeats.compose(state, self._settings), now)
            self._commands.append(SendHeartbeat(state.sent.request))
        if state.service is ServicePhase.STOPPING and not state.tables and state.sent is None:
            self._move_service(RoundsGuard.NOTHING_ASSIGNED)
            self._commands.append(Stopped(self._missed_targets()))

    def _open_waiting_tables(self) -> None:
        """Open as many rounds as may work, the earliest deadline first."""
        tables, most = self._state.tables.values(), self._settings.rounds
        free = min(most - sum(table.working for table in tables), most + COMMITS_MOST - sum(t.active for t in tables))
        for table in self._first_waiting(free) if free > 0 else ():
            opened = self._move(replace(table, attempt=table.attempt + 1), RoundsGuard.MAY_OPEN)
            self._commands.append(OpenRound(opened.assignment, opened.attempt))

    def _next_yield(self) -> float | None:
        """Return when a round has to make room for a waiting table, None if none has to.

        None has to that waits for Spark. Each round that finishes early already makes room for one of them.
        """
        if not any(table.finish_by is not None for table in self._state.tables.values()):
            return None
        coming = sum(table.finishing_early for table in self._state.tables.values() if table.working)
        waiting = self._first_waiting(coming + 1)
        if len(waiting) <= coming:
            return None
        first = self._first_to_yield()
        if first.failing and sum(not table.attempt for table in self._waiting()) > coming:
            return self._event.now
        started_at = (first.finish_by or 0.0) - self._settings.max_round_s
        return max(waiting[coming].deadline, started_at + self._settings.yield_s)

    def _first_to_yield(self) -> TieringTable:
        """Return a running round that does not finish early yet: one that fails, or the one that started first."""
        running = [table for table in self._state.tables.values() if table.finish_by is not None]
        return min(running, key=lambda table: (not table.failing, table.finish_by or 0.0, table.assignment.table_id))

    def _waiting(self) -> list[TieringTable]:
        """Return the tables that wait for a round, the one that is opened next first."""
        return self._first_waiting(len(self._state.tables))

    def _first_waiting(self, most: int) -> list[TieringTable]:
        """Return at most so many of the tables that wait for a round, the earliest deadline first."""
        waiting = [table for table in self._state.tables.values() if table.phase is Phase.WAITING]
        return nsmallest(most, waiting, key=self._order)

    def _order(self, table: TieringTable) -> tuple[float, int]:
        """Return what waiting tables are ordered by."""
        return max(table.deadline, table.queued_at), table.assignment.table_id

    def _compute_next_due(self) -> float | None:
        state = self._state
        if state.service is ServicePhase.STARTING:
            return 0.0
        due = [at for table in state.tables.values() for at in (table.retry_at, table.finish_by) if at is not None]
        next_yield = self._next_yield()
        if next_yield is not None:
            due.append(next_yield)
        heartbeat = heartbeats.due_at(state, self._settings)
        return min(due if heartbeat is None else [*due, heartbeat], default=None)

    # --- targets of `once` ------------------------------------------------------------------------------------------

    def _targets_are_settled(self) -> bool:
        """Return whether `once` waits for nothing: each target is reached, failed for good, or paused."""
        targets = self._state.targets
        if targets is None or self._state.stopping:
            return False
        return all(
            target.reached or target.failed or self._is_paused_without_round(path) for path, target in targets.items()
        )

    def _is_paused_without_round(self, path: TablePath) -> bool:
        return path in self._state.paused and not any(table.active for table in self._state.of_path(path))

    def _miss_target(self, path: TablePath, reason: str, *, final: bool) -> None:
        """Note for `once` why a target was missed; one that was reached stays reached."""
        targets = self._state.targets or {}
        if path in targets and not targets[path].reached:
            targets[path] = Target(failed=targets[path].failed or final, reason=reason)

    def _missed_targets(self) -> tuple[tuple[TablePath, str], ...]:
        targets = self._state.targets or {}
        missed = sorted((path, target.reason) for path, target in targets.items() if not target.reached)
        return tuple((path, reason or self._why_not_reached(path)) for path, reason in missed)

    def _why_not_reached(self, path: TablePath) -> str:
        return "paused" if path in self._state.paused else "the service stopped before it was reached"
