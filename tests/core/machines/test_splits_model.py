"""Subtasks that fail, are replaced and send late play against the machine `splits`; its mutants must die."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as play

from lakeward.machines.splits import (
    Accept,
    AllDone,
    Assign,
    AttemptDisconnected,
    AttemptLost,
    AttemptReconnected,
    AttemptRegistered,
    ConnectionsChecked,
    Enumeration,
    FinishEarlyRequested,
    GiveUp,
    JobEnded,
    NoMore,
    Reject,
    SendFinishEarly,
    SplitDone,
    SplitRequested,
    Splits,
    SplitsCommand,
    SplitsEvent,
    SplitsRested,
    SplitsReturned,
    enumerate_splits,
)
from lakeward.model.backoff import RetryPauses
from lakeward.model.splits import LogSplit, Split
from lakeward.model.tables import BucketState, KvSnapshot, TableBucket
from lakeward_mutants.splits import (
    AcceptsLateFinishes,
    AllowsNoTimeToReconnect,
    GivesUpWhoReconnected,
    HandsOutAgain,
    HandsOutWhileFinishingEarly,
    JumpsOverGaps,
    KeepsWhoDoesNotReconnect,
    NeverRests,
    RestsAsLongEachTime,
    RestsBeyondItsJob,
    RestsForEver,
)

pytestmark = pytest.mark.slow

Attempt = tuple[int, int]
RECONNECT_S, MOMENT_S = 5.0, 1.0
"""In which an attempt may reconnect; in which the connections of one executor close."""
PAUSES = RetryPauses(2.0, 5.0)
RESTS_S = (0.0, 2.0, 4.0, 5.0)
"""How long a split rests by how often it failed, one less; from then on the last one."""
subtasks = st.integers(0, 2)
BUCKETS = [TableBucket(1, None, number) for number in range(3)]


def some_round(*, primary_key: bool) -> Enumeration:
    """A few buckets: one tiered before, one with a snapshot or a log that is divided."""
    states = [BucketState(bucket, (), 0, 40, KvSnapshot(bucket, 4, 30)) for bucket in BUCKETS]
    return enumerate_splits(states, {BUCKETS[0]: 20}, primary_key=primary_key, max_split_rows=25)


class Subtasks(RuleBasedStateMachine):
    """Attempts that read, and a record of what each was given, kept from commands alone."""

    machine: type[Splits] = Splits

    @initialize(primary_key=st.booleans())
    def start(self, primary_key: bool) -> None:
        """Start a round, with two attempts ready."""
        self.enumeration = some_round(primary_key=primary_key)
        self.splits = self.machine(self.enumeration, reconnect_s=RECONNECT_S, retries=PAUSES)
        self.failures: dict[str, int] = {}
        self.rests: dict[str, float] = {}
        self.now = 0.0
        self.closed: dict[Attempt, float] = {}
        self.numbers = dict.fromkeys(range(3), 0)
        self.given: dict[Attempt, dict[str, Split]] = {}
        self.once_given: dict[Attempt, set[str]] = {}
        self.finished: dict[str, int] = {}
        self.finishing_early = False
        self.ended = 0
        self.waiting: set[Attempt] = set()
        self.offsets = dict(self.enumeration.offsets)
        self.register(0)
        self.register(1)

    def feed(self, event: SplitsEvent) -> tuple[SplitsCommand, ...]:
        """Take an event, check each command in its turn."""
        commands = self.splits.step(event)
        for command in commands:
            match command:
                case Assign():
                    self.assign((command.subtask, command.attempt), command.split)
                case SplitsReturned():
                    assert not self.finishing_early
                    assert not {split.split_id for split in command.splits} & self.finished.keys()
                case AllDone():
                    self.ended += 1
                    assert self.ended == 1, "done twice"
                    assert not any(self.given.values()), "done while an attempt reads"
                case NoMore():
                    self.waiting.discard((command.subtask, command.attempt))
                case SendFinishEarly():
                    assert self.given[command.subtask, command.attempt]
                case Accept() | Reject() | GiveUp():
                    pass
        return commands

    def assign(self, attempt: Attempt, split: Split) -> None:
        """Only to a living one that requested, only what no other has, never what is finished."""
        assert not self.finishing_early, "handed out while finishing early"
        assert split.split_id not in self.finished, "handed out again"
        assert all(split.split_id not in held for held in self.given.values()), "two read one split"
        assert self.rests.pop(split.split_id, 0.0) <= self.now, "handed out before it has rested"
        self.waiting.remove(attempt)
        self.given[attempt][split.split_id] = split
        self.once_given[attempt].add(split.split_id)

    def register(self, subtask: int) -> None:
        """A newer attempt; the older one loses what it holds."""
        older = (subtask, self.numbers[subtask])
        self.numbers[subtask] += 1
        attempt = (subtask, self.numbers[subtask])
        self.fail(older)
        self.given[attempt], self.once_given[attempt] = {}, set()
        self.feed(AttemptRegistered(now=self.now, subtask=subtask, attempt=attempt[1]))

    def fail(self, attempt: Attempt) -> None:
        """An attempt is gone: what it holds rests, if it has failed before."""
        self.waiting.discard(attempt)
        for split_id in self.given.pop(attempt, {}):
            failures = self.failures[split_id] = self.failures.get(split_id, 0) + 1
            rest_s = RESTS_S[min(failures, len(RESTS_S)) - 1]
            if rest_s and not self.finishing_early:
                self.rests[split_id] = self.now + rest_s

    @rule(subtask=subtasks, action=st.integers(0, 5), part=st.integers(0, 3))
    def work_goes_on(self, subtask: int, action: int, part: int) -> None:
        """A living attempt requests or finishes."""
        attempt = (subtask, self.numbers[subtask])
        if attempt not in self.given:
            self.register(subtask)
        elif self.given[attempt] and action < 3:
            self.finish(attempt, sorted(self.given[attempt])[part % len(self.given[attempt])], part)
        else:
            if not self.splits.done:
                self.waiting.add(attempt)
            self.feed(SplitRequested(now=0, subtask=subtask, attempt=attempt[1]))

    @rule(subtask=subtasks)
    def requests_ahead(self, subtask: int) -> None:
        """While it still closes files of the last one, or once more."""
        attempt = (subtask, self.numbers[subtask])
        if attempt in self.given and not self.splits.done:
            self.waiting.add(attempt)
            self.feed(SplitRequested(now=0, subtask=subtask, attempt=attempt[1]))

    def finish(self, attempt: Attempt, split_id: str, part: int) -> None:
        """At its end; while finishing early a log split may stop earlier."""
        split = self.given[attempt].pop(split_id)
        end_of_split = split.stop if isinstance(split, LogSplit) else split.log_offset
        end = split.start + part if self.finishing_early and isinstance(split, LogSplit) and part else end_of_split
        self.finished[split_id] = end
        assert Accept(split_id) in self.send_finish(attempt, split_id, end)

    def send_finish(self, attempt: Attempt, split_id: str, end: int) -> tuple[SplitsCommand, ...]:
        """An attempt reports that it finished."""
        return self.feed(SplitDone(now=0, subtask=attempt[0], attempt=attempt[1], split_id=split_id, end_offset=end))

    @rule(subtask=subtasks)
    def restarted(self, subtask: int) -> None:
        """A newer attempt of a subtask registers."""
        self.register(subtask)

    @rule(subtask=subtasks)
    def lost(self, subtask: int) -> None:
        """The living attempt of a subtask is gone, or was before."""
        attempt = (subtask, self.numbers[subtask])
        self.fail(attempt)
        self.feed(AttemptLost(now=self.now, subtask=subtask, attempt=attempt[1]))

    @rule(subtask=subtasks, closes=st.booleans())
    def connection_closes_or_comes_back(self, subtask: int, closes: bool) -> None:
        """That of a living attempt; the attempt may go on meanwhile."""
        attempt = (subtask, self.numbers[subtask])
        if attempt not in self.given:
            return
        if closes:
            self.closed.setdefault(attempt, self.now)
            self.feed(AttemptDisconnected(now=self.now, subtask=subtask, attempt=attempt[1]))
        else:
            self.closed.pop(attempt, None)
            self.feed(AttemptReconnected(now=self.now, subtask=subtask, attempt=attempt[1]))

    @rule(seconds=st.sampled_from((0.5, 2.0, RECONNECT_S)))
    def time_passes(self, seconds: float) -> None:
        """Who did not reconnect in time is given up, with those that closed within a moment of it, and nobody else."""
        self.now += seconds
        self.closed = {attempt: at for attempt, at in self.closed.items() if attempt in self.given}
        overdue = {attempt for attempt, at in self.closed.items() if self.now - at >= RECONNECT_S}
        commands = self.feed(ConnectionsChecked(now=self.now))
        given_up = [attempt for command in commands if isinstance(command, GiveUp) for attempt in command.attempts]
        assert overdue <= {*given_up}, "one that is overdue is kept"
        assert overdue or not given_up, "one is given up before its time"
        for attempt in given_up:
            assert self.now - self.closed[attempt] >= RECONNECT_S - MOMENT_S
            self.lost(attempt[0])
        self.feed(SplitsRested(now=self.now))
        self.rests = {split_id: at for split_id, at in self.rests.items() if at > self.now}

    @rule(choice=st.integers(0, 99), again=st.booleans())
    def a_late_event(self, choice: int, again: bool) -> None:
        """A lost attempt requests, or finishes what it once had: rejected, unless it only repeats what was accepted."""
        late = [attempt for attempt in self.once_given if attempt not in self.given]
        if not late:
            return
        attempt = late[choice % len(late)]
        before = dict(self.finished), self.splits.unfinished, self.splits.offsets()
        for split_id in sorted(self.once_given[attempt]):
            split = next(split for split in self.enumeration.splits if split.split_id == split_id)
            end_of_split = split.stop if isinstance(split, LogSplit) else split.log_offset
            commands = self.send_finish(attempt, split_id, end_of_split)
            assert all(isinstance(command, Reject) for command in commands)
        if again:
            (rejected,) = self.feed(SplitRequested(now=0, subtask=attempt[0], attempt=attempt[1]))
            assert isinstance(rejected, Reject)
        assert before == (self.finished, self.splits.unfinished, self.splits.offsets())

    @rule(often=st.integers(0, 19))
    def finish_early_or_job_ended(self, often: int) -> None:
        """Now and then."""
        if often == 0:
            self.finish_early()
        elif often == 1:
            self.given, self.waiting, self.rests = {}, set(), {}
            self.feed(JobEnded(now=self.now))

    def finish_early(self) -> None:
        """From now on nothing is handed out."""
        self.finishing_early = True
        self.rests = {}
        self.feed(FinishEarlyRequested(now=0))

    @invariant()
    def the_records_agree(self) -> None:
        """Unfinished is what is neither finished nor skipped; no attempt waits while a split is free."""
        if not hasattr(self, "splits"):
            return
        unfinished = {split.split_id for split in self.splits.unfinished}
        held = {split_id for splits in self.given.values() for split_id in splits}
        assert not unfinished & self.finished.keys()
        assert held <= unfinished
        assert self.splits.rested_by == min(self.rests.values(), default=inf)
        assert not (self.waiting and unfinished - held - self.rests.keys()), "an attempt waits while a split is free"
        assert self.splits.done == (not unfinished)
        assert self.ended == self.splits.done
        assert not (self.finishing_early and unfinished - held)

    @invariant()
    def offsets_are_the_finished_prefixes(self) -> None:
        """They never move back, and everything below them is in files that go into the commit."""
        if not hasattr(self, "splits"):
            return
        offsets, committable = dict(self.splits.offsets()), self.splits.committable()
        assert all(offsets[bucket] >= offset for bucket, offset in self.offsets.items())
        self.offsets = offsets
        assert committable <= self.finished.keys()
        for bucket in BUCKETS:
            of_bucket = [split for split in self.enumeration.splits if split.bucket == bucket]
            assert self.expected(of_bucket) == offsets.get(bucket)
        for split in self.enumeration.splits:
            assert (split.split_id in committable) or self.reached(split) <= self.floor(split, offsets)

    def expected(self, splits: list[Split]) -> int | None:
        """Walk the offsets one by one, knowing nothing of prefixes."""
        bucket = splits[0].bucket
        covered = self.enumeration.offsets.get(bucket, 0)
        known = bucket in self.enumeration.offsets
        for split in sorted(splits, key=lambda split: split.start if isinstance(split, LogSplit) else 0):
            if isinstance(split, LogSplit) and split.split_id in self.finished and split.start == covered:
                covered = self.finished[split.split_id]
            elif not isinstance(split, LogSplit) and split.split_id in self.finished:
                covered = split.log_offset
        return covered if known or covered > 0 else None

    def reached(self, split: Split) -> int:
        """Where a split stands that is left out of the commit; 0 where it has no files."""
        return split.start if isinstance(split, LogSplit) and split.split_id in self.finished else 0

    def floor(self, split: Split, offsets: dict[TableBucket, int]) -> int:
        """A finished split may be left out only behind a gap, so at or above the bucket's offset."""
        start = split.start if isinstance(split, LogSplit) else 0
        assert split.split_id not in self.finished or start >= offsets.get(split.bucket, 0)
        return start


QUICK = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
)
# What is tried depends on every module that is loaded: wide margins, for a hunt ends where it finds something.
HUNT = settings(QUICK, max_examples=5000, phases=[Phase.generate], print_blob=False)


def test_the_machine_holds_every_invariant() -> None:
    """After every step of subtasks that do anything they may."""
    play(Subtasks, settings=QUICK)


@pytest.mark.parametrize(
    "mutant",
    [
        HandsOutAgain,
        HandsOutWhileFinishingEarly,
        JumpsOverGaps,
        AcceptsLateFinishes,
        KeepsWhoDoesNotReconnect,
        AllowsNoTimeToReconnect,
        GivesUpWhoReconnected,
        NeverRests,
        RestsForEver,
        RestsAsLongEachTime,
        RestsBeyondItsJob,
    ],
)
@pytest.mark.mutant
def test_a_mutant_dies(mutant: type[Splits]) -> None:
    """The same game finds it."""
    game = type(f"{mutant.__name__}Game", (Subtasks,), {"machine": mutant})
    with pytest.raises((AssertionError, KeyError)):
        play(game, settings=HUNT)
