"""What every source must do when a subtask reads log splits and snapshot splits."""

# ruff: noqa: S101, D102, PLR2004 - a conformance suite asserts; the name of each test states its fact
from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError, LogGapError, LogTruncatedError, SnapshotGoneError
from lakeward.model.tables import (
    CHANGE_COLUMN,
    NO_TIME_MS,
    OFFSET_COLUMN,
    TIMESTAMP_COLUMN,
    Change,
)
from lakeward.ports import has_write_times
from lakeward_testing.expectations import expect_error, mismatch
from lakeward_testing.levels import Conformance, chaos, upsert
from lakeward_testing.source_steps import (
    DELETE,
    PATH,
    UPSERT,
    check_missing,
    check_values,
    joined,
    newest_snapshot,
    only_bucket,
    read_log,
    read_snapshot,
    snapshotted,
    supersede,
    table_of,
    without_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.tables import KvSnapshot
    from lakeward.ports import SourceBatch
    from lakeward_testing.source_world import SourceWorld


class SourceReadingConformance(Conformance):
    """The suite, for the ports `Source` and `SourceReader`."""

    __test__ = False

    has_empty_batches = True
    """Offsets can move on without records."""
    can_lose_records = False
    """The world can make a hole in a log (`lose`)."""
    can_be_old = True
    """The world can switch the lease API off."""
    commit_is_idempotent = True
    """Registering a lake snapshot twice is one registration."""
    can_make_due = True
    """`make_due` hands a table out before it is due. False: it returns False."""
    has_tiering_queue = True
    """Tables are handed out, and their lake snapshots are kept on record. False: no table is lake-enabled."""
    has_primary_keys = True
    """Tables can have a primary key, KV snapshots and leases on them. False: all are logs."""
    has_partitions = True
    """Tables can be partitioned."""
    has_write_times = True
    """Each record has the time of its write. False: the source says so (`UntimedSource`)."""

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

        batches = read_log(world, spec, start, stop)

        where = f"read_log from {start} to {stop}"
        check_values(batches, OFFSET_COLUMN, list(range(start, stop)), where)
        check_values(batches, "id", list(range(start, stop)), where)
        reached = batches[-1].next_offset
        assert reached == stop, mismatch(f"{where}: next offset of the last batch", stop, reached)

    def test_next_offset_follows_the_last_record_of_each_batch(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        for number in range(5):
            world.write(PATH, [(UPSERT, number, "n"), (UPSERT, number, "m")])

        for batch in read_log(world, spec, 1, 9):
            last = batch.records.column(OFFSET_COLUMN)[-1].as_py()
            said = mismatch("read_log: next offset, one after the batch's last record", last + 1, batch.next_offset)
            assert batch.next_offset == last + 1, said

    def test_each_offset_is_a_record_or_is_said_to_hold_none(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        for number in range(3):
            world.write(PATH, [(UPSERT, number, "n")] * 3)
            if self.has_empty_batches:
                world.append_empty(PATH, 0, 2)
        end = only_bucket(world, spec).end

        reached = 1
        for batch in read_log(world, spec, 1, end):
            assert batch.empty_offsets is not None, (
                "read_log: expected `empty_offsets` to be the number of offsets without a record, found None"
            )
            counted, passed = batch.records.num_rows + batch.empty_offsets, batch.next_offset - reached
            assert counted == passed, (
                f"read_log: expected each of the {passed} offsets from {reached} to {batch.next_offset} to be a record "
                f"or one of `empty_offsets`, found {batch.records.num_rows} records and {batch.empty_offsets} empty"
            )
            reached = batch.next_offset
        assert reached == end, mismatch("read_log: next offset of the last batch", end, reached)

    @chaos
    def test_hole_in_the_log_is_an_error_that_names_both_offsets(self, world: SourceWorld) -> None:
        self.needs("can_lose_records")
        spec = world.create(PATH, primary_key=False)
        for ids in ((0, 1), (2, 3, 4), (5,)):
            world.write(PATH, [(UPSERT, number, "n") for number in ids])
        world.lose(PATH, 0, 2)

        for start, missing in ((0, 2), (3, 3)):
            where = f"read_log from {start}, where the log has lost the offsets from 2 to 4"
            with expect_error(LogGapError, where) as gap:
                read_log(world, spec, start, 6)
            named = (gap.value.expected, gap.value.found)
            assert named == (missing, 5), mismatch(f"{where}: both offsets of the LogGapError", (missing, 5), named)
        check_values(read_log(world, spec, 5, 6), "id", [5], "read_log after the offsets that the log has lost")

    def test_columns_are_the_schema_and_then_change_offset_and_timestamp(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])

        schema = joined(read_log(world, spec, 0, 1)).schema

        names = [*spec.schema.names, CHANGE_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN]
        assert schema.names == names, mismatch("read_log: columns", names, schema.names)
        types = [pa.uint8(), pa.int64(), pa.timestamp("us", tz="UTC")]
        found = [field.type for field in list(schema)[-3:]]
        assert found == types, mismatch("read_log: types of change, offset and timestamp", types, found)
        types = [field.type for field in spec.schema]
        found = [schema.field(field.name).type for field in spec.schema]
        assert found == types, mismatch("read_log: types of the columns of the table", types, found)

    def test_append_only_records_have_the_change_append(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 1, "a")])

        check_values(read_log(world, spec, 0, 2), CHANGE_COLUMN, [Change.APPEND] * 2, "read_log of a log table")

    def test_timestamp_is_the_time_of_the_write(self, world: SourceWorld) -> None:
        self.needs("has_write_times")
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.advance(10)
        world.write(PATH, [(UPSERT, 2, "b")])

        first, second = joined(read_log(world, spec, 0, 2)).column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()

        assert second - first >= 10_000_000, (
            "read_log: expected timestamps of two writes that are 10 s apart to be at least 10,000,000 microseconds "
            f"apart, found {second - first}"
        )

    def test_a_source_without_write_times_says_so_and_gives_none(self, world: SourceWorld) -> None:
        said = has_write_times(world.source)
        assert said is self.has_write_times, mismatch("has_write_times of the source", self.has_write_times, said)
        if self.has_write_times:
            return
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])

        found = joined(read_log(world, spec, 0, 1)).column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()
        where = f"read_log of a source without write times: column {TIMESTAMP_COLUMN!r}, in microseconds"
        assert found == [1000 * NO_TIME_MS], mismatch(where, [1000 * NO_TIME_MS], found)
        since = world.source.pending_since_ms(spec, {})
        assert since is None, mismatch("pending_since_ms of a source without write times", None, since)

    @upsert
    def test_changes_say_what_became_of_the_row(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.write(PATH, [(UPSERT, 1, "b"), (DELETE, 9, "")])
        world.write(PATH, [(DELETE, 1, "")])

        records = joined(read_log(world, spec, 0, 4))

        found = list(zip(records.column(CHANGE_COLUMN).to_pylist(), records.column("name").to_pylist(), strict=True))
        expected = [
            (Change.INSERT, "a"),
            (Change.UPDATE_BEFORE, "a"),
            (Change.UPDATE_AFTER, "b"),
            (Change.DELETE, "b"),
        ]
        assert found == expected, mismatch("read_log of an insert, an update and a delete", expected, found)

    @upsert
    def test_older_records_read_null_in_a_column_that_came_later(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.add_column(PATH, "note")
        world.write(PATH, [(UPSERT, 2, "b")])

        batches = read_log(world, world.source.table(PATH), 0, 2)

        check_values(batches, "note", [None, None], "read_log of records before and after a column was added")
        check_values(batches, "id", [1, 2], "read_log of records before and after a column was added")

    def test_columns_that_are_left_out_are_not_read(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "n"), (UPSERT, 2, "m")])

        batches = read_log(world, without_name(spec), 0, 2)

        check_values(batches, "id", [1, 2], "read_log of a table without its column 'name'")
        names = batches[0].records.schema.names
        assert "name" not in names, mismatch("read_log of a table without its column 'name': columns", ["id"], names)

    def test_empty_batches_still_reach_the_stop(self, world: SourceWorld) -> None:
        self.needs("has_empty_batches")
        spec = world.create(PATH, primary_key=False)
        world.append_empty(PATH, 0, 3)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.append_empty(PATH, 0, 2)

        where = "read_log of a log whose offset 3 alone has a record"
        check_values(read_log(world, spec, 0, 6), OFFSET_COLUMN, [3], where)
        reached = read_log(world, spec, 0, 6)[-1].next_offset
        assert reached == 6, mismatch(f"{where}: next offset of the last batch", 6, reached)
        found = [(batch.next_offset, len(batch.records)) for batch in read_log(world, spec, 4, 6)]
        said = mismatch("read_log of offsets without records: next offset and records of each batch", [(6, 0)], found)
        assert found == [(6, 0)], said

    @chaos
    def test_log_that_was_cleaned_away_is_an_error(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 2, "b")])
        world.write(PATH, [(UPSERT, 3, "c")])
        world.trim(PATH, 0, 2)

        start = only_bucket(world, spec).start
        assert start == 2, mismatch("buckets, where the log before offset 2 was cleaned away: start", 2, start)
        with expect_error(LogTruncatedError, "read_log from 0, where the log before offset 2 was cleaned away"):
            read_log(world, spec, 0, 3)
        check_values(read_log(world, spec, 2, 3), "id", [3], "read_log from the start of a log that was cleaned away")

    # --- snapshots -----------------------------------------------------------------------------------------------

    @upsert
    def test_snapshot_and_the_log_after_it_are_the_table(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, number, "old") for number in range(10)])
        world.write(PATH, [(UPSERT, 1, "new"), (DELETE, 2, "")])
        world.snapshot(PATH)
        world.write(PATH, [(UPSERT, 3, "newest"), (DELETE, 4, ""), (UPSERT, 77, "late")])

        state = only_bucket(world, spec)
        snapshot = state.snapshot
        assert snapshot is not None, "buckets after a KV snapshot: expected the bucket's newest snapshot, found None"
        rows = table_of(read_snapshot(world, spec, snapshot))
        expected = {number: "old" for number in range(10) if number != 2} | {1: "new"}
        assert rows == expected, mismatch("read_snapshot: rows, by id", expected, rows)
        rows = table_of(read_log(world, spec, snapshot.log_offset, state.end), rows)
        del expected[4]
        expected |= {3: "newest", 77: "late"}
        assert rows == expected, mismatch(
            "read_snapshot and then read_log from its offset: rows, by id", expected, rows
        )

    @upsert
    def test_snapshot_rows_are_inserts_without_offset_and_time(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec, snapshot = snapshotted(world)

        batches = read_snapshot(world, spec, snapshot)

        check_values(batches, CHANGE_COLUMN, [Change.INSERT] * 2, "read_snapshot")
        check_values(batches, OFFSET_COLUMN, [-1] * 2, "read_snapshot")
        times = joined(batches).column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()
        said = mismatch(f"read_snapshot: column {TIMESTAMP_COLUMN!r}, in microseconds", [-1000] * 2, times)
        assert times == [-1000] * 2, said
        _check_next_offset(batches, snapshot)

    @pytest.mark.parametrize("skipped", [0, 1, 6, 12, 13])
    @upsert
    def test_snapshot_goes_on_after_the_rows_that_are_skipped(self, world: SourceWorld, skipped: int) -> None:
        self.needs("has_primary_keys")
        spec = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, number, f"n{number}") for number in range(8)])
        world.snapshot(PATH)
        world.write(PATH, [(UPSERT, number, f"n{number}") for number in range(8, 14)])
        world.write(PATH, [(DELETE, 5, "")])
        world.snapshot(PATH)
        snapshot = newest_snapshot(world, spec)

        everything = joined(read_snapshot(world, spec, snapshot))
        rest = read_snapshot(world, spec, snapshot, skipped)

        assert everything.num_rows == 13, mismatch("read_snapshot: rows", 13, everything.num_rows)
        found, expected = joined(rest).to_pylist(), everything.slice(skipped).to_pylist()
        assert found == expected, mismatch(f"read_snapshot with skip_rows = {skipped}: rows", expected, found)
        _check_next_offset(rest, snapshot)

    @chaos
    def test_snapshot_with_fewer_rows_than_are_skipped_is_an_error(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec, snapshot = snapshotted(world)

        where = "read_snapshot of 2 rows with skip_rows = 3"
        with expect_error(CorruptFileError, where, match="at least 3 rows"):
            read_snapshot(world, spec, snapshot, 3)

    @upsert
    def test_snapshot_reads_null_in_a_column_that_came_later(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        _, snapshot = snapshotted(world)
        world.add_column(PATH, "note")

        batches = read_snapshot(world, world.source.table(PATH), snapshot)

        check_values(batches, "note", [None, None], "read_snapshot from before a column was added")

    @upsert
    def test_snapshot_is_read_without_the_columns_that_are_left_out(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec, snapshot = snapshotted(world)

        batches = read_snapshot(world, without_name(spec), snapshot)

        names = batches[0].records.schema.names
        said = mismatch("read_snapshot of a table without its column 'name': columns", ["id"], names)
        assert "name" not in names, said
        assert joined(batches).num_rows == 2, mismatch("read_snapshot: rows", 2, joined(batches).num_rows)

    @chaos
    def test_snapshot_that_was_cleaned_away_is_reported_and_cannot_be_read(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec, snapshot = snapshotted(world)
        supersede(world)

        check_missing(world, [snapshot], {snapshot}, "of a snapshot that was cleaned away")
        with expect_error(SnapshotGoneError, "read_snapshot of a snapshot that was cleaned away"):
            read_snapshot(world, spec, snapshot)

    @upsert
    def test_leased_snapshot_survives_clean_up(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec, snapshot = snapshotted(world)
        protection = world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
        supersede(world)

        assert protection.protects, mismatch("leases.acquire: `protects` of its answer", True, protection.protects)
        until_s = protection.until_s
        assert until_s is not None and 0 < until_s <= 600, (  # noqa: PT018 - one fact
            f"leases.acquire for 600 s: `until_s` of its answer: expected more than 0 and at most 600, found {until_s}"
        )
        check_missing(world, [snapshot], frozenset(), "of a snapshot under a lease, after newer ones came")
        rows = table_of(read_snapshot(world, spec, snapshot))
        expected = {1: "a", 2: "b"}
        assert rows == expected, mismatch("read_snapshot of a snapshot under a lease: rows, by id", expected, rows)

    @upsert
    def test_newest_snapshot_is_never_missing(self, world: SourceWorld) -> None:
        self.needs("has_primary_keys")
        spec, _ = snapshotted(world)
        supersede(world)

        check_missing(world, [newest_snapshot(world, spec)], frozenset(), "of the newest snapshot")


def _check_next_offset(batches: list[SourceBatch], snapshot: KvSnapshot) -> None:
    __tracebackhide__ = True
    found, expected = {batch.next_offset for batch in batches}, {snapshot.log_offset}
    said = mismatch("read_snapshot: next offsets of the batches, that of the log after it", expected, found)
    assert found == expected, said
