"""Mutants of the splits machine."""

from __future__ import annotations

import heapq
from math import inf
from typing import TYPE_CHECKING

from lakeward.machines.splits import AttemptReconnected, ConnectionsChecked, SplitDone, SplitPhase, Splits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.machines.splits import AttemptDisconnected, SplitsCommand, SplitsEvent
    from lakeward.machines.splits.machine import Attempt
    from lakeward.machines.splits.transitions import SplitGuard
    from lakeward.model.splits import Split


class HandsOutAgain(Splits):
    """Mutant: a lost attempt's finished splits are read again."""

    def _lose(self, attempts: Iterable[Attempt], cause: SplitsEvent) -> list[SplitsCommand]:
        """Put all that they ever finished back, too."""
        gone = list(attempts)
        for split_id, (attempt, _) in list(self._finishes.items()):
            if attempt in gone and not self._finishing_early:
                heapq.heappush(self._queue, self._rank[split_id])
        return super()._lose(gone, cause)

    def _move_split(self, split_id: str, guard: SplitGuard, cause: SplitsEvent) -> None:
        """Whatever the table says."""
        if self._phases[split_id] is SplitPhase.FINISHED:
            self._phases[split_id] = SplitPhase.ASSIGNED
        else:
            super()._move_split(split_id, guard, cause)


class HandsOutWhileFinishingEarly(Splits):
    """Mutant: what is returned while the round finishes early is handed out."""

    def _lose(self, attempts: Iterable[Attempt], cause: SplitsEvent) -> list[SplitsCommand]:
        """As if it did not finish early."""
        early, self._finishing_early = self._finishing_early, False
        commands = super()._lose(attempts, cause)
        self._finishing_early = early
        return commands


class JumpsOverGaps(Splits):
    """Mutant: every finished split moves its bucket's offset."""

    def _prefix(self, splits: Iterable[Split]) -> Iterator[Split]:
        """Take all that is finished."""
        return (split for split in splits if split.split_id in self._finishes)


class AcceptsLateFinishes(Splits):
    """Mutant: an attempt that was lost may still finish what it had."""

    def step(self, event: SplitsEvent) -> tuple[SplitsCommand, ...]:
        """Take it for the one that holds the split."""
        holder = self._holders.get(event.split_id) if isinstance(event, SplitDone) else None
        if isinstance(event, SplitDone) and holder is not None:
            event = SplitDone(
                now=event.now,
                subtask=holder[0],
                attempt=holder[1],
                split_id=event.split_id,
                end_offset=event.end_offset,
            )
        return super().step(event)


class KeepsWhoDoesNotReconnect(Splits):
    """Mutant: the splits of a lost executor wait until the whole job is given up."""

    def _give_up(self, event: ConnectionsChecked) -> list[SplitsCommand]:
        """Wait on."""
        del event
        return []


class AllowsNoTimeToReconnect(Splits):
    """Mutant: an attempt whose connection closed has no time to reconnect."""

    def _give_up(self, event: ConnectionsChecked) -> list[SplitsCommand]:
        """As if the time were over."""
        return super()._give_up(ConnectionsChecked(now=event.now + self._reconnect_s))


class GivesUpWhoReconnected(Splits):
    """Mutant: a connection that came back does not count."""

    def _note_connection(self, event: AttemptDisconnected | AttemptReconnected) -> list[SplitsCommand]:
        """Note what closes alone."""
        return [] if isinstance(event, AttemptReconnected) else super()._note_connection(event)


class NeverRests(Splits):
    """Mutant: a split that fails again and again is tried again at once."""

    def _put_back(self, split_id: str, cause: SplitsEvent) -> None:
        """Let it be assigned now."""
        super()._put_back(split_id, cause)
        self._wake(inf)


class RestsForEver(Splits):
    """Mutant: a split that rests is never tried again by the same job."""

    def _wake(self, now: float) -> None:
        """Only where the job ends, or its round finishes early."""
        if now == inf:
            super()._wake(now)


class RestsAsLongEachTime(Splits):
    """Mutant: rests do not grow."""

    def _put_back(self, split_id: str, cause: SplitsEvent) -> None:
        """As after the second failure."""
        self._failures[split_id] = min(self._failures.get(split_id, 0), 1)
        super()._put_back(split_id, cause)


class RestsBeyondItsJob(Splits):
    """Mutant: a split rests on in the next launch, which has waited already."""

    def _wake(self, now: float) -> None:
        """Not at the end of a job."""
        if now != inf or self._finishing_early:
            super()._wake(now)
