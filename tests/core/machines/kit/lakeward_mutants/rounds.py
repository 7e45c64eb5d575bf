"""Mutants of the rounds machine: each is given pytest's `monkeypatch`, and changes the product."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.machines.rounds import Rounds, heartbeats, machine
from lakeward.machines.rounds.state import TieringTable

if TYPE_CHECKING:
    import pytest

    from lakeward.machines.rounds import HeartbeatAnswered
    from lakeward.machines.rounds.state import RoundsState
    from lakeward.machines.rounds.transitions import RoundsGuard
    from lakeward.model.settings import ServiceSettings
    from lakeward.model.tables import TablePath
    from lakeward.model.tiering import HeartbeatRequest, Refusal


def commits_on_any_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the fence time is forgotten."""
    monkeypatch.setattr(Rounds, "_may_commit", lambda self, table: True)


def forgets_to_renew_what_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a heartbeat names only open rounds and reports."""

    def compose(state: RoundsState, settings: ServiceSettings) -> HeartbeatRequest:
        request = original(state, settings)
        return replace(
            request, renewed=tuple(epoch for epoch in request.renewed if state.tables[epoch.table_id].active)
        )

    original = heartbeats.compose
    monkeypatch.setattr(heartbeats, "compose", compose)


def keeps_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a refusal is not read, as upstream does."""

    def refused(self: Rounds, table: TieringTable, refusal: Refusal) -> None:
        """Do nothing."""

    monkeypatch.setattr(Rounds, "_refused", refused)


def opens_the_latest_deadline_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the order is reversed."""

    def reverse(state: RoundsState) -> None:
        for table_id, table in state.tables.items():
            state.tables[table_id] = replace(table, deadline=-table.deadline)

    def open_waiting_tables(self: Rounds) -> None:
        reverse(self._state)
        original(self)
        reverse(self._state)

    original = Rounds._open_waiting_tables
    monkeypatch.setattr(Rounds, "_open_waiting_tables", open_waiting_tables)


def counts_a_renewal_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a slow heartbeat looks fresh."""

    def heartbeat_answered(self: Rounds, event: HeartbeatAnswered, sent_at: float) -> None:
        original(self, event, event.now)

    original = Rounds._heartbeat_answered
    monkeypatch.setattr(Rounds, "_heartbeat_answered", heartbeat_answered)


def suspends_while_no_other_table_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: each failure counts, also where lake or source are down for all."""
    monkeypatch.setattr(Rounds, "_count_failure", lambda self, table: replace(table, failures=table.failures + 1))


def never_suspends_what_keeps_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: no failure counts."""
    monkeypatch.setattr(Rounds, "_count_failure", lambda self, table: table)


def counts_failures_before_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a table is suspended for failures that were not in a row."""

    def succeeded(self: Rounds, table: TieringTable, guard: RoundsGuard, *, forced: bool) -> None:
        original(self, table, guard, forced=forced)
        _count_again(self, table)

    original = Rounds._succeeded
    monkeypatch.setattr(Rounds, "_succeeded", succeeded)


def counts_failures_before_a_person_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a table that was resumed is suspended again at its first failure."""

    def resume(self: Rounds, path: TablePath) -> None:
        before = self._state.of_path(path)
        original(self, path)
        for table in before:
            _count_again(self, table)

    original = Rounds._resume
    monkeypatch.setattr(Rounds, "_resume", resume)


def _count_again(rounds: Rounds, before: TieringTable) -> None:
    """Give a table the failures back that it had."""
    table_id = before.assignment.table_id
    if table_id in rounds._state.tables:
        rounds._state.tables[table_id] = replace(rounds._state.tables[table_id], failures=before.failures)


def keeps_its_place_while_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a slow commit holds the next table up."""
    monkeypatch.setattr(TieringTable, "working", property(lambda self: self.active))


def opens_rounds_without_end_beside_slow_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a lake that is down has a round of every table."""
    monkeypatch.setattr(machine, "COMMITS_MOST", 1_000_000)


def makes_room_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a late table waits until a long round ends."""
    monkeypatch.setattr(Rounds, "_next_yield", lambda self: None)


def makes_room_before_a_round_has_done_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: `yield_s` is not looked at."""

    def next_yield(self: Rounds) -> float | None:
        settings = self._settings
        self._settings = structs.replace(settings, yield_s=0.0)
        try:
            return original(self)
        finally:
            self._settings = settings

    original = Rounds._next_yield
    monkeypatch.setattr(Rounds, "_next_yield", next_yield)


def makes_room_for_a_table_that_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: whoever waits is late."""

    def first_waiting(self: Rounds, most: int) -> list[TieringTable]:
        return [replace(table, deadline=float("-inf")) for table in original(self, most)]

    original = Rounds._first_waiting

    def next_yield(self: Rounds) -> float | None:
        with monkeypatch.context() as patch:
            patch.setattr(Rounds, "_first_waiting", first_waiting)
            return original_yield(self)

    original_yield = Rounds._next_yield
    monkeypatch.setattr(Rounds, "_next_yield", next_yield)


def makes_room_twice_for_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a round that finishes early already is not counted."""

    def next_yield(self: Rounds) -> float | None:
        tables = self._state.tables
        self._state.tables = {
            table_id: replace(table, finishing_early=False) for table_id, table in self._state.tables.items()
        }
        try:
            return original(self)
        finally:
            self._state.tables = tables

    original = Rounds._next_yield
    monkeypatch.setattr(Rounds, "_next_yield", next_yield)


def lets_the_youngest_round_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the round that was launched last is cut."""

    def first_to_yield(self: Rounds) -> TieringTable:
        running = [table for table in self._state.tables.values() if table.finish_by is not None]
        return max(running, key=lambda table: (table.finish_by or 0.0, table.assignment.table_id))

    monkeypatch.setattr(Rounds, "_first_to_yield", first_to_yield)


def counts_the_time_that_a_round_waits_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the maximum duration counts from the launch."""
    launch = Rounds._launch

    def launch_and_count(self: Rounds, table: TieringTable, guard: RoundsGuard) -> None:
        launch(self, table, guard)
        self._put(replace(self._state.tables[table.assignment.table_id], finish_by=self._event.now + 20))

    monkeypatch.setattr(Rounds, "_launch", launch_and_count)


def takes_a_round_that_made_room_for_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what it left waits for the table's next turn at the source."""

    def finish_early(self: Rounds, table: TieringTable, reason: str, *, overran: bool = False) -> None:
        del overran
        original(self, table, reason)

    original = Rounds._finish_early
    monkeypatch.setattr(Rounds, "_finish_early", finish_early)


OF_DEADLINES = (
    suspends_while_no_other_table_is_served,
    never_suspends_what_keeps_failing,
    counts_failures_before_a_success,
    counts_failures_before_a_person_resumed,
    keeps_its_place_while_it_commits,
    opens_rounds_without_end_beside_slow_commits,
    makes_room_for_nobody,
    makes_room_before_a_round_has_done_anything,
    makes_room_for_a_table_that_is_not_late,
    makes_room_twice_for_one_table,
    lets_the_youngest_round_make_room,
    takes_a_round_that_made_room_for_a_whole_one,
    counts_the_time_that_a_round_waits_for_spark,
)
"""What a seed sees as lateness at the most: each is killed by a scenario of the machine."""
