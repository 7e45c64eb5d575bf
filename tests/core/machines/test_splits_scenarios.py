"""What the splits of a round command, what they show, and what breaks their protocol."""

from __future__ import annotations

from math import inf

import pytest

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.splits import (
    ATTEMPTS,
    Accept,
    AcceptRestored,
    AllDone,
    Assign,
    AttemptLost,
    AttemptPhase,
    AttemptRegistered,
    Enumeration,
    GiveUp,
    NoMore,
    Reject,
    SendFinishEarly,
    SplitDone,
    SplitRequested,
    Splits,
    SplitsEvent,
    SplitsReturned,
)
from lakeward.model.splits import SnapshotSplit
from lakeward_machine_stories.splits import (
    FAILED_TWICE,
    FINISH_EARLY,
    FIRST,
    JOB_ENDED,
    NEVER,
    SECOND,
    SNAPSHOT,
    STORIES,
    A,
    B,
    checked,
    disconnected,
    done,
    lost,
    new,
    reconnected,
    registered,
    requests,
    rested,
    restored,
    round_of,
)


def after(story: tuple[SplitsEvent, ...], *withheld: str) -> Splits:
    splits = restored() if withheld else new()
    for event in story:
        splits.step(event)
    return splits


def test_an_attempt_that_does_not_reconnect_in_time_is_given_up_once() -> None:
    splits = after((registered(0), requests(0), disconnected(0, now=10)))
    assert splits.step(checked(14.9)) == ()
    assert splits.step(checked(15)) == (GiveUp(((0, 1),)),)
    assert splits.step(checked(16)) == ()
    assert splits.unfinished == (FIRST, SECOND)
    assert splits.held_by(0, 1) == (FIRST,), "its splits come back once the job has taken over what it did"
    assert splits.step(lost(0)) == (SplitsReturned((FIRST,)),)


def test_an_attempt_that_reconnects_in_time_keeps_its_split() -> None:
    splits = after((registered(0), requests(0), disconnected(0), reconnected(0)))
    assert splits.step(checked(60)) == ()
    assert splits.held_by(0, 1) == (FIRST,)


def test_attempts_of_one_executor_are_given_up_together() -> None:
    """Their connections close one after the other, within a moment."""
    splits = after((registered(0), registered(1), registered(2)))
    for subtask, now in ((0, 10.0), (1, 10.9), (2, 11.1)):
        splits.step(disconnected(subtask, now=now))
    assert splits.step(checked(15)) == (GiveUp(((0, 1), (1, 1))),)
    assert splits.step(checked(16.1)) == (GiveUp(((2, 1),)),)


def test_an_attempt_that_was_replaced_or_whose_job_ended_is_not_given_up() -> None:
    for end in (registered(0, 2), lost(0), JOB_ENDED):
        splits = after((registered(0), disconnected(0), end))
        assert splits.step(checked(60)) == ()


def test_without_a_limit_an_attempt_is_never_given_up() -> None:
    splits = Splits(Enumeration((FIRST, SECOND), {}, (), behind=False))
    for event in (registered(0), disconnected(0)):
        splits.step(event)
    assert splits.step(checked(1e9)) == ()


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_what_no_attempt_may_send_is_illegal(story: tuple[SplitsEvent, ...]) -> None:
    for event in NEVER:
        splits = after(story)
        replaced = event.attempt < splits.newest.get(event.subtask, event.attempt)
        gone = replaced or splits.attempts.get((event.subtask, event.attempt)) is AttemptPhase.GONE
        if isinstance(event, SplitDone) and gone:
            continue  # rejected, or illegal if the round does not have the split
        with pytest.raises(IllegalEventError, match=type(event).__name__):
            splits.step(event)


