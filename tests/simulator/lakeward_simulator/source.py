"""The source in memory: logs, KV snapshots and their clean-up, the tiering queue, the lease server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import OutcomeUnknownError, SnapshotGoneError, SourceError, TableGoneError
from lakeward.model.leases import Protection
from lakeward.model.tables import BucketState, Change, KvSnapshot, TableBucket, TablePath, TableSpec
from lakeward.model.tiering import HeartbeatResponse, LakeRecord, Refusal, TableAssignment
from lakeward_simulator import rescaling
from lakeward_simulator.records import ROUTED, Row, arrow_records, batches, records
from lakeward_simulator.rescaling import Division

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from random import Random

    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tiering import HeartbeatRequest, TableEpoch
    from lakeward.ports import SourceBatch
    from lakeward_simulator.partitions import Route
    from lakeward_simulator.world import World

SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False)])
_UNDIVIDED = Division()
HEARTBEAT_S = 40.0
"""The queue's own timeout."""
_FRESHNESS_S = 3.0
_ALL = ("slow", "fails", "unknown")
_READ = ("slow", "fails")


@dataclass(slots=True)
class SimTable:
    """One table. `logs` holds the keys written to each bucket; an offset is a place in it."""

    spec: TableSpec
    logs: dict[TableBucket, list[int]]
    snapshots: dict[TableBucket, dict[int, int]]
    """Snapshot id to log offset, by bucket: what still has files."""
    state: str = "pending"
    epoch: int = 1
    due: float = 0.0
    record: LakeRecord | None = None
    route: Route | None = None
    """None for a table without a lake partitioning."""
    changes: dict[TableBucket, list[tuple[int, int]]] = field(default_factory=dict)
    """With a route: the change and the day of each record of the logs."""
    partitions: set[int | None] = field(default_factory=set)
    """None alone for a table without partitions."""
    divided: dict[TableBucket, list[tuple[int, int]]] = field(default_factory=dict)
    """From which offset on the rows of a bucket's partition are divided by which count."""

    def partition(self, bucket: TableBucket) -> tuple[str, ...]:
        """Return the values of the partition keys of a bucket's rows."""
        return (f"r{bucket.partition_id}",) if self.spec.partition_keys else ()

    def live_rows(self, bucket: TableBucket, log_offset: int) -> list[int]:
        """Return the keys that a snapshot at an offset holds."""
        return sorted(self.live_days(bucket, log_offset))

    def live_days(self, bucket: TableBucket, log_offset: int) -> dict[int, int]:
        """Return the day of each key that a snapshot at an offset holds."""
        if self.route is None:
            return dict.fromkeys(self.logs[bucket][:log_offset], 0)
        found: dict[int, int] = {}
        for key, (change, day) in zip(self.logs[bucket][:log_offset], self.changes[bucket], strict=False):
            found[key] = day
            if change == Change.DELETE:
                del found[key]
        return found

    def snapshot_rows(self, bucket: TableBucket, snapshot_id: int, log_offset: int) -> list[Row]:
        """Return the rows of a KV snapshot."""
        live = self.live_days(bucket, log_offset)
        return [Row(bucket, -1, key, Change.INSERT, snapshot_id, live[key]) for key in sorted(live)]

    def row(self, bucket: TableBucket, offset: int) -> Row:
        """Return a record of the log."""
        change, day = self.changes[bucket][offset] if self.route is not None else (Change.APPEND, 0)
        return Row(bucket, offset, self.logs[bucket][offset], change, None, day)

    def write(self, bucket: TableBucket, random: Random) -> None:
        """Write to a bucket: one record, or the two of an update."""
        log = self.logs[bucket]
        if self.route is None:
            log.append(random.randrange(5) if self.spec.has_primary_key else len(log))
            return
        live = self.live_days(bucket, len(log)) if self.route.moves else {}
        for key, change, day in self.route.log_row(random, live, len(log)):
            log.append(key)
            self.changes[bucket].append((change, day))


@dataclass(slots=True)
class ServerLease:
    """A lease as the server has it."""

    expires: float
    held: dict[TableBucket, int] = field(default_factory=dict)


