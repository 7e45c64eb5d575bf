"""Which splits a round is made of, one rule at a time."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import LogTruncatedError, OffsetsBeyondLogError
from lakeward.machines.splits import Enumeration, enumerate_splits
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import BucketState, KvSnapshot, TableBucket

if TYPE_CHECKING:
    from collections.abc import Callable


def bucket(number: int, partition: int | None = None) -> TableBucket:
    """A bucket of table 5."""
    return TableBucket(5, partition, number)


def state(number: int, start: int, end: int, snapshot: tuple[int, int] | None = None) -> BucketState:
    """A bucket's state; `snapshot` is id and log offset."""
    where = bucket(number)
    return BucketState(where, (), start, end, None if snapshot is None else KvSnapshot(where, *snapshot))


def log_table(*states: BucketState, tiered: dict[int, int] | None = None, max_split_rows: int = 0) -> Enumeration:
    """Enumerate an append-only table."""
    offsets = {bucket(number): offset for number, offset in (tiered or {}).items()}
    return enumerate_splits(states, offsets, primary_key=False, max_split_rows=max_split_rows)


def key_table(*states: BucketState, tiered: dict[int, int] | None = None) -> Enumeration:
    """Enumerate a primary-key table; its logs are never divided."""
    offsets = {bucket(number): offset for number, offset in (tiered or {}).items()}
    return enumerate_splits(states, offsets, primary_key=True, max_split_rows=1)


def test_a_never_tiered_log_bucket_is_read_from_the_start_of_its_log() -> None:
    """What retention removed before was never promised."""
    found = log_table(state(0, 40, 100))
    assert found.splits == (LogSplit("b0-40", bucket(0), (), 40, 100),)
    assert found.offsets == {}


def test_a_tiered_bucket_is_read_from_its_offset() -> None:
    """For both kinds of tables, whatever snapshots there are."""
    expected = (LogSplit("b0-60", bucket(0), (), 60, 100),)
    assert log_table(state(0, 0, 100), tiered={0: 60}).splits == expected
    assert key_table(state(0, 0, 100, (9, 80)), tiered={0: 60}).splits == expected


def test_a_bucket_without_new_records_gives_no_split() -> None:
    found = log_table(state(0, 0, 60), state(1, 20, 20), state(2, 0, 0), state(3, 7, 7), tiered={0: 60, 1: 20})
    assert found == Enumeration((), {bucket(0): 60, bucket(1): 20}, (), behind=False)


def test_never_tiered_late_rows_of_a_keyed_table_are_read_from_the_start_of_their_log() -> None:
    """What they replace is of partitions that the source has dropped; a partition of its own has all its rows."""
    late, own = state(0, 40, 100), BucketState(bucket(1, 3), ("mon",), 40, 100, None)
    found = enumerate_splits([late], {}, primary_key=True, max_split_rows=0, late_rows=True)
    assert found.splits == (LogSplit("b0-40", bucket(0), (), 40, 100),)
    with pytest.raises(LogTruncatedError):
        enumerate_splits([own], {}, primary_key=True, max_split_rows=0, late_rows=True)
    with pytest.raises(LogTruncatedError):
        enumerate_splits([late], {bucket(0): 30}, primary_key=True, max_split_rows=0, late_rows=True)


@pytest.mark.parametrize("enumerate_table", [log_table, key_table])
def test_offsets_beyond_the_end_of_the_log_are_an_error_that_names_both(
    enumerate_table: Callable[..., Enumeration],
) -> None:
    """A source that was re-created starts its offsets over: what it writes below ours would never reach the lake."""
    expected = "bucket 5/1: the lake has all records below offset 60, the log ends at 20"
    with pytest.raises(OffsetsBeyondLogError, match=expected):
        enumerate_table(state(0, 0, 100), state(1, 0, 20), tiered={0: 60, 1: 60})


def test_a_never_tiered_key_bucket_with_a_snapshot_gives_a_snapshot_split() -> None:
    """The next round reads the log after it: `behind`."""
    found = key_table(state(0, 50, 100, (9, 80)))
    assert found.splits == (SnapshotSplit("b0-s9", bucket(0), (), 9, 80),)
    assert found.snapshots == (KvSnapshot(bucket(0), 9, 80),)
    assert (found.offsets, found.behind) == ({}, True)
    assert not key_table(state(0, 50, 80, (9, 80))).behind