def test_what_no_row_allows_is_illegal() -> None:
    """An attempt that never registered neither requests nor finishes; every other event is allowed in some way."""
    events = {AttemptRegistered, SplitRequested, SplitDone, AttemptLost}
    every = {(phase, event) for phase in AttemptPhase for event in events}
    ends = {(phase, SplitDone) for phase in AttemptPhase}
    assert every - ATTEMPTS.cells.keys() == {
        (AttemptPhase.UNKNOWN, SplitRequested),
        (AttemptPhase.UNKNOWN, SplitDone),
    }
    assert {cell for cell in ends if len(ATTEMPTS.cells.get(cell, ())) > 1} == {
        (AttemptPhase.READING, SplitDone),
        (AttemptPhase.GONE, SplitDone),
    }, "others finish nothing but what they finished before"
    for event in (requests(7), done(FIRST, 7)):
        with pytest.raises(IllegalEventError, match="machine 'split_attempts' in state unknown"):
            new().step(event)


def test_a_round_without_splits_is_a_mistake_of_the_caller() -> None:
    """An empty round has nothing to assign."""
    with pytest.raises(UsageError, match="expected at least one"):
        Splits(Enumeration((), {}, (), behind=False))


def test_splits_are_handed_out_in_order_until_all_are_done() -> None:
    """An attempt that requests while others still read waits, and is dismissed at the end."""
    splits = round_of(SNAPSHOT, FIRST)
    splits.step(registered(0))
    splits.step(registered(1))
    assert splits.step(requests(0)) == (Assign(0, 1, SNAPSHOT),)
    assert splits.step(requests(1)) == (Assign(1, 1, FIRST),)
    assert splits.step(done(FIRST, 1)) == (Accept("b0-0"),)
    assert splits.step(requests(1)) == ()
    assert splits.unfinished == (SNAPSHOT,)
    assert splits.step(done(SNAPSHOT, 0)) == (Accept("b1-s4"), NoMore(1, 1), AllDone(incomplete=False))
    assert splits.step(requests(0)) == (NoMore(0, 1),)
    assert splits.offsets() == {A: 10, B: 70}


def test_splits_of_a_lost_attempt_go_to_one_that_waits() -> None:
    """What it finished stays finished; what it sends later is rejected."""
    splits = after((registered(0), requests(0), done(FIRST, 0), requests(0), registered(1), requests(1)))
    assert splits.step(lost(0)) == (SplitsReturned((SECOND,)), Assign(1, 1, SECOND))
    assert isinstance(splits.step(done(SECOND, 0))[0], Reject)
    assert splits.unfinished == (SECOND,)
    assert splits.step(done(SECOND, 1)) == (Accept("b0-10"), AllDone(incomplete=False))


def test_a_newer_attempt_replaces_the_older_one() -> None:
    """The older one is cancelled; one that registers even later with an older number is too."""
    splits = after((registered(0, 2), requests(0, 2)))
    assert splits.step(registered(0, 3)) == (SplitsReturned((FIRST,)), Reject(0, 2, "replaced by attempt 3"))
    assert splits.step(registered(0, 1)) == (Reject(0, 1, "attempt 1 of subtask 0 was lost or replaced"),)
    assert splits.step(requests(0, 3)) == (Assign(0, 3, FIRST),)


def test_a_finish_that_was_accepted_is_not_rejected_when_it_is_repeated() -> None:
    """Its files count, also after the attempt is gone."""
    splits = after((registered(0), requests(0), done(FIRST, 0)))
    assert splits.step(done(FIRST, 0)) == ()
    splits.step(lost(0))
    assert splits.step(done(FIRST, 0)) == ()


def test_a_new_job_reads_what_is_unfinished() -> None:
    """All attempts of the old one are gone."""
    splits = after((registered(0), requests(0), registered(1), requests(1), done(FIRST, 0)))
    assert splits.step(JOB_ENDED) == (SplitsReturned((SECOND,)),)
    assert isinstance(splits.step(requests(1))[0], Reject)
    splits.step(registered(0, 2))
    assert splits.step(requests(0, 2)) == (Assign(0, 2, SECOND),)


