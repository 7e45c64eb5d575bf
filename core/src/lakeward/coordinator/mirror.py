"""A source whose tables in mirror mode are ours to schedule: their offsets live in the lake, the source hears nothing.

Leases protect both modes. Tables in tier mode, and every read, go to the source as they are.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakeward.machines.mirror import MirrorQueue
from lakeward.model.tiering import Beat, BeatAnswer, Claim

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath, TableSpec
    from lakeward.model.tiering import LakeRecord
    from lakeward.ports import Clock, Source

_LOOK_S = 2.0
"""Seconds between two looks at which tables there are."""
MIRROR = "mirror"


def with_mirrors(
    source: Source, modes: Collection[str], rules: Callable[[TablePath], TableSettings], clock: Clock
) -> Source:
    """Put our own queue before a source, where any table is configured to be mirrored.

    Args:
        source: the source, as its plugin opened it.
        modes: every mode that the configuration names.
        rules: a table's rules.
        clock: the service's clock.
    """
    return MirroringSource(source, rules, clock) if MIRROR in modes else source


class MirroringSource:
    """See `lakeward.ports.Source`. Thread-safe, as the source below it is."""

    def __init__(self, source: Source, rules: Callable[[TablePath], TableSettings], clock: Clock) -> None:
        """Stand before a source.

        Args:
            source: the source.
            rules: a table's rules; `mode` decides.
            clock: the service's clock.
        """
        self._source = source
        self._rules = rules
        self._clock = clock
        self._queue = MirrorQueue()
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._tiers = False
        self.name = source.name
        self.leases = source.leases

    def tables(self) -> Sequence[TableSpec]:
        """See Protocol: tables in mirror mode, and lake-enabled ones in tier mode."""
        enabled = {spec.table_id for spec in self._source.tables()}
        return tuple(
            spec for spec in self._source.all_tables() if self._mirrored(spec.path) or spec.table_id in enabled
        )

    def all_tables(self) -> Sequence[TableSpec]:
        """See Protocol."""
        return self._source.all_tables()

    def heartbeat(self, beat: Beat) -> BeatAnswer:
        """See Protocol. The source is asked first; our own queue answers for its tables."""
        with self._lock:
            self._look()
            ours = self._queue.table_ids
            theirs = self._source.heartbeat(_part(beat, ours, keep=False)) if self._tiers else None
            request = beat.request and (theirs is None or theirs.offer is None)
            mine = self._queue.beat(self._clock.now(), _part(beat, ours, keep=True, request=request))
        if theirs is None:
            return mine
        refused = {**theirs.refused, **mine.refused}
        return BeatAnswer(theirs.coordinator_epoch, theirs.offer or mine.offer, refused)

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """See Protocol."""
        with self._lock:
            self._look()
            self._queue.make_due(self._clock.now(), paths)
        others = [path for path in paths if not self._mirrored(path)]
        return self._source.make_due(others) if others else True

    def lake_record(self, table: TableSpec) -> LakeRecord | None:
        """See Protocol; of a mirrored table the source has none that is ours."""
        return None if self._mirrored(table.path) else self._source.lake_record(table)

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        """See Protocol; for a mirrored table nothing is stored, and the path is empty."""
        return "" if self._mirrored(table.path) else self._source.prepare(table, offsets)

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """See Protocol; a mirrored table's source is told nothing."""
        if not self._mirrored(table.path):
            self._source.commit(table, snapshot_id, prepared, offsets)

    # --- passed on as it is ---------------------------------------------------------------------------------

    def table(self, path: TablePath) -> TableSpec:
        """See Protocol."""
        return self._source.table(path)

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
        """See Protocol; the source below is closed by who opened it."""

    # --- inside ---------------------------------------------------------------------------------------------

    def _mirrored(self, path: TablePath) -> bool:
        return self._rules(path).mode == MIRROR

    def _look(self) -> None:
        now = self._clock.now()
        if now - self._looked < _LOOK_S:
            return
        specs = [spec for spec in self._source.all_tables() if self._rules(spec.path).include]
        mirrored = {spec.table_id: (spec.path, self._freshness(spec)) for spec in specs if self._mirrored(spec.path)}
        self._queue.update(now, mirrored)
        self._tiers = len(mirrored) < len(specs) or not specs
        self._looked = now

    def _freshness(self, spec: TableSpec) -> float:
        promised = self._rules(spec.path).freshness_s
        return spec.freshness_s if promised is None else promised


def _part(beat: Beat, ours: frozenset[int], *, keep: bool, request: bool | None = None) -> Beat:
    def mine(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        return tuple(claim for claim in claims if (claim.table_id in ours) is keep)

    return Beat(
        renewed=mine(beat.renewed),
        finished=mine(beat.finished),
        forced=frozenset(table for table in beat.forced if (table in ours) is keep),
        failed=mine(beat.failed),
        request=beat.request if request is None else request,
    )
