"""The queue of tables: which table is next, of those that the source hands out and those that are mirrored.

This service schedules mirrored tables itself: their offsets are in the lake, and the source is not told about them.
The most overdue table comes first, whether mirrored or tiered. The source's queue cannot be inspected without taking a
table from it, so what is due there is estimated (`machines/rounds/mirror_queue.py`).

The source may assign a table that this service must not tier (excluded, or mirrored here and tiered by another
service). Such a table is given back untouched within the same call, and the queue is asked for the next one: that costs
no slot and no poll interval.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.rounds.mirroring import MIRROR
from lakeward.errors import LakewardError
from lakeward.machines.rounds.mirror_queue import MirrorQueue, SourceQueueEstimate
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import Clock, Source, TableQueue

_LOOK_S = 2.0
"""Least seconds between two listings of the source's tables."""
_SEARCH_S = 5.0
"""Most seconds that one heartbeat spends on giving back tables that this service must not tier."""
_SHARE = 10
"""Listing tables, and giving tables back, take at most a tenth of the time."""
_log = structlog.get_logger("lakeward.scheduling")


def table_queue(
    source: Source,
    rules: Callable[[TablePath], TableSettings],
    clock: Clock,
    *,
    mirrors: bool,
    refresh: Callable[[], None],
) -> TableQueue:
    """Return the queue of a service; of a table's rules, `include`, `mode` and `freshness_s` decide.

    `mirrors`: any table may be mirrored; if not, the source's tables are never listed. `refresh` is called at each
    heartbeat; it may block and change what the rules say.
    """
    queue = MirroringQueue if mirrors else SourceQueue
    return queue(source, rules, clock, refresh)