def test_finishing_early_ends_log_splits_where_they_are_and_snapshot_splits_at_their_end() -> None:
    """What was not started is skipped; a second request is harmless."""
    splits = round_of(SNAPSHOT, FIRST, SECOND)
    for event in (registered(0), registered(1), requests(0), requests(1)):
        splits.step(event)
    assert set(splits.step(FINISH_EARLY)) == {SendFinishEarly(0, 1), SendFinishEarly(1, 1)}
    assert splits.step(FINISH_EARLY) == ()
    with pytest.raises(IllegalEventError):
        splits.step(done(SNAPSHOT, 0, end=30))
    assert splits.step(done(FIRST, 1, end=4)) == (Accept("b0-0"),)
    assert splits.step(done(SNAPSHOT, 0)) == (Accept("b1-s4"), AllDone(incomplete=True))
    assert splits.offsets() == {A: 4, B: 70}
    assert splits.committable() == {"b0-0", "b1-s4"}


def test_a_split_may_not_end_early_unless_the_round_finishes_early() -> None:
    """It would leave a gap that is never read."""
    splits = after((registered(0), requests(0)))
    with pytest.raises(IllegalEventError, match="not finishing early"):
        splits.step(done(FIRST, 0, end=4))


def test_what_is_returned_while_finishing_early_is_skipped() -> None:
    """Nothing new is handed out."""
    splits = after((registered(0), requests(0), registered(1), FINISH_EARLY, requests(1)))
    assert splits.step(lost(0)) == (NoMore(1, 1), AllDone(incomplete=True))
    assert splits.offsets() == {}


def test_files_behind_a_gap_are_left_out_of_the_commit() -> None:
    """A later range of a divided log that is finished before an earlier one."""
    splits = after((registered(0), requests(0), registered(1), requests(1), done(SECOND, 1)))
    assert splits.offsets() == {}
    assert splits.committable() == set()
    splits.step(done(FIRST, 0))
    assert splits.offsets() == {A: 20}
    assert splits.committable() == {"b0-0", "b0-10"}


def test_finishing_early_before_the_first_record_leaves_a_never_tiered_bucket_never_tiered() -> None:
    """So that it may still start with a snapshot."""
    splits = after((registered(0), requests(0), FINISH_EARLY))
    splits.step(done(FIRST, 0, end=0))
    assert splits.offsets() == {}


def test_a_withheld_split_is_not_read_again_and_an_attempt_sends_its_finish() -> None:
    """What it finished before the restore is accepted when it arrives."""
    splits = after((registered(0, 1, "b0-0"),), "b0-0")
    assert splits.withheld == frozenset()
    assert splits.step(requests(0)) == (Assign(0, 1, SECOND),)
    assert splits.step(done(FIRST, 0)) == (Accept("b0-0"),)
    assert splits.step(done(SECOND, 0)) == (Accept("b0-10"), AllDone(incomplete=False))


@pytest.mark.parametrize("end", [lost(0), JOB_ENDED, registered(0, 2)], ids=["lost", "job over", "replaced"])
def test_the_finish_of_a_withheld_split_outlives_the_attempt_that_was_to_send_it(end: SplitsEvent) -> None:
    """Also while finishing early: all of it was read."""
    splits = after((registered(0, 1, "b0-0"), FINISH_EARLY), "b0-0")
    commands = splits.step(end)
    assert not any(isinstance(command, SplitsReturned) for command in commands)
    assert AcceptRestored("b0-0") in commands
    assert commands[-1] == AllDone(incomplete=True)
    assert splits.offsets() == {A: 10}


def test_finished_splits_of_a_checkpoint_stay_finished() -> None:
    """A round of which nothing is left to read is done as soon as a job of it lives."""
    splits = Splits(Enumeration((FIRST, SECOND), {}, (), behind=False), {"b0-0": 10, "b0-10": 20})
    assert splits.unfinished == ()
    assert splits.step(registered(0)) == (AllDone(incomplete=False),)
    assert splits.offsets() == {A: 20}


@pytest.mark.parametrize(("finished", "withheld"), [({"b9": 1}, {}), ({}, {"b9": 1}), ({"b0-0": 10}, {"b0-0": 10})])
def test_a_checkpoint_of_other_splits_is_a_mistake_of_the_caller(
    finished: dict[str, int], withheld: dict[str, int]
) -> None:
    """Or one that has a split in two places."""
    with pytest.raises(UsageError, match="restored splits"):
        Splits(Enumeration((FIRST, SECOND), {}, (), behind=False), finished, withheld)


