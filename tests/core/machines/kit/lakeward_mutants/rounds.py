"""Mutants of the rounds machine: each is given pytest's `monkeypatch`, and changes the product."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.machines import heartbeats
from lakeward.machines.round_moves import Moves

if TYPE_CHECKING:
    import pytest

    from lakeward.machines.hand import Hand, TableInHand
    from lakeward.machines.rounds import BeatAnswered, RoundsPolicy
    from lakeward.model.tiering import Beat, Refusal


def commits_on_any_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the fence time is forgotten."""
    monkeypatch.setattr(Moves, "may_commit", lambda self, table: True)


def forgets_to_renew_what_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a heartbeat speaks only of open rounds and reports."""

    def compose(hand: Hand, policy: RoundsPolicy) -> Beat:
        beat = original(hand, policy)
        return replace(beat, renewed=tuple(claim for claim in beat.renewed if hand.tables[claim.table_id].active))

    original = heartbeats.compose
    monkeypatch.setattr(heartbeats, "compose", compose)


def keeps_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a refusal is not read, as upstream does."""

    def refused(self: Moves, table: TableInHand, refusal: Refusal) -> None:
        """Do nothing."""

    monkeypatch.setattr(Moves, "refused", refused)


def opens_the_latest_deadline_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the order is turned round."""

    def turn(hand: Hand) -> None:
        for table_id, table in hand.tables.items():
            hand.tables[table_id] = replace(table, deadline=-table.deadline)

    def fill(self: Moves) -> None:
        turn(self.hand)
        original(self)
        turn(self.hand)

    original = Moves._fill_slots
    monkeypatch.setattr(Moves, "_fill_slots", fill)


def counts_a_renewal_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a slow heartbeat looks fresh."""

    def answered(moves: Moves, event: BeatAnswered) -> None:
        if moves.hand.sent is not None:
            moves.hand.sent = replace(moves.hand.sent, at=moves.now)
        original(moves, event)

    original = heartbeats.answered
    monkeypatch.setattr(heartbeats, "answered", answered)