def test_a_never_tiered_key_bucket_without_a_snapshot_is_read_from_zero() -> None:
    """In one piece: changes of a key stay in order."""
    assert key_table(state(0, 0, 100)).splits == (LogSplit("b0-0", bucket(0), (), 0, 100),)


@pytest.mark.parametrize(
    ("primary_key", "cleaned", "tiered", "expected"),
    [
        (False, state(3, 50, 100), {bucket(3): 20}, 20),
        (True, state(3, 50, 100), {bucket(3): 20}, 20),
        (True, state(3, 50, 100), {}, 0),
        (True, state(3, 50, 50), {}, 0),
        (True, state(3, 50, 100, (9, 40)), {}, 40),
    ],
)
def test_records_cleaned_before_they_were_tiered_are_an_error_that_names_them(
    primary_key: bool, cleaned: BucketState, tiered: dict[TableBucket, int], expected: int
) -> None:
    """Bucket, the offset that was expected, and where the log starts."""
    with pytest.raises(LogTruncatedError, match=f"bucket 5/3: expected offset {expected}, the log starts at 50"):
        enumerate_splits([state(0, 0, 10), cleaned], tiered, primary_key=primary_key, max_split_rows=0)


def test_the_error_names_few_of_many_buckets() -> None:
    """And names how many more there are."""
    with pytest.raises(LogTruncatedError, match=r"bucket 5/4: .* \(and 7 more buckets\)$"):
        key_table(*(state(number, 5, 9) for number in range(12)))


def test_snapshot_splits_come_first_and_longer_log_splits_before_shorter_ones() -> None:
    """So that the last ones to be read are short."""
    found = key_table(state(0, 0, 10), state(1, 0, 90, (4, 30)), state(2, 0, 50), state(3, 0, 90, (4, 80)))
    assert [split.split_id for split in found.splits] == ["b3-s4", "b1-s4", "b2-0", "b0-0"]


def test_a_log_is_cut_into_even_ranges_that_cover_it() -> None:
    """Of at most `max_split_rows` offsets, handed out from the first on."""
    found = log_table(state(0, 5, 15), tiered={}, max_split_rows=4)
    assert [(split.start, split.stop) for split in found.splits if isinstance(split, LogSplit)] == [
        (5, 9),
        (9, 12),
        (12, 15),
    ]
    assert len({split.split_id for split in found.splits}) == 3


def test_offsets_of_a_dropped_partition_stay_and_those_of_an_earlier_table_go() -> None:
    """A table that was dropped and created anew starts afresh."""
    gone, earlier = bucket(0, partition=8), TableBucket(4, None, 0)
    found = enumerate_splits([state(0, 0, 9)], {gone: 7, earlier: 5}, primary_key=False, max_split_rows=0)
    assert found.offsets == {gone: 7}
    assert found.splits == (LogSplit("b0-0", bucket(0), (), 0, 9),)


def test_ids_of_partitioned_splits_name_the_partition() -> None:
    """They are safe in paths."""
    where = bucket(2, partition=31)
    states = [BucketState(where, ("2026",), 0, 9, KvSnapshot(where, 6, 9))]
    assert enumerate_splits(states, {}, primary_key=True, max_split_rows=0).splits[0].split_id == "p31-b2-s6"
    assert enumerate_splits(states, {where: 3}, primary_key=True, max_split_rows=0).splits[0].split_id == "p31-b2-3"


def test_ten_thousand_buckets_are_enumerated_in_well_under_a_second() -> None:
    """CPU seconds, so that a busy machine fails nothing; the whole budget is one second, with the source's answer.

    What thousands of other tests left in this process is not searched for garbage meanwhile: that takes half a second.
    """
    states = [state(number, 0, 1000 + number) for number in range(10_000)]
    gc.freeze()
    started = time.process_time()
    splits = log_table(*states, max_split_rows=100_000).splits
    seconds = time.process_time() - started
    gc.unfreeze()
    assert len(splits) == 10_000
    assert seconds < 0.5


def test_live_snapshot_is_read_and_not_leased() -> None:
    live = KvSnapshot(bucket(0), 0, 90, live=True)
    found = enumerate_splits([BucketState(bucket(0), (), 0, 90, live)], {}, primary_key=True, max_split_rows=0)
    assert found.splits == (SnapshotSplit("b0-s0", bucket(0), (), 0, 90, live=True),)
    assert found.snapshots == ()
    assert not found.behind
