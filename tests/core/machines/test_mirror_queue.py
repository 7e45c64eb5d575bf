"""The queue of mirrored tables answers as a source's queue does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeward.machines.mirror import SILENT_S, MirrorQueue, SourceTurns
from lakeward.model.tables import TablePath
from lakeward.model.tiering import Beat, Claim, Offer, Refusal

A, B = TablePath("t", "a"), TablePath("t", "b")
ASK = Beat(request=True)


def queue(now: float = 0.0, **freshness: float) -> MirrorQueue:
    made = MirrorQueue()
    made.update(now, {number: (path, freshness.get(path.table, 10.0)) for number, path in enumerate((A, B))})
    return made


def claim(offer: Offer | None) -> Claim:
    assert offer is not None
    return Claim(offer.table_id, offer.epoch, offer.coordinator_epoch)


def test_new_tables_are_due_at_once_one_for_each_request() -> None:
    made = queue()
    offers = [made.beat(0.0, ASK).offer for _ in range(3)]
    assert [offer.path if offer else None for offer in offers] == [A, B, None]


def test_a_finished_table_is_due_when_its_freshness_is_over() -> None:
    made = queue()
    first, _ = made.beat(0.0, ASK).offer, made.beat(0.0, ASK)
    made.beat(1.0, Beat(finished=(claim(first),)))
    assert made.beat(10.9, ASK).offer is None
    again = made.beat(11.0, ASK).offer
    assert again is not None
    assert (again.path, again.epoch) == (A, 2)


def test_a_forced_finish_makes_the_table_due_at_once() -> None:
    made = queue()
    first = made.beat(0.0, ASK).offer
    answer = made.beat(1.0, Beat(finished=(claim(first),), forced=frozenset({0}), request=True))
    assert answer.offer is not None
    assert not answer.refused


def test_a_failed_table_is_due_at_once() -> None:
    made = queue()
    first, _ = made.beat(0.0, ASK).offer, made.beat(0.0, ASK)
    again = made.beat(1.0, Beat(failed=(claim(first),), request=True)).offer
    assert again is not None
    assert again.path == A


def test_an_old_epoch_is_fenced_and_a_table_that_nobody_has_is_not_tiering() -> None:
    made = queue()
    old, other = claim(made.beat(0.0, ASK).offer), claim(made.beat(0.0, ASK).offer)
    made.beat(1.0, Beat(failed=(old,), finished=(other,), request=True))
    assert made.beat(2.0, Beat(renewed=(old, Claim(1, 0, 0)))).refused == {0: Refusal.FENCED, 1: Refusal.NOT_TIERING}


def test_a_table_that_is_gone_is_refused_as_gone() -> None:
    made = queue()
    first = made.beat(0.0, ASK).offer
    made.update(1.0, {1: (B, 10.0)})
    assert made.beat(1.0, Beat(renewed=(claim(first),))).refused == {0: Refusal.GONE}


def test_a_table_that_was_due_first_comes_first() -> None:
    made = queue(a=10.0, b=3.0)
    for _ in range(2):
        offer = made.beat(0.0, ASK).offer
        made.beat(0.0, Beat(finished=(claim(offer),)))
    offers = [made.beat(20.0, ASK).offer for _ in range(2)]
    assert [offer.path for offer in offers if offer] == [B, A]


def test_a_table_in_hand_that_no_heartbeat_speaks_of_is_handed_out_again() -> None:
    """Its round was given up without a report: the table was gone for it, or the answer that offered it was lost."""
    made = queue()
    offers = [made.beat(0.0, ASK).offer for _ in range(2)]
    kept = claim(offers[0])
    assert made.beat(SILENT_S, Beat(renewed=(kept,), request=True)).offer is None
    again = made.beat(SILENT_S + 1.0, Beat(renewed=(kept,), request=True)).offer
    assert again is not None
    assert (again.path, again.epoch) == (B, 2)


def test_a_heartbeat_that_comes_late_still_renews() -> None:
    made = queue()
    kept = claim(made.beat(0.0, ASK).offer)
    assert made.beat(10 * SILENT_S, Beat(renewed=(kept,))).refused == {}


def test_make_due_moves_only_what_nobody_has_in_hand() -> None:
    made = queue()
    first, second = made.beat(0.0, ASK).offer, made.beat(0.0, ASK).offer
    made.beat(0.0, Beat(finished=(claim(second),)))
    made.make_due(1.0, {A, B})
    offers = [made.beat(1.0, ASK).offer for _ in range(2)]
    assert [offer.path if offer else None for offer in offers] == [B, None]
    assert first is not None


def test_an_offer_says_for_how_long_its_table_has_been_due() -> None:
    made = queue()
    assert made.oldest_due(0.0) == 0.0
    offer = made.beat(7.0, ASK).offer
    assert offer is not None
    assert offer.waited_s == 7.0


def turns(now: float = 0.0) -> SourceTurns:
    made = SourceTurns()
    made.update(now, {1: 10.0, 2: 10.0})
    return made


def test_tables_of_the_source_count_as_due_when_they_are_first_seen() -> None:
    made = turns()
    assert made.oldest_due(5.0) == 0.0
    assert made.offered(5.0, 1) == 5.0


@pytest.mark.parametrize(
    ("beat", "due"),
    [
        (Beat(finished=(Claim(1, 1, 0),)), 16.0),
        (Beat(finished=(Claim(1, 1, 0),), forced=frozenset({1})), 6.0),
        (Beat(failed=(Claim(1, 1, 0),)), 6.0),
    ],
)
def test_a_reported_table_is_due_a_freshness_later_or_at_once(beat: Beat, due: float) -> None:
    made = turns()
    made.offered(1.0, 2)
    made.offered(1.0, 1)
    assert made.oldest_due(5.0) is None
    made.reported(6.0, replace(beat, renewed=(Claim(2, 1, 0),)))
    assert made.oldest_due(due - 0.1) is None
    assert made.oldest_due(due) == due


def test_what_the_source_did_not_give_when_it_was_asked_does_not_wait_there() -> None:
    made = turns()
    made.empty(5.0)
    assert made.oldest_due(5.0) == 5.0


def test_nothing_waits_for_longer_than_what_the_source_gave_last() -> None:
    made = turns()
    made.offered(1.0, 1)
    made.reported(2.0, Beat(finished=(Claim(1, 1, 0),)))
    assert made.offered(20.0, 1) == 8.0
    assert made.oldest_due(20.0) == 12.0  # table 2 counted as due at 0, and a first-in-first-out queue gave table 1


def test_a_table_that_was_given_up_without_a_report_waits_at_the_source_again() -> None:
    made = turns()
    made.offered(1.0, 1)
    made.offered(1.0, 2)
    made.reported(2.0, Beat(renewed=(Claim(1, 1, 0),)))
    assert made.oldest_due(3.0) == 0.0


def test_a_table_that_is_gone_waits_no_more() -> None:
    made = turns()
    made.update(1.0, {})
    assert made.oldest_due(5.0) is None
