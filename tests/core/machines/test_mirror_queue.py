"""The queue of mirrored tables answers as a source's queue does."""

from __future__ import annotations

from lakeward.machines.mirror import SILENT_S, MirrorQueue
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
