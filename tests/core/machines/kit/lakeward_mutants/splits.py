"""Mutants of the splits machine."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakeward.machines.machine import Rule
from lakeward.machines.splits import (
    ATTEMPTS,
    CONNECTIONS,
    ROUND,
    SPLITS,
    AttemptLost,
    AttemptReconnected,
    ConnectionsChecked,
    JobEnded,
    SplitDone,
    Splits,
    SplitsRested,
)
from lakeward.machines.splits import rules as splits
from lakeward.machines.splits.messages import AttemptEnded, AttemptReplaced, SplitAssigned, SplitReturned
from lakeward_mutants.changed import with_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.machines.splits import SplitsCommand, SplitsEvent
    from lakeward.machines.splits.state import RoundSplits
    from lakeward.model.splits import Split

Commands = tuple["SplitsCommand", ...]


def _hand_out_all(held: RoundSplits, event: AttemptLost | AttemptReplaced | AttemptEnded) -> None:
    for split_id, (attempt, _) in held.finishes.items():
        if attempt == (event.subtask, event.attempt) and not held.finishing_early:
            held.put_back(split_id)


def _lose(held: RoundSplits, event: AttemptLost) -> Commands:
    _hand_out_all(held, event)
    return splits.lose(held, event)


def _lose_replaced(held: RoundSplits, event: AttemptReplaced) -> Commands:
    _hand_out_all(held, event)
    return splits.lose_replaced(held, event)


def _leave(held: RoundSplits, event: AttemptEnded) -> Commands:
    _hand_out_all(held, event)
    return splits.leave(held, event)


class HandsOutAgain(Splits):
    """Mutant: a lost attempt's finished splits are read again."""

    split_rules = with_rules(SPLITS, Rule(splits.FINISHED, SplitAssigned, to=splits.ASSIGNED, do=splits.assign))
    attempt_rules = with_rules(
        ATTEMPTS,
        Rule(splits.ALIVE, AttemptLost, to=splits.GONE, do=_lose),
        Rule(splits.ALIVE, AttemptReplaced, to=splits.GONE, do=_lose_replaced),
        Rule(splits.ALIVE, AttemptEnded, to=splits.GONE, do=_leave),
    )


def _was_read(held: RoundSplits, event: SplitReturned) -> bool:
    return not splits.is_withheld(held, event)


class HandsOutWhileFinishingEarly(Splits):
    """Mutant: what is returned while the round finishes early is handed out."""

    split_rules = with_rules(
        SPLITS, Rule(splits.ASSIGNED, SplitReturned, when=_was_read, to=splits.UNASSIGNED, do=splits.put_back)
    )


class JumpsOverGaps(Splits):
    """Mutant: every finished split moves its bucket's offset."""

    def prefix(self, splits: Iterable[Split]) -> Iterator[Split]:
        """Take all that is finished."""
        return (split for split in splits if split.split_id in self.finishes)


class AcceptsLateFinishes(Splits):
    """Mutant: an attempt that was lost may still finish what it had."""

    def step(self, event: SplitsEvent) -> Commands:
        """Take it for the one that holds the split."""
        holder = self.holders.get(event.split_id) if isinstance(event, SplitDone) else None
        if isinstance(event, SplitDone) and holder is not None:
            event = replace(event, subtask=holder[0], attempt=holder[1])
        return super().step(event)


class KeepsWhoDoesNotReconnect(Splits):
    """Mutant: the splits of a lost executor wait until the whole job is given up."""

    rules = with_rules(ROUND, Rule(splits.ANY, ConnectionsChecked))


class AllowsNoTimeToReconnect(Splits):
    """Mutant: an attempt whose connection closed has no time to reconnect."""

    def step(self, event: SplitsEvent) -> Commands:
        """As if the time were over."""
        over = isinstance(event, ConnectionsChecked)
        return super().step(ConnectionsChecked(now=event.now + self.reconnect_s) if over else event)


class GivesUpWhoReconnected(Splits):
    """Mutant: a connection that came back does not count."""

    connection_rules = with_rules(CONNECTIONS, Rule(splits.DISCONNECTED, AttemptReconnected))


def _is_read_again(held: RoundSplits, event: SplitReturned) -> bool:
    return _was_read(held, event) and not held.finishing_early


def _put_back_now(held: RoundSplits, event: SplitReturned) -> Commands:
    splits.put_back(held, event)
    splits.wake(held, SplitsRested(now=inf))
    return ()


class NeverRests(Splits):
    """Mutant: a split that fails again and again is tried again at once."""

    split_rules = with_rules(
        SPLITS, Rule(splits.ASSIGNED, SplitReturned, when=_is_read_again, to=splits.UNASSIGNED, do=_put_back_now)
    )


class RestsForEver(Splits):
    """Mutant: a split that rests is never tried again by the same job."""

    rules = with_rules(ROUND, Rule(splits.ANY, SplitsRested))


def _put_back_as_before(held: RoundSplits, event: SplitReturned) -> Commands:
    held.failures[event.split_id] = min(held.failures.get(event.split_id, 0), 1)
    return splits.put_back(held, event)


class RestsAsLongEachTime(Splits):
    """Mutant: rests do not grow."""

    split_rules = with_rules(
        SPLITS,
        Rule(splits.ASSIGNED, SplitReturned, when=_is_read_again, to=splits.UNASSIGNED, do=_put_back_as_before),
    )


def _end_attempts(held: RoundSplits, event: JobEnded) -> Commands:
    resting = dict(held.resting)
    held.resting.replace({})
    commands = splits.end_attempts(held, event)
    held.resting.replace(resting)
    return commands


class RestsBeyondItsJob(Splits):
    """Mutant: a split rests on in the next launch, which has waited already."""

    rules = with_rules(ROUND, Rule(splits.ANY, JobEnded, do=_end_attempts))