class SourceQueue:
    """The source's own queue, without what this service must not tier. Thread-safe, as the source is."""

    def __init__(
        self,
        source: Source,
        rules: Callable[[TablePath], TableSettings],
        clock: Clock,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask nothing yet; `refresh`: see `table_queue`."""
        self._source = source
        self._rules = rules
        self._clock = clock
        self._refresh = refresh
        self._estimate = SourceQueueEstimate()
        self._lock = threading.Lock()
        self._ask_at = float("-inf")
        self._unreported: tuple[TableEpoch, ...] = ()
        """Tables that must be given back by the next heartbeat, because the call for it failed."""

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """See `TableQueue`."""
        self._refresh()
        with self._lock:
            return self._ask(request)

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """See `TableQueue`."""
        return self._source.make_due(paths)

    def _is_wanted(self, path: TablePath) -> bool:
        rules = self._rules(path)
        return rules.include and rules.mode != MIRROR

    def _ask(self, request: HeartbeatRequest) -> HeartbeatResponse:
        asked = request.request and self._clock.now() >= self._ask_at
        request = replace(request, failed=(*request.failed, *self._unreported), request=asked)
        answer = self._source.heartbeat(request)
        self._unreported = ()
        self._estimate.reported(self._clock.now(), request)
        return self._choose(answer) if asked else answer

    def _choose(self, answer: HeartbeatResponse) -> HeartbeatResponse:
        """Give tables back until the queue assigns one to tier, or none, or one that was given back before."""
        started = self._clock.now()
        assignment, epoch, seen = answer.assignment, answer.coordinator_epoch, set[int]()
        while assignment is not None and not self._is_wanted(assignment.path):
            late = self._clock.now() - started >= _SEARCH_S
            again = assignment.table_id in seen
            seen.add(assignment.table_id)
            given_back = self._give_back(assignment, request=not late and not again)
            if given_back is None or late:
                self._rest(started)
                return HeartbeatResponse(epoch, None, answer.refused)
            assignment, epoch = given_back.assignment, given_back.coordinator_epoch
        now = self._clock.now()
        if assignment is not None:
            return HeartbeatResponse(
                epoch,
                replace(assignment, waited_s=self._estimate.assigned(now, assignment.table_id)),
                answer.refused,
            )
        self._estimate.empty(now)
        self._rest(started)
        return HeartbeatResponse(epoch, None, answer.refused)

    def _give_back(self, assignment: TableAssignment, *, request: bool) -> HeartbeatResponse | None:
        """Give a table back and ask for the next one; if the call fails, the next heartbeat gives it back."""
        self._unreported = (TableEpoch(assignment.table_id, assignment.epoch, assignment.coordinator_epoch),)
        try:
            answer = self._source.heartbeat(HeartbeatRequest(failed=self._unreported, request=request))
        except LakewardError as error:
            # The first call of this heartbeat has succeeded: its answer must not be lost because this one failed.
            _log.warning("a table was not given back yet", table=str(assignment.path), reason=str(error))
            return None
        self._unreported = ()
        return answer

    def _rest(self, started: float) -> None:
        """Do not poll the source's queue for nine times as long as this search took."""
        now = self._clock.now()
        self._ask_at = now + (_SHARE - 1) * (now - started)


class MirroringQueue(SourceQueue):
    """The source's own queue, and beside it the mirrored tables, which this service schedules."""

    def __init__(
        self,
        source: Source,
        rules: Callable[[TablePath], TableSettings],
        clock: Clock,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(source, rules, clock, refresh)
        self._mirrored = MirrorQueue()
        self._look_at = float("-inf")
        self._tiers = True

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """See `TableQueue`. The queue with the most overdue table is polled first; the other one if that has none."""
        self._refresh()
        with self._lock:
            self._look()
            now, ours = self._clock.now(), self._mirrored.table_ids
            mine, theirs = self._mirrored.oldest_due(now), self._estimate.oldest_due(now)
            mirror_first = mine is not None and (theirs is None or mine <= theirs)
            below = self._ask_below(_part(request, ours, keep=False, poll=request.request and not mirror_first))
            poll = request.request and (below is None or below.assignment is None)
            own = self._mirrored.heartbeat(self._clock.now(), _part(request, ours, keep=True, poll=poll))
        if below is None:
            return own
        # The source may refuse a mirrored table that was given back to it; this service still owns it.
        refused = {table_id: why for table_id, why in below.refused.items() if table_id not in ours}
        return HeartbeatResponse(
            below.coordinator_epoch, below.assignment or own.assignment, {**refused, **own.refused}
        )

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """See `TableQueue`."""
        with self._lock:
            self._look()
            self._mirrored.make_due(self._clock.now(), paths)
        others = [path for path in paths if self._rules(path).mode != MIRROR]
        return self._source.make_due(others) if others else True

    def _ask_below(self, request: HeartbeatRequest) -> HeartbeatResponse | None:
        """Send the source its part of a heartbeat; return None if there is nothing to report and nothing to ask."""
        if self._tiers:
            return self._ask(request)
        request = replace(request, request=False)
        if request == HeartbeatRequest() and not self._unreported:
            return None
        return self._ask(request)

    def _look(self) -> None:
        started = self._clock.now()
        if started < self._look_at:
            return
        all_tables = self._source.all_tables()
        specs = [(spec, rules) for spec in all_tables if (rules := self._rules(spec.path)).include]
        mirrored = {spec.table_id: (spec.path, _freshness(spec, its)) for spec, its in specs if its.mode == MIRROR}
        tiered = {spec.table_id: _freshness(spec, its) for spec, its in specs if its.mode != MIRROR}
        now = self._clock.now()
        self._mirrored.update(now, mirrored, {spec.table_id for spec in all_tables}.difference(mirrored))
        self._estimate.update(now, tiered)
        self._tiers = bool(tiered) or not specs
        self._look_at = now + max(_LOOK_S, _SHARE * (now - started))


def _freshness(spec: TableSpec, rules: TableSettings) -> float:
    return spec.freshness_s if rules.freshness_s is None else rules.freshness_s


def _part(request: HeartbeatRequest, ours: frozenset[int], *, keep: bool, poll: bool | None = None) -> HeartbeatRequest:
    def mine(epochs: tuple[TableEpoch, ...]) -> tuple[TableEpoch, ...]:
        return tuple(epoch for epoch in epochs if (epoch.table_id in ours) is keep)

    return HeartbeatRequest(
        renewed=mine(request.renewed),
        finished=mine(request.finished),
        forced=frozenset(table for table in request.forced if (table in ours) is keep),
        failed=mine(request.failed),
        request=request.request if poll is None else poll,
    )
