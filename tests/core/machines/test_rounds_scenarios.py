"""What the machine `rounds` does, one fact at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

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
    TargetReached,
    Targets,
    Tick,
)
from lakeward.machines.rounds.state import COMMITS_MOST
from lakeward.model.settings import ServiceSettings
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, Refusal, TableAssignment, TableEpoch
from lakeward_machine_stories.rounds import EIGHT, GONE, OPENING, RETURN, SERVED, STOP, answered, new, opened
from lakeward_mutants import rounds as mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Kind = TypeVar("Kind", bound=RoundsCommand)


class Drive:
    """A machine, its clock, and the heartbeat that it waits for."""

    def __init__(self, settings: ServiceSettings | None = None, *, started: bool = True, **once: Any) -> None:  # noqa: ANN401 - as `Rounds` has it
        """Start at 1000 seconds, with the first tick and its request done unless told otherwise."""
        self.rounds = Rounds(settings or ServiceSettings(), **once)
        self.now = 1000.0
        self.request: HeartbeatRequest | None = None
        self.last: tuple[RoundsCommand, ...] = ()
        if started:
            self(Tick(now=self.now))

    def __call__(self, event: RoundsEvent) -> tuple[RoundsCommand, ...]:
        """Take an event; keep what it gave."""
        self.last = self.rounds.step(event)
        for sent in self.all(SendHeartbeat):
            self.request = sent.request
        return self.last

    def all(self, kind: type[Kind]) -> list[Kind]:
        """All commands of a kind that the last event gave."""
        return [command for command in self.last if isinstance(command, kind)]

    def advance(self, seconds: float) -> tuple[RoundsCommand, ...]:
        """Let time pass, then tick."""
        self.now += seconds
        return self(Tick(now=self.now))

    def answer(
        self, assignment: TableAssignment | None = None, refused: dict[int, Refusal] | None = None
    ) -> tuple[RoundsCommand, ...]:
        """Answer the heartbeat under way."""
        request, self.request = self.request, None
        assert request is not None, "no heartbeat is under way"
        return self(
            HeartbeatAnswered(now=self.now, request=request, response=HeartbeatResponse(0, assignment, refused or {}))
        )

    def take(self, *assignments: TableAssignment) -> Drive:
        """Be assigned these, then nothing."""
        for assignment in assignments:
            self.answer(assignment)
        if self.request is not None:
            self.answer()
        return self

    def run(self, table_id: int) -> Drive:
        """Bring an opened table to its job."""
        self(Opened(now=self.now, table_id=table_id, splits=1, leases=False))
        self(JobStarted(now=self.now, table_id=table_id))
        return self

    def commit(self, table_id: int) -> Drive:
        """Bring an opened table to its commit."""
        self.run(table_id)(Drained(now=self.now, table_id=table_id, finished_early=False))
        return self

    def phase(self, table_id: int) -> Phase:
        """Where a table stands."""
        phases = {status.assignment.table_id: status.phase for status in self.rounds.tables}
        return phases.get(table_id, Phase.ABSENT)


def assigned(table_id: int, *, freshness_s: float = 180.0, epoch: int = 1) -> TableAssignment:
    """Assign a table named after its id."""
    return TableAssignment(TablePath("db", f"t{table_id}"), table_id, epoch, 0, freshness_s)


def epoch_of(table_id: int) -> TableEpoch:
    """The epoch that a heartbeat names."""
    return TableEpoch(table_id, 1, 0)


def test_the_first_tick_asks_for_a_table() -> None:
    """Before it nothing is sent."""
    drive = Drive(started=False)
    assert drive.rounds.next_due == 0.0
    assert drive.advance(0) == (SendHeartbeat(HeartbeatRequest(request=True)),)


def test_the_next_table_is_asked_for_at_once_until_the_queue_is_empty() -> None:
    """Then only after the poll interval."""
    drive = Drive()
    assert drive.answer(assigned(1)) == (
        OpenRound(assigned(1), 1),
        SendHeartbeat(HeartbeatRequest(renewed=(epoch_of(1),), request=True)),
    )
    assert drive.answer() == ()
    assert drive.rounds.next_due == 1001.0
    assert drive.advance(0.9) == ()
    assert drive.advance(0.2) == (SendHeartbeat(HeartbeatRequest(renewed=(epoch_of(1),), request=True)),)


def test_no_table_is_asked_for_where_enough_are_assigned() -> None:
    """More than may run are assigned, to choose from."""
    drive = Drive(ServiceSettings(rounds=1, max_tables=2)).take(assigned(1), assigned(2))
    assert drive.advance(5) == ()
    assert drive.advance(25) == (SendHeartbeat(HeartbeatRequest(renewed=(epoch_of(1), epoch_of(2)))),)


def test_an_idle_table_is_finished_at_once_and_the_next_one_asked_for_at_once() -> None:
    """One heartbeat in the same step says both."""
    drive = Drive().take(assigned(1))
    assert drive(Opened(now=drive.now, table_id=1, splits=0, leases=False)) == (
        EndRound(1, "idle"),
        SendHeartbeat(HeartbeatRequest(finished=(epoch_of(1),), request=True)),
    )
    assert drive.answer() == (Forget(1, "finished"),)


def test_a_round_leases_then_runs_then_commits_then_is_reported() -> None:
    """The whole life of a round with snapshots."""
    drive = Drive().take(assigned(1))
    assert drive(Opened(now=drive.now, table_id=1, splits=3, leases=True)) == (AcquireLeases(1),)
    assert drive(Leased(now=drive.now, table_id=1)) == (LaunchJob(1),)
    assert drive(Drained(now=drive.now, table_id=1, finished_early=False)) == (CommitRound(1),)
    assert drive(Committed(now=drive.now, table_id=1, caught_up=True)) == (
        EndRound(1, "committed"),
        SendHeartbeat(HeartbeatRequest(finished=(epoch_of(1),), request=True)),
    )


def test_a_table_that_is_not_caught_up_is_handed_out_again_at_once() -> None:
    """The finished report forces it."""
    drive = Drive().take(assigned(1)).commit(1)
    drive(Committed(now=drive.now, table_id=1, caught_up=False))
    assert drive.all(SendHeartbeat)[0].request.forced == {1}


def test_a_round_over_its_maximum_duration_is_cut_once_and_its_report_is_forced() -> None:
    """Also if nothing more is known to be waiting."""
    drive = Drive(ServiceSettings(max_round_s=20)).take(assigned(1)).run(1)
    assert drive.advance(20)[0] == FinishRoundEarly(1, "the maximum duration is over")
    assert not drive.all(EndRound)
    drive.advance(1)
    assert not drive.all(FinishRoundEarly)
    drive(Drained(now=drive.now, table_id=1, finished_early=True))
    drive(Committed(now=drive.now, table_id=1, caught_up=True))
    drive.answer()
    assert drive.request is not None
    assert drive.request.forced == {1}


def test_the_maximum_duration_of_a_round_counts_from_when_its_first_subtask_runs() -> None:
    """A round that was ended while it waits for slots would commit nothing, and the next one would wait as long."""
    drive = Drive(ServiceSettings(max_round_s=20)).take(assigned(1))
    drive(Opened(now=drive.now, table_id=1, splits=1, leases=False))
    drive.advance(100)
    assert not drive.all(FinishRoundEarly)
    drive(JobStarted(now=drive.now, table_id=1))
    drive.advance(19)
    assert not drive.all(FinishRoundEarly)
    assert drive.advance(1)[0] == FinishRoundEarly(1, "the maximum duration is over")


def test_a_round_that_fails_for_good_while_the_service_stops_says_that_its_table_waits_for_a_person() -> None:
    """The table is given back in the same step: nobody sees it suspended."""
    drive = Drive(ServiceSettings()).take(assigned(1))
    drive(Opened(now=drive.now, table_id=1, splits=1, leases=False))
    drive(StopRequested(now=drive.now))
    drive(RoundFailed(now=drive.now, table_id=1, reason="schema", permanent=True))
    assert drive.last[0] == EndRound(1, "failed", "schema", suspended="schema")


def test_the_earliest_deadline_is_opened_first() -> None:
    """Whatever the order in which the source assignments them."""
    drive = Drive(ServiceSettings(rounds=2)).take(
        assigned(1), assigned(2), assigned(3, freshness_s=180), assigned(4, freshness_s=10)
    )
    assert [drive.phase(table_id) for table_id in (1, 2, 3, 4)] == [
        Phase.OPENING,
        Phase.OPENING,
        Phase.WAITING,
        Phase.WAITING,
    ]
    assert list(drive.rounds.queue) == [4, 3]
    drive(Opened(now=drive.now, table_id=1, splits=0, leases=False))
    assert drive.all(OpenRound) == [OpenRound(assigned(4, freshness_s=10), 1)]
    assert list(drive.rounds.queue) == [3]


def test_a_table_that_has_waited_at_its_source_is_opened_before_one_that_has_not() -> None:
    """Its promised freshness was broken by so much earlier."""
    late = replace(assigned(4), waited_s=30.0)
    drive = Drive(ServiceSettings(rounds=2)).take(assigned(1), assigned(2), assigned(3), late)
    drive(Opened(now=drive.now, table_id=1, splits=0, leases=False))
    assert drive.all(OpenRound) == [OpenRound(late, 1)]


def test_a_dropped_table_leaves_the_others_alone() -> None:
    """Its round ends, it is forgotten, and the other one runs on."""
    drive = Drive().take(assigned(1), assigned(2)).run(1).run(2)
    commands = drive(TableGone(now=drive.now, table_id=1))
    assert commands[:2] == (EndRound(1, "dropped", "the table was dropped"), Forget(1, "dropped"))
    assert drive.phase(2) is Phase.RUNNING


def test_a_failed_table_waits_out_a_growing_back_off() -> None:
    """It is renewed meanwhile and never reported; the pauses are 1, 2, 4 seconds, then at most the most."""
    drive = Drive(ServiceSettings(backoff_most_s=4, poll_s=1000)).take(assigned(1))
    for attempt, pause in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 4.0)):
        assert drive(RoundFailed(now=drive.now, table_id=1, reason="no", permanent=False)) == (
            EndRound(1, "failed", "no"),
        )
        assert drive.rounds.next_due == drive.now + pause
        assert drive.advance(pause - 0.1) == ()
        assert drive.advance(0.2) == (OpenRound(assigned(1), attempt + 1),)
    drive.advance(30)
    assert drive.all(SendHeartbeat)[0].request.renewed == (epoch_of(1),)


def test_a_success_resets_the_attempts() -> None:
    """The next failure waits the first pause again."""
    drive = Drive(ServiceSettings(backoff_first_s=8)).take(assigned(1))
    drive(RoundFailed(now=drive.now, table_id=1, reason="no", permanent=False))
    drive.advance(8)
    assert drive.all(OpenRound) == [OpenRound(assigned(1), 2)]
    drive(Opened(now=drive.now, table_id=1, splits=0, leases=False))
    assert drive.rounds.tables[0].attempt == 0


def test_a_permanent_failure_suspends_until_a_person_resumes() -> None:
    """Time alone never reopens it."""
    drive = Drive(ServiceSettings(poll_s=1e6, renew_s=1e6)).take(assigned(1))
    drive(RoundFailed(now=drive.now, table_id=1, reason="schema", permanent=True))
    assert (drive.phase(1), drive.rounds.tables[0].reason) == (Phase.SUSPENDED, "schema")
    assert drive.advance(10_000) == ()
    assert drive(ResumeRequested(now=drive.now, path=assigned(1).path)) == (OpenRound(assigned(1), 2),)


def fail_in_turn(drive: Drive, failing: int, served: int | None, times: int) -> None:
    """Let a table fail so often; before each time, let another one succeed, if one is named."""
    for _ in range(times):
        if served is not None:
            drive(Opened(now=drive.now, table_id=served, splits=0, leases=False))
            drive.take(assigned(served))
        drive(RoundFailed(now=drive.now, table_id=failing, reason="no", permanent=False))
        drive.advance(2)


def test_a_table_that_keeps_failing_while_others_are_served_is_suspended() -> None:
    """Its reason says how often, and a person who resumes it grants it as many tries again."""
    settings = ServiceSettings(suspend_after=3, backoff_most_s=1, renew_s=1e6, poll_s=1e6)
    drive = Drive(settings).take(assigned(1), assigned(2))
    fail_in_turn(drive, 1, 2, 2)
    assert drive.phase(1) is Phase.OPENING
    fail_in_turn(drive, 1, 2, 1)
    assert drive.phase(1) is Phase.SUSPENDED
    assert drive.rounds.tables[0].reason == "no (3 rounds in a row failed while other tables were served)"
    drive(ResumeRequested(now=drive.now, path=assigned(1).path))
    fail_in_turn(drive, 1, 2, 2)
    assert drive.phase(1) is Phase.OPENING


def test_no_table_is_suspended_for_failing_while_no_other_is_served() -> None:
    """Then the lake or the source is down, and all of them go on once it is back."""
    drive = Drive(ServiceSettings(suspend_after=3, backoff_most_s=1)).take(assigned(1), assigned(2))
    fail_in_turn(drive, 1, None, 50)
    assert drive.phase(1) is Phase.OPENING


def test_a_success_resets_the_failures_that_suspend() -> None:
    """Only failures in a row count."""
    settings = ServiceSettings(suspend_after=3, backoff_most_s=1, renew_s=1e6, poll_s=1e6)
    drive = Drive(settings).take(assigned(1), assigned(2))
    fail_in_turn(drive, 1, 2, 2)
    drive(Opened(now=drive.now, table_id=1, splits=0, leases=False))
    drive.take(assigned(1, epoch=2))
    fail_in_turn(drive, 1, 2, 2)
    assert drive.phase(1) is Phase.OPENING


def test_a_success_resets_them_also_where_the_table_is_assigned_again_before_it_is_reported() -> None:
    """The heartbeat that brings it was under way already."""
    settings = ServiceSettings(suspend_after=3, backoff_most_s=1, renew_s=1e6, poll_s=1e6)
    drive = Drive(settings).take(assigned(1), assigned(2))
    fail_in_turn(drive, 1, 2, 2)
    drive.advance(1e6)
    drive(Opened(now=drive.now, table_id=1, splits=0, leases=False))
    assert drive.phase(1) is Phase.REPORTING
    drive.take(assigned(1, epoch=2))
    fail_in_turn(drive, 1, 2, 2)
    assert drive.phase(1) is Phase.OPENING


def test_a_round_that_commits_leaves_its_place_to_another_one() -> None:
    """A slow commit keeps nobody waiting; nor does a round that waits to be renewed before it commits."""
    drive = Drive(ServiceSettings(rounds=1, max_tables=2)).take(assigned(1), assigned(2))
    assert drive.phase(2) is Phase.WAITING
    drive.commit(1)
    assert drive.all(OpenRound) == [OpenRound(assigned(2), 1)]
    assert drive.all(SendHeartbeat)[0].request.request, "there is room for one more"
    assert drive.phase(1) is Phase.COMMITTING


def test_a_long_round_finishes_early_for_a_table_that_waits_and_is_late() -> None:
    """Not before it has run for `yield_s`, not before the other one is late, and not twice for one table."""
    settings = ServiceSettings(rounds=2, yield_s=20, renew_s=1e6, poll_s=1e6)
    drive = Drive(settings).take(assigned(1), assigned(2), assigned(3, freshness_s=30)).run(1).run(2)
    assert drive.advance(25) == ()
    assert drive.rounds.next_due == 1030.0
    assert drive.advance(5) == (FinishRoundEarly(1, "a table that is late waits"),)
    assert drive.advance(100) == ()
    drive(Drained(now=drive.now, table_id=1, finished_early=True))
    assert drive.phase(3) is Phase.OPENING


def test_a_round_that_made_room_for_another_table_goes_on_at_once_when_it_is_its_turn() -> None:
    """Its report is forced: more rows of it are waiting."""
    settings = ServiceSettings(rounds=1, yield_s=20, fence_s=1e6, renew_s=1e6)
    drive = Drive(settings).take(assigned(1), assigned(2, freshness_s=5)).run(1)
    drive.advance(19)
    assert drive.all(FinishRoundEarly) == []
    drive.advance(1)
    assert drive.all(FinishRoundEarly) == [FinishRoundEarly(1, "a table that is late waits")]
    drive(Drained(now=drive.now, table_id=1, finished_early=True))
    drive(Committed(now=drive.now, table_id=1, caught_up=True))
    assert drive.request is not None
    drive.answer()
    assert drive.request is not None
    assert drive.request.forced == {1}


def failing_round(drive: Drive, table_id: int, why: str = "the disk is full") -> Drive:
    """Let an opened table's round yield while its splits fail, with nothing else to commit."""
    drive.run(table_id)(SplitsFailing(now=drive.now, table_id=table_id, failing=True))
    drive(Drained(now=drive.now, table_id=table_id, finished_early=True, failing=why))
    drive(Committed(now=drive.now, table_id=table_id, caught_up=False))
    return drive


