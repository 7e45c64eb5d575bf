"""The suite for sources says what is wrong with a source that breaks one promise of the port."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import structs

from lakeward.errors import SourceError, TableGoneError
from lakeward.model.tables import CHANGE_COLUMN, Change
from lakeward_source_embedded.plugin import EmbeddedSourcePlugin
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_testing.source_conformance import SourceConformance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakeward.model.batches import SourceBatch
    from lakeward.model.leases import Protection
    from lakeward.model.splits import LogSplit, SnapshotSplit
    from lakeward.model.tables import BucketState, KvSnapshot, TableBucket, TablePath, TableSpec
    from lakeward.model.tiering import HeartbeatRequest, HeartbeatResponse, LakeRecord
    from lakeward.ports import SnapshotLeases, SourceReader
    from lakeward_source_embedded.store import EmbeddedStore


class ListsNoTable(EmbeddedSource):
    def tables(self) -> Sequence[TableSpec]:
        return ()


class ListsNothingWhereAskedForAll(EmbeddedSource):
    def all_tables(self) -> Sequence[TableSpec]:
        return ()


class InventsATable(EmbeddedSource):
    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        try:
            return super().buckets(table)
        except TableGoneError:
            return ()


class TurnsBucketsAround(EmbeddedSource):
    def buckets(self, table: TableSpec) -> Sequence[BucketState]:
        return tuple(reversed(super().buckets(table)))


class MissesNoSnapshot(EmbeddedSource):
    def missing_snapshots(self, snapshots: Collection[KvSnapshot]) -> frozenset[KvSnapshot]:
        return frozenset()


class KnowsNothingOfWaitingRecords(EmbeddedSource):
    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        return None


class SaysThatItHasNoWriteTimes(EmbeddedSource):
    has_write_times = False


class SaysSinceWhenTheNewestBucketWaits(EmbeddedSource):
    def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
        ends = {state.bucket: state.end for state in self.buckets(table)}
        waiting = []
        for bucket in ends:
            since = super().pending_since_ms(table, ends | {bucket: offsets.get(bucket, 0)})
            waiting += [] if since is None else [since]
        return max(waiting, default=None)


class RefusesNobody(EmbeddedSource):
    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        return replace(super().heartbeat(heartbeat), refused={})


class DropsRenewals(EmbeddedSource):
    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        return super().heartbeat(replace(heartbeat, renewed=()))


class ForgetsToForce(EmbeddedSource):
    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        return super().heartbeat(replace(heartbeat, forced=frozenset()))


class HandsOutWhatNobodyAskedFor(EmbeddedSource):
    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        return super().heartbeat(replace(heartbeat, request=True))


class PromisesAnotherFreshness(EmbeddedSource):
    def heartbeat(self, heartbeat: HeartbeatRequest) -> HeartbeatResponse:
        response = super().heartbeat(heartbeat)
        if response.assignment is None:
            return response
        changed = replace(response.assignment, freshness_s=1000 * response.assignment.freshness_s)
        return replace(response, assignment=changed)


class MakesNothingDue(EmbeddedSource):
    def make_due(self, paths: Collection[TablePath]) -> bool:
        return True


class CannotBeAskedAndDoesNotSaySo(EmbeddedSource):
    def make_due(self, paths: Collection[TablePath]) -> bool:
        return False


class PreparesNothing(EmbeddedSource):
    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        return super().prepare(table, {})


class RemembersNoLake(EmbeddedSource):
    def lake_record(self, table: TableSpec) -> LakeRecord | None:
        return None


class PutsWhatIsPreparedOnRecord(EmbeddedSource):
    def prepare(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> str:
        place = super().prepare(table, offsets)
        self.commit(table, 1, place, offsets)
        return place


class ClosesOnce(EmbeddedSource):
    _closed = False

    def close(self) -> None:
        if self._closed:
            message = "it is closed"
            raise SourceError(message)
        self._closed = True


class _Leases:
    """Right leases of a store; the wrong ones differ in `acquire`."""

    def __init__(self, right: SnapshotLeases) -> None:
        self._right = right

    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        return self._right.acquire(lease_id, duration_s, snapshots)

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        self._right.release(lease_id, buckets)

    def drop(self, lease_id: str) -> None:
        self._right.drop(lease_id)


class _ForgetfulLeases(_Leases):
    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        self.drop(lease_id)
        return super().acquire(lease_id, duration_s, snapshots)


class _BoastfulLeases(_Leases):
    def acquire(self, lease_id: str, duration_s: float, snapshots: Mapping[TableBucket, int]) -> Protection:
        return replace(super().acquire(lease_id, duration_s, snapshots), until_s=10 * duration_s)


class ForgetsOtherBucketsOfALease(EmbeddedSource):
    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(store)
        self.leases = _ForgetfulLeases(store.lease_table)


class SaysThatALeaseLivesLonger(EmbeddedSource):
    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(store)
        self.leases = _BoastfulLeases(store.lease_table)


class _Reads(EmbeddedSource):
    """A right source whose reader is wrong."""

    def change(self, batch: SourceBatch) -> SourceBatch:
        return batch

    def log(self, reader: SourceReader, split: LogSplit) -> Iterator[SourceBatch]:
        yield from map(self.change, reader.read_log(split))

    def snapshot(self, reader: SourceReader, split: SnapshotSplit, skip_rows: int) -> Iterator[SourceBatch]:
        yield from map(self.change, reader.read_snapshot(split, skip_rows))


class StopsOneRecordEarly(_Reads):
    def log(self, reader: SourceReader, split: LogSplit) -> Iterator[SourceBatch]:
        return super().log(reader, structs.replace(split, stop=max(split.start, split.stop - 1)))


class YieldsNoBatchWhereThereIsNoRecord(_Reads):
    def log(self, reader: SourceReader, split: LogSplit) -> Iterator[SourceBatch]:
        return (batch for batch in super().log(reader, split) if batch.records.num_rows)


class SaysANextOffsetThatIsOneTooLow(_Reads):
    def change(self, batch: SourceBatch) -> SourceBatch:
        return replace(batch, next_offset=batch.next_offset - 1)


class CallsEachChangeAnInsert(_Reads):
    def change(self, batch: SourceBatch) -> SourceBatch:
        place = batch.records.schema.get_field_index(CHANGE_COLUMN)
        kinds = pa.repeat(pa.scalar(Change.INSERT, pa.uint8()), batch.records.num_rows)
        return replace(batch, records=batch.records.set_column(place, CHANGE_COLUMN, kinds))


class LeavesOutTheSystemColumns(_Reads):
    def change(self, batch: SourceBatch) -> SourceBatch:
        return replace(batch, records=batch.records.select(batch.records.schema.names[:-3]))


class ReadsSkippedRowsAgain(_Reads):
    def snapshot(self, reader: SourceReader, split: SnapshotSplit, skip_rows: int) -> Iterator[SourceBatch]:
        return super().snapshot(reader, split, 0)


class _Reader:
    def __init__(self, source: _Reads, reader: SourceReader) -> None:
        self._source, self._reader = source, reader

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        return self._source.log(self._reader, split)

    def read_snapshot(self, split: SnapshotSplit, skip_rows: int = 0) -> Iterator[SourceBatch]:
        return self._source.snapshot(self._reader, split, skip_rows)


class _Suite(SourceConformance):
    can_lose_records = True


WRONG: list[tuple[type[EmbeddedSource], str, str]] = [
    (
        ListsNoTable,
        "test_tables_are_listed_and_found_by_name",
        r"tables: ids of the tables: expected {\d, \d}, found set\(\)",
    ),
    (
        ListsNothingWhereAskedForAll,
        "test_tables_are_listed_and_found_by_name",
        r"all_tables: ids, those of `tables` among them: expected {\d, \d}, found set\(\)",
    ),
    (
        InventsATable,
        "test_dropped_and_recreated_table_is_another_one",
        "buckets of a table that was dropped and made anew: expected TableGoneError, found no error",
    ),
    (
        TurnsBucketsAround,
        "test_buckets_come_in_order_with_ends_and_partitions",
        r"buckets: partitions, in the order of their ids: expected \[\('mon',\), .*, found \[\('tue',\), ",
    ),
    (
        MissesNoSnapshot,
        "test_snapshot_that_was_cleaned_away_is_reported_and_cannot_be_read",
        r"missing_snapshots of a snapshot that was cleaned away: expected {KvSnapshot\(.*, found frozenset\(\)",
    ),
    (
        KnowsNothingOfWaitingRecords,
        "test_pending_since_is_the_time_of_the_oldest_record",
        r"pending_since_ms, where records from offset 0 on are not in the lake: expected \d+, found None",
    ),
    (
        SaysThatItHasNoWriteTimes,
        "test_a_source_without_write_times_says_so",
        "has_write_times of the source: expected True, found False",
    ),
    (
        SaysSinceWhenTheNewestBucketWaits,
        "test_pending_since_is_that_of_the_bucket_which_waits_longest",
        r"pending_since_ms, where both buckets wait: the time of the oldest record: expected \d+000, found \d+1000$",
    ),
    (
        RefusesNobody,
        "test_silent_holder_is_fenced_and_the_table_given_away",
        "heartbeat that renews a table which another caller has: refused tables, .*: expected .*FENCED.*, found {}",
    ),
    (
        DropsRenewals,
        "test_renewed_table_is_kept",
        r"heartbeat .*, where the only table was renewed in time: assignment: expected None, found TableAssignment\(",
    ),
    (
        ForgetsToForce,
        "test_forced_and_failed_tables_come_back_at_once",
        "heartbeat that finishes a table and forces it: expected the table again, found None",
    ),
    (
        HandsOutWhatNobodyAskedFor,
        "test_table_is_not_handed_out_unless_one_is_asked_for",
        r"heartbeat that asks for no table, where one is due: assignment: expected None, found TableAssignment\(",
    ),
    (
        PromisesAnotherFreshness,
        "test_table_is_handed_to_one_caller",
        r"heartbeat .*: freshness_s of the assignment, that of the table: expected 60.0, found 60000.0",
    ),
    (
        MakesNothingDue,
        "test_table_made_due_is_handed_out_at_once",
        "heartbeat after make_due said that the table is due: expected it, found None",
    ),
    (
        CannotBeAskedAndDoesNotSaySo,
        "test_table_made_due_is_handed_out_at_once",
        "make_due of a source with can_make_due = True: expected True, found False",
    ),
    (
        PreparesNothing,
        "test_prepared_offsets_can_be_read_and_are_not_on_record",
        r"read_offsets of what prepare stored: expected {TableBucket\(.*, found {}",
    ),
    (
        RemembersNoLake,
        "test_committed_snapshot_is_on_record",
        "lake_record after a commit: expected the committed lake snapshot, found None",
    ),
    (
        PutsWhatIsPreparedOnRecord,
        "test_prepared_offsets_can_be_read_and_are_not_on_record",
        r"lake_record after prepare, without a commit: expected None, found LakeRecord\(",
    ),
    (
        ClosesOnce,
        "test_closing_twice_is_harmless",
        "close of a source that was closed before: expected no error, found SourceError: it is closed",
    ),
    (
        ForgetsOtherBucketsOfALease,
        "test_acquiring_one_bucket_leaves_the_lease_its_others",
        r"missing_snapshots of a lease's first bucket, .*: expected {KvSnapshot\([^}]*bucket=2\).*, found frozenset",
    ),
    (
        SaysThatALeaseLivesLonger,
        "test_leased_snapshot_survives_clean_up",
        "leases.acquire for 600 s: `until_s` of its answer: expected more than 0 and at most 600, found 6000",
    ),
    (
        YieldsNoBatchWhereThereIsNoRecord,
        "test_log_split_gives_exactly_the_offsets_from_start_to_stop",
        "read_log from 3 to 3: expected a batch with the next offset 3, .*, found no batch",
    ),
    (
        StopsOneRecordEarly,
        "test_each_offset_is_a_record_or_is_said_to_hold_none",
        "read_log: next offset of the last batch: expected 15, found 14",
    ),
    (
        SaysANextOffsetThatIsOneTooLow,
        "test_next_offset_follows_the_last_record_of_each_batch",
        "read_log: next offset, one after the batch's last record: expected 9, found 8",
    ),
    (
        CallsEachChangeAnInsert,
        "test_changes_say_what_became_of_the_row",
        r"read_log of an insert, an update and a delete: expected \[\(1, 'a'\), \(2, .*, found \[\(1, 'a'\), \(1, ",
    ),
    (
        LeavesOutTheSystemColumns,
        "test_columns_are_the_schema_and_then_change_offset_and_timestamp",
        r"read_log: columns: expected \[.*'__change', .*\], found \['id', 'name', 'day'\]",
    ),
    (
        ReadsSkippedRowsAgain,
        "test_snapshot_goes_on_after_the_rows_that_are_skipped",
        r"read_snapshot with skip_rows = 6: rows: expected \[{'id': 7, ",
    ),
]


CASES: dict[str, dict[str, int]] = {"are_skipped": {"skipped": 6}, "from_start_to_stop": {"start": 3, "stop": 3}}
"""By a part of a test's name: the case that is run of it."""


