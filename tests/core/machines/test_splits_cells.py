"""Every cell of state x event of the machine `splits`: legal ones stay within their row, others change nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.split_phases import State
from lakeward.machines.splits import (
    TRANSITIONS,
    Accept,
    AllDone,
    Assign,
    AttemptLost,
    AttemptPhase,
    AttemptRegistered,
    CutAsked,
    Enumeration,
    JobEnded,
    NoMore,
    Reject,
    SplitDone,
    SplitPhase,
    SplitRequested,
    Splits,
    SplitsEvent,
    SplitsReturned,
    TellCut,
)
from lakeward.model.splits import LogSplit, SnapshotSplit, Split
from lakeward.model.tables import TableBucket

A, B = TableBucket(1, None, 0), TableBucket(1, None, 1)
SNAPSHOT = SnapshotSplit("b1-s4", B, (), 4, 70)
FIRST, SECOND = LogSplit("b0-0", A, (), 0, 10), LogSplit("b0-10", A, (), 10, 20)


def machine(*splits: Split) -> Splits:
    """A round with these."""
    return Splits(Enumeration(splits or (FIRST, SECOND), {}, (), behind=False))


def registered(subtask: int, attempt: int = 1, *restored: str) -> AttemptRegistered:
    """An attempt is ready; it was given the word of these finishes to send again."""
    return AttemptRegistered(now=0, subtask=subtask, attempt=attempt, restored=frozenset(restored))


def asks(subtask: int, attempt: int = 1) -> SplitRequested:
    """An attempt has nothing to read."""
    return SplitRequested(now=0, subtask=subtask, attempt=attempt)


def done(split: Split, subtask: int, attempt: int = 1, end: int | None = None) -> SplitDone:
    """An attempt finished a split, at its end unless told otherwise."""
    whole = split.log_offset if isinstance(split, SnapshotSplit) else split.stop
    return SplitDone(
        now=0, subtask=subtask, attempt=attempt, split_id=split.split_id, end_offset=whole if end is None else end
    )


def lost(subtask: int, attempt: int = 1) -> AttemptLost:
    """An attempt is gone."""
    return AttemptLost(now=0, subtask=subtask, attempt=attempt)


JOB_ENDED, CUT = JobEnded(now=0), CutAsked(now=0)
STORIES: tuple[tuple[SplitsEvent, ...], ...] = (
    (),
    (CUT,),
    (registered(0),),
    (registered(0), registered(0, 2)),
    (registered(0), lost(0)),
    (registered(0), JOB_ENDED),
    (registered(0), asks(0)),
    (registered(0), asks(0), registered(1)),
    (registered(0), asks(0), CUT),
    (registered(0), asks(0), asks(0)),
    (registered(0), asks(0), asks(0), asks(0)),
    (registered(0), asks(0), asks(0), registered(1), asks(1)),
    (registered(0), asks(0), registered(1), asks(1), asks(0)),
    (registered(0), asks(0), registered(1), asks(1), registered(2), asks(2)),
    (registered(0), asks(0), registered(1), asks(1), registered(2), asks(2), CUT),
    (registered(0), asks(0), registered(1), asks(1), registered(2), asks(2), CUT, done(FIRST, 0)),
    (registered(0), asks(0), registered(1), asks(1), registered(2), asks(2), done(FIRST, 0)),
    (registered(0), asks(0), done(FIRST, 0)),
    (registered(0), asks(0), registered(1), asks(1), asks(0), done(SECOND, 1)),
    (registered(0), asks(0), done(FIRST, 0), asks(0), done(SECOND, 0)),
    (registered(0), asks(0), done(FIRST, 0), asks(0), done(SECOND, 0), asks(0)),
    (registered(0), asks(0), done(FIRST, 0), lost(0)),
    (registered(0), asks(0), registered(1), asks(1), done(FIRST, 0), asks(0)),
    (registered(0), asks(0), done(FIRST, 0), asks(0), registered(0, 2)),
    (registered(0, 3), asks(0, 3)),
)
"""From each of them every event is tried; together they stand in every state."""

RESTORED_STORIES: tuple[tuple[SplitsEvent, ...], ...] = (
    (),
    (CUT,),
    (registered(1),),
    (registered(1), asks(1)),
    (registered(0, 1, "b0-0"),),
    (registered(0, 1, "b0-0"), asks(0)),
    (registered(0, 1, "b0-0"), CUT),
    (registered(0, 1, "b0-0"), registered(1), asks(1)),
    (registered(0, 1, "b0-0"), asks(0), asks(0), done(FIRST, 0)),
)
"""As above, of a machine that was restored with the first split withheld."""

TRIED: tuple[SplitsEvent, ...] = (
    *(registered(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    *(asks(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    *(done(split, subtask) for split in (FIRST, SECOND) for subtask in (0, 1, 2)),
    done(FIRST, 0, end=4),
    done(FIRST, 0, attempt=2),
    *(lost(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    registered(0, 1, "b0-0"),
    registered(0, 2, "b0-0"),
    JOB_ENDED,
    CUT,
)


class Recorded(Splits):
    """Writes every move down."""

    moves: list[tuple[State, type[SplitsEvent], State]]

    def _check_move(self, before: State, after: State, cause: SplitsEvent) -> None:
        self.moves.append((before, type(cause), after))
        super()._check_move(before, after, cause)


def told(story: tuple[SplitsEvent, ...], *withheld: str) -> Recorded:
    """A machine after a story, with nothing written down."""
    splits = Recorded(Enumeration((FIRST, SECOND), {}, (), behind=False), withheld=withheld)
    splits.moves = []
    for event in story:
        splits.step(event)
    splits.moves = []
    return splits


def stands(splits: Splits, event: SplitsEvent) -> list[State]:
    """Where each split stands, and each attempt that the event speaks of (all, if it names none)."""
    attempts = [(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)]
    if not isinstance(event, JobEnded | CutAsked):
        attempts = [(event.subtask, event.attempt)]
    return [*splits._phases.values(), *(splits._phase_of(attempt) for attempt in attempts)]


def test_every_cell_moves_within_its_row_and_every_row_is_reached() -> None:
    """What the table has no row for, no legal step ever did; and no row promises more than happens."""
    seen = {cell: set[State]() for cell in TRANSITIONS}
    stories = [(story, ()) for story in STORIES] + [(story, (FIRST.split_id,)) for story in RESTORED_STORIES]
    for story, withheld in stories:
        for event in TRIED:
            splits = told(story, *withheld)
            before = stands(splits, event)
            try:
                splits.step(event)
            except IllegalEventError:
                continue
            for state, kind, after in splits.moves:
                seen[state, kind].add(after)
            for state, after in zip(before, stands(splits, event), strict=True):
                assert state is not after or (state, type(event)) in TRANSITIONS
                seen[state, type(event)] |= {after} if state is after else set()
    # A move within its row is checked by the machine itself; staying is checked here.
    assert {cell: after - TRANSITIONS[cell] for cell, after in seen.items() if after - TRANSITIONS[cell]} == {}
    assert {cell: row - seen[cell] for cell, row in TRANSITIONS.items() if row - seen[cell]} == {}


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_an_illegal_event_raises_and_changes_nothing(story: tuple[SplitsEvent, ...]) -> None:
    """An attempt that never registered may not speak; an unknown split or a wrong end is never believed."""
    unknown = replace(FIRST, split_id="b9-0")
    never = (
        asks(7),
        registered(7, 1, "b0-10"),
        done(FIRST, 7),
        done(unknown, 0),
        done(FIRST, 0, end=11),
        done(FIRST, 0, end=-1),
    )
    for event in (*TRIED, *never):
        splits = told(story)
        before = copy.deepcopy(vars(splits))
        raised = None
        try:
            splits.step(event)
        except IllegalEventError as error:
            raised = error
        if raised is not None:
            assert type(event).__name__ in str(raised)
            assert vars(splits) == before
        else:
            assert event not in never or isinstance(event, SplitDone)


def test_what_no_row_allows_is_illegal() -> None:
    """The two cells of the table that are empty: an attempt that nobody registered asks or finishes."""
    every = {(phase, event) for phase in (*SplitPhase, *AttemptPhase) for event in {type(event) for event in TRIED}}
    assert every - TRANSITIONS.keys() == {
        (AttemptPhase.UNKNOWN, SplitRequested),
        (AttemptPhase.UNKNOWN, SplitDone),
    }
    for event in (asks(7), done(FIRST, 7)):
        with pytest.raises(IllegalEventError, match="machine 'splits' in state attempt unknown"):
            machine().step(event)


def test_a_round_without_splits_is_a_mistake_of_the_caller() -> None:
    """An empty round has nothing to assign."""
    with pytest.raises(UsageError, match="expected at least one"):
        Splits(Enumeration((), {}, (), behind=False))


def test_splits_are_handed_out_in_order_until_all_are_done() -> None:
    """Who asks while others still read waits, and is dismissed at the end."""
    splits = machine(SNAPSHOT, FIRST)
    splits.step(registered(0))
    splits.step(registered(1))
    assert splits.step(asks(0)) == (Assign(0, 1, SNAPSHOT),)
    assert splits.step(asks(1)) == (Assign(1, 1, FIRST),)
    assert splits.step(done(FIRST, 1)) == (Accept("b0-0"),)
    assert splits.step(asks(1)) == ()
    assert splits.unfinished == (SNAPSHOT,)
    assert splits.step(done(SNAPSHOT, 0)) == (Accept("b1-s4"), NoMore(1, 1), AllDone(cut=False))
    assert splits.step(asks(0)) == (NoMore(0, 1),)
    assert splits.offsets() == {A: 10, B: 70}


def test_splits_of_a_lost_attempt_go_to_one_that_waits() -> None:
    """What it finished stays finished; what it says later is rejected."""
    splits = told((registered(0), asks(0), done(FIRST, 0), asks(0), registered(1), asks(1)))
    assert splits.step(lost(0)) == (SplitsReturned((SECOND,)), Assign(1, 1, SECOND))
    assert isinstance(splits.step(done(SECOND, 0))[0], Reject)
    assert splits.unfinished == (SECOND,)
    assert splits.step(done(SECOND, 1)) == (Accept("b0-10"), AllDone(cut=False))


def test_a_newer_attempt_replaces_the_older_one() -> None:
    """The older one is cancelled; one that registers even later with an older number is too."""
    splits = told((registered(0, 2), asks(0, 2)))
    assert splits.step(registered(0, 3)) == (SplitsReturned((FIRST,)), Reject(0, 2, "replaced by attempt 3"))
    assert splits.step(registered(0, 1)) == (Reject(0, 1, "attempt 1 of subtask 0 was lost or replaced"),)
    assert splits.step(asks(0, 3)) == (Assign(0, 3, FIRST),)


def test_a_finish_that_was_accepted_is_not_rejected_when_it_is_said_again() -> None:
    """Its files are in the books, also after the attempt is gone."""
    splits = told((registered(0), asks(0), done(FIRST, 0)))
    assert splits.step(done(FIRST, 0)) == ()
    splits.step(lost(0))
    assert splits.step(done(FIRST, 0)) == ()


def test_a_new_job_reads_what_is_unfinished() -> None:
    """All attempts of the old one are gone."""
    splits = told((registered(0), asks(0), registered(1), asks(1), done(FIRST, 0)))
    assert splits.step(JOB_ENDED) == (SplitsReturned((SECOND,)),)
    assert isinstance(splits.step(asks(1))[0], Reject)
    splits.step(registered(0, 2))
    assert splits.step(asks(0, 2)) == (Assign(0, 2, SECOND),)


def test_a_cut_ends_log_splits_where_they_are_and_snapshot_splits_at_their_end() -> None:
    """What was not started is left out; a second cut is harmless."""
    splits = machine(SNAPSHOT, FIRST, SECOND)
    for event in (registered(0), registered(1), asks(0), asks(1)):
        splits.step(event)
    assert set(splits.step(CUT)) == {TellCut(0, 1), TellCut(1, 1)}
    assert splits.step(CUT) == ()
    with pytest.raises(IllegalEventError):
        splits.step(done(SNAPSHOT, 0, end=30))
    assert splits.step(done(FIRST, 1, end=4)) == (Accept("b0-0"),)
    assert splits.step(done(SNAPSHOT, 0)) == (Accept("b1-s4"), AllDone(cut=True))
    assert splits.offsets() == {A: 4, B: 70}
    assert splits.committable() == {"b0-0", "b1-s4"}


def test_a_split_may_not_end_early_without_a_cut() -> None:
    """It would leave a gap that nobody reads."""
    splits = told((registered(0), asks(0)))
    with pytest.raises(IllegalEventError, match="not cut"):
        splits.step(done(FIRST, 0, end=4))


def test_what_comes_back_after_a_cut_is_left_out() -> None:
    """Nothing new is handed out."""
    splits = told((registered(0), asks(0), registered(1), CUT, asks(1)))
    assert splits.step(lost(0)) == (NoMore(1, 1), AllDone(cut=True))
    assert splits.offsets() == {}


def test_files_behind_a_gap_are_left_out_of_the_commit() -> None:
    """A later range of a cut log that is finished before an earlier one."""
    splits = told((registered(0), asks(0), registered(1), asks(1), done(SECOND, 1)))
    assert splits.offsets() == {}
    assert splits.committable() == set()
    splits.step(done(FIRST, 0))
    assert splits.offsets() == {A: 20}
    assert splits.committable() == {"b0-0", "b0-10"}


def test_a_cut_before_the_first_record_leaves_a_never_tiered_bucket_never_tiered() -> None:
    """So that it may still start with a snapshot."""
    splits = told((registered(0), asks(0), CUT))
    splits.step(done(FIRST, 0, end=0))
    assert splits.offsets() == {}


def test_a_withheld_split_is_not_read_again_and_its_word_is_given_to_an_attempt() -> None:
    """What it finished before the restore is accepted when its word comes."""
    splits = told((registered(0, 1, "b0-0"),), "b0-0")
    assert splits.withheld == frozenset()
    assert splits.step(asks(0)) == (Assign(0, 1, SECOND),)
    assert splits.step(done(FIRST, 0)) == (Accept("b0-0"),)
    assert splits.step(done(SECOND, 0)) == (Accept("b0-10"), AllDone(cut=False))


@pytest.mark.parametrize("end", [lost(0), JOB_ENDED, registered(0, 2)], ids=["lost", "job over", "replaced"])
def test_the_word_of_a_withheld_split_outlives_the_attempt_that_was_given_it(end: SplitsEvent) -> None:
    """Also after a cut: all of it was read."""
    splits = told((registered(0, 1, "b0-0"), CUT), "b0-0")
    assert not any(isinstance(command, SplitsReturned) for command in splits.step(end))
    assert splits.withheld == {"b0-0"}
    splits.step(registered(2, 1, "b0-0"))
    assert splits.step(done(FIRST, 2)) == (Accept("b0-0"), AllDone(cut=True))
    assert splits.offsets() == {A: 10}


def test_finished_splits_of_a_checkpoint_stay_finished() -> None:
    """A round of which nothing is left to read is done as soon as a job of it lives."""
    splits = Splits(Enumeration((FIRST, SECOND), {}, (), behind=False), {"b0-0": 10, "b0-10": 20})
    assert splits.unfinished == ()
    assert splits.step(registered(0)) == (AllDone(cut=False),)
    assert splits.offsets() == {A: 20}


@pytest.mark.parametrize(("finished", "withheld"), [({"b9": 1}, ()), ({}, ("b9",)), ({"b0-0": 10}, ("b0-0",))])
def test_a_checkpoint_of_other_splits_is_a_mistake_of_the_caller(
    finished: dict[str, int], withheld: tuple[str, ...]
) -> None:
    """Or one that has a split in two places."""
    with pytest.raises(UsageError, match="restored splits"):
        Splits(Enumeration((FIRST, SECOND), {}, (), behind=False), finished, withheld)


def test_a_log_split_half_done_counts_where_the_finished_prefix_ends() -> None:
    """A later one, and a snapshot, do not; nor does one that has not moved."""
    splits = Splits(Enumeration((SNAPSHOT, FIRST, SECOND), {A: 0}, (), behind=False))
    assert splits.offsets({"b0-10": 15, "b1-s4": 3}) == {A: 0}
    assert splits.offsets({"b0-0": 4, "b0-10": 15}) == {A: 4}
    for event in (registered(0), registered(1), asks(0), asks(1), done(FIRST, 1)):
        splits.step(event)
    assert splits.offsets({"b0-10": 15}) == {A: 15}
    assert splits.offsets({"b0-10": 10}) == {A: 10}


def test_live_snapshot_may_stand_for_later_records_than_was_planned() -> None:
    live = SnapshotSplit("b1-s0", B, (), 0, 70, live=True)
    splits = machine(live)
    for event in (registered(0), asks(0), done(live, 0, end=75)):
        splits.step(event)
    assert splits.offsets() == {B: 75}
    assert splits.committable() == {"b1-s0"}


@pytest.mark.parametrize(("split", "end"), [(SNAPSHOT, 71), (SnapshotSplit("b1-s0", B, (), 0, 70, live=True), 69)])
def test_snapshot_that_ends_elsewhere_is_refused(split: SnapshotSplit, end: int) -> None:
    splits = machine(split)
    splits.step(registered(0))
    splits.step(asks(0))
    with pytest.raises(IllegalEventError):
        splits.step(done(split, 0, end=end))