def test_a_round_whose_splits_fail_again_makes_room_at_once_for_a_table_that_does_not_fail() -> None:
    drive = Drive(ServiceSettings(rounds=1, yield_s=20, renew_s=1e6)).take(assigned(1), assigned(2)).run(1)
    assert drive(SplitsFailing(now=drive.now, table_id=1, failing=True)) == (
        FinishRoundEarly(1, "its splits fail, and another table waits"),
    )


def test_a_round_whose_splits_were_read_after_all_makes_no_room_before_its_time() -> None:
    drive = Drive(ServiceSettings(rounds=1, yield_s=20, renew_s=1e6)).take(assigned(1)).run(1)
    drive(SplitsFailing(now=drive.now, table_id=1, failing=True))
    drive(SplitsFailing(now=drive.now, table_id=1, failing=False))
    drive(Resumed(now=drive.now, assignments=(assigned(2),)))
    assert drive.all(FinishRoundEarly) == []


def test_a_round_that_leaves_out_splits_that_failed_has_failed_with_their_cause() -> None:
    """Also if others of its splits were read, and were committed."""
    drive = failing_round(Drive(ServiceSettings(rounds=1, renew_s=1e6)).take(assigned(1)), 1)
    assert drive.all(EndRound) == [EndRound(1, "committed", "the disk is full")]
    assert drive.phase(1) is Phase.BACKOFF
    assert drive.rounds.tables[0].reason == "the disk is full"