class SimSource:
    """See `lakeward.ports.Source`."""

    name = "sim"

    def __init__(self, world: World) -> None:
        """Start without tables."""
        self._world = world
        self.tables_by_path: dict[TablePath, SimTable] = {}
        self.every: dict[int, SimTable] = {}
        """Also those that were dropped."""
        self.coordinator_epoch = 0
        self.leases = SimLeases(world)
        self._next_id = 1
        self._next_snapshot = 1
        self._order: list[int] = []
        self.to_come = 0
        """Tables that are about to be created anew, or to get other buckets."""
        self.away_until = 0.0
        """Until then no heartbeat arrives."""

    # --- what the test does ----------------------------------------------------------------------------------

    def create(self, path: TablePath, *, buckets: int, keyed: bool) -> SimTable:
        """Create a table, or create it anew; one with a route (`Partitioned`) has a key if its route says so."""
        route = self._world.partitioned.route(path)
        keyed = keyed if route is None else route.keyed
        schema = SCHEMA if route is None else ROUTED
        table_id = self._next_id
        self._next_id += 1
        division = self._world.rescaling.divisions.get(path, _UNDIVIDED)
        bucket_key = ("key",) if keyed or division.by_key else ()
        partition_keys = ("region",) if division.partitions else ()
        primary_key = ("key",) if keyed else ()
        spec = TableSpec(path, table_id, 1, schema, primary_key, partition_keys, bucket_key, buckets, _FRESHNESS_S)
        table = SimTable(spec, {}, {})
        table.route = route
        for number in range(1, division.partitions + 1) if division.partitions else (None,):
            rescaling.grow(table, number, buckets)
        self.tables_by_path[path] = table
        self.every[table_id] = table
        self._order.append(table_id)
        return table

    def drop(self, path: TablePath) -> None:
        """Drop a table."""
        table = self.tables_by_path.pop(path, None)
        if table is not None and table.spec.table_id in self._order:
            self._order.remove(table.spec.table_id)

    def snapshot(self, table: SimTable, bucket: TableBucket) -> None:
        """Take a KV snapshot; the older ones that nobody protects are cleaned up."""
        if table.logs[bucket]:
            table.snapshots[bucket][self._next_snapshot] = len(table.logs[bucket])
            self._next_snapshot += 1
        self.clean(table, bucket)

    def clean(self, table: SimTable, bucket: TableBucket) -> None:
        """Delete all snapshots of a bucket but the newest and those that a living lease names."""
        kept = table.snapshots[bucket]
        for number in [*kept][:-1]:
            if not self.leases.protects(bucket, number):
                del kept[number]

    def restart(self) -> None:
        """Lose what only the coordinator's memory holds: epochs start again, all tables wait to be handed out."""
        self.coordinator_epoch += 1
        for table in self.tables_by_path.values():
            table.state, table.epoch = "pending", 0

    # --- the port -----------------------------------------------------------------------------------------------

    def tables(self) -> Sequence[TableSpec]:
        """See Protocol."""
        return [table.spec for table in self.tables_by_path.values()]

    all_tables = tables

    def table(self, path: TablePath) -> TableSpec:
        """See Protocol."""
        found = self.tables_by_path.get(path)
        self._call("table", _READ, None if found is None else found.spec.table_id)
        found = self.tables_by_path.get(path)
        if found is None:
            message = f"table {path}: there is none"
            raise TableGoneError(message)
        return found.spec

    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        """See Protocol."""
        self._call("buckets", _READ, table.table_id)
        found = self._there(table)
        return [
            BucketState(bucket, found.partition(bucket), 0, len(log), self._newest(found, bucket))
            for bucket, log in found.logs.items()
        ]

    def missing_snapshots(self, snapshots: Collection[KvSnapshot]) -> frozenset[KvSnapshot]:
        """See Protocol."""
        table_ids = {one.bucket.table_id for one in snapshots}
        self._call("verify snapshots", _READ, min(table_ids, default=None))
        return frozenset(one for one in snapshots if not self.has(one.bucket, one.snapshot_id))

    def has(self, bucket: TableBucket, snapshot_id: int) -> bool:
        """Say whether a snapshot's files are there."""
        return snapshot_id in self.every[bucket.table_id].snapshots[bucket]

    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        """See Protocol."""
        self._call("pending", _READ, table.table_id)
        logs = self.every[table.table_id].logs
        behind = any(len(log) > offsets.get(bucket, 0) for bucket, log in logs.items())
        return self._world.clock.wall_ms() - 1000 if behind else None

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        """See Protocol."""
        first = next(iter((*beat.renewed, *beat.finished, *beat.failed)), None)
        how = self._call("heartbeat", _ALL, None if first is None else first.table_id)
        if self._world.scheduler.now < self.away_until:
            message = "heartbeat: the source is away"
            raise SourceError(message)
        answer = self._beat(beat)
        self._world.point("source")
        self._answer("heartbeat", how)
        return answer

    def make_due(self, paths: Collection[TablePath]) -> bool:
        """See Protocol."""
        for path in sorted(paths):
            if path in self.tables_by_path:
                self.tables_by_path[path].due = 0.0
        return True

    def lake_record(self, table: TableSpec) -> LakeRecord | None:
        """See Protocol."""
        self._call("lake record", _READ, table.table_id)
        return self._there(table).record

    def read_offsets(self, table: TableSpec, path: str) -> Mapping[TableBucket, int]:
        """See Protocol; all commits of this world hold their offsets."""
        raise SourceError(f"{table.path}: no offsets file {path!r}")  # noqa: EM102, TRY003 - never called

    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        """See Protocol."""
        how = self._call("prepare", _ALL, table.table_id)
        self._there(table)
        self._answer("prepare", how)
        return f"offsets-{sum(offsets.values())}"

    def commit(self, table: TableSpec, snapshot_id: int, prepared: str, offsets: Mapping[TableBucket, int]) -> None:
        """See Protocol; nothing is fenced here: a late zombie rewinds the record."""
        del prepared
        how = self._call("complete", _ALL, table.table_id)
        self._there(table).record = LakeRecord(snapshot_id, dict(offsets))
        self._world.point("source")
        self._answer("complete", how)

    def reader_task(self, table: TableSpec) -> bytes:
        """See Protocol."""
        return str(table.table_id).encode()

    def close(self) -> None:
        """See Protocol."""

    # --- the queue ------------------------------------------------------------------------------------------------

    def _beat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        self._advance()
        refused: dict[int, Refusal] = {}
        for claim in beat.failed:
            if (table := self._claimed(claim, refused)) is not None and table.state != "pending":
                self._pend(table)
        for claim in beat.renewed:
            table = self._claimed(claim, refused)
            if table is not None and table.state == "tiering":
                table.due = self._world.scheduler.now + HEARTBEAT_S
            elif table is not None:
                refused[claim.table_id] = Refusal.NOT_TIERING
        for claim in beat.finished:
            if (table := self._claimed(claim, refused)) is not None and table.state != "pending":
                self._finish(table, again=claim.table_id in beat.forced)
        self._advance()
        return HeartbeatResponse(self.coordinator_epoch, self._hand_out() if beat.request else None, refused)

    def _advance(self) -> None:
        for table in self.tables_by_path.values():
            if table.state != "pending" and table.due <= self._world.scheduler.now:
                self._pend(table)

    def _claimed(self, claim: TableEpoch, refused: dict[int, Refusal]) -> SimTable | None:
        table = self.every[claim.table_id]
        if claim.coordinator_epoch != self.coordinator_epoch:
            refused[claim.table_id] = Refusal.COORDINATOR_CHANGED
        elif self.tables_by_path.get(table.spec.path) is not table:
            refused[claim.table_id] = Refusal.GONE
        elif claim.epoch != table.epoch:
            refused[claim.table_id] = Refusal.FENCED
        else:
            return table
        return None

    def _pend(self, table: SimTable) -> None:
        table.state = "pending"
        table.epoch += 1
        self._order.remove(table.spec.table_id)
        self._order.append(table.spec.table_id)

    def _finish(self, table: SimTable, *, again: bool) -> None:
        if again:
            self._pend(table)
            return
        table.state, table.due = "scheduled", self._world.scheduler.now + table.spec.freshness_s

    def _hand_out(self) -> TableAssignment | None:
        for table_id in self._order:
            table = self.every[table_id]
            if table.state == "pending":
                table.state, table.due = "tiering", self._world.scheduler.now + HEARTBEAT_S
                return TableAssignment(
                    table.spec.path, table_id, table.epoch, self.coordinator_epoch, table.spec.freshness_s
                )
        return None

    def _newest(self, table: SimTable, bucket: TableBucket) -> KvSnapshot | None:
        found = table.snapshots[bucket]
        if not table.spec.has_primary_key or not found:
            return None
        number = max(found)
        return KvSnapshot(bucket, number, found[number])

    def _there(self, spec: TableSpec) -> SimTable:
        table = self.tables_by_path.get(spec.path)
        if table is None or table.spec.table_id != spec.table_id:
            message = f"table {spec.path}: dropped, or created anew"
            raise TableGoneError(message)
        return table

    def _call(self, what: str, allowed: tuple[str, ...], table_id: int | None) -> str | None:
        how = self._world.call("source", what, allowed, table_id)
        if how == "fails" or (how == "unknown" and self._world.random.random() < 0.5):
            error: type[SourceError | OutcomeUnknownError] = SourceError if how == "fails" else OutcomeUnknownError
            message = f"{what}: the source did not answer"
            raise error(message)
        return how

    def _answer(self, what: str, how: str | None) -> None:
        if how == "unknown":
            message = f"{what}: done, but no answer came"
            raise OutcomeUnknownError(message)


