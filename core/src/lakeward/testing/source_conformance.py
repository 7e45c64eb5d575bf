"""What every source has to do. A source's tests subclass it: one fixture, and what the source can do.

class TestMySource(SourceConformance):
__test__ = True

@pytest.fixture
def world(self) -> SourceWorld:
return MyWorld()
"""

# ruff: noqa: S101, D102, PLR2004 - a conformance suite asserts; the name of each test states its fact
from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import LeaseApiMissingError, LogTruncatedError, SnapshotGoneError, TableGoneError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import (
    CHANGE_COLUMN,
    OFFSET_COLUMN,
    TIMESTAMP_COLUMN,
    BucketState,
    Change,
    KvSnapshot,
    TableBucket,
    TablePath,
    TableSpec,
)
from lakeward.model.tiering import Beat, Claim, Offer, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.ports import SourceBatch
    from lakeward.testing.source_world import SourceWorld

PATH = TablePath("shop", "orders")
OTHER = TablePath("shop", "returns")
UPSERT, DELETE = "upsert", "delete"


class SourceConformance:
    """The suite, for the ports `Source` and `SourceReader`."""

    __test__ = False

    has_empty_batches = True
    """Offsets can move on without records."""
    can_be_old = True
    """The world can switch the lease API off."""
    commit_is_idempotent = True
    """Registering a lake snapshot twice is one registration."""

    @pytest.fixture
    def world(self) -> SourceWorld | Iterator[SourceWorld]:
        """Return a source without tables."""
        raise NotImplementedError

    # --- reading the log -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("start", "stop"), [(0, 6), (0, 1), (1, 3), (2, 6), (5, 6), (3, 3)])
    def test_log_split_gives_exactly_the_offsets_from_start_to_stop(
        self, world: SourceWorld, start: int, stop: int
    ) -> None:
        spec = world.create(PATH, primary_key=False)
        for ids in ((0, 1, 2), (3,), (4, 5)):
            world.write(PATH, [(UPSERT, number, f"n{number}") for number in ids])

        batches = _read_log(world, spec, start, stop)

        records = _joined(batches)
        assert records.column(OFFSET_COLUMN).to_pylist() == list(range(start, stop))
        assert records.column("id").to_pylist() == list(range(start, stop))
        assert batches[-1].next_offset == stop

    def test_next_offset_follows_the_last_record_of_each_batch(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        for number in range(5):
            world.write(PATH, [(UPSERT, number, "n"), (UPSERT, number, "m")])

        for batch in _read_log(world, spec, 1, 9):
            assert batch.next_offset == batch.records.column(OFFSET_COLUMN)[-1].as_py() + 1

    def test_columns_are_the_schema_and_then_change_offset_and_timestamp(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])

        schema = _joined(_read_log(world, spec, 0, 1)).schema

        assert schema.names == [*spec.schema.names, CHANGE_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN]
        assert [field.type for field in list(schema)[-3:]] == [pa.uint8(), pa.int64(), pa.timestamp("us", tz="UTC")]
        assert [schema.field(field.name).type for field in spec.schema] == [field.type for field in spec.schema]

    def test_append_only_records_have_the_change_append(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 1, "a")])

        assert _joined(_read_log(world, spec, 0, 2)).column(CHANGE_COLUMN).to_pylist() == [Change.APPEND] * 2

    def test_timestamp_is_the_time_of_the_write(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.advance(10)
        world.write(PATH, [(UPSERT, 2, "b")])

        first, second = _joined(_read_log(world, spec, 0, 2)).column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()

        assert second - first >= 10_000_000

    def test_changes_say_what_became_of_the_row(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.write(PATH, [(UPSERT, 1, "b"), (DELETE, 9, "")])
        world.write(PATH, [(DELETE, 1, "")])

        records = _joined(_read_log(world, spec, 0, 4))

        assert list(
            zip(records.column(CHANGE_COLUMN).to_pylist(), records.column("name").to_pylist(), strict=True)
        ) == [
            (Change.INSERT, "a"),
            (Change.UPDATE_BEFORE, "a"),
            (Change.UPDATE_AFTER, "b"),
            (Change.DELETE, "b"),
        ]

    def test_older_records_read_null_in_a_column_that_came_later(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.add_column(PATH, "note")
        world.write(PATH, [(UPSERT, 2, "b")])

        records = _joined(_read_log(world, world.source.table(PATH), 0, 2))

        assert records.column("note").to_pylist() == [None, None]
        assert records.column("id").to_pylist() == [1, 2]

    def test_empty_batches_still_reach_the_stop(self, world: SourceWorld) -> None:
        if not self.has_empty_batches:
            pytest.skip("this source has no empty batches")
        spec = world.create(PATH, primary_key=False)
        world.append_empty(PATH, 0, 3)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.append_empty(PATH, 0, 2)

        assert _joined(_read_log(world, spec, 0, 6)).column(OFFSET_COLUMN).to_pylist() == [3]
        assert _read_log(world, spec, 0, 6)[-1].next_offset == 6
        assert [(batch.next_offset, len(batch.records)) for batch in _read_log(world, spec, 4, 6)] == [(6, 0)]

    def test_log_that_was_cleaned_away_is_an_error(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 2, "b")])
        world.write(PATH, [(UPSERT, 3, "c")])
        world.trim(PATH, 0, 2)

        assert _only(world, spec).start == 2
        with pytest.raises(LogTruncatedError):
            _read_log(world, spec, 0, 3)
        assert _joined(_read_log(world, spec, 2, 3)).column("id").to_pylist() == [3]

    # --- snapshots -----------------------------------------------------------------------------------------------

    def test_snapshot_and_the_log_after_it_are_the_table(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, number, "old") for number in range(10)])
        world.write(PATH, [(UPSERT, 1, "new"), (DELETE, 2, "")])
        world.snapshot(PATH)
        world.write(PATH, [(UPSERT, 3, "newest"), (DELETE, 4, ""), (UPSERT, 77, "late")])

        state = _only(world, spec)
        assert state.snapshot is not None
        rows = _table_of(_read_snapshot(world, spec, state.snapshot))
        expected = {number: "old" for number in range(10) if number != 2} | {1: "new"}
        assert rows == expected
        rows = _table_of(_read_log(world, spec, state.snapshot.log_offset, state.end), rows)
        del expected[4]
        assert rows == expected | {3: "newest", 77: "late"}

    def test_snapshot_rows_are_inserts_without_offset_and_time(self, world: SourceWorld) -> None:
        spec, snapshot = _snapshotted(world)

        batches = _read_snapshot(world, spec, snapshot)

        records = _joined(batches)
        assert records.column(CHANGE_COLUMN).to_pylist() == [Change.INSERT] * 2
        assert records.column(OFFSET_COLUMN).to_pylist() == [-1] * 2
        assert records.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist() == [-1000] * 2
        assert {batch.next_offset for batch in batches} == {snapshot.log_offset}

    def test_snapshot_reads_null_in_a_column_that_came_later(self, world: SourceWorld) -> None:
        _, snapshot = _snapshotted(world)
        world.add_column(PATH, "note")

        records = _joined(_read_snapshot(world, world.source.table(PATH), snapshot))

        assert records.column("note").to_pylist() == [None, None]

    def test_snapshot_that_was_cleaned_away_is_reported_and_cannot_be_read(self, world: SourceWorld) -> None:
        spec, snapshot = _snapshotted(world)
        _supersede(world)

        assert world.source.missing_snapshots([snapshot]) == {snapshot}
        with pytest.raises(SnapshotGoneError):
            _read_snapshot(world, spec, snapshot)

    def test_leased_snapshot_survives_clean_up(self, world: SourceWorld) -> None:
        spec, snapshot = _snapshotted(world)
        protection = world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
        _supersede(world)

        assert protection.protects
        assert world.source.missing_snapshots([snapshot]) == frozenset()
        assert _table_of(_read_snapshot(world, spec, snapshot)) == {1: "a", 2: "b"}

    def test_newest_snapshot_is_never_missing(self, world: SourceWorld) -> None:
        spec, _ = _snapshotted(world)
        _supersede(world)

        newest = _only(world, spec).snapshot
        assert newest is not None
        assert world.source.missing_snapshots([newest]) == frozenset()

    # --- leases --------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("end", ["release", "drop", "expiry", "moved"])
    def test_snapshot_goes_once_its_lease_has_ended(self, world: SourceWorld, end: str) -> None:
        _, snapshot = _snapshotted(world)
        leases = world.source.leases
        leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
        if end == "release":
            leases.release("lease-a", [snapshot.bucket])
        elif end == "drop":
            leases.drop("lease-a")
        elif end == "expiry":
            world.advance(601)
        else:
            leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id + 1})
        _supersede(world)

        assert world.source.missing_snapshots([snapshot]) == {snapshot}

    def test_acquiring_again_renews(self, world: SourceWorld) -> None:
        _, snapshot = _snapshotted(world)
        for _ in range(3):
            world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
            world.advance(400)
        _supersede(world)

        assert world.source.missing_snapshots([snapshot]) == frozenset()

    def test_one_lease_does_not_release_another_ones_snapshot(self, world: SourceWorld) -> None:
        _, snapshot = _snapshotted(world)
        for lease_id in ("lease-a", "lease-b"):
            world.source.leases.acquire(lease_id, 600, {snapshot.bucket: snapshot.snapshot_id})
        world.source.leases.drop("lease-a")
        _supersede(world)

        assert world.source.missing_snapshots([snapshot]) == frozenset()

    def test_releasing_and_dropping_what_is_not_there_is_no_error(self, world: SourceWorld) -> None:
        _, snapshot = _snapshotted(world)

        world.source.leases.release("nobody", [snapshot.bucket])
        world.source.leases.drop("nobody")

        assert world.source.missing_snapshots([snapshot]) == frozenset()

    def test_old_server_says_that_it_has_no_lease_api(self, world: SourceWorld) -> None:
        if not self.can_be_old:
            pytest.skip("this world has no old server")
        _, snapshot = _snapshotted(world)
        world.set_lease_api(on=False)

        leases = world.source.leases
        for call in (
            lambda: leases.acquire("lease-a", 60, {snapshot.bucket: snapshot.snapshot_id}),
            lambda: leases.release("lease-a", [snapshot.bucket]),
            lambda: leases.drop("lease-a"),
        ):
            with pytest.raises(LeaseApiMissingError):
                call()

    # --- tables and buckets --------------------------------------------------------------------------------------

    def test_tables_are_listed_and_found_by_name(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True)
        other = world.create(OTHER, primary_key=False, partitioned=True, buckets=3)

        assert {table.table_id for table in world.source.tables()} == {spec.table_id, other.table_id}
        found = world.source.table(OTHER)
        assert (found.buckets, found.partition_keys, found.has_primary_key) == (3, ("day",), False)

    def test_buckets_come_in_order_with_ends_and_partitions(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True, partitioned=True, buckets=2)
        for day in ("mon", "tue"):
            world.write(PATH, [(UPSERT, number, "n") for number in range(20)], day)

        states = world.source.buckets(spec)

        assert [state.partition for state in states] == [("mon",), ("mon",), ("tue",), ("tue",)]
        assert [state.bucket.sort_key() for state in states] == sorted(state.bucket.sort_key() for state in states)
        assert sum(state.end for state in states) == 40
        assert {state.start for state in states} == {0}

    def test_table_that_is_not_there_is_gone(self, world: SourceWorld) -> None:
        with pytest.raises(TableGoneError):
            world.source.table(PATH)

    def test_dropped_and_recreated_table_is_another_one(self, world: SourceWorld) -> None:
        old = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.drop(PATH)
        new = world.create(PATH, primary_key=True)

        assert new.table_id != old.table_id
        assert [state.end for state in world.source.buckets(new)] == [0]
        with pytest.raises(TableGoneError):
            world.source.buckets(old)
        with pytest.raises(TableGoneError):
            _read_log(world, old, 0, 1)

    def test_dropping_a_table_asks_no_lease(self, world: SourceWorld) -> None:
        _, snapshot = _snapshotted(world)
        world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
        world.drop(PATH)

        assert world.source.missing_snapshots([snapshot]) == {snapshot}

    def test_added_column_raises_the_schema_id(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True)
        world.add_column(PATH, "note")

        changed = world.source.table(PATH)

        assert changed.schema_id > spec.schema_id
        assert changed.schema.names == [*spec.schema.names, "note"]
        assert changed.table_id == spec.table_id

    def test_pending_since_is_the_time_of_the_oldest_record_that_offsets_lack(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        bucket = _only(world, spec).bucket
        assert world.source.pending_since_ms(spec, {}) is None
        for number in range(3):
            world.advance(10)
            world.write(PATH, [(UPSERT, number, "n")])

        times = _joined(_read_log(world, spec, 0, 3)).column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()
        for offset in (0, 1, 2):
            assert world.source.pending_since_ms(spec, {bucket: offset}) == times[offset] // 1000
        assert world.source.pending_since_ms(spec, {bucket: 3}) is None

    # --- the tiering queue ---------------------------------------------------------------------------------------

    def test_table_is_handed_to_one_caller(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)

        offer = _request(world)

        assert (offer.table_id, offer.path) == (spec.table_id, PATH)
        assert world.source.heartbeat(Beat(request=True)).offer is None

    def test_renewed_table_is_kept(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False)
        offer = _request(world)
        for _ in range(4):
            world.advance(world.tiering_timeout_s * 0.6)
            assert not world.source.heartbeat(Beat(renewed=(_claim(offer),))).refused
        assert world.source.heartbeat(Beat(request=True)).offer is None

    def test_silent_holder_is_fenced_and_the_table_given_away_under_a_higher_epoch(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        first = _request(world)
        world.advance(world.tiering_timeout_s * 1.5)
        second = _request(world)

        assert second.epoch > first.epoch
        for beat in (
            Beat(renewed=(_claim(first),)),
            Beat(finished=(_claim(first),)),
            Beat(failed=(_claim(first),)),
        ):
            assert world.source.heartbeat(beat).refused == {spec.table_id: Refusal.FENCED}
        assert not world.source.heartbeat(Beat(renewed=(_claim(second),))).refused

    def test_finished_table_waits_out_its_freshness(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False, freshness_s=60)
        offer = _request(world)
        world.source.heartbeat(Beat(finished=(_claim(offer),)))

        assert world.source.heartbeat(Beat(request=True)).offer is None
        world.advance(61)
        assert _request(world).epoch > offer.epoch

    def test_forced_and_failed_tables_come_back_at_once(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False, freshness_s=3600)
        forced = _request(world)
        again = world.source.heartbeat(
            Beat(finished=(_claim(forced),), forced=frozenset({spec.table_id}), request=True)
        ).offer
        assert again is not None
        after_failure = world.source.heartbeat(Beat(failed=(_claim(again),), request=True)).offer

        assert after_failure is not None
        assert forced.epoch < again.epoch < after_failure.epoch

    def test_finished_twice_is_accepted(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False)
        claim = _claim(_request(world))
        world.source.heartbeat(Beat(finished=(claim,)))

        assert not world.source.heartbeat(Beat(finished=(claim,))).refused
        assert world.source.heartbeat(Beat(request=True)).offer is None

    def test_renewing_a_finished_table_is_refused(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        claim = _claim(_request(world))
        world.source.heartbeat(Beat(finished=(claim,)))

        assert world.source.heartbeat(Beat(renewed=(claim,))).refused == {spec.table_id: Refusal.NOT_TIERING}

    def test_dropped_table_and_another_coordinator_are_refused(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        other = world.create(OTHER, primary_key=False)
        claims = [_claim(_request(world)), _claim(_request(world))]
        world.drop(PATH)
        beat = Beat(
            renewed=tuple(
                Claim(claim.table_id, claim.epoch, claim.coordinator_epoch + (claim.table_id == other.table_id))
                for claim in claims
            )
        )

        refused = world.source.heartbeat(beat).refused

        assert refused == {spec.table_id: Refusal.GONE, other.table_id: Refusal.COORDINATOR_CHANGED}

    def test_table_made_due_is_handed_out_at_once(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False, freshness_s=3600)
        world.source.heartbeat(Beat(finished=(_claim(_request(world)),)))

        if not world.source.make_due([PATH]):
            pytest.skip("this source cannot be asked")
        assert _request(world).path == PATH

    # --- lake offsets --------------------------------------------------------------------------------------------

    def test_prepared_offsets_can_be_read_and_are_not_on_record(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True, partitioned=True, buckets=2)
        world.write(PATH, [(UPSERT, number, "n") for number in range(9)])
        offsets = {state.bucket: state.end for state in world.source.buckets(spec)}

        prepared = world.source.prepare(spec, offsets)

        assert dict(world.source.read_offsets(spec, prepared)) == offsets
        assert world.source.lake_record(spec) is None

    def test_committed_snapshot_is_on_record(self, world: SourceWorld) -> None:
        spec, bucket = _logged(world)
        for snapshot_id, offset in ((900, 1), (17, 2)):
            prepared = world.source.prepare(spec, {bucket: offset})
            world.source.commit(spec, snapshot_id, prepared, {bucket: offset})

        record = world.source.lake_record(spec)
        assert record is not None
        assert (record.snapshot_id, dict(record.offsets)) == (17, {bucket: 2})

    def test_same_commit_twice_is_one(self, world: SourceWorld) -> None:
        if not self.commit_is_idempotent:
            pytest.skip("this source's commit is not idempotent")
        spec, bucket = _logged(world)
        prepared = world.source.prepare(spec, {bucket: 2})
        for _ in range(2):
            world.source.commit(spec, 900, prepared, {bucket: 2})

        record = world.source.lake_record(spec)
        assert record is not None
        assert (record.snapshot_id, dict(record.offsets)) == (900, {bucket: 2})
        assert dict(world.source.read_offsets(spec, prepared)) == {bucket: 2}

    def test_commit_for_a_dropped_table_is_refused(self, world: SourceWorld) -> None:
        spec, bucket = _logged(world)
        prepared = world.source.prepare(spec, {bucket: 2})
        world.drop(PATH)
        world.create(PATH, primary_key=False)

        with pytest.raises(TableGoneError):
            world.source.commit(spec, 900, prepared, {bucket: 2})
        assert world.source.lake_record(world.source.table(PATH)) is None


def _only(world: SourceWorld, spec: TableSpec) -> BucketState:
    (state,) = world.source.buckets(spec)
    return state


def _logged(world: SourceWorld) -> tuple[TableSpec, TableBucket]:
    spec = world.create(PATH, primary_key=False)
    world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 2, "b")])
    return spec, _only(world, spec).bucket


def _snapshotted(world: SourceWorld) -> tuple[TableSpec, KvSnapshot]:
    """A primary-key table of two rows, with one snapshot of them."""
    spec = world.create(PATH, primary_key=True)
    world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 2, "b")])
    world.snapshot(PATH)
    snapshot = _only(world, spec).snapshot
    assert snapshot is not None
    return spec, snapshot