def test_rounds_that_leave_out_splits_that_failed_count_until_their_table_is_suspended() -> None:
    drive = Drive(ServiceSettings(rounds=1, suspend_after=2, renew_s=1e6, fence_s=1e6)).take(assigned(1))
    for number in (2, 3):
        failing_round(drive, 1)
        drive(Resumed(now=drive.now, assignments=(assigned(number),)))
        drive.commit(number)(Committed(now=drive.now, table_id=number, caught_up=True))
        drive.advance(300)
    assert drive.phase(1) is Phase.OPENING
    failing_round(drive, 1)
    assert drive.phase(1) is Phase.SUSPENDED
    assert "the disk is full (2 rounds in a row failed" in drive.rounds.tables[0].reason


def test_a_table_that_failed_waits_behind_those_that_were_due_before_its_pause_was_over() -> None:
    """Its own deadline is the oldest: it would get each place that it gives up."""
    drive = Drive(ServiceSettings(rounds=1, renew_s=1e6, backoff_first_s=60.0)).take(assigned(1, freshness_s=1)).run(1)
    drive(RoundFailed(now=drive.now, table_id=1, reason="no", permanent=False))
    drive(Resumed(now=drive.now, assignments=(assigned(2, freshness_s=5), assigned(3, freshness_s=30))))
    assert drive.phase(2) is Phase.OPENING
    drive.advance(60)
    assert drive.rounds.queue == (3, 1)


