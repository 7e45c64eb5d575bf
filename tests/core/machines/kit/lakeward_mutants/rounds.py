"""Mutants of the rounds machine: each is given pytest's `monkeypatch`, and changes the product."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.machines.rounds import Rounds, heartbeats

if TYPE_CHECKING:
    import pytest

    from lakeward.machines.rounds import HeartbeatAnswered
    from lakeward.machines.rounds.state import RoundsState, TieringTable
    from lakeward.model.settings import ServiceSettings
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
