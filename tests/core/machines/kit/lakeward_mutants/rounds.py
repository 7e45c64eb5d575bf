"""Mutants of the rounds machine: each is given pytest's `monkeypatch`, and changes the product."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.machines.machine import Rule
from lakeward.machines.rounds import (
    HEARTBEAT_RULES,
    TABLE_RULES,
    HeartbeatAnswered,
    HeartbeatPhase,
    Leased,
    Opened,
    Phase,
    Rounds,
    rules,
    state,
    table_rules,
)
from lakeward.machines.rounds.messages import FinishRoundEarly, RoundOverdue, TableRefused
from lakeward.machines.rounds.state import RoundsState, TieringTable
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    import pytest

    from lakeward.machines.rounds import RoundsCommand
    from lakeward.model.tiering import HeartbeatRequest

Commands = tuple["RoundsCommand", ...]


def _with_table_rules(monkeypatch: pytest.MonkeyPatch, *rows: Rule[RoundsState, RoundsCommand]) -> None:
    monkeypatch.setattr(Rounds, "table_rules", with_rules(TABLE_RULES, *rows))


def commits_on_any_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the fence time is forgotten."""
    monkeypatch.setattr(RoundsState, "may_commit", lambda *_: True)


def forgets_to_renew_what_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a heartbeat names only open rounds and reports."""

    def compose(rounds: RoundsState) -> HeartbeatRequest:
        request = original(rounds)
        active = tuple(epoch for epoch in request.renewed if rounds.is_active(rounds.assigned[epoch.table_id]))
        return replace(request, renewed=active)

    original = RoundsState.compose_heartbeat
    monkeypatch.setattr(RoundsState, "compose_heartbeat", compose)


def keeps_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a refusal is not read, as upstream does."""
    _with_table_rules(monkeypatch, Rule(table_rules.ASSIGNED, TableRefused))


def opens_the_latest_deadline_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the order is reversed."""

    def order(self: RoundsState, table: TieringTable) -> tuple[float, int]:
        return original(self, structs.replace(table, deadline=-table.deadline))

    original = RoundsState.order
    monkeypatch.setattr(RoundsState, "order", order)


def counts_a_renewal_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a slow heartbeat looks fresh."""

    def take_answer(rounds: RoundsState, event: HeartbeatAnswered) -> Commands:
        rounds.sent = None if rounds.sent is None else structs.replace(rounds.sent, at=event.now)
        return rules.take_answer(rounds, event)

    wrong: Rule[RoundsState, RoundsCommand] = Rule(
        HeartbeatPhase.UNDER_WAY, HeartbeatAnswered, when=rules.is_of_sent, to=HeartbeatPhase.RESTING, do=take_answer
    )
    monkeypatch.setattr(Rounds, "heartbeat_rules", with_rules(HEARTBEAT_RULES, wrong))


def suspends_while_no_other_table_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: each failure counts, also where lake or source are down for all."""
    monkeypatch.setattr(
        RoundsState, "count_failure", lambda _, table: structs.replace(table, failures=table.failures + 1)
    )


def never_suspends_what_keeps_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: no failure counts."""
    monkeypatch.setattr(RoundsState, "count_failure", lambda _, table: table)


def counts_failures_before_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a table is suspended for failures that were not in a row."""

    def succeeded(self: TieringTable, served: int, *, forced: bool) -> TieringTable:
        return structs.replace(original(self, served, forced=forced), failures=self.failures)

    original = TieringTable.succeeded
    monkeypatch.setattr(TieringTable, "succeeded", succeeded)


def counts_failures_before_a_person_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a table that was resumed is suspended again at its first failure."""
    original = TieringTable.resumed
    monkeypatch.setattr(TieringTable, "resumed", lambda self: structs.replace(original(self), failures=self.failures))


def keeps_its_place_while_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a slow commit holds the next table up."""
    monkeypatch.setattr(RoundsState, "working", frozenset(state.ACTIVE))


def opens_rounds_without_end_beside_slow_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a lake that is down has a round of every table."""
    monkeypatch.setattr(state, "COMMITS_MOST", 1_000_000)


def makes_room_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a late table waits until a long round ends."""
    monkeypatch.setattr(RoundsState, "next_yield", lambda *_: None)


def makes_room_before_a_round_has_done_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: `yield_s` is not looked at."""

    def next_yield(self: RoundsState, now: float) -> float | None:
        settings = self.settings
        self.settings = structs.replace(settings, yield_s=0.0)
        try:
            return original(self, now)
        finally:
            self.settings = settings

    original = RoundsState.next_yield
    monkeypatch.setattr(RoundsState, "next_yield", next_yield)


def makes_room_for_a_table_that_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: whoever waits is late."""

    def first_waiting(self: RoundsState, most: int) -> list[TieringTable]:
        return [structs.replace(table, deadline=float("-inf")) for table in original(self, most)]

    original = RoundsState.first_waiting

    def next_yield(self: RoundsState, now: float) -> float | None:
        with monkeypatch.context() as patch:
            patch.setattr(RoundsState, "first_waiting", first_waiting)
            return original_yield(self, now)

    original_yield = RoundsState.next_yield
    monkeypatch.setattr(RoundsState, "next_yield", next_yield)


def makes_room_twice_for_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a round that finishes early already is not counted."""

    def next_yield(self: RoundsState, now: float) -> float | None:
        other = type(self)(self.settings)
        vars(other).update(vars(self))
        other.assigned = type(self.assigned)(
            other.undo,
            {table_id: structs.replace(table, finishing_early=False) for table_id, table in self.assigned.items()},
        )
        return original(other, now)

    original = RoundsState.next_yield
    monkeypatch.setattr(RoundsState, "next_yield", next_yield)


def lets_the_youngest_round_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the round that was launched last is cut."""

    def first_to_yield(self: RoundsState) -> TieringTable:
        running = [table for table in self.assigned.values() if table.finish_by is not None]
        return max(running, key=lambda table: (table.finish_by or 0.0, table.assignment.table_id))

    monkeypatch.setattr(RoundsState, "first_to_yield", first_to_yield)


def counts_the_time_that_a_round_waits_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the maximum duration counts from the launch."""

    def launch(rounds: RoundsState, event: Opened | Leased) -> Commands:
        rounds.put(structs.replace(rounds.assigned[event.table_id], finish_by=event.now + 20))
        return table_rules.launch(rounds, event)

    def has_splits_alone(rounds: RoundsState, event: Opened) -> bool:
        return table_rules.has_splits(rounds, event) and not event.leases

    _with_table_rules(
        monkeypatch,
        Rule(Phase.OPENING, Opened, when=has_splits_alone, to=Phase.RUNNING, do=launch),
        Rule(Phase.LEASING, Leased, to=Phase.RUNNING, do=launch),
    )


def takes_a_round_that_made_room_for_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what it left waits for the table's next turn at the source."""

    def finish_early(rounds: RoundsState, event: RoundOverdue) -> Commands:
        rounds.put(structs.replace(rounds.assigned[event.table_id], finishing_early=True, finish_by=None))
        return (FinishRoundEarly(event.table_id, event.reason),)

    wrong = Rule(Phase.RUNNING, RoundOverdue, when=table_rules.is_not_finishing, do=finish_early)
    _with_table_rules(monkeypatch, wrong)


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
