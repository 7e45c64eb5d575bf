"""Applies the configuration to a source: which tables are included, which are mirrored, and which one is next.

This service schedules mirrored tables itself: their offsets are in the lake, and the source is not told about them.
The most overdue table comes first, whether mirrored or tiered. The source's queue cannot be inspected without taking a
table from it, so what is due there is estimated (`machines/rounds/mirror_queue.py`).

The source may assign a table that this service must not tier (excluded, or mirrored here and tiered by another
service). Such a table is given back untouched within the same call, and the queue is asked for the next one: that costs
no slot and no poll interval. Leases protect both modes. Calls about tiered tables, and all reads, go to the source.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakewardError
from lakeward.machines.rounds.mirror_queue import MirrorQueue, SourceQueueEstimate
from lakeward.model.partitioning import PartitionField
from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, TableEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath, TableSpec
    from lakeward.model.tiering import LakeRecord, TableAssignment
    from lakeward.ports import Clock, Source

_LOOK_S = 2.0
"""Least seconds between two listings of the source's tables."""
_SEARCH_S = 5.0
"""Most seconds that one heartbeat spends on giving back tables that this service must not tier."""
_SHARE = 10
"""Listing tables, and giving tables back, take at most a tenth of the time."""
MIRROR = "mirror"
_log = structlog.get_logger("lakeward.scheduling")


def _nothing() -> None:
    """Change nothing: the rules stay as they are."""


def scheduled(
    source: Source,
    modes: Collection[str],
    rules: Callable[[TablePath], TableSettings],
    clock: Clock,
    refresh: Callable[[], None] = _nothing,
) -> Source:
    """Wrap a source, as its plugin opened it, with the rules of the configuration.

    `modes`: all that the configuration names. `refresh` is called at each heartbeat; it may block and change what the
    rules say.
    """
    return ScheduledSource(source, rules, clock, mirrors=MIRROR in modes, refresh=refresh)