def _supersede(world: SourceWorld) -> None:
    """Write and snapshot until clean-up has had its way with older snapshots."""
    for number in range(4):
        world.write(PATH, [(UPSERT, 50 + number, "later")])
        world.snapshot(PATH)


def _read_log(world: SourceWorld, spec: TableSpec, start: int, stop: int) -> list[SourceBatch]:
    bucket = TableBucket(spec.table_id, None, 0)
    return list(world.reader(spec).read_log(LogSplit("split", bucket, (), start, stop)))


def _read_snapshot(world: SourceWorld, spec: TableSpec, snapshot: KvSnapshot) -> list[SourceBatch]:
    split = SnapshotSplit("split", snapshot.bucket, (), snapshot.snapshot_id, snapshot.log_offset)
    return list(world.reader(spec).read_snapshot(split))


def _joined(batches: list[SourceBatch]) -> pa.Table:
    return pa.Table.from_batches([batch.records for batch in batches])


def _table_of(batches: list[SourceBatch], base: dict[int, str] | None = None) -> dict[int, str]:
    """Apply records to rows by id: what a reader of the changelog ends up with."""
    rows = dict(base or {})
    for row in _joined(batches).to_pylist():
        if row[CHANGE_COLUMN] in {Change.DELETE, Change.UPDATE_BEFORE}:
            assert rows.pop(row["id"]) == row["name"]
        else:
            assert row["id"] not in rows
            rows[row["id"]] = row["name"]
    return rows


def _request(world: SourceWorld) -> Offer:
    offer = world.source.heartbeat(Beat(request=True)).offer
    assert offer is not None
    return offer


def _claim(offer: Offer) -> Claim:
    return Claim(offer.table_id, offer.epoch, offer.coordinator_epoch)
