"""The queue of mirrored tables answers as a source's queue does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeward.machines.rounds.mirror_queue import SILENT_S, MirrorQueue, SourceQueueEstimate
from lakeward.model.tables import TablePath
from lakeward.model.tiering import HeartbeatRequest, Refusal, TableAssignment, TableEpoch

A, B = TablePath("t", "a"), TablePath("t", "b")
ASK = HeartbeatRequest(request=True)


def queue(now: float = 0.0, **freshness: float) -> MirrorQueue:
    made = MirrorQueue()
    made.update(now, {number: (path, freshness.get(path.table, 10.0)) for number, path in enumerate((A, B))})
    return made


def epoch(assignment: TableAssignment | None) -> TableEpoch:
    assert assignment is not None
    return TableEpoch(assignment.table_id, assignment.epoch, assignment.coordinator_epoch)


def test_new_tables_are_due_at_once_one_for_each_request() -> None:
    made = queue()
    offers = [made.heartbeat(0.0, ASK).assignment for _ in range(3)]
    assert [assignment.path if assignment else None for assignment in offers] == [A, B, None]


def test_a_finished_table_is_due_when_its_freshness_is_over() -> None:
    made = queue()
    first, _ = made.heartbeat(0.0, ASK).assignment, made.heartbeat(0.0, ASK)
    made.heartbeat(1.0, HeartbeatRequest(finished=(epoch(first),)))
    assert made.heartbeat(10.9, ASK).assignment is None
    again = made.heartbeat(11.0, ASK).assignment
    assert again is not None
    assert (again.path, again.epoch) == (A, 2)


def test_a_forced_finish_makes_the_table_due_at_once() -> None:
    made = queue()
    first = made.heartbeat(0.0, ASK).assignment
    answer = made.heartbeat(1.0, HeartbeatRequest(finished=(epoch(first),), forced=frozenset({0}), request=True))
    assert answer.assignment is not None
    assert not answer.refused


def test_a_failed_table_is_due_at_once() -> None:
    made = queue()
    first, _ = made.heartbeat(0.0, ASK).assignment, made.heartbeat(0.0, ASK)
    again = made.heartbeat(1.0, HeartbeatRequest(failed=(epoch(first),), request=True)).assignment
    assert again is not None
    assert again.path == A


def test_an_old_epoch_is_fenced_and_a_table_that_nobody_has_is_not_tiering() -> None:
    made = queue()
    old, other = epoch(made.heartbeat(0.0, ASK).assignment), epoch(made.heartbeat(0.0, ASK).assignment)
    made.heartbeat(1.0, HeartbeatRequest(failed=(old,), finished=(other,), request=True))
    assert made.heartbeat(2.0, HeartbeatRequest(renewed=(old, TableEpoch(1, 0, 0)))).refused == {
        0: Refusal.FENCED,
        1: Refusal.NOT_TIERING,
    }


def test_a_table_that_is_gone_is_refused_as_gone() -> None:
    made = queue()
    first = made.heartbeat(0.0, ASK).assignment
    made.update(1.0, {1: (B, 10.0)})
    assert made.heartbeat(1.0, HeartbeatRequest(renewed=(epoch(first),))).refused == {0: Refusal.GONE}


def test_a_table_that_another_service_tiers_now_is_refused_as_not_ours_until_nobody_names_it() -> None:
    made = queue()
    first = epoch(made.heartbeat(0.0, ASK).assignment)
    made.update(1.0, {1: (B, 10.0)}, elsewhere={0})
    for now in (2.0, SILENT_S + 1, 2 * SILENT_S):
        assert made.table_ids == {0, 1}, "the source must not be asked about an epoch of this queue"
        assert made.heartbeat(now, HeartbeatRequest(renewed=(first,))).refused == {0: Refusal.NOT_TIERING}
        made.update(now, {1: (B, 10.0)}, elsewhere={0})
    made.update(3 * SILENT_S + 1, {1: (B, 10.0)}, elsewhere={0})
    assert made.table_ids == {1}


def test_a_table_that_left_in_its_round_and_comes_back_is_due_under_a_new_epoch() -> None:
    made = queue()
    first = epoch(made.heartbeat(0.0, ASK).assignment)
    made.update(1.0, {1: (B, 10.0)}, elsewhere={0})
    made.update(2.0, {0: (A, 10.0), 1: (B, 10.0)})
    assert made.heartbeat(2.0, HeartbeatRequest(renewed=(first,))).refused == {0: Refusal.NOT_TIERING}
    made.heartbeat(2.0, ASK)
    again = epoch(made.heartbeat(2.0, ASK).assignment)
    assert (again.table_id, again.epoch) == (0, 2)


def test_a_table_that_left_is_not_assigned() -> None:
    made = queue()
    made.update(1.0, {}, elsewhere={0, 1})
    assert made.heartbeat(1.0, ASK).assignment is None
    assert made.table_ids == frozenset()


def test_a_table_that_was_due_first_comes_first() -> None:
    made = queue(a=10.0, b=3.0)
    for _ in range(2):
        assignment = made.heartbeat(0.0, ASK).assignment
        made.heartbeat(0.0, HeartbeatRequest(finished=(epoch(assignment),)))
    offers = [made.heartbeat(20.0, ASK).assignment for _ in range(2)]
    assert [assignment.path for assignment in offers if assignment] == [B, A]


def test_a_table_in_hand_that_no_heartbeat_speaks_of_is_handed_out_again() -> None:
    """Its round was given up without a report: the table was gone for it, or the answer that offered it was lost."""
    made = queue()
    offers = [made.heartbeat(0.0, ASK).assignment for _ in range(2)]
    kept = epoch(offers[0])
    assert made.heartbeat(SILENT_S, HeartbeatRequest(renewed=(kept,), request=True)).assignment is None
    again = made.heartbeat(SILENT_S + 1.0, HeartbeatRequest(renewed=(kept,), request=True)).assignment
    assert again is not None
    assert (again.path, again.epoch) == (B, 2)


def test_a_heartbeat_that_comes_late_still_renews() -> None:
    made = queue()
    kept = epoch(made.heartbeat(0.0, ASK).assignment)
    assert made.heartbeat(10 * SILENT_S, HeartbeatRequest(renewed=(kept,))).refused == {}


def test_make_due_moves_only_what_nobody_has_in_hand() -> None:
    made = queue()
    first, second = made.heartbeat(0.0, ASK).assignment, made.heartbeat(0.0, ASK).assignment
    made.heartbeat(0.0, HeartbeatRequest(finished=(epoch(second),)))
    made.make_due(1.0, {A, B})
    offers = [made.heartbeat(1.0, ASK).assignment for _ in range(2)]
    assert [assignment.path if assignment else None for assignment in offers] == [B, None]
    assert first is not None


def test_an_offer_says_for_how_long_its_table_has_been_due() -> None:
    made = queue()
    assert made.oldest_due(0.0) == 0.0
    assignment = made.heartbeat(7.0, ASK).assignment
    assert assignment is not None
    assert assignment.waited_s == 7.0


def estimate(now: float = 0.0) -> SourceQueueEstimate:
    made = SourceQueueEstimate()
    made.update(now, {1: 10.0, 2: 10.0})
    return made


def test_tables_of_the_source_count_as_due_when_they_are_first_seen() -> None:
    made = estimate()
    assert made.oldest_due(5.0) == 0.0
    assert made.assigned(5.0, 1) == 5.0


@pytest.mark.parametrize(
    ("heartbeat", "due"),
    [
        (HeartbeatRequest(finished=(TableEpoch(1, 1, 0),)), 16.0),
        (HeartbeatRequest(finished=(TableEpoch(1, 1, 0),), forced=frozenset({1})), 6.0),
        (HeartbeatRequest(failed=(TableEpoch(1, 1, 0),)), 6.0),
    ],
)
def test_a_reported_table_is_due_a_freshness_later_or_at_once(heartbeat: HeartbeatRequest, due: float) -> None:
    made = estimate()
    made.assigned(1.0, 2)
    made.assigned(1.0, 1)
    assert made.oldest_due(5.0) is None
    made.reported(6.0, replace(heartbeat, renewed=(TableEpoch(2, 1, 0),)))
    assert made.oldest_due(due - 0.1) is None
    assert made.oldest_due(due) == due


def test_what_the_source_did_not_give_when_it_was_asked_does_not_wait_there() -> None:
    made = estimate()
    made.empty(5.0)
    assert made.oldest_due(5.0) == 5.0


def test_nothing_waits_for_longer_than_what_the_source_gave_last() -> None:
    made = estimate()
    made.assigned(1.0, 1)
    made.reported(2.0, HeartbeatRequest(finished=(TableEpoch(1, 1, 0),)))
    assert made.assigned(20.0, 1) == 8.0
    assert made.oldest_due(20.0) == 12.0  # table 2 counted as due at 0, and a first-in-first-out queue gave table 1


def test_a_table_that_was_given_up_without_a_report_waits_at_the_source_again() -> None:
    made = estimate()
    made.assigned(1.0, 1)
    made.assigned(1.0, 2)
    made.reported(2.0, HeartbeatRequest(renewed=(TableEpoch(1, 1, 0),)))
    assert made.oldest_due(3.0) == 0.0


def test_a_table_that_is_gone_waits_no_more() -> None:
    made = estimate()
    made.update(1.0, {})
    assert made.oldest_due(5.0) is None
