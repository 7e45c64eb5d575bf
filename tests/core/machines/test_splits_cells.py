"""Every cell of state x event of the machine `splits`: legal ones stay within their row, others change nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from math import inf

import pytest

from lakeward.errors import IllegalEventError, UsageError
from lakeward.machines.splits import (
    TRANSITIONS,
    Accept,
    AllDone,
    Assign,
    AttemptDisconnected,
    AttemptLost,
    AttemptPhase,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionPhase,
    ConnectionsChecked,
    Enumeration,
    FinishEarlyRequested,
    GiveUp,
    JobEnded,
    NoMore,
    Reject,
    SendFinishEarly,
    SplitDone,
    SplitPhase,
    SplitRequested,
    Splits,
    SplitsEvent,
    SplitsRested,
    SplitsReturned,
)
from lakeward.machines.splits.transitions import SplitGuard, State
from lakeward.model.backoff import RetryPauses
from lakeward.model.splits import LogSplit, SnapshotSplit, Split
from lakeward.model.tables import TableBucket

A, B = TableBucket(1, None, 0), TableBucket(1, None, 1)
SNAPSHOT = SnapshotSplit("b1-s4", B, (), 4, 70)
FIRST, SECOND = LogSplit("b0-0", A, (), 0, 10), LogSplit("b0-10", A, (), 10, 20)


def machine(*splits: Split) -> Splits:
    """A round with these."""
    return Splits(Enumeration(splits or (FIRST, SECOND), {}, (), behind=False), retries=RetryPauses(2, 3))


def registered(subtask: int, attempt: int = 1, *restored: str) -> AttemptRegistered:
    """An attempt is ready; it sends these finishes again."""
    return AttemptRegistered(now=0, subtask=subtask, attempt=attempt, restored=frozenset(restored))


def requests(subtask: int, attempt: int = 1) -> SplitRequested:
    """An attempt has nothing to read."""
    return SplitRequested(now=0, subtask=subtask, attempt=attempt)


def done(split: Split, subtask: int, attempt: int = 1, end: int | None = None) -> SplitDone:
    """An attempt finished a split, at its end unless another one is given."""
    full = split.log_offset if isinstance(split, SnapshotSplit) else split.stop
    return SplitDone(
        now=0,
        subtask=subtask,
        attempt=attempt,
        split_id=split.split_id,
        end_offset=full if end is None else end,
    )


def lost(subtask: int, attempt: int = 1) -> AttemptLost:
    """An attempt is gone."""
    return AttemptLost(now=0, subtask=subtask, attempt=attempt)


def disconnected(subtask: int, attempt: int = 1, now: float = 0) -> AttemptDisconnected:
    """The connection of an attempt closed."""
    return AttemptDisconnected(now=now, subtask=subtask, attempt=attempt)


def reconnected(subtask: int, attempt: int = 1) -> AttemptReconnected:
    """An attempt is back on another connection."""
    return AttemptReconnected(now=1, subtask=subtask, attempt=attempt)


def checked(now: float) -> ConnectionsChecked:
    """Time passed."""
    return ConnectionsChecked(now=now)


def rested(now: float) -> SplitsRested:
    """Time passed."""
    return SplitsRested(now=now)


JOB_ENDED, FINISH_EARLY = JobEnded(now=0), FinishEarlyRequested(now=0)
FAILED_TWICE: tuple[SplitsEvent, ...] = (
    registered(0),
    requests(0),
    lost(0),
    registered(0, 2),
    requests(0, 2),
    lost(0, 2),
)
"""Two attempts were lost with the first split, which rests now."""
STORIES: tuple[tuple[SplitsEvent, ...], ...] = (
    (),
    (FINISH_EARLY,),
    (registered(0),),
    (registered(0), registered(0, 2)),
    (registered(0), lost(0)),
    (registered(0), JOB_ENDED),
    (registered(0), requests(0)),
    (registered(0), requests(0), registered(1)),
    (registered(0), requests(0), FINISH_EARLY),
    (registered(0), requests(0), requests(0)),
    (registered(0), requests(0), requests(0), requests(0)),
    (registered(0), requests(0), requests(0), registered(1), requests(1)),
    (registered(0), requests(0), registered(1), requests(1), requests(0)),
    (registered(0), requests(0), registered(1), requests(1), registered(2), requests(2)),
    (registered(0), requests(0), registered(1), requests(1), registered(2), requests(2), FINISH_EARLY),
    (registered(0), requests(0), registered(1), requests(1), registered(2), requests(2), FINISH_EARLY, done(FIRST, 0)),
    (registered(0), requests(0), registered(1), requests(1), registered(2), requests(2), done(FIRST, 0)),
    (registered(0), requests(0), done(FIRST, 0)),
    (registered(0), requests(0), registered(1), requests(1), requests(0), done(SECOND, 1)),
    (registered(0), requests(0), done(FIRST, 0), requests(0), done(SECOND, 0)),
    (registered(0), requests(0), done(FIRST, 0), requests(0), done(SECOND, 0), requests(0)),
    (registered(0), requests(0), done(FIRST, 0), lost(0)),
    (registered(0), requests(0), registered(1), requests(1), done(FIRST, 0), requests(0)),
    (registered(0), requests(0), done(FIRST, 0), requests(0), registered(0, 2)),
    (registered(0, 3), requests(0, 3)),
    (registered(0), disconnected(0)),
    (registered(0), requests(0), disconnected(0), checked(5)),
    FAILED_TWICE,
    (*FAILED_TWICE, registered(1), requests(1), requests(1)),
    (*FAILED_TWICE, registered(1), requests(1), registered(2), requests(2)),
    (*FAILED_TWICE, registered(1), requests(1), done(SECOND, 1), requests(1)),
)
"""From each of them every event is tried; together they stand in every state."""

RESTORED_STORIES: tuple[tuple[SplitsEvent, ...], ...] = (
    (),
    (FINISH_EARLY,),
    (registered(1),),
    (registered(1), requests(1)),
    (registered(0, 1, "b0-0"),),
    (registered(0, 1, "b0-0"), requests(0)),
    (registered(0, 1, "b0-0"), FINISH_EARLY),
    (registered(0, 1, "b0-0"), registered(1), requests(1)),
    (registered(0, 1, "b0-0"), requests(0), requests(0), done(FIRST, 0)),
)
"""As above, of a machine that was restored with the first split withheld."""

TRIED: tuple[SplitsEvent, ...] = (
    *(registered(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    *(requests(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    *(done(split, subtask) for split in (FIRST, SECOND) for subtask in (0, 1, 2)),
    done(FIRST, 0, end=4),
    done(FIRST, 0, attempt=2),
    *(lost(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    registered(0, 1, "b0-0"),
    registered(0, 2, "b0-0"),
    JOB_ENDED,
    FINISH_EARLY,
    *(disconnected(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    *(reconnected(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)),
    checked(4.9),
    checked(5),
    rested(1.9),
    rested(2),
)


Cell = tuple[State, type[SplitsEvent]]
Attempt = tuple[int, int]


class Recorded(Splits):
    """Records every move: whose it is, its cell and its guard."""

    moves: list[tuple[str | Attempt, Cell, SplitGuard]]

    def _move_split(self, split_id: str, guard: SplitGuard, cause: SplitsEvent) -> None:
        self.moves.append((split_id, (self._phases[split_id], type(cause)), guard))
        super()._move_split(split_id, guard, cause)

    def _move_attempt(self, attempt: Attempt, guard: SplitGuard, cause: SplitsEvent) -> None:
        self.moves.append((attempt, (self._phase_of(attempt), type(cause)), guard))
        super()._move_attempt(attempt, guard, cause)

    def _move_connection(self, attempt: Attempt, guard: SplitGuard, cause: SplitsEvent) -> None:
        self.moves.append((attempt, (self._connections[attempt], type(cause)), guard))
        super()._move_connection(attempt, guard, cause)


def after(story: tuple[SplitsEvent, ...], *withheld: str) -> Recorded:
    """A machine after a story, with nothing recorded; an attempt may reconnect within 5 s, a split rests 2 s first."""
    enumeration = Enumeration((FIRST, SECOND), {}, (), behind=False)
    splits = Recorded(enumeration, withheld=withheld, reconnect_s=5, retries=RetryPauses(2, 3))
    splits.moves = []
    for event in story:
        splits.step(event)
    splits.moves = []
    return splits


def states(splits: Splits, event: SplitsEvent) -> dict[str | Attempt, State]:
    """The state of each split, and of each attempt that the event names (all, if it names none)."""
    attempts = [(subtask, attempt) for subtask in (0, 1, 2) for attempt in (1, 2)]
    if not isinstance(event, JobEnded | FinishEarlyRequested | ConnectionsChecked | SplitsRested):
        attempts = [(event.subtask, event.attempt)]
    found: dict[str | Attempt, State] = {attempt: splits._phase_of(attempt) for attempt in attempts}
    return found | dict(splits._phases)


def test_every_guard_of_every_row_is_reached_and_nothing_stays_where_its_row_has_no_otherwise() -> None:
    """What does not move stays under `UNCHANGED`; what the table does not name never happens."""
    seen = {cell: set[SplitGuard]() for cell in TRANSITIONS}
    stories = [(story, ()) for story in STORIES] + [(story, (FIRST.split_id,)) for story in RESTORED_STORIES]
    for story, withheld in stories:
        for event in TRIED:
            splits = after(story, *withheld)
            before = states(splits, event)
            try:
                splits.step(event)
            except IllegalEventError:
                continue
            for _, cell, guard in splits.moves:
                seen[cell].add(guard)
            moved = {entity for entity, cell, _ in splits.moves if not isinstance(cell[0], ConnectionPhase)}
            for entity, state in before.items():
                if entity not in moved:
                    assert states(splits, event)[entity] is state
                    seen[state, type(event)].add(SplitGuard.UNCHANGED)
            _note_connections(seen, splits, event)
    assert seen == {cell: set(row) for cell, row in TRANSITIONS.items()}


def _note_connections(seen: dict[Cell, set[SplitGuard]], splits: Recorded, event: SplitsEvent) -> None:
    """Of the connections' rows, `UNCHANGED` is for those that the event may concern and that did not move."""
    moved = {entity for entity, cell, _ in splits.moves if isinstance(cell[0], ConnectionPhase)}
    for attempt, phase in splits._connections.items():
        named = isinstance(event, ConnectionsChecked) or attempt == (
            getattr(event, "subtask", None),
            getattr(event, "attempt", None),
        )
        if named and attempt not in moved and (phase, type(event)) in seen:
            seen[phase, type(event)].add(SplitGuard.UNCHANGED)


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
    splits = machine()
    for event in (registered(0), disconnected(0)):
        splits.step(event)
    assert splits.step(checked(1e9)) == ()