class SimReader:
    """See `lakeward.ports.SourceReader`."""

    def __init__(self, source: SimSource, table_id: int) -> None:
        """Read one table."""
        self._source = source
        self._table = source.every[table_id]
        self._make = records if self._table.route is None else arrow_records

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        """See Protocol."""
        rows = [self._table.row(split.bucket, offset) for offset in range(split.start, split.stop)]
        for batch in batches(rows, self._make, split.stop, log=True):
            self._check()
            yield batch

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        """See Protocol."""
        rows = self._table.snapshot_rows(split.bucket, split.snapshot_id, split.log_offset)
        for batch in batches(rows[skip_rows:], self._make, split.log_offset, log=False):
            self._check()
            if not self._source.has(split.bucket, split.snapshot_id):
                message = f"snapshot {split.snapshot_id} of bucket {split.bucket} is gone"
                raise SnapshotGoneError(message)
            yield batch

    def close(self) -> None:
        """See Protocol."""

    def _check(self) -> None:
        path = self._table.spec.path
        if self._source.tables_by_path.get(path) is not self._table:
            message = f"table {path} was dropped"
            raise TableGoneError(message)


class SimLeases:
    """See `lakeward.ports.SnapshotLeases`: grants without looking, forgets what has expired."""

    def __init__(self, world: World) -> None:
        """Start without leases."""
        self._world = world
        self.living: dict[str, ServerLease] = {}

    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        """See Protocol."""
        how = self._call("acquire")
        lease = self.living.setdefault(lease_id, ServerLease(0.0))
        lease.expires = self._world.scheduler.now + duration_s
        lease.held.update(snapshots)
        self._answer("acquire", how)
        return Protection(duration_s)

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        """See Protocol."""
        how = self._call("release")
        lease = self.living.get(lease_id)
        if lease is not None:
            gone = {bucket: lease.held.pop(bucket) for bucket in buckets if bucket in lease.held}
            if not lease.held:
                del self.living[lease_id]
            self._let_go(lease_id, gone)
        self._answer("release", how)

    def drop(self, lease_id: str) -> None:
        """See Protocol."""
        how = self._call("drop")
        lease = self.living.pop(lease_id, None)
        if lease is not None:
            self._let_go(lease_id, lease.held)
        self._answer("drop", how)

    def _let_go(self, lease_id: str, gone: Mapping[TableBucket, int]) -> None:
        """A lease no longer names these; tell of those that are still there and that no other one names."""
        for bucket, snapshot_id in gone.items():
            there = self._world.source.has(bucket, snapshot_id)  # what has run out before can be held no more
            if there and not self.protects(bucket, snapshot_id):  # else a newer generation's id does
                self._world.checks.releasing(bucket, snapshot_id)
                self._world.checks.let_go(lease_id, bucket, snapshot_id)

    def protects(self, bucket: TableBucket, snapshot_id: int) -> bool:
        """Say whether a living lease names a snapshot."""
        self._expire()
        return any(lease.held.get(bucket) == snapshot_id for lease in self.living.values())

    def expire_all(self) -> None:
        """Let every lease run out now, as one whose renewals do not arrive."""
        self.living.clear()

    def held(self) -> dict[str, dict[TableBucket, int]]:
        """What lives now."""
        self._expire()
        return {lease_id: dict(lease.held) for lease_id, lease in self.living.items()}

    def _expire(self) -> None:
        now = self._world.scheduler.now
        self.living = {name: lease for name, lease in self.living.items() if lease.expires >= now}

    def _call(self, what: str) -> str | None:
        how = self._world.call("lease", what, _ALL, None)
        self._expire()
        if how == "fails" or (how == "unknown" and self._world.random.random() < 0.5):
            error: type[SourceError | OutcomeUnknownError] = SourceError if how == "fails" else OutcomeUnknownError
            message = f"lease server, {what}: refused" if how == "fails" else f"lease server, {what}: no answer"
            raise error(message)
        return how

    def _answer(self, what: str, how: str | None) -> None:
        self._world.point("lease")
        if how == "unknown":
            message = f"lease server, {what}: done, but no answer came"
            raise OutcomeUnknownError(message)