def test_commits_that_all_are_slow_hold_new_rounds_back_in_the_end() -> None:
    """Otherwise a lake that is down would have a round of every table at once."""
    tables = [assigned(number) for number in range(1, COMMITS_MOST + 4)]
    drive = Drive(ServiceSettings(rounds=1, renew_s=1e6, fence_s=1e7))
    for table in tables:
        drive.answer(table)
        if drive.phase(table.table_id) is Phase.OPENING:
            drive.commit(table.table_id)
    phases = [drive.phase(table.table_id) for table in tables]
    assert phases.count(Phase.COMMITTING) == COMMITS_MOST + 1
    assert set(phases[COMMITS_MOST + 1 :]) == {Phase.WAITING}
    drive(Committed(now=drive.now, table_id=1, caught_up=True))
    assert len(drive.all(OpenRound)) == 1


def test_a_commit_waits_for_a_heartbeat_that_is_fresh() -> None:
    """A renewal counts from when it was sent."""
    drive = Drive(ServiceSettings(fence_s=60, renew_s=30)).take(assigned(1)).run(1)
    drive.advance(30)
    drive(HeartbeatFailed(now=drive.now, cause="no answer"))
    drive.now += 30
    assert drive(Drained(now=drive.now, table_id=1, finished_early=False)) == (
        SendHeartbeat(HeartbeatRequest(renewed=(epoch_of(1),), request=True)),
    )
    assert drive.phase(1) is Phase.SETTLING
    drive.now += 60
    assert drive.answer() == (SendHeartbeat(HeartbeatRequest(renewed=(epoch_of(1),), request=True)),), (
        "sent 60 s ago: too old"
    )
    drive.now += 59
    assert drive.answer()[0] == CommitRound(1)