def test_the_table_decides_where_a_move_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another target in one row, the machine goes there."""
    cell = (SplitPhase.ASSIGNED, SplitDone)
    changed = {**TRANSITIONS, cell: {SplitGuard.COUNTS: SplitPhase.SKIPPED}}
    monkeypatch.setattr("lakeward.machines.splits.machine.TRANSITIONS", changed)
    assert after((registered(0), requests(0), done(FIRST, 0)))._phases[FIRST.split_id] is SplitPhase.SKIPPED


def test_a_move_never_changes_the_kind_of_a_state() -> None:
    assert [
        cell for cell, row in TRANSITIONS.items() if {type(state) for state in row.values()} != {type(cell[0])}
    ] == []


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_an_illegal_event_raises_and_changes_nothing(story: tuple[SplitsEvent, ...]) -> None:
    """An attempt that never registered may send nothing; an unknown split or a wrong end is never accepted."""
    unknown = replace(FIRST, split_id="b9-0")
    never = (
        requests(7),
        registered(7, 1, "b0-10"),
        done(FIRST, 7),
        done(unknown, 0),
        done(FIRST, 0, end=11),
        done(FIRST, 0, end=-1),
    )
    for event in (*TRIED, *never):
        splits = after(story)
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
    """The two cells of the table that are empty: an attempt that never registered requests or finishes."""
    every = {(phase, event) for phase in (*SplitPhase, *AttemptPhase) for event in {type(event) for event in TRIED}}
    assert every - TRANSITIONS.keys() == {
        (AttemptPhase.UNKNOWN, SplitRequested),
        (AttemptPhase.UNKNOWN, SplitDone),
    }
    for event in (requests(7), done(FIRST, 7)):
        with pytest.raises(IllegalEventError, match="machine 'splits' in state attempt unknown"):
            machine().step(event)


def test_a_round_without_splits_is_a_mistake_of_the_caller() -> None:
    """An empty round has nothing to assign."""
    with pytest.raises(UsageError, match="expected at least one"):
        Splits(Enumeration((), {}, (), behind=False))


def test_splits_are_handed_out_in_order_until_all_are_done() -> None:
    """An attempt that requests while others still read waits, and is dismissed at the end."""
    splits = machine(SNAPSHOT, FIRST)
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
    splits = machine(SNAPSHOT, FIRST, SECOND)
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
    assert not any(isinstance(command, SplitsReturned) for command in splits.step(end))
    assert splits.withheld == {"b0-0"}
    splits.step(registered(2, 1, "b0-0"))
    assert splits.step(done(FIRST, 2)) == (Accept("b0-0"), AllDone(incomplete=True))
    assert splits.offsets() == {A: 10}


def test_finished_splits_of_a_checkpoint_stay_finished() -> None:
    """A round of which nothing is left to read is done as soon as a job of it lives."""
    splits = Splits(Enumeration((FIRST, SECOND), {}, (), behind=False), {"b0-0": 10, "b0-10": 20})
    assert splits.unfinished == ()
    assert splits.step(registered(0)) == (AllDone(incomplete=False),)
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
    for event in (registered(0), registered(1), requests(0), requests(1), done(FIRST, 1)):
        splits.step(event)
    assert splits.offsets({"b0-10": 15}) == {A: 15}
    assert splits.offsets({"b0-10": 10}) == {A: 10}


def test_live_snapshot_may_stand_for_later_records_than_was_planned() -> None:
    live = SnapshotSplit("b1-s0", B, (), 0, 70, live=True)
    splits = machine(live)
    for event in (registered(0), requests(0), done(live, 0, end=75)):
        splits.step(event)
    assert splits.offsets() == {B: 75}
    assert splits.committable() == {"b1-s0"}


@pytest.mark.parametrize(("split", "end"), [(SNAPSHOT, 71), (SnapshotSplit("b1-s0", B, (), 0, 70, live=True), 69)])
def test_snapshot_that_ends_elsewhere_is_refused(split: SnapshotSplit, end: int) -> None:
    splits = machine(split)
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
