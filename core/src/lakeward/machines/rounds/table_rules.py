"""The phases of a table, and of its round: the rules that `rules` gives the events of one table to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from lakeward.machines.machine import Rule, Rules
from lakeward.machines.rounds import messages as m
from lakeward.machines.rounds.state import (
    ACTIVE,
    REPORT_ATTEMPTS_WHILE_STOPPING,
    REPORTED,
    Phase,
    RoundsState,
    TieringTable,
)
from lakeward.model.backoff import backoff_s
from lakeward.model.tiering import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    Row = Rule[RoundsState, m.RoundsCommand]

STALE_MOST = 5
"""This many rounds in a row without their snapshots are a failure: the source deletes them before they are leased."""
Event = TypeVar("Event")
Commands = tuple[m.RoundsCommand, ...]
Failed = m.RoundFailed | m.RoundFenced | m.Committed | m.SnapshotsGone
"""What may be a failure of a round."""

# --- conditions of a table ------------------------------------------------------------------------------------------


def is_stopping(rounds: RoundsState, _: object) -> bool:
    """The service is to end."""
    return rounds.stopping


def is_paused(rounds: RoundsState, event: m.Committed | m.TableAssigned | Failed) -> bool:
    """A person has paused the table, and the service goes on."""
    path = event.assignment.path if isinstance(event, m.TableAssigned) else _table(rounds, event).assignment.path
    return path in rounds.paused and not rounds.stopping


def is_known(rounds: RoundsState, event: m.TableAssigned) -> bool:
    """The epoch is not newer than the one under which it is assigned."""
    known, new = _table(rounds, event).assignment, event.assignment
    return (new.coordinator_epoch, new.epoch) <= (known.coordinator_epoch, known.epoch)


def has_splits(_: RoundsState, event: m.Opened) -> bool:
    """There is something to read."""
    return bool(event.splits)


def is_renewed(rounds: RoundsState, event: m.Drained) -> bool:
    """A renewal is younger than the fence time."""
    return rounds.may_commit(_table(rounds, event), event.now)


def is_renewed_in_time(rounds: RoundsState, event: m.TableRenewed) -> bool:
    """This renewal is younger than the fence time."""
    return rounds.may_commit(_table(rounds, event).renewed(event.sent_at), event.now)


def left_out_splits(rounds: RoundsState, event: m.Committed) -> bool:
    """Splits that failed were left out, and the rest has landed."""
    return bool(_table(rounds, event).left_out)


def is_stale_again(rounds: RoundsState, event: m.SnapshotsGone) -> bool:
    """Its snapshots vanished too many times in a row."""
    return _table(rounds, event).stale_rounds + 1 >= STALE_MOST


def is_final(rounds: RoundsState, event: Failed) -> bool:
    """The table has to wait for a person."""
    return failure_of(rounds, event).is_final(rounds)


def is_lost(_: RoundsState, event: m.RoundFenced) -> bool:
    """Another service has the table."""
    return event.lost


def is_not_finishing(rounds: RoundsState, event: m.TablePaused | m.ServiceStops | m.RoundOverdue) -> bool:
    """`FinishRoundEarly` was not sent yet."""
    return not _table(rounds, event).finishing_early


def may_be_taken_back(rounds: RoundsState, event: m.TablePaused) -> bool:
    """Its report is not sent yet, and the service goes on."""
    return not rounds.stopping and not rounds.is_being_reported(_table(rounds, event))


def is_given_up(rounds: RoundsState, event: m.ReportFailed) -> bool:
    """The service stops, and its report fails again."""
    failures = _table(rounds, event).report_failures + 1
    return rounds.stopping and failures >= REPORT_ATTEMPTS_WHILE_STOPPING


def _table(rounds: RoundsState, event: Any) -> TieringTable:  # noqa: ANN401 - each has a table's id
    return rounds.assigned[event.table_id]


# --- failures -------------------------------------------------------------------------------------------------------


class Failure(Struct, frozen=True):
    """A round has failed. `table`: with that failure counted.

    `again_soon`: retry after the shortest pause. `is_try`: `once` gives up after so many of them; a lost checkpoint is
    none, as there are only so many. `outcome`: of the round; one that failed only in part has committed the rest.
    """

    table: TieringTable
    reason: str
    permanent: bool = False
    again_soon: bool = False
    is_try: bool = True
    outcome: str = "failed"

    def keeps_failing(self, rounds: RoundsState) -> bool:
        """Return whether it is suspended for that."""
        return not self.permanent and self.table.failures >= rounds.settings.suspend_after

    def is_final(self, rounds: RoundsState) -> bool:
        """Return whether it waits for a person from now on."""
        return self.permanent or self.keeps_failing(rounds)


def failure_of(rounds: RoundsState, event: Failed) -> Failure:
    """Return what an event means for its table."""
    table = _table(rounds, event)
    counted = rounds.count_failure(table)
    if isinstance(event, m.RoundFailed):
        lost = event.checkpoint_lost
        return Failure(
            table if lost else counted, event.reason, permanent=event.permanent, again_soon=lost, is_try=not lost
        )
    if isinstance(event, m.RoundFenced):
        return Failure(table, event.reason, again_soon=True)
    if isinstance(event, m.Committed):
        return Failure(counted, table.left_out, outcome="committed")
    times = f"its snapshots vanished {table.stale_rounds + 1} times in a row before they were read"
    return Failure(counted, f"{times}: {event.reason}")


def fail(rounds: RoundsState, event: Failed) -> Commands:
    """End the round; it waits for a person, or is held back."""
    return _fail(rounds, event, retry=False)


def fail_and_retry(rounds: RoundsState, event: Failed) -> Commands:
    """End the round; it is tried again after a pause that grows with each try."""
    return _fail(rounds, event, retry=True)


def _fail(rounds: RoundsState, event: Failed, *, retry: bool) -> Commands:
    failure = failure_of(rounds, event)
    table, reason, final = failure.table, failure.reason, failure.is_final(rounds)
    if failure.keeps_failing(rounds):
        reason = f"{reason} ({table.failures} rounds in a row failed while other tables were served)"
    tries = 1 if failure.again_soon else max(table.attempt, 1)
    pause = backoff_s(tries, rounds.settings.backoff_first_s, rounds.settings.backoff_most_s)
    retry_at = event.now + pause if retry else None
    table = replace(table, stale_rounds=0, queued_at=retry_at or 0.0)
    rounds.put(table.without_round(reason=reason, retry_at=retry_at))
    given_up = final or (failure.is_try and table.attempt >= rounds.once_attempts)
    rounds.miss_target(table.assignment.path, reason, final=given_up)
    return (m.EndRound(event.table_id, failure.outcome, failure.reason, reason if final else ""),)


# --- what is done for a table ---------------------------------------------------------------------------------------


def add(rounds: RoundsState, event: m.TableAssigned) -> Commands:
    """Know the table."""
    rounds.put(TieringTable(event.assignment, _deadline(event), event.renewed_at, served_before=rounds.served))
    return ()


def assign_anew(rounds: RoundsState, event: m.TableAssigned) -> Commands:
    """Know the newer epoch; its back-off or pause continues."""
    rounds.put(
        replace(
            _table(rounds, event),
            assignment=event.assignment,
            deadline=_deadline(event),
            renewed_at=event.renewed_at,
            report_failures=0,
        )
    )
    return ()


def reset_and_assign_anew(rounds: RoundsState, event: m.TableAssigned) -> Commands:
    """The same; it has nothing to report any more."""
    rounds.put(_table(rounds, event).without_round())
    return assign_anew(rounds, event)


def end_and_assign_anew(rounds: RoundsState, event: m.TableAssigned) -> Commands:
    """The same; its round has ended by that."""
    reset_and_assign_anew(rounds, event)
    return (m.EndRound(event.table_id, "fenced", f"assigned again under epoch {event.assignment.epoch}"),)


def _deadline(event: m.TableAssigned) -> float:
    return event.now - event.assignment.waited_s + event.assignment.freshness_s


def renew(rounds: RoundsState, event: m.TableRenewed) -> Commands:
    """Note the renewal."""
    rounds.put(_table(rounds, event).renewed(event.sent_at))
    return ()


def renew_and_commit(rounds: RoundsState, event: m.TableRenewed) -> Commands:
    """Commit what has waited for it."""
    return (*renew(rounds, event), m.CommitRound(event.table_id))


def count_report_failure(rounds: RoundsState, event: m.ReportFailed) -> Commands:
    """Report it again."""
    table = _table(rounds, event)
    rounds.put(replace(table, report_failures=table.report_failures + 1))
    return ()


def open_round(rounds: RoundsState, event: m.RoundMayOpen) -> Commands:
    """Open the lake table and enumerate its splits."""
    table = replace(_table(rounds, event), attempt=_table(rounds, event).attempt + 1)
    rounds.put(table)
    return (m.OpenRound(table.assignment, table.attempt),)


def acquire(_: RoundsState, event: m.Opened) -> Commands:
    """Lease its snapshots."""
    return (m.AcquireLeases(event.table_id),)


def launch(_: RoundsState, event: m.Opened | m.Leased) -> Commands:
    """Run its job."""
    return (m.LaunchJob(event.table_id),)


def finish_idle(rounds: RoundsState, event: m.Opened) -> Commands:
    """A table without new rows is finished at once."""
    _succeed(rounds, event.table_id, forced=False)
    return (m.EndRound(event.table_id, "idle"),)


def count_time(rounds: RoundsState, event: m.JobStarted) -> Commands:
    """Let the round's maximum duration count from here, when its job has started.

    A round that ended while it waits for slots would have read nothing, and its table's next round would wait as long.
    """
    table = _table(rounds, event)
    finish_by = None if table.finishing_early else event.now + rounds.settings.max_round_s
    rounds.put(replace(table, finish_by=finish_by))
    return ()


def note_failing(rounds: RoundsState, event: m.SplitsFailing) -> Commands:
    """Note whether a split of its round fails again and again."""
    rounds.put(replace(_table(rounds, event), failing=event.failing))
    return ()


def note_drained(rounds: RoundsState, event: m.Drained) -> Commands:
    """Wait for a renewal that is fresh enough."""
    rounds.put(replace(_table(rounds, event), left_out=event.failing, finish_by=None, stale_rounds=0))
    return ()


def commit(rounds: RoundsState, event: m.Drained) -> Commands:
    """Commit what was read."""
    return (*note_drained(rounds, event), m.CommitRound(event.table_id))


def succeed(rounds: RoundsState, event: m.Committed) -> Commands:
    """Report the table as finished, or keep it if it is paused."""
    _succeed(rounds, event.table_id, forced=_table(rounds, event).overran or not event.caught_up)
    return (m.EndRound(event.table_id, "committed"),)


def _succeed(rounds: RoundsState, table_id: int, *, forced: bool) -> None:
    rounds.served += 1
    rounds.put(rounds.assigned[table_id].succeeded(rounds.served, forced=forced))


def end_stale(rounds: RoundsState, event: m.SnapshotsGone) -> Commands:
    """End the round without counting a failure."""
    table = _table(rounds, event)
    rounds.put(replace(table, stale_rounds=table.stale_rounds + 1).without_round())
    return (m.EndRound(event.table_id, "stale", event.reason),)


def enumerate_again(rounds: RoundsState, event: m.SnapshotsGone) -> Commands:
    """Open it again."""
    ended, table = end_stale(rounds, event), _table(rounds, event)
    return (*ended, m.OpenRound(table.assignment, table.attempt))


def finish_early(rounds: RoundsState, event: m.RoundOverdue | m.TablePaused | m.ServiceStops) -> Commands:
    """Let the round finish early; where it is overdue, more rows are waiting."""
    overran = isinstance(event, m.RoundOverdue)
    rounds.put(replace(_table(rounds, event), finishing_early=True, finish_by=None, overran=overran))
    return (m.FinishRoundEarly(event.table_id, event.reason),)


def reset(rounds: RoundsState, event: m.RetryDue | m.TablePaused | m.ServiceStops) -> Commands:
    """Keep of its last round only why it failed."""
    table = _table(rounds, event)
    rounds.put(table.without_round(reason=table.reason))
    return ()


def end_for_pause(rounds: RoundsState, event: m.TablePaused) -> Commands:
    """End a round that has read nothing yet."""
    rounds.put(_table(rounds, event).without_round())
    return (m.EndRound(event.table_id, "stopped", "paused"),)


def give_up(rounds: RoundsState, event: m.ServiceStops | m.RoundGivenUp) -> Commands:
    """End the round: the service does not wait for it."""
    table = _table(rounds, event)
    rounds.put(table.without_round(reason=table.reason))
    return (m.EndRound(event.table_id, "stopped", "the service stops"),)


def resume_table(rounds: RoundsState, event: m.TableResumed) -> Commands:
    """Let it wait for a round again."""
    table = _table(rounds, event)
    rounds.put(table.resumed())
    target = (rounds.targets or {}).get(table.assignment.path)
    if target is not None:
        rounds.set_target(table.assignment.path, replace(target, failed=False))
    return ()


# --- a table is not assigned any more -------------------------------------------------------------------------------


def forget_finished(rounds: RoundsState, event: m.TableReported) -> Commands:
    """Its report has arrived."""
    return _forget(rounds, event.table_id, "finished")


def forget_returned(rounds: RoundsState, event: m.TableReported) -> Commands:
    """The source has it back."""
    return _forget(rounds, event.table_id, "returned")


def forget_unreported(rounds: RoundsState, event: m.ReportFailed) -> Commands:
    """The source's timeout assigns it anew."""
    return _forget(rounds, event.table_id, f"not reported: {event.cause}")