def test_a_table_that_the_source_refuses_is_never_committed_nor_reported() -> None:
    """Each reason ends the round; only a dropped one is called so."""
    for refusal in Refusal:
        drive = Drive().take(assigned(1)).run(1)
        drive.advance(30)
        outcome = "dropped" if refusal is Refusal.GONE else "fenced"
        commands = drive.answer(refused={1: refusal})
        assert commands[:2] == (
            EndRound(1, outcome, f"the source refused to renew it: {refusal.value}"),
            Forget(1, refusal.value),
        )
        assert drive(Drained(now=drive.now, table_id=1, finished_early=False)) == ()


def test_a_refused_table_that_is_offered_in_the_same_answer_starts_afresh() -> None:
    """The old round ends, then the new epoch opens."""
    drive = Drive().take(assigned(1)).run(1)
    drive.advance(30)
    drive.answer(assigned(1, epoch=2), refused={1: Refusal.FENCED})
    assert [type(command) for command in drive.last] == [EndRound, Forget, OpenRound, SendHeartbeat]


def test_a_newer_epoch_of_an_assigned_table_ends_its_round_as_fenced() -> None:
    """An older or the same one changes nothing."""
    drive = Drive().take(assigned(1)).run(1)
    assert drive(Resumed(now=drive.now, assignments=(assigned(1),))) == ()
    drive(Resumed(now=drive.now, assignments=(assigned(1, epoch=2),)))
    assert drive.all(EndRound) == [EndRound(1, "fenced", "assigned again under epoch 2")]
    assert drive.all(OpenRound) == [OpenRound(assigned(1, epoch=2), 2)]