class ScheduledSource:
    """See `lakeward.ports.Source`. Thread-safe, as the source below it is."""

    def __init__(
        self,
        source: Source,
        rules: Callable[[TablePath], TableSettings],
        clock: Clock,
        *,
        mirrors: bool = True,
        refresh: Callable[[], None] = _nothing,
    ) -> None:
        """Wrap a source; of a table's rules, `include` and `mode` decide.

        `mirrors`: any table may be mirrored; if not, the source's tables are never listed. `refresh`: see `scheduled`.
        """
        self._source = source
        self._rules = rules
        self._clock = clock
        self._mirrors = mirrors
        self._refresh = refresh
        self._queue = MirrorQueue()
        self._source_queue = SourceQueueEstimate()
        self._lock = threading.Lock()
        self._look_at = float("-inf")
        self._ask_at = float("-inf")
        self._unreported: tuple[TableEpoch, ...] = ()
        """Tables that must be given back by the next heartbeat, because the call for it failed."""
        self._tiers = True
        self.name = source.name
        self.leases = source.leases

    def tables(self) -> Sequence[TableSpec]:
        """See Protocol: tables in mirror mode, and lake-enabled ones in tier mode."""
        if not self._mirrors:
            return self._source.tables()
        enabled = {spec.table_id for spec in self._source.tables()}
        return tuple(
            self._spec(spec)
            for spec in self._source.all_tables()
            if self._mirrored(spec.path) or spec.table_id in enabled
        )

    def all_tables(self) -> Sequence[TableSpec]:
        """See Protocol."""
        return tuple(self._spec(spec) for spec in self._source.all_tables())

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """See Protocol. The queue with the most overdue table is polled first; the other one if that has none."""
        self._refresh()
        with self._lock:
            self._look()
            now, ours = self._clock.now(), self._queue.table_ids
            mine, theirs = self._queue.oldest_due(now), self._source_queue.oldest_due(now)
            mirror_first = mine is not None and (theirs is None or mine <= theirs)
            below = self._call_source(_part(request, ours, keep=False), poll=request.request and not mirror_first)
            poll = request.request and (below is None or below.assignment is None)
            own = self._queue.heartbeat(self._clock.now(), _part(request, ours, keep=True, poll=poll))
        if below is None:
            return own
        # The source may refuse a mirrored table that was given back to it; this service still owns it.
        refused = {table_id: why for table_id, why in below.refused.items() if table_id not in ours}
        return HeartbeatResponse(
            below.coordinator_epoch, below.assignment or own.assignment, {**refused, **own.refused}
        )

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """See Protocol."""
        with self._lock:
            self._look()
            self._queue.make_due(self._clock.now(), paths)
        others = [path for path in paths if not self._mirrored(path)]
        return self._source.make_due(others) if others else True

    def lake_record(self, table: TableSpec) -> LakeRecord | None:
        """See Protocol; None for a mirrored table: a record in the source would be another service's."""
        return None if self._mirrored(table.path) else self._source.lake_record(table)

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        """See Protocol; for a mirrored table nothing is stored, and the path is empty."""
        return "" if self._mirrored(table.path) else self._source.prepare(table, offsets)

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """See Protocol; nothing is sent for a mirrored table."""
        if not self._mirrored(table.path):
            self._source.commit(table, snapshot_id, prepared, offsets)

    # --- passed on unchanged --------------------------------------------------------------------------------

    def table(self, path: TablePath) -> TableSpec:
        """See Protocol."""
        return self._spec(self._source.table(path))

    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        """See Protocol."""
        return self._source.buckets(table)

    def missing_snapshots(self, snapshots: Collection[KvSnapshot]) -> frozenset[KvSnapshot]:
        """See Protocol."""
        return self._source.missing_snapshots(snapshots)

    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        """See Protocol."""
        return self._source.pending_since_ms(table, offsets)

    def read_offsets(self, table: TableSpec, path: str) -> Mapping[TableBucket, int]:
        """See Protocol."""
        return self._source.read_offsets(table, path)

    def reader_task(self, table: TableSpec) -> bytes:
        """See Protocol."""
        return self._source.reader_task(table)

    def close(self) -> None:
        """See Protocol; does nothing: whoever opened the wrapped source closes it."""

    # --- inside ---------------------------------------------------------------------------------------------

    def _mirrored(self, path: TablePath) -> bool:
        return self._mirrors and self._rules(path).mode == MIRROR

    def _wanted(self, path: TablePath) -> bool:
        return self._rules(path).include and not self._mirrored(path)

    def _spec(self, spec: TableSpec) -> TableSpec:
        """Add to a mirrored table its lake partitioning; remove the bucket key: only the source knows that function.

        If the lake partitioned by another function of the key, its readers would skip existing rows.
        """
        if not self._mirrored(spec.path):
            return replace(spec, union_read=True)
        rules = self._rules(spec.path)
        fields = tuple(map(PartitionField.parse, rules.lake_partition))
        return replace(spec, bucket_key=(), lake_partition=fields, system_columns=rules.system_columns)

    def _look(self) -> None:
        started = self._clock.now()
        if not self._mirrors or started < self._look_at:
            return
        all_tables = self._source.all_tables()
        specs = [spec for spec in all_tables if self._rules(spec.path).include]
        mirrored = {spec.table_id: (spec.path, self._freshness(spec)) for spec in specs if self._mirrored(spec.path)}
        now = self._clock.now()
        self._queue.update(now, mirrored, {spec.table_id for spec in all_tables}.difference(mirrored))
        self._source_queue.update(
            now, {spec.table_id: self._freshness(spec) for spec in specs if spec.table_id not in mirrored}
        )
        self._tiers = len(mirrored) < len(specs) or not specs
        self._look_at = now + max(_LOOK_S, _SHARE * (now - started))

    def _freshness(self, spec: TableSpec) -> float:
        promised = self._rules(spec.path).freshness_s
        return spec.freshness_s if promised is None else promised

    def _call_source(self, request: HeartbeatRequest, *, poll: bool) -> HeartbeatResponse | None:
        """Send the source its part of a heartbeat; return None if there is nothing to report and nothing to ask."""
        asked = poll and self._tiers and self._clock.now() >= self._ask_at
        request = replace(request, failed=(*request.failed, *self._unreported), request=asked)
        if not self._tiers and request == HeartbeatRequest():
            return None
        answer = self._source.heartbeat(request)
        self._unreported = ()
        self._source_queue.reported(self._clock.now(), request)
        return self._choose(answer) if asked else answer

    def _choose(self, answer: HeartbeatResponse) -> HeartbeatResponse:
        """Give tables back until the queue assigns one to tier, or none, or one that was given back before."""
        started = self._clock.now()
        assignment, epoch, seen = answer.assignment, answer.coordinator_epoch, set[int]()
        while assignment is not None and not self._wanted(assignment.path):
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
                replace(assignment, waited_s=self._source_queue.assigned(now, assignment.table_id)),
                answer.refused,
            )
        self._source_queue.empty(now)
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
