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
from lakeward_testing.expectations import expect_error, expect_no_error, mismatch
from lakeward_testing.levels import chaos, upsert
from lakeward_testing.source_reading import SourceReadingConformance
from lakeward_testing.source_steps import (
    OTHER,
    PATH,
    UPSERT,
    check_missing,
    check_nothing_due,
    check_refused,
    epoch_of,
    joined,
    logged,
    only_bucket,
    read_log,
    record_of,
    request_table,
    snapshotted,
    supersede,
)

if TYPE_CHECKING:
    from lakeward.model.tables import TableBucket
    from lakeward.model.tiering import LakeRecord
    from lakeward_testing.source_world import SourceWorld

MANY = 30
"""So many keys reach every bucket of a table that has a few."""


class SourceConformance(SourceReadingConformance):
    """The suite, for the ports `Source` and `SourceReader`."""

    __test__ = False

    # --- leases --------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("end", ["release", "drop", "expiry", "moved"])
    @upsert
    def test_snapshot_goes_once_its_lease_has_ended(self, world: SourceWorld, end: str) -> None:
        self.needs("has_primary_keys")
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

        check_missing(world, [snapshot], {snapshot}, f"of a snapshot whose lease has ended ({end}), after newer ones")

    @upsert
    def test_acquiring_again_renews(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        _, snapshot = snapshotted(world)
        for _ in range(3):
            world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
            world.advance(400)
        supersede(world)

        check_missing(world, [snapshot], frozenset(), "of a snapshot whose lease was renewed by leases.acquire")

    @upsert
    def test_acquiring_one_bucket_leaves_the_lease_its_others(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec = world.create(PATH, primary_key=True, buckets=3)
        world.write(PATH, [(UPSERT, number, "n") for number in range(MANY)])
        world.snapshot(PATH)
        snapshots = [state.snapshot for state in world.source.buckets(spec) if state.snapshot is not None]
        assert len(snapshots) == 3, mismatch("buckets after a KV snapshot: buckets that have one", 3, len(snapshots))
        first, second, unprotected = snapshots
        for one in (first, second):
            world.source.leases.acquire("lease-a", 600, {one.bucket: one.snapshot_id})
        supersede(world, MANY)

        where = "of a lease's first bucket, of one that a second leases.acquire added, and of one that no lease has"
        check_missing(world, snapshots, {unprotected}, where)

    @upsert
    def test_one_lease_does_not_release_another_ones_snapshot(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        _, snapshot = snapshotted(world)
        for lease_id in ("lease-a", "lease-b"):
            world.source.leases.acquire(lease_id, 600, {snapshot.bucket: snapshot.snapshot_id})
        world.source.leases.drop("lease-a")
        supersede(world)

        check_missing(world, [snapshot], frozenset(), "of a snapshot under two leases, one of which was dropped")

    @upsert
    def test_releasing_and_dropping_what_is_not_there_is_no_error(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        _, snapshot = snapshotted(world)

        with expect_no_error("leases.release under an id that there is not"):
            world.source.leases.release("nobody", [snapshot.bucket])
        with expect_no_error("leases.drop of an id that there is not"):
            world.source.leases.drop("nobody")

        check_missing(world, [snapshot], frozenset(), "of the newest snapshot, after another lease was dropped")

    @chaos
    def test_old_server_says_that_it_has_no_lease_api(self, world: SourceWorld) -> None:
        self.needs("can_be_old", "has_primary_keys")
        _, snapshot = snapshotted(world)
        world.set_lease_api(on=False)

        leases = world.source.leases
        where = "at a server without the lease API"
        with expect_error(LeaseApiMissingError, f"leases.acquire {where}"):
            leases.acquire("lease-a", 60, {snapshot.bucket: snapshot.snapshot_id})
        with expect_error(LeaseApiMissingError, f"leases.release {where}"):
            leases.release("lease-a", [snapshot.bucket])
        with expect_error(LeaseApiMissingError, f"leases.drop {where}"):
            leases.drop("lease-a")

    # --- tables and buckets --------------------------------------------------------------------------------------

    def test_tables_are_listed_and_found_by_name(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=self.has_primary_keys)
        other = world.create(OTHER, primary_key=False, partitioned=self.has_partitions, buckets=3)

        created = {spec.table_id, other.table_id}
        enabled = created if self.has_tiering_queue else set()
        listed = {table.table_id for table in world.source.tables()}
        assert listed == enabled, mismatch("tables: ids of the tables", enabled, listed)
        found_ids = {table.table_id for table in world.source.all_tables()}
        assert created <= found_ids, mismatch("all_tables: ids, those of `tables` among them", created, found_ids)
        table = world.source.table(OTHER)
        found = (table.buckets, table.partition_keys, table.has_primary_key)
        expected = (3, ("day",) if self.has_partitions else (), False)
        said = mismatch("table: buckets, partition keys and whether it has a primary key", expected, found)
        assert found == expected, said

    def test_buckets_come_in_order_with_ends_and_partitions(self, world: SourceWorld) -> None:
        parts = self.has_partitions
        spec = world.create(PATH, primary_key=self.has_primary_keys, partitioned=parts, buckets=2)
        for day in ("mon", "tue"):
            world.write(PATH, [(UPSERT, number, "n") for number in range(20)], day)

        states = world.source.buckets(spec)

        partitions = [state.partition for state in states]
        expected = [("mon",), ("mon",), ("tue",), ("tue",)] if parts else [(), ()]
        said = mismatch("buckets: partitions, in the order of their ids", expected, partitions)
        assert partitions == expected, said
        keys = [state.bucket.sort_key() for state in states]
        assert keys == sorted(keys), mismatch("buckets: expected in order of their sort key; keys", sorted(keys), keys)
        records = sum(state.end for state in states)
        assert records == 40, mismatch("buckets: sum of their ends after 40 records", 40, records)
        starts = {state.start for state in states}
        assert starts == {0}, mismatch("buckets: starts of logs of which nothing was cleaned away", {0}, starts)

    @chaos
    def test_table_that_is_not_there_is_gone(self, world: SourceWorld) -> None:
        with expect_error(TableGoneError, "table of a path where there is none"):
            world.source.table(PATH)

    @chaos
    def test_dropped_and_recreated_table_is_another_one(self, world: SourceWorld) -> None:
        old = world.create(PATH, primary_key=self.has_primary_keys)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.drop(PATH)
        new = world.create(PATH, primary_key=self.has_primary_keys)

        assert new.table_id != old.table_id, (
            f"a table that was dropped and made anew: expected another table id, found {new.table_id} again"
        )
        ends = [state.end for state in world.source.buckets(new)]
        assert ends == [0], mismatch("buckets of a table that was dropped and made anew: ends", [0], ends)
        with expect_error(TableGoneError, "buckets of a table that was dropped and made anew"):
            world.source.buckets(old)
        with expect_error(TableGoneError, "read_log of a table that was dropped and made anew"):
            read_log(world, old, 0, 1)

    @chaos
    def test_dropping_a_table_asks_no_lease(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        _, snapshot = snapshotted(world)
        world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
        world.drop(PATH)

        check_missing(world, [snapshot], {snapshot}, "of a snapshot under a lease whose table was dropped")

    @upsert
    def test_added_column_raises_the_schema_id(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=self.has_primary_keys)
        world.add_column(PATH, "note")

        changed = world.source.table(PATH)

        where = "table, after a column was added"
        assert changed.schema_id > spec.schema_id, (
            f"{where}: expected a schema id above {spec.schema_id}, found {changed.schema_id}"
        )
        names = [*spec.schema.names, "note"]
        assert changed.schema.names == names, mismatch(f"{where}: columns", names, changed.schema.names)
        said = mismatch(f"{where}: table id", spec.table_id, changed.table_id)
        assert changed.table_id == spec.table_id, said

    def test_pending_since_is_the_time_of_the_oldest_record_that_offsets_lack(self, world: SourceWorld) -> None:
        self.needs("has_write_times")
        spec = world.create(PATH, primary_key=False)
        bucket = only_bucket(world, spec).bucket
        since = world.source.pending_since_ms(spec, {})
        assert since is None, mismatch("pending_since_ms of a table without records", None, since)
        for number in range(3):
            world.advance(10)
            world.write(PATH, [(UPSERT, number, "n")])

        times = joined(read_log(world, spec, 0, 3)).column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()
        for offset in (0, 1, 2):
            since, expected = world.source.pending_since_ms(spec, {bucket: offset}), times[offset] // 1000
            where = f"pending_since_ms, where records from offset {offset} on are not in the lake"
            assert since == expected, mismatch(where, expected, since)
        since = world.source.pending_since_ms(spec, {bucket: 3})
        assert since is None, mismatch("pending_since_ms, where all records are in the lake", None, since)

    def test_pending_since_is_that_of_the_bucket_which_waits_longest(self, world: SourceWorld) -> None:
        self.needs("has_write_times", "has_partitions")
        spec = world.create(PATH, primary_key=False, partitioned=True)
        for day in ("mon", "tue"):
            world.write(PATH, [(UPSERT, 1, "n")], day)
            world.advance(1)
        older, newer = (state.bucket for state in world.source.buckets(spec))

        first, second = (world.source.pending_since_ms(spec, {other: 1}) for other in (newer, older))
        assert first is not None and second is not None and first < second, (  # noqa: PT018 - one fact
            "pending_since_ms, where only the bucket written first waits, and where only the one written 1 s later: "
            f"expected rising times, found {first} and {second}"
        )
        since = world.source.pending_since_ms(spec, {})
        where = "pending_since_ms, where both buckets wait: the time of the oldest record"
        assert since == first, mismatch(where, first, since)

    # --- the tiering queue ---------------------------------------------------------------------------------------

    def test_a_source_without_a_queue_hands_out_nothing_and_lets_nobody_keep_a_table(self, world: SourceWorld) -> None:
        if self.has_tiering_queue:
            pytest.skip("declared: has_tiering_queue = True")
        spec = world.create(PATH, primary_key=False)

        check_nothing_due(world, "the source has no queue")
        response = world.source.heartbeat(HeartbeatRequest(renewed=(TableEpoch(spec.table_id, 1, 0),)))
        check_refused(response, {spec.table_id: Refusal.NOT_TIERING}, "that renews a table which was never handed out")
        made = world.source.make_due([PATH])
        assert made is False, mismatch("make_due of a source without a queue", False, made)
        record = world.source.lake_record(spec)
        assert record is None, mismatch("lake_record of a source without a queue", None, record)

    def test_table_is_handed_to_one_caller(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        spec = world.create(PATH, primary_key=False)

        assignment = request_table(world)

        found, expected = (assignment.table_id, assignment.path), (spec.table_id, PATH)
        said = mismatch("heartbeat that asks for a table: id and path of the assignment", expected, found)
        assert found == expected, said
        promised, freshness_s = spec.freshness_s, assignment.freshness_s
        where = "heartbeat that asks for a table: freshness_s of the assignment, that of the table"
        assert freshness_s == promised, mismatch(where, promised, freshness_s)
        check_nothing_due(world, "the only table is another caller's")

    def test_table_is_not_handed_out_unless_one_is_asked_for(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        world.create(PATH, primary_key=False)

        found = world.source.heartbeat(HeartbeatRequest()).assignment

        where = "heartbeat that asks for no table, where one is due: assignment"
        assert found is None, mismatch(where, None, found)
        request_table(world)

    def test_renewed_table_is_kept(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        world.create(PATH, primary_key=False)
        assignment = request_table(world)
        for _ in range(4):
            world.advance(world.tiering_timeout_s * 0.6)
            response = world.source.heartbeat(HeartbeatRequest(renewed=(epoch_of(assignment),)))
            check_refused(response, {}, "that renews a table in time")
        check_nothing_due(world, "the only table was renewed in time")

    @chaos
    def test_silent_holder_is_fenced_and_the_table_given_away_under_a_higher_epoch(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        spec = world.create(PATH, primary_key=False)
        first = request_table(world)
        world.advance(world.tiering_timeout_s * 1.5)
        second = request_table(world)

        assert second.epoch > first.epoch, (
            "heartbeat that asks for a table whose holder was silent for too long: "
            f"expected an epoch above {first.epoch}, found {second.epoch}"
        )
        for verb, request in {
            "renews": HeartbeatRequest(renewed=(epoch_of(first),)),
            "finishes": HeartbeatRequest(finished=(epoch_of(first),)),
            "gives back as failed": HeartbeatRequest(failed=(epoch_of(first),)),
        }.items():
            response = world.source.heartbeat(request)
            check_refused(response, {spec.table_id: Refusal.FENCED}, f"that {verb} a table which another caller has")
        response = world.source.heartbeat(HeartbeatRequest(renewed=(epoch_of(second),)))
        check_refused(response, {}, "that renews a table which was silent callers' before")

    def test_finished_table_waits_out_its_freshness(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        world.create(PATH, primary_key=False, freshness_s=60)
        assignment = request_table(world)
        world.source.heartbeat(HeartbeatRequest(finished=(epoch_of(assignment),)))

        check_nothing_due(world, "the only table was finished and is fresh")
        world.advance(61)
        epoch = request_table(world).epoch
        assert epoch > assignment.epoch, (
            f"heartbeat that asks for a table again: expected an epoch above {assignment.epoch}, found {epoch}"
        )

    def test_forced_and_failed_tables_come_back_at_once(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        spec = world.create(PATH, primary_key=False, freshness_s=3600)
        forced = request_table(world)
        again = world.source.heartbeat(
            HeartbeatRequest(finished=(epoch_of(forced),), forced=frozenset({spec.table_id}), request=True)
        ).assignment
        assert again is not None, "heartbeat that finishes a table and forces it: expected the table again, found None"
        after_failure = world.source.heartbeat(HeartbeatRequest(failed=(epoch_of(again),), request=True)).assignment

        assert after_failure is not None, (
            "heartbeat that gives a table back as failed and asks for one: expected the table again, found None"
        )
        epochs = [forced.epoch, again.epoch, after_failure.epoch]
        assert forced.epoch < again.epoch < after_failure.epoch, (
            f"heartbeat that asks for the same table three times: expected rising epochs, found {epochs}"
        )

    @chaos
    def test_finished_twice_is_accepted(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        world.create(PATH, primary_key=False)
        held = epoch_of(request_table(world))
        world.source.heartbeat(HeartbeatRequest(finished=(held,)))

        response = world.source.heartbeat(HeartbeatRequest(finished=(held,)))
        check_refused(response, {}, "that finishes a table which the caller has finished already")
        check_nothing_due(world, "the only table was finished twice and is fresh")

    @chaos
    def test_renewing_a_finished_table_is_refused(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        spec = world.create(PATH, primary_key=False)
        held = epoch_of(request_table(world))
        world.source.heartbeat(HeartbeatRequest(finished=(held,)))

        response = world.source.heartbeat(HeartbeatRequest(renewed=(held,)))
        check_refused(response, {spec.table_id: Refusal.NOT_TIERING}, "that renews a table which was finished")

    @chaos
    def test_dropped_table_and_another_coordinator_are_refused(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
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

        response = world.source.heartbeat(request)

        expected = {spec.table_id: Refusal.GONE, other.table_id: Refusal.COORDINATOR_CHANGED}
        check_refused(response, expected, "that renews a dropped table, and one under another coordinator's epoch")

    def test_table_made_due_is_handed_out_at_once(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        world.create(PATH, primary_key=False, freshness_s=3600)
        world.source.heartbeat(HeartbeatRequest(finished=(epoch_of(request_table(world)),)))

        made = world.source.make_due([PATH])
        said = mismatch(f"make_due of a source with can_make_due = {self.can_make_due}", self.can_make_due, made)
        assert made is self.can_make_due, said
        self.needs("can_make_due")
        found = world.source.heartbeat(HeartbeatRequest(request=True)).assignment
        assert found is not None, "heartbeat after make_due said that the table is due: expected it, found None"
        assert found.path == PATH, mismatch("heartbeat after make_due: path of the assignment", PATH, found.path)

    # --- lake offsets --------------------------------------------------------------------------------------------

    def test_prepared_offsets_can_be_read_and_are_not_on_record(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        spec = world.create(PATH, primary_key=self.has_primary_keys, partitioned=self.has_partitions, buckets=2)
        world.write(PATH, [(UPSERT, number, "n") for number in range(9)])
        offsets = {state.bucket: state.end for state in world.source.buckets(spec)}

        prepared = world.source.prepare(spec, offsets)

        found = dict(world.source.read_offsets(spec, prepared))
        assert found == offsets, mismatch("read_offsets of what prepare stored", offsets, found)
        record = world.source.lake_record(spec)
        assert record is None, mismatch("lake_record after prepare, without a commit", None, record)

    def test_committed_snapshot_is_on_record(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        spec, bucket = logged(world)
        for snapshot_id, offset in ((900, 1), (17, 2)):
            prepared = world.source.prepare(spec, {bucket: offset})
            world.source.commit(spec, snapshot_id, prepared, {bucket: offset})

        _check_record(record_of(world, spec), 17, {bucket: 2}, "lake_record after commits of 900 and then of 17")

    @chaos
    def test_same_commit_twice_is_one(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue", "commit_is_idempotent")
        spec, bucket = logged(world)
        prepared = world.source.prepare(spec, {bucket: 2})
        for _ in range(2):
            world.source.commit(spec, 900, prepared, {bucket: 2})

        _check_record(record_of(world, spec), 900, {bucket: 2}, "lake_record after the same commit twice")
        found = dict(world.source.read_offsets(spec, prepared))
        assert found == {bucket: 2}, mismatch("read_offsets after the same commit twice", {bucket: 2}, found)

    @chaos
    def test_commit_for_a_dropped_table_is_refused(self, world: SourceWorld) -> None:
        self.needs("has_tiering_queue")
        spec, bucket = logged(world)
        prepared = world.source.prepare(spec, {bucket: 2})
        world.drop(PATH)
        world.create(PATH, primary_key=False)

        with expect_error(TableGoneError, "commit for a table that was dropped and made anew"):
            world.source.commit(spec, 900, prepared, {bucket: 2})
        record = world.source.lake_record(world.source.table(PATH))
        assert record is None, mismatch("lake_record of the table that was made anew", None, record)

    # --- the end -------------------------------------------------------------------------------------------------

    def test_closing_twice_is_harmless(self, world: SourceWorld) -> None:
        world.source.close()
        with expect_no_error("close of a source that was closed before"):
            world.source.close()


def _check_record(record: LakeRecord, snapshot_id: int, offsets: dict[TableBucket, int], where: str) -> None:
    __tracebackhide__ = True
    found, expected = (record.snapshot_id, dict(record.offsets)), (snapshot_id, offsets)
    assert found == expected, mismatch(f"{where}: snapshot id and offsets", expected, found)