def test_a_lost_fence_leaves_silently_and_another_one_tries_again_soon() -> None:
    """A base commit that changed is only enumerated afresh."""
    drive = Drive().take(assigned(1)).commit(1)
    drive(RoundFenced(now=drive.now, table_id=1, reason="stamp", lost=True))
    assert drive.last[:2] == (EndRound(1, "fenced", "stamp"), Forget(1, "fenced"))
    drive = Drive().take(assigned(2)).commit(2)
    drive(RoundFenced(now=drive.now, table_id=2, reason="base", lost=False))
    assert drive.last == (EndRound(2, "failed", "base"),)
    assert drive.advance(1)[0] == OpenRound(assigned(2), 2)


def test_vanished_snapshots_are_enumerated_afresh_at_once_but_not_for_ever() -> None:
    """Four times without a failure; the fifth in a row is one."""
    drive = Drive().take(assigned(1))
    for _ in range(4):
        drive(Opened(now=drive.now, table_id=1, splits=1, leases=True))
        assert drive(SnapshotsGone(now=drive.now, table_id=1, reason="gone")) == (
            EndRound(1, "stale", "gone"),
            OpenRound(assigned(1), 1),
        )
    drive(Opened(now=drive.now, table_id=1, splits=1, leases=True))
    drive(SnapshotsGone(now=drive.now, table_id=1, reason="gone"))
    assert drive.phase(1) is Phase.BACKOFF


def test_a_heartbeat_that_failed_renews_nothing_and_is_sent_again_after_a_growing_pause() -> None:
    """Reports stay queued; the pause stays below a third of the renewal period."""
    drive = Drive(ServiceSettings(renew_s=12)).take(assigned(1))
    drive(Opened(now=drive.now, table_id=1, splits=0, leases=False))
    for pause in (1.0, 2.0, 4.0, 4.0):
        assert drive(HeartbeatFailed(now=drive.now, cause="no answer")) == ()
        assert drive.rounds.next_due == drive.now + pause
        assert drive.advance(pause) == (SendHeartbeat(HeartbeatRequest(finished=(epoch_of(1),), request=True)),)


def test_a_paused_table_finishes_early_commits_and_stays_assigned() -> None:
    """No finished report; a resume makes it wait for its turn."""
    drive = Drive().take(assigned(1)).run(1)
    assert drive(PauseRequested(now=drive.now, path=assigned(1).path)) == (FinishRoundEarly(1, "paused"),)
    drive(Drained(now=drive.now, table_id=1, finished_early=True))
    drive(Committed(now=drive.now, table_id=1, caught_up=False))
    assert drive.phase(1) is Phase.PAUSED
    assert drive(ResumeRequested(now=drive.now, path=assigned(1).path)) == (OpenRound(assigned(1), 1),)


def test_a_pause_of_a_table_that_is_not_assigned_is_remembered() -> None:
    """It starts as paused when it is assigned."""
    drive = Drive()
    drive(PauseRequested(now=drive.now, path=assigned(1).path))
    drive.take(assigned(1))
    assert drive.phase(1) is Phase.PAUSED


def test_a_stop_gives_everything_back_and_lets_commits_end() -> None:
    """Reported as failed, so that somebody else can have them at once."""
    settings = ServiceSettings(rounds=2, max_tables=3)
    drive = Drive(settings).take(assigned(1), assigned(2), assigned(3)).commit(1).take(assigned(4)).run(2)
    assert drive(StopRequested(now=drive.now)) == (
        FinishRoundEarly(2, "the service stops"),
        EndRound(3, "stopped", "the service stops"),
        SendHeartbeat(HeartbeatRequest(renewed=(epoch_of(1), epoch_of(2)), failed=(epoch_of(3), epoch_of(4)))),
    )
    drive(Committed(now=drive.now, table_id=1, caught_up=False))
    drive.answer()
    assert drive.all(SendHeartbeat) == [
        SendHeartbeat(HeartbeatRequest(renewed=(epoch_of(2),), finished=(epoch_of(1),)))
    ]
    drive(StopTimedOut(now=drive.now))
    assert drive.all(EndRound) == [EndRound(2, "stopped", "the service stops")]
    drive.answer()
    assert drive.answer() == (Forget(2, "returned"), Stopped())


