"""Which subtask gets a row."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.model.partitioning import PartitionField
from lakeward.model.tables import BUCKET_COLUMN
from lakeward.subtask.exchange.routing import Routing
from lakeward_testing.folder_lake import FolderPartitioner


def routing(*, by_bucket: bool, subtasks: int = 7) -> Routing:
    return Routing(FolderPartitioner((PartitionField.parse("color"),)), subtasks, by_bucket=by_bucket)


def records(buckets: list[int]) -> pa.RecordBatch:
    colors = [f"color {number % 10}" for number in range(len(buckets))]
    return pa.RecordBatch.from_pydict({"color": colors, BUCKET_COLUMN: pa.array(buckets, pa.int32())})


def owners(route: Routing, rows: pa.RecordBatch) -> dict[tuple[str, int], int]:
    return {
        (row["color"], row[BUCKET_COLUMN]): consumer
        for consumer, part in route.divide(rows)
        for row in part.to_pylist()
    }


@pytest.mark.parametrize("by_bucket", [True, False])
def test_rows_of_one_bucket_go_where_they_go_among_rows_of_others(*, by_bucket: bool) -> None:
    route = routing(by_bucket=by_bucket)
    mixed = owners(route, records([number // 10 for number in range(40)]))

    alone = {key: one for bucket in range(4) for key, one in owners(route, records([bucket] * 10)).items()}

    assert alone == mixed
    assert len(set(mixed.values())) > 1
    assert (len({mixed["color 0", bucket] for bucket in range(4)}) > 1) == by_bucket


@settings(deadline=None)  # the first example loads what the others find
@given(
    keys=st.lists(st.tuples(st.text(max_size=3), st.integers(0, 20)), min_size=1, max_size=60),
    before=st.integers(1, 16),
    after=st.integers(1, 16),
    by_bucket=st.booleans(),
)
def test_39_each_row_of_an_old_channel_is_kept_by_one_new_subtask_that_owns_it(
    keys: list[tuple[str, int]], before: int, after: int, *, by_bucket: bool
) -> None:
    colors, buckets = zip(*keys, strict=True)
    rows = pa.RecordBatch.from_pydict(
        {"color": [*colors], BUCKET_COLUMN: pa.array(buckets, pa.int32()), "row": [*range(len(keys))]}
    )
    route = routing(by_bucket=by_bucket, subtasks=after)
    sent_to = {row: to for to, part in route.divide(rows) for row in part.column("row").to_pylist()}
    for _, channel in routing(by_bucket=by_bucket, subtasks=before).divide(rows):
        kept = {subtask: route.only(channel, subtask).column("row").to_pylist() for subtask in range(after)}
        sent = channel.column("row").to_pylist()
        assert sorted(row for part in kept.values() for row in part) == sorted(sent)
        assert all(sent_to[row] == subtask for subtask, part in kept.items() for row in part)
        assert all(part == [row for row in sent if row in part] for part in kept.values())


@settings(deadline=None)  # as above
@given(keys=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=40))
def test_rows_of_one_partition_and_bucket_follow_one_another_in_a_channel_in_their_order(
    keys: list[tuple[str, int]],
) -> None:
    colors, buckets = zip(*keys, strict=True)
    rows = pa.RecordBatch.from_pydict(
        {"color": [*colors], BUCKET_COLUMN: pa.array(buckets, pa.int32()), "row": [*range(len(keys))]}
    )
    channels = [*routing(by_bucket=True, subtasks=2).divide(rows)]
    for _, channel in channels:
        sent = channel.column("row").to_pylist()
        assert all(part == sorted(part) for part in ([row for row in sent if keys[row] == key] for key in set(keys)))
        if len(channels) > 1:  # where all rows have one consumer, nothing is copied
            assert len([*groupby(sent, key=lambda row: keys[row])]) == len({keys[row] for row in sent})


def test_each_row_is_kept_by_one_subtask_of_those_that_read_it_back() -> None:
    rows = records([1] * 10)
    kept = [routing(by_bucket=True).only(rows, subtask).column("color").to_pylist() for subtask in range(7)]
    assert sorted(color for part in kept for color in part) == sorted(rows.column("color").to_pylist())