def forget_dropped(rounds: RoundsState, event: m.TableGone) -> Commands:
    """It was dropped."""
    rounds.miss_target(_table(rounds, event).assignment.path, "dropped", final=True)
    return _forget(rounds, event.table_id, "dropped")


def end_dropped(rounds: RoundsState, event: m.TableGone) -> Commands:
    """The same; end its round."""
    return (m.EndRound(event.table_id, "dropped", "the table was dropped"), *forget_dropped(rounds, event))


def forget_fenced(rounds: RoundsState, event: m.RoundFenced) -> Commands:
    """Another service has it."""
    return _forget(rounds, event.table_id, "fenced")


def end_fenced(rounds: RoundsState, event: m.RoundFenced) -> Commands:
    """The same; end its round."""
    return (m.EndRound(event.table_id, "fenced", event.reason), *forget_fenced(rounds, event))


def forget_refused(rounds: RoundsState, event: m.TableRefused) -> Commands:
    """The source refused to renew it."""
    if event.refusal is Refusal.GONE:
        rounds.miss_target(_table(rounds, event).assignment.path, "dropped", final=True)
    return _forget(rounds, event.table_id, event.refusal.value)


def end_refused(rounds: RoundsState, event: m.TableRefused) -> Commands:
    """The same; end its round."""
    outcome = "dropped" if event.refusal is Refusal.GONE else "fenced"
    reason = f"the source refused to renew it: {event.refusal.value}"
    return (m.EndRound(event.table_id, outcome, reason), *forget_refused(rounds, event))