def test_a_commit_under_way_is_given_up_only_at_the_second_time_out() -> None:
    """Its outcome may be unknown."""
    drive = Drive().take(assigned(1)).commit(1)
    drive(StopRequested(now=drive.now))
    assert drive(StopTimedOut(now=drive.now)) == ()
    assert drive(StopTimedOut(now=drive.now))[0] == EndRound(1, "stopped", "the service stops")
    assert drive(Committed(now=drive.now, table_id=1, caught_up=True)) == ()


def test_a_stop_does_not_wait_for_a_dead_source() -> None:
    """Reports that failed twice are given up."""
    drive = Drive().take(assigned(1))
    drive(StopRequested(now=drive.now))
    assert drive(HeartbeatFailed(now=drive.now, cause="gone")) == ()
    drive.advance(1)
    assert drive(HeartbeatFailed(now=drive.now, cause="gone")) == (Forget(1, "not reported: gone"), Stopped())


def test_an_offer_that_comes_after_the_stop_is_given_back() -> None:
    """It was asked for before."""
    drive = Drive()
    assert drive(StopRequested(now=drive.now)) == ()
    assert drive.answer(assigned(1)) == (SendHeartbeat(HeartbeatRequest(failed=(epoch_of(1),))),)
    assert drive.answer() == (Forget(1, "returned"), Stopped())


def test_a_lost_checkpoint_is_no_try_of_once_and_is_followed_by_another_round_soon() -> None:
    drive = Drive(ServiceSettings(rounds=1, backoff_first_s=1.0), started=False, once=True, once_attempts=2)
    drive(Targets(now=drive.now, paths=frozenset({assigned(1).path})))
    drive.advance(0)
    drive.take(assigned(1))
    for _ in range(5):
        drive(RoundFailed(now=drive.now, table_id=1, reason="damaged", permanent=False, checkpoint_lost=True))
        assert not drive.rounds.stopping
        drive.advance(1)
        assert drive.phase(1) is Phase.OPENING
    drive(RoundFailed(now=drive.now, table_id=1, reason="no", permanent=False))
    assert drive.rounds.stopping


def test_once_stops_when_every_target_is_reached_or_failed_for_good() -> None:
    """The failed ones are named with their last reason."""
    drive = Drive(ServiceSettings(rounds=4), started=False, once=True, once_attempts=2)
    paths = frozenset(assigned(table_id).path for table_id in (1, 2, 3, 4))
    drive(Targets(now=drive.now, paths=paths))
    drive.advance(0)
    drive.take(assigned(1), assigned(2), assigned(3), assigned(4))
    drive(TableGone(now=drive.now, table_id=2))
    drive(RoundFailed(now=drive.now, table_id=3, reason="first", permanent=False))
    drive.advance(1)
    drive(RoundFailed(now=drive.now, table_id=3, reason="second", permanent=False))
    drive(RoundFailed(now=drive.now, table_id=4, reason="schema", permanent=True))
    drive.commit(1)(Committed(now=drive.now, table_id=1, caught_up=True))
    drive(TargetReached(now=drive.now, path=assigned(1).path))
    assert drive.rounds.stopping
    while drive.request is not None:
        drive.answer()
    named = (("t2", "dropped"), ("t3", "second"), ("t4", "schema"))
    assert drive.last[-1] == Stopped(tuple((TablePath("db", name), reason) for name, reason in named))


def test_once_does_not_wait_for_a_paused_table() -> None:
    """It is named as paused."""
    drive = Drive(started=False, once=True)
    drive(PauseRequested(now=drive.now, path=assigned(1).path))
    drive(Targets(now=drive.now, paths=frozenset({assigned(1).path})))
    assert drive.last == (Stopped(((assigned(1).path, "paused"),)),)


def test_a_late_answer_about_a_table_not_assigned_is_harmless() -> None:
    """Nothing is said and nothing is changed."""
    drive = Drive()
    for event in (
        Opened(now=drive.now, table_id=9, splits=1, leases=True),
        Leased(now=drive.now, table_id=9),
        SnapshotsGone(now=drive.now, table_id=9, reason="gone"),
        Drained(now=drive.now, table_id=9, finished_early=False),
        Committed(now=drive.now, table_id=9, caught_up=True),
        RoundFailed(now=drive.now, table_id=9, reason="x", permanent=True),
        TableGone(now=drive.now, table_id=9),
        RoundFenced(now=drive.now, table_id=9, reason="x", lost=True),
    ):
        assert drive(event) == ()