def test_a_log_split_half_done_counts_where_the_finished_prefix_ends() -> None:
    """A later one, and a snapshot, do not; nor does one that has not moved."""
    splits = Splits(Enumeration((SNAPSHOT, FIRST, SECOND), {A: 0}, (), behind=False))
    assert splits.offsets({"b0-10": 15, "b1-s4": 3}) == {A: 0}
    assert splits.offsets({"b0-0": 4, "b0-10": 15}) == {A: 4}
    for event in (registered(0), registered(1), requests(0), requests(1), done(FIRST, 1)):
        splits.step(event)
    assert splits.offsets({"b0-10": 15}) == {A: 15}
    assert splits.offsets({"b0-10": 10}) == {A: 10}


def test_live_snapshot_may_stand_for_later_records_than_was_planned() -> None:
    live = SnapshotSplit("b1-s0", B, (), 0, 70, live=True)
    splits = round_of(live)
    for event in (registered(0), requests(0), done(live, 0, end=75)):
        splits.step(event)
    assert splits.offsets() == {B: 75}
    assert splits.committable() == {"b1-s0"}


@pytest.mark.parametrize(("split", "end"), [(SNAPSHOT, 71), (SnapshotSplit("b1-s0", B, (), 0, 70, live=True), 69)])
def test_snapshot_that_ends_elsewhere_is_refused(split: SnapshotSplit, end: int) -> None:
    splits = round_of(split)
    splits.step(registered(0))
    splits.step(requests(0))
    with pytest.raises(IllegalEventError):
        splits.step(done(split, 0, end=end))


def test_a_split_that_fails_once_is_read_again_at_once_and_then_rests_longer_each_time() -> None:
    splits = after(FAILED_TWICE)
    assert splits.rested_by == 2
    assert splits.step(registered(1)) == ()
    assert splits.step(requests(1)) == (Assign(1, 1, SECOND),), "others are read meanwhile"
    splits.step(registered(2))
    assert splits.step(requests(2)) == ()
    assert splits.step(rested(1.9)) == ()
    assert splits.step(rested(2)) == (Assign(2, 1, FIRST),)
    assert splits.rested_by == inf
    assert splits.step(lost(2)) == (SplitsReturned((FIRST,)),)
    assert splits.rested_by == 3, "twice as long would be more than the longest rest"


def test_a_split_does_not_rest_beyond_the_end_of_its_job() -> None:
    """The next launch waits by itself; the end of a job is no failure of a split."""
    splits = after((*FAILED_TWICE, JOB_ENDED))
    assert splits.rested_by == inf
    splits.step(registered(0, 3))
    assert splits.step(requests(0, 3)) == (Assign(0, 3, FIRST),)
    splits.step(JOB_ENDED)
    assert splits.rested_by == inf


def test_a_split_that_rests_is_left_out_when_the_round_finishes_early() -> None:
    splits = after((*FAILED_TWICE, registered(1), requests(1)))
    assert splits.step(FINISH_EARLY) == (SendFinishEarly(1, 1),)
    assert splits.rested_by == inf
    assert splits.step(done(SECOND, 1)) == (Accept(SECOND.split_id), AllDone(incomplete=True))


def test_who_waits_for_a_split_that_rests_is_dismissed_when_the_round_finishes_early() -> None:
    splits = after((*FAILED_TWICE, registered(1), requests(1), done(SECOND, 1), requests(1)))
    assert splits.step(FINISH_EARLY) == (NoMore(1, 1), AllDone(incomplete=True))


def test_all_are_dismissed_only_when_the_split_that_rests_is_read_as_well() -> None:
    splits = after((*FAILED_TWICE, registered(1), requests(1), done(SECOND, 1), requests(1)))
    assert not splits.done
    assert splits.step(rested(2)) == (Assign(1, 1, FIRST),)
    assert splits.step(done(FIRST, 1)) == (Accept(FIRST.split_id), AllDone(incomplete=False))
