"""What every source must do when a subtask reads log splits and snapshot splits."""

# ruff: noqa: S101, D102, PLR2004 - a conformance suite asserts; the name of each test states its fact
from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError, LogGapError, LogTruncatedError, SnapshotGoneError
from lakeward.model.tables import (
    CHANGE_COLUMN,
    OFFSET_COLUMN,
    TIMESTAMP_COLUMN,
    Change,
)
from lakeward.testing.levels import Conformance, chaos, upsert
from lakeward.testing.source_steps import (
    DELETE,
    PATH,
    UPSERT,
    joined,
    only_bucket,
    read_log,
    read_snapshot,
    snapshotted,
    supersede,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.testing.source_world import SourceWorld


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

        records = joined(batches)
        assert records.column(OFFSET_COLUMN).to_pylist() == list(range(start, stop))
        assert records.column("id").to_pylist() == list(range(start, stop))
        assert batches[-1].next_offset == stop

    def test_next_offset_follows_the_last_record_of_each_batch(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        for number in range(5):
            world.write(PATH, [(UPSERT, number, "n"), (UPSERT, number, "m")])

        for batch in read_log(world, spec, 1, 9):
            assert batch.next_offset == batch.records.column(OFFSET_COLUMN)[-1].as_py() + 1

    def test_each_offset_is_a_record_or_is_said_to_hold_none(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        for number in range(3):
            world.write(PATH, [(UPSERT, number, "n")] * 3)
            if self.has_empty_batches:
                world.append_empty(PATH, 0, 2)
        end = only_bucket(world, spec).end

        reached = 1
        for batch in read_log(world, spec, 1, end):
            assert batch.empty_offsets is not None
            assert batch.records.num_rows + batch.empty_offsets == batch.next_offset - reached
            reached = batch.next_offset
        assert reached == end

    @chaos
    def test_hole_in_the_log_is_an_error_that_names_both_offsets(self, world: SourceWorld) -> None:
        self.needs("can_lose_records")
        spec = world.create(PATH, primary_key=False)
        for ids in ((0, 1), (2, 3, 4), (5,)):
            world.write(PATH, [(UPSERT, number, "n") for number in ids])
        world.lose(PATH, 0, 2)

        with pytest.raises(LogGapError) as gap:
            read_log(world, spec, 0, 6)
        assert (gap.value.expected, gap.value.found) == (2, 5)
        with pytest.raises(LogGapError) as gap:
            read_log(world, spec, 3, 6)
        assert (gap.value.expected, gap.value.found) == (3, 5)
        assert joined(read_log(world, spec, 5, 6)).column("id").to_pylist() == [5]

    def test_columns_are_the_schema_and_then_change_offset_and_timestamp(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])

        schema = joined(read_log(world, spec, 0, 1)).schema

        assert schema.names == [*spec.schema.names, CHANGE_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN]
        assert [field.type for field in list(schema)[-3:]] == [pa.uint8(), pa.int64(), pa.timestamp("us", tz="UTC")]
        assert [schema.field(field.name).type for field in spec.schema] == [field.type for field in spec.schema]

    def test_append_only_records_have_the_change_append(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 1, "a")])

        assert joined(read_log(world, spec, 0, 2)).column(CHANGE_COLUMN).to_pylist() == [Change.APPEND] * 2

    def test_timestamp_is_the_time_of_the_write(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.advance(10)
        world.write(PATH, [(UPSERT, 2, "b")])

        first, second = joined(read_log(world, spec, 0, 2)).column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist()

        assert second - first >= 10_000_000

    @upsert
    def test_changes_say_what_became_of_the_row(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.write(PATH, [(UPSERT, 1, "b"), (DELETE, 9, "")])
        world.write(PATH, [(DELETE, 1, "")])

        records = joined(read_log(world, spec, 0, 4))

        assert list(
            zip(records.column(CHANGE_COLUMN).to_pylist(), records.column("name").to_pylist(), strict=True)
        ) == [
            (Change.INSERT, "a"),
            (Change.UPDATE_BEFORE, "a"),
            (Change.UPDATE_AFTER, "b"),
            (Change.DELETE, "b"),
        ]

    @upsert
    def test_older_records_read_null_in_a_column_that_came_later(self, world: SourceWorld) -> None:
        world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.add_column(PATH, "note")
        world.write(PATH, [(UPSERT, 2, "b")])

        records = joined(read_log(world, world.source.table(PATH), 0, 2))

        assert records.column("note").to_pylist() == [None, None]
        assert records.column("id").to_pylist() == [1, 2]

    def test_empty_batches_still_reach_the_stop(self, world: SourceWorld) -> None:
        self.needs("has_empty_batches")
        spec = world.create(PATH, primary_key=False)
        world.append_empty(PATH, 0, 3)
        world.write(PATH, [(UPSERT, 1, "a")])
        world.append_empty(PATH, 0, 2)

        assert joined(read_log(world, spec, 0, 6)).column(OFFSET_COLUMN).to_pylist() == [3]
        assert read_log(world, spec, 0, 6)[-1].next_offset == 6
        assert [(batch.next_offset, len(batch.records)) for batch in read_log(world, spec, 4, 6)] == [(6, 0)]

    @chaos
    def test_log_that_was_cleaned_away_is_an_error(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=False)
        world.write(PATH, [(UPSERT, 1, "a"), (UPSERT, 2, "b")])
        world.write(PATH, [(UPSERT, 3, "c")])
        world.trim(PATH, 0, 2)

        assert only_bucket(world, spec).start == 2
        with pytest.raises(LogTruncatedError):
            read_log(world, spec, 0, 3)
        assert joined(read_log(world, spec, 2, 3)).column("id").to_pylist() == [3]

    # --- snapshots -----------------------------------------------------------------------------------------------

    @upsert
    def test_snapshot_and_the_log_after_it_are_the_table(self, world: SourceWorld) -> None:
        spec = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, number, "old") for number in range(10)])
        world.write(PATH, [(UPSERT, 1, "new"), (DELETE, 2, "")])
        world.snapshot(PATH)
        world.write(PATH, [(UPSERT, 3, "newest"), (DELETE, 4, ""), (UPSERT, 77, "late")])

        state = only_bucket(world, spec)
        assert state.snapshot is not None
        rows = table_of(read_snapshot(world, spec, state.snapshot))
        expected = {number: "old" for number in range(10) if number != 2} | {1: "new"}
        assert rows == expected
        rows = table_of(read_log(world, spec, state.snapshot.log_offset, state.end), rows)
        del expected[4]
        assert rows == expected | {3: "newest", 77: "late"}

    @upsert
    def test_snapshot_rows_are_inserts_without_offset_and_time(self, world: SourceWorld) -> None:
        spec, snapshot = snapshotted(world)

        batches = read_snapshot(world, spec, snapshot)

        records = joined(batches)
        assert records.column(CHANGE_COLUMN).to_pylist() == [Change.INSERT] * 2
        assert records.column(OFFSET_COLUMN).to_pylist() == [-1] * 2
        assert records.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_pylist() == [-1000] * 2
        assert {batch.next_offset for batch in batches} == {snapshot.log_offset}

    @pytest.mark.parametrize("skipped", [0, 1, 6, 12, 13])
    @upsert
    def test_snapshot_goes_on_after_the_rows_that_are_skipped(self, world: SourceWorld, skipped: int) -> None:
        spec = world.create(PATH, primary_key=True)
        world.write(PATH, [(UPSERT, number, f"n{number}") for number in range(8)])
        world.snapshot(PATH)
        world.write(PATH, [(UPSERT, number, f"n{number}") for number in range(8, 14)])
        world.write(PATH, [(DELETE, 5, "")])
        world.snapshot(PATH)
        snapshot = only_bucket(world, spec).snapshot
        assert snapshot is not None

        everything = joined(read_snapshot(world, spec, snapshot))
        rest = read_snapshot(world, spec, snapshot, skipped)

        assert everything.num_rows == 13
        assert joined(rest).to_pylist() == everything.slice(skipped).to_pylist()
        assert {batch.next_offset for batch in rest} == {snapshot.log_offset}

    @chaos
    def test_snapshot_with_fewer_rows_than_are_skipped_is_an_error(self, world: SourceWorld) -> None:
        spec, snapshot = snapshotted(world)

        with pytest.raises(CorruptFileError, match="at least 3 rows"):
            read_snapshot(world, spec, snapshot, 3)

    @upsert
    def test_snapshot_reads_null_in_a_column_that_came_later(self, world: SourceWorld) -> None:
        _, snapshot = snapshotted(world)
        world.add_column(PATH, "note")

        records = joined(read_snapshot(world, world.source.table(PATH), snapshot))

        assert records.column("note").to_pylist() == [None, None]

    @chaos
    def test_snapshot_that_was_cleaned_away_is_reported_and_cannot_be_read(self, world: SourceWorld) -> None:
        spec, snapshot = snapshotted(world)
        supersede(world)

        assert world.source.missing_snapshots([snapshot]) == {snapshot}
        with pytest.raises(SnapshotGoneError):
            read_snapshot(world, spec, snapshot)

    @upsert
    def test_leased_snapshot_survives_clean_up(self, world: SourceWorld) -> None:
        spec, snapshot = snapshotted(world)
        protection = world.source.leases.acquire("lease-a", 600, {snapshot.bucket: snapshot.snapshot_id})
        supersede(world)

        assert protection.protects
        assert world.source.missing_snapshots([snapshot]) == frozenset()
        assert table_of(read_snapshot(world, spec, snapshot)) == {1: "a", 2: "b"}

    @upsert
    def test_newest_snapshot_is_never_missing(self, world: SourceWorld) -> None:
        spec, _ = snapshotted(world)
        supersede(world)

        newest = only_bucket(world, spec).snapshot
        assert newest is not None
        assert world.source.missing_snapshots([newest]) == frozenset()