@pytest.mark.parametrize("leased", [True, False])
def test_a_table_whose_snapshots_keep_vanishing_while_others_are_served_is_suspended(*, leased: bool) -> None:
    rounds = new()
    for event in (*SERVED, *(opened(leases=True), GONE) * 4, opened(leases=True)):
        rounds.step(event)
    if leased:
        rounds.step(Leased(now=0.0, table_id=7))
    (end, *_) = rounds.step(GONE)
    assert isinstance(end, EndRound)
    assert end.suspended.endswith("(1 rounds in a row failed while other tables were served)")
    assert [table.phase for table in rounds.tables if table.assignment.table_id == 7] == [Phase.SUSPENDED]


def test_targets_that_come_after_a_stop_are_named_as_missed() -> None:
    """The end offsets are looked at while somebody asks the service to stop: that is no mistake of ours."""
    rounds = new()
    for event in (*OPENING, STOP, Targets(now=0.0, paths=frozenset({EIGHT.path}))):
        rounds.step(event)
    assert rounds.sent is not None
    rounds.step(answered(rounds.sent.request))
    assert Stopped(((EIGHT.path, "the service stopped before it was reached"),)) in rounds.step(answered(RETURN))


# --- what kills mutants of deadlines and suspension ---------------------------------------------------------------

KILLERS: Mapping[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    mutants.suspends_while_no_other_table_is_served: (test_no_table_is_suspended_for_failing_while_no_other_is_served),
    mutants.never_suspends_what_keeps_failing: test_a_table_that_keeps_failing_while_others_are_served_is_suspended,
    mutants.counts_failures_before_a_success: (
        test_a_success_resets_them_also_where_the_table_is_assigned_again_before_it_is_reported
    ),
    mutants.counts_failures_before_a_person_resumed: (
        test_a_table_that_keeps_failing_while_others_are_served_is_suspended
    ),
    mutants.keeps_its_place_while_it_commits: test_a_round_that_commits_leaves_its_place_to_another_one,
    mutants.opens_rounds_without_end_beside_slow_commits: (
        test_commits_that_all_are_slow_hold_new_rounds_back_in_the_end
    ),
    mutants.makes_room_for_nobody: test_a_long_round_finishes_early_for_a_table_that_waits_and_is_late,
    mutants.makes_room_before_a_round_has_done_anything: (
        test_a_round_that_made_room_for_another_table_goes_on_at_once_when_it_is_its_turn
    ),
    mutants.makes_room_for_a_table_that_is_not_late: (
        test_a_long_round_finishes_early_for_a_table_that_waits_and_is_late
    ),
    mutants.makes_room_twice_for_one_table: test_a_long_round_finishes_early_for_a_table_that_waits_and_is_late,
    mutants.lets_the_youngest_round_make_room: test_a_long_round_finishes_early_for_a_table_that_waits_and_is_late,
    mutants.counts_the_time_that_a_round_waits_for_spark: (
        test_the_maximum_duration_of_a_round_counts_from_when_its_first_subtask_runs
    ),
    mutants.takes_a_round_that_made_room_for_a_whole_one: (
        test_a_round_that_made_room_for_another_table_goes_on_at_once_when_it_is_its_turn
    ),
}


@pytest.mark.parametrize("mutate", mutants.OF_DEADLINES, ids=lambda mutate: mutate.__name__)
@pytest.mark.mutant
def test_a_mutant_of_deadlines_dies(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scenario of the rule that it breaks finds it, by an assertion."""
    KILLERS[mutate]()
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        KILLERS[mutate]()


def test_what_was_renewed_when_is_made_anew_by_a_heartbeat_alone_and_says_the_same_as_the_tables() -> None:
    """Each event asks for it, of all tables."""
    drive = Drive().take(assigned(1), assigned(2))
    before = drive.rounds.renewed
    drive(Opened(now=drive.now, table_id=1, splits=1, leases=False))
    assert drive.rounds.renewed is before
    drive.advance(drive.rounds.settings.renew_s)
    drive.answer(refused={2: Refusal.GONE})
    assert drive.rounds.renewed == {assigned(1): drive.now}
    assert before == dict.fromkeys((assigned(1), assigned(2)), 1000.0)
    drive(RoundFenced(now=drive.now, table_id=1, reason="stamped by a later start", lost=True))
    assert drive.rounds.renewed == {}
