"""Mutants of the splits machine."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from lakeward.machines.splits import SplitDone, Splits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.machines.splits import Attempt, SplitsCommand, SplitsEvent
    from lakeward.model.splits import Split


class HandsOutAgain(Splits):
    """Mutant: a lost attempt's finished splits are read again."""

    def _give_back(self, attempts: Iterable[Attempt], cause: SplitsEvent) -> list[SplitsCommand]:
        """Put all that they ever finished back, too."""
        gone = list(attempts)
        for split_id, (attempt, _) in list(self._finishes.items()):
            if attempt in gone and not self._cut:
                heapq.heappush(self._queue, self._rank[split_id])
        return super()._give_back(gone, cause)

    def _check_move(self, before: object, after: object, cause: SplitsEvent) -> None:
        """Nor is the table asked."""


class ForgetsTheCut(Splits):
    """Mutant: what comes back after a cut is handed out."""

    def _give_back(self, attempts: Iterable[Attempt], cause: SplitsEvent) -> list[SplitsCommand]:
        """As if nothing had been cut."""
        was_cut, self._cut = self._cut, False
        commands = super()._give_back(attempts, cause)
        self._cut = was_cut
        return commands


class JumpsOverGaps(Splits):
    """Mutant: every finished split moves its bucket's offset."""

    def _prefix(self, splits: Iterable[Split]) -> Iterator[Split]:
        """Take all that is finished."""
        return (split for split in splits if split.split_id in self._finishes)


class BelievesLateFinishes(Splits):
    """Mutant: an attempt that was lost may still finish what it had."""

    def _split_done(self, event: SplitDone) -> list[SplitsCommand]:
        """Take anybody's word."""
        holder = self._holders.get(event.split_id)
        if holder is not None:
            event = SplitDone(
                now=event.now,
                subtask=holder[0],
                attempt=holder[1],
                split_id=event.split_id,
                end_offset=event.end_offset,
            )
        return super()._split_done(event)