def _forget(rounds: RoundsState, table_id: int, reason: str) -> Commands:
    rounds.forget(table_id)
    return (m.Forget(table_id, reason),)


# --- tables ---------------------------------------------------------------------------------------------------------

P = Phase
STARTING_WORK = (P.OPENING, P.LEASING)
AT_WORK = (P.RUNNING, P.SETTLING, P.COMMITTING)
QUIET = (P.WAITING, P.BACKOFF, P.SUSPENDED, P.PAUSED, P.RETURNING)
"""Assigned, without a round or a report of one."""
WITHOUT_ROUND = (P.ABSENT, *QUIET, P.REPORTING)
ASSIGNED = tuple(phase for phase in Phase if phase is not P.ABSENT)


def both(
    first: Callable[[RoundsState, Any], bool], second: Callable[[RoundsState, Any], bool]
) -> Callable[[RoundsState, Any], bool]:
    """Both conditions hold."""
    return lambda rounds, event: first(rounds, event) and second(rounds, event)


def always(_: RoundsState, __: object) -> bool:
    """There is no other condition."""
    return True


def unless_held_back(
    at: P | tuple[P, ...],
    on: type[Any],
    *,
    to: P,
    do: Callable[[RoundsState, Any], Commands],
    held: Callable[[RoundsState, Any], Commands] | None = None,
) -> tuple[Row, ...]:
    """Make the rows of an event after which a table may have a round, unless a stop or a pause holds it back."""
    return (
        Rule(at, on, when=is_stopping, to=P.RETURNING, do=held or do),
        Rule(at, on, when=is_paused, to=P.PAUSED, do=held or do),
        Rule(at, on, to=to, do=do),
    )


