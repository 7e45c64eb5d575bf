"""What every source must do. A source's tests subclass it, with one fixture and flags for what the source can do.

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

from lakeward.errors import LeaseApiMissingError, TableGoneError
from lakeward.model.tables import (
    TIMESTAMP_COLUMN,
)
from lakeward.model.tiering import HeartbeatRequest, Refusal, TableEpoch
from lakeward.testing.levels import chaos, upsert
from lakeward.testing.source_reading import SourceReadingConformance
from lakeward.testing.source_steps import (
    OTHER,
    PATH,
    UPSERT,
    epoch_of,
    joined,
    logged,
    only_bucket,
    read_log,
    request_table,
    snapshotted,
    supersede,
)

if TYPE_CHECKING:
    from lakeward.testing.source_world import SourceWorld


class SourceConformance(SourceReadingConformance):
    """The suite, for the ports `Source` and `SourceReader`."""

    __test__ = False

    # --- leases --------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("end", ["release", "drop", "expiry", "moved"])
    @upsert
    def test_snapshot_goes_once_its_lease_has_ended(self, world: SourceWorld, end: str) -> None:
        _, snapshot = snapshotted(world)
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
        supersede(world)

        assert world.source.missing_snapshots([snapshot]) == {snapshot}

    @upsert
    def test_acquiring_again_renews(self, world: SourceWorld) -> None:
        _, snapshot = snapshotted(world)
        for _ in range(3):
            world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
            world.advance(400)
        supersede(world)

        assert world.source.missing_snapshots([snapshot]) == frozenset()

    @upsert
    def test_one_lease_does_not_release_another_ones_snapshot(self, world: SourceWorld) -> None:
        _, snapshot = snapshotted(world)
        for lease_id in ("lease-a", "lease-b"):
            world.source.leases.acquire(lease_id, 600, {snapshot.bucket: snapshot.snapshot_id})
        world.source.leases.drop("lease-a")
        supersede(world)

        assert world.source.missing_snapshots([snapshot]) == frozenset()

    @upsert
    def test_releasing_and_dropping_what_is_not_there_is_no_error(self, world: SourceWorld) -> None:
        _, snapshot = snapshotted(world)

        world.source.leases.release("nobody", [snapshot.bucket])
        world.source.leases.drop("nobody")

        assert world.source.missing_snapshots([snapshot]) == frozenset()

    @chaos
    def test_old_server_says_that_it_has_no_lease_api(self, world: SourceWorld) -> None:
        self.needs("can_be_old")
        _, snapshot = snapshotted(world)
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

    @chaos
    def test_table_that_is_not_there_is_gone(self, world: SourceWorld) -> None:
        with pytest.raises(TableGoneError):
            world.source.table(PATH)

    @chaos
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
            read_log(world, old, 0, 1)

    @chaos
    def test_dropping_a_table_asks_no_lease(self, world: SourceWorld) -> None:
        _, snapshot = snapshotted(world)
        world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
        world.drop(PATH)

        assert world.source.missing_snapshots([snapshot]) == {snapshot}

    @upsert
    def test_added_column_raises_the_schema_id(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True)
        world.add_column(PATH, "note")

        changed = world.source.table(PATH)

        assert changed.schema_id > spec.schema_id
        assert changed.schema.names == [*spec.schema.names, "note"]
        assert changed.table_id == spec.table_id

    def test_pending_since_is_the_time_of_the_oldest_record_that_offsets_lack(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        bucket = only_bucket(world, spec).bucket
        assert world.source.pending_since_ms(spec, {}) is None
        for number in range(3):
            world.advance(10)
            world.write(PATH, [(UPSERT, number, "n")])

        times = joined(read_log(world, spec, 0, 3)).column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()
        for offset in (0, 1, 2):
            assert world.source.pending_since_ms(spec, {bucket: offset}) == times[offset] // 1000
        assert world.source.pending_since_ms(spec, {bucket: 3}) is None

    # --- the tiering queue ---------------------------------------------------------------------------------------

    def test_table_is_handed_to_one_caller(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)

        assignment = request_table(world)

        assert (assignment.table_id, assignment.path) == (spec.table_id, PATH)
        assert world.source.heartbeat(HeartbeatRequest(request=True)).assignment is None

    def test_renewed_table_is_kept(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False)
        assignment = request_table(world)
        for _ in range(4):
            world.advance(world.tiering_timeout_s * 0.6)
            assert not world.source.heartbeat(HeartbeatRequest(renewed=(epoch_of(assignment),))).refused
        assert world.source.heartbeat(HeartbeatRequest(request=True)).assignment is None

    @chaos
    def test_silent_holder_is_fenced_and_the_table_given_away_under_a_higher_epoch(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        first = request_table(world)
        world.advance(world.tiering_timeout_s * 1.5)
        second = request_table(world)

        assert second.epoch > first.epoch
        for request in (
            HeartbeatRequest(renewed=(epoch_of(first),)),
            HeartbeatRequest(finished=(epoch_of(first),)),
            HeartbeatRequest(failed=(epoch_of(first),)),
        ):
            assert world.source.heartbeat(request).refused == {spec.table_id: Refusal.FENCED}
        assert not world.source.heartbeat(HeartbeatRequest(renewed=(epoch_of(second),))).refused

    def test_finished_table_waits_out_its_freshness(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False, freshness_s=60)
        assignment = request_table(world)
        world.source.heartbeat(HeartbeatRequest(finished=(epoch_of(assignment),)))

        assert world.source.heartbeat(HeartbeatRequest(request=True)).assignment is None
        world.advance(61)
        assert request_table(world).epoch > assignment.epoch

    def test_forced_and_failed_tables_come_back_at_once(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False, freshness_s=3600)
        forced = request_table(world)
        again = world.source.heartbeat(
            HeartbeatRequest(finished=(epoch_of(forced),), forced=frozenset({spec.table_id}), request=True)
        ).assignment
        assert again is not None
        after_failure = world.source.heartbeat(HeartbeatRequest(failed=(epoch_of(again),), request=True)).assignment

        assert after_failure is not None
        assert forced.epoch < again.epoch < after_failure.epoch

    @chaos
    def test_finished_twice_is_accepted(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False)
        held = epoch_of(request_table(world))
        world.source.heartbeat(HeartbeatRequest(finished=(held,)))

        assert not world.source.heartbeat(HeartbeatRequest(finished=(held,))).refused
        assert world.source.heartbeat(HeartbeatRequest(request=True)).assignment is None

    @chaos
    def test_renewing_a_finished_table_is_refused(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        held = epoch_of(request_table(world))
        world.source.heartbeat(HeartbeatRequest(finished=(held,)))

        assert world.source.heartbeat(HeartbeatRequest(renewed=(held,))).refused == {spec.table_id: Refusal.NOT_TIERING}

    @chaos
    def test_dropped_table_and_another_coordinator_are_refused(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        other = world.create(OTHER, primary_key=False)
        held_tables = [epoch_of(request_table(world)), epoch_of(request_table(world))]
        world.drop(PATH)
        request = HeartbeatRequest(
            renewed=tuple(
                TableEpoch(held.table_id, held.epoch, held.coordinator_epoch + (held.table_id == other.table_id))
                for held in held_tables
            )
        )

        refused = world.source.heartbeat(request).refused

        assert refused == {spec.table_id: Refusal.GONE, other.table_id: Refusal.COORDINATOR_CHANGED}

    def test_table_made_due_is_handed_out_at_once(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False, freshness_s=3600)
        world.source.heartbeat(HeartbeatRequest(finished=(epoch_of(request_table(world)),)))

        assert world.source.make_due([PATH]) is self.can_make_due
        self.needs("can_make_due")
        assert request_table(world).path == PATH

    # --- lake offsets --------------------------------------------------------------------------------------------

    def test_prepared_offsets_can_be_read_and_are_not_on_record(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True, partitioned=True, buckets=2)
        world.write(PATH, [(UPSERT, number, "n") for number in range(9)])
        offsets = {state.bucket: state.end for state in world.source.buckets(spec)}

        prepared = world.source.prepare(spec, offsets)

        assert dict(world.source.read_offsets(spec, prepared)) == offsets
        assert world.source.lake_record(spec) is None

    def test_committed_snapshot_is_on_record(self, world: SourceWorld) -> None:
        spec, bucket = logged(world)
        for snapshot_id, offset in ((900, 1), (17, 2)):
            prepared = world.source.prepare(spec, {bucket: offset})
            world.source.commit(spec, snapshot_id, prepared, {bucket: offset})

        record = world.source.lake_record(spec)
        assert record is not None
        assert (record.snapshot_id, dict(record.offsets)) == (17, {bucket: 2})

    @chaos
    def test_same_commit_twice_is_one(self, world: SourceWorld) -> None:
        self.needs("commit_is_idempotent")
        spec, bucket = logged(world)
        prepared = world.source.prepare(spec, {bucket: 2})
        for _ in range(2):
            world.source.commit(spec, 900, prepared, {bucket: 2})

        record = world.source.lake_record(spec)
        assert record is not None
        assert (record.snapshot_id, dict(record.offsets)) == (900, {bucket: 2})
        assert dict(world.source.read_offsets(spec, prepared)) == {bucket: 2}

    @chaos
    def test_commit_for_a_dropped_table_is_refused(self, world: SourceWorld) -> None:
        spec, bucket = logged(world)
        prepared = world.source.prepare(spec, {bucket: 2})
        world.drop(PATH)
        world.create(PATH, primary_key=False)

        with pytest.raises(TableGoneError):
            world.source.commit(spec, 900, prepared, {bucket: 2})
        assert world.source.lake_record(world.source.table(PATH)) is None