def verdict(world: Any, make: type[EmbeddedSource], store: EmbeddedStore, test: str) -> str:  # noqa: ANN401 - of conftest.py
    """Run one test of the suite, which is named by how its name begins; return what it says, "" where nothing."""
    source = make(store)
    world.source = source
    if isinstance(source, _Reads):
        plugin = EmbeddedSourcePlugin()
        world.reader = lambda table: _Reader(source, plugin.reader(source.reader_task(table), table))
    (name,) = [one for one in dir(_Suite) if one.startswith(test)]
    case = next((case for word, case in CASES.items() if word in name), {})
    try:
        getattr(_Suite(), name)(world, **case)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error is the suite's verdict
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("test", sorted({test for _, test, _ in WRONG}))
def test_the_suite_finds_nothing_wrong_with_a_right_source(
    embedded_world: object, store: EmbeddedStore, test: str
) -> None:
    assert not verdict(embedded_world, EmbeddedSource, store, test)


@pytest.mark.parametrize(("wrong", "test", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_the_suite_says_what_is_wrong_with_a_source_that(
    embedded_world: object, store: EmbeddedStore, wrong: type[EmbeddedSource], test: str, message: str
) -> None:
    said = verdict(embedded_world, wrong, store, test)
    assert re.search(message, said.partition("\n")[0]), said


def test_there_is_a_mistake_for_each_wrong_source() -> None:
    known = {*EmbeddedSource.__subclasses__(), *_Reads.__subclasses__()} - {_Reads}
    assert {wrong for wrong, _, _ in WRONG} == {one for one in known if one.__module__ == __name__}