def failing(
    at: P | tuple[P, ...],
    on: type[Any],
    *,
    when: Callable[[RoundsState, Any], bool] = always,
    holds: bool,
    counts: bool = True,
) -> tuple[Row, ...]:
    """Make the rows of a failure in the phases `at`, where `when` says that it is one.

    `holds`: a stop or a pause may have come meanwhile. `counts`: one failure of many, so that it may be one too many.
    """
    stops: Row = Rule(at, on, when=both(when, is_stopping), to=P.RETURNING, do=fail)
    suspends: Row = Rule(at, on, when=both(when, is_final), to=P.SUSPENDED, do=fail)
    pauses: Row = Rule(at, on, when=both(when, is_paused), to=P.PAUSED, do=fail)
    retries: Row = Rule(at, on, when=None if when is always else when, to=P.BACKOFF, do=fail_and_retry)
    return (*((stops,) if holds else ()), *((suspends,) if counts else ()), *((pauses,) if holds else ()), retries)


TABLE_RULES: Rules[RoundsState, m.RoundsCommand] = Rules(
    "tables",
    Phase,
    # The source assigns it.
    *unless_held_back(P.ABSENT, m.TableAssigned, to=P.WAITING, do=add),
    Rule(ASSIGNED, m.TableAssigned, when=is_known),
    Rule(STARTING_WORK, m.TableAssigned, to=P.WAITING, do=end_and_assign_anew),
    *unless_held_back(AT_WORK, m.TableAssigned, to=P.WAITING, do=end_and_assign_anew),
    *unless_held_back(P.REPORTING, m.TableAssigned, to=P.WAITING, do=reset_and_assign_anew),
    Rule(QUIET, m.TableAssigned, do=assign_anew),
    # Heartbeats.
    Rule(P.SETTLING, m.TableRenewed, when=is_renewed_in_time, to=P.COMMITTING, do=renew_and_commit),
    Rule(ASSIGNED, m.TableRenewed, do=renew),
    Rule(ACTIVE, m.TableRefused, to=P.ABSENT, do=end_refused),
    Rule((*QUIET, P.REPORTING), m.TableRefused, to=P.ABSENT, do=forget_refused),
    Rule(P.REPORTING, m.TableReported, to=P.ABSENT, do=forget_finished),
    Rule(P.RETURNING, m.TableReported, to=P.ABSENT, do=forget_returned),
    Rule(REPORTED, m.ReportFailed, when=is_given_up, to=P.ABSENT, do=forget_unreported),
    Rule(REPORTED, m.ReportFailed, do=count_report_failure),
    # A round.
    Rule(P.WAITING, m.RoundMayOpen, to=P.OPENING, do=open_round),
    Rule(P.BACKOFF, m.RetryDue, to=P.WAITING, do=reset),
    Rule(P.OPENING, m.Opened, when=lambda _, event: bool(event.splits) and event.leases, to=P.LEASING, do=acquire),
    Rule(P.OPENING, m.Opened, when=has_splits, to=P.RUNNING, do=launch),
    Rule(P.OPENING, m.Opened, to=P.REPORTING, do=finish_idle),
    Rule(P.LEASING, m.Leased, to=P.RUNNING, do=launch),
    Rule(P.RUNNING, m.JobStarted, do=count_time),
    Rule(P.RUNNING, m.SplitsFailing, do=note_failing),
    Rule(P.RUNNING, (m.RoundOverdue, m.TablePaused, m.ServiceStops), when=is_not_finishing, do=finish_early),
    Rule(P.RUNNING, m.Drained, when=is_renewed, to=P.COMMITTING, do=commit),
    Rule(P.RUNNING, m.Drained, to=P.SETTLING, do=note_drained),
    *failing(P.COMMITTING, m.Committed, when=left_out_splits, holds=True),
    Rule(P.COMMITTING, m.Committed, when=is_paused, to=P.PAUSED, do=succeed),
    Rule(P.COMMITTING, m.Committed, to=P.REPORTING, do=succeed),
    # It fails.
    *failing(P.LEASING, m.SnapshotsGone, when=is_stale_again, holds=False),
    *failing(P.RUNNING, m.SnapshotsGone, when=is_stale_again, holds=True),
    Rule(P.LEASING, m.SnapshotsGone, to=P.OPENING, do=enumerate_again),
    *unless_held_back(P.RUNNING, m.SnapshotsGone, to=P.OPENING, do=enumerate_again, held=end_stale),
    *failing(STARTING_WORK, m.RoundFailed, holds=False),
    *failing(AT_WORK, m.RoundFailed, holds=True),
    Rule(ACTIVE, m.RoundFenced, when=is_lost, to=P.ABSENT, do=end_fenced),
    *failing(STARTING_WORK, m.RoundFenced, holds=False, counts=False),
    *failing(AT_WORK, m.RoundFenced, holds=True, counts=False),
    Rule((*QUIET, P.REPORTING), m.RoundFenced, when=is_lost, to=P.ABSENT, do=forget_fenced),
    Rule(ACTIVE, m.TableGone, to=P.ABSENT, do=end_dropped),
    Rule((*QUIET, P.REPORTING), m.TableGone, to=P.ABSENT, do=forget_dropped),
    # Late answers.
    Rule(WITHOUT_ROUND, (m.Opened, m.Leased, m.Committed, m.RoundFailed, m.RoundFenced)),
    Rule((*WITHOUT_ROUND, *STARTING_WORK), m.Drained),
    Rule((*WITHOUT_ROUND, P.OPENING, P.SETTLING, P.COMMITTING), m.SnapshotsGone),
    Rule((*WITHOUT_ROUND, *STARTING_WORK, P.SETTLING, P.COMMITTING), (m.JobStarted, m.SplitsFailing)),
    Rule(P.ABSENT, m.TableGone),
    # Pause, resume, stop.
    Rule(STARTING_WORK, m.TablePaused, to=P.PAUSED, do=end_for_pause),
    Rule((P.WAITING, P.BACKOFF, P.SUSPENDED), m.TablePaused, to=P.PAUSED, do=reset),
    Rule(P.REPORTING, m.TablePaused, when=may_be_taken_back, to=P.PAUSED, do=reset),
    Rule((*AT_WORK, P.REPORTING, P.PAUSED, P.RETURNING), m.TablePaused),
    Rule((P.PAUSED, P.SUSPENDED), m.TableResumed, to=P.WAITING, do=resume_table),
    Rule((*ACTIVE, P.WAITING, P.BACKOFF, *REPORTED), m.TableResumed),
    Rule(STARTING_WORK, m.ServiceStops, to=P.RETURNING, do=give_up),
    Rule((P.WAITING, P.BACKOFF, P.SUSPENDED, P.PAUSED), m.ServiceStops, to=P.RETURNING, do=reset),
    Rule((*AT_WORK, *REPORTED), m.ServiceStops),
    Rule((P.RUNNING, P.SETTLING), m.RoundGivenUp, to=P.RETURNING, do=give_up),
    Rule(P.COMMITTING, m.RoundGivenUp, when=lambda rounds, _: rounds.timed_out, to=P.RETURNING, do=give_up),
    Rule((P.COMMITTING, *REPORTED), m.RoundGivenUp),
)


def to_table(rounds: RoundsState, event: Any) -> Commands:  # noqa: ANN401 - each has a table's id
    """It is the business of one table."""
    return rounds.table_rules.step(rounds, rounds.phases, event.table_id, event, P.ABSENT)
