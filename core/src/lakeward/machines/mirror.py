"""The tiering queue of tables in mirror mode, and whose turn it is: theirs or the source's. Pure.

The queue is our own, for the source is told nothing of mirrored tables.

It answers heartbeats as a source's queue does (facts: Fluss 4.1, 4.2), so that the machine `rounds` needs to know no
difference: a table is due when its freshness is over, failed ones are due at once, a table that is gone is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.model.tiering import Beat, BeatAnswer, Claim, Offer, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakeward.model.tables import TablePath


SILENT_S = 60.0
"""A table in hand that no heartbeat has spoken of for this long is in nobody's hand: its round was given up."""


@dataclass(frozen=True, slots=True)
class _Entry:
    offer: Offer
    due: float
    taken: bool = False
    heard_at: float = 0.0
    """When a heartbeat spoke of it last, or it was handed out."""


class MirrorQueue:
    """The queue of one service. Epochs are counted here and mean nothing to anybody else."""

    def __init__(self, coordinator_epoch: int = 0) -> None:
        """Start without tables.

        Args:
            coordinator_epoch: what answers carry.
        """
        self._coordinator_epoch = coordinator_epoch
        self._entries: dict[int, _Entry] = {}

    def oldest_due(self, now: float) -> float | None:
        """Return since when the most overdue table has been due, None if none is."""
        return min(
            (entry.due for entry in self._entries.values() if not entry.taken and entry.due <= now), default=None
        )

    @property
    def table_ids(self) -> frozenset[int]:
        """The tables that this queue knows."""
        return frozenset(self._entries)

    def update(self, now: float, tables: Mapping[int, tuple[TablePath, float]]) -> None:
        """Take the tables as they are now: new ones are due at once, those that are gone are forgotten.

        Args:
            now: seconds on the holder's clock.
            tables: table id to its path and promised freshness in seconds.
        """
        known = self._entries
        self._entries = {}
        for table_id, (path, freshness_s) in tables.items():
            entry = known.get(table_id) or _Entry(Offer(path, table_id, 0, self._coordinator_epoch, freshness_s), now)
            self._entries[table_id] = replace(entry, offer=replace(entry.offer, freshness_s=freshness_s))

    def make_due(self, now: float, paths: Collection[TablePath]) -> None:
        """Hand these out at the next request; what is in hand stays as it is."""
        for table_id, entry in self._entries.items():
            if entry.offer.path in paths and not entry.taken:
                self._entries[table_id] = replace(entry, due=min(entry.due, now))

    def beat(self, now: float, beat: Beat) -> BeatAnswer:
        """Answer a heartbeat: failed, renewed, finished, request, in this order.

        Args:
            now: seconds on the holder's clock.
            beat: claims of tables of this queue only.

        Returns:
            As a source would.
        """
        refused: dict[int, Refusal] = {}
        for claim in beat.failed:
            self._settle(claim, now, refused)
        for claim in beat.renewed:
            if self._check(claim, refused):
                self._entries[claim.table_id] = replace(self._entries[claim.table_id], heard_at=now)
        for claim in beat.finished:
            forced = claim.table_id in beat.forced
            self._settle(claim, now if forced else None, refused, now)
        self._take_back(now)
        return BeatAnswer(self._coordinator_epoch, self._next(now) if beat.request else None, refused)

    def _take_back(self, now: float) -> None:
        for table_id, entry in self._entries.items():
            if entry.taken and now - entry.heard_at > SILENT_S:
                self._entries[table_id] = replace(entry, taken=False, due=now)

    def _settle(self, claim: Claim, due: float | None, refused: dict[int, Refusal], now: float = 0.0) -> None:
        if self._check(claim, refused):
            entry = self._entries[claim.table_id]
            later = now + entry.offer.freshness_s if due is None else due
            self._entries[claim.table_id] = replace(entry, due=later, taken=False)

    def _check(self, claim: Claim, refused: dict[int, Refusal]) -> bool:
        entry = self._entries.get(claim.table_id)
        if entry is None:
            refused[claim.table_id] = Refusal.GONE
        elif not entry.taken:
            refused[claim.table_id] = Refusal.NOT_TIERING
        elif entry.offer.epoch != claim.epoch:
            refused[claim.table_id] = Refusal.FENCED
        else:
            return True
        return False

    def _next(self, now: float) -> Offer | None:
        due = [entry for entry in self._entries.values() if not entry.taken and entry.due <= now]
        if not due:
            return None
        first = min(due, key=lambda entry: (entry.due, entry.offer.table_id))
        offer = replace(first.offer, epoch=first.offer.epoch + 1, waited_s=now - first.due)
        self._entries[offer.table_id] = replace(first, offer=offer, taken=True, heard_at=now)
        return offer


class SourceTurns:
    """Reckons since when the source's own queue has a table of ours waiting: it says so of none.

    A table is due again a freshness after it was reported as finished, and at once where it failed. The queue is first
    in, first out, so nothing in it has been due for longer than what it gave last; and what it does not give when it is
    asked is not in it. So a table that another service has in hand is not waited for.
    """

    def __init__(self) -> None:
        """Start without tables."""
        self._due: dict[int, float] = {}
        self._freshness: dict[int, float] = {}
        self._taken: set[int] = set()
        self._given = float("-inf")
        """When that became due which the source gave last."""

    def update(self, now: float, tables: Mapping[int, float]) -> None:
        """Take the tables as they are now: new ones count as due at once, those that are gone are forgotten.

        Args:
            now: seconds on the holder's clock.
            tables: table id to promised freshness in seconds.
        """
        self._due = {table_id: self._due.get(table_id, now) for table_id in tables}
        self._freshness = dict(tables)
        self._taken &= tables.keys()

    def oldest_due(self, now: float) -> float | None:
        """Return since when the head of the source's queue has been due, None if nothing seems to be in it."""
        waiting = [due for table_id, due in self._due.items() if table_id not in self._taken]
        oldest = max(min(waiting, default=now + 1.0), self._given)
        return oldest if oldest <= now else None

    def offered(self, now: float, table_id: int) -> float:
        """Note what the source gave.

        Args:
            now: seconds on the holder's clock.
            table_id: the table.

        Returns:
            For how many seconds it has been due.
        """
        self._given = min(now, max(self._given, self._due.get(table_id, now)))
        self._taken.add(table_id)
        return now - self._given

    def empty(self, now: float) -> None:
        """Note that the source gave nothing of ours: nothing waits there."""
        self._given = now
        for table_id in self._due.keys() - self._taken:
            self._due[table_id] = max(self._due[table_id], now)

    def reported(self, now: float, beat: Beat) -> None:
        """Note what the source was told: finished tables are due a freshness later, failed ones at once.

        What no heartbeat renews any more was given up without a report, and waits at the source as it did before.
        """
        self._taken &= {claim.table_id for claim in (*beat.renewed, *beat.finished, *beat.failed)}
        for claim in beat.failed:
            self._leave(claim.table_id, now)
        for claim in beat.finished:
            fresh = 0.0 if claim.table_id in beat.forced else self._freshness.get(claim.table_id, 0.0)
            self._leave(claim.table_id, now + fresh)

    def _leave(self, table_id: int, due: float) -> None:
        self._taken.discard(table_id)
        if table_id in self._due:
            self._due[table_id] = due
