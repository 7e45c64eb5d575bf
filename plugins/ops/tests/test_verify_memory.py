"""`lakeward verify` holds about as much memory as it is given, however large the table is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.tables import BucketState, Change, TableBucket
from lakeward.ports import SourceBatch
from lakeward_ops.verify.verification import Sides, VerifyOptions, verify_table
from lakeward_testing.lake_tables import key_table, log_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.model.splits import LogSplit
    from lakeward.model.tables import TablePath, TableSpec

MEMORY = 4 << 20
ROWS = 2_000
"""Rows of a batch."""
WIDE = "x" * 200
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
SMALL, LARGE = 15, 150
"""Batches of two tables: 7 and 70 MB."""
_POOLS: list[Any] = []
"""A memory pool has to outlive everything that was allocated from it."""


class Generated:
    """Source, its reader and lake of one bucket, whose batches are made when they are asked for."""

    def __init__(self, batches: int, kind: str) -> None:
        self.bucket = TableBucket(7, None, 0)
        self.end = batches * ROWS
        self.kind = kind

    def buckets(self, table: TableSpec) -> list[BucketState]:
        return [BucketState(self.bucket, (), 0, self.end, None)]

    def read_log(self, split: LogSplit) -> Iterator[SourceBatch]:
        for start in range(split.start, split.stop, ROWS):
            records = self._batch(start).append_column("__change", pa.array([Change.INSERT] * ROWS, pa.uint8()))
            yield SourceBatch(records, start + ROWS)

    def read_rows(self, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
        yield self._lake_batch(0).slice(0, 0)
        for start in reversed(range(0, self.end, ROWS)):
            yield self._lake_batch(start)

    def _batch(self, start: int) -> pa.RecordBatch:
        records = _batch(start)
        return records.set_column(0, "id", pa.array([1] * ROWS)) if self.kind == "one row" else records

    def _lake_batch(self, start: int) -> pa.RecordBatch:
        records = self._batch(start)
        if self.kind != "named":
            return records.select(["id", "name"])
        return records.append_column("__bucket", pa.array([0] * ROWS, pa.int32()))


def _batch(start: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + ROWS)
    times = pa.array(numbers, pa.timestamp("us", "UTC"))
    columns = {"id": numbers, "name": [WIDE] * ROWS, "__offset": numbers, "__timestamp": times}
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture
def pool() -> Iterator[Any]:
    """Count what Arrow allocates during a test."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    _POOLS.append(counting)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


@pytest.mark.parametrize("batches", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("table", "kind"),
    [
        pytest.param(log_table(SCHEMA), "named", id="log"),
        pytest.param(key_table(SCHEMA), "named", id="keyed"),
        pytest.param(log_table(SCHEMA), "nameless", id="log-without-system-columns"),
        pytest.param(key_table(SCHEMA), "nameless", id="keyed-without-system-columns"),
        pytest.param(log_table(SCHEMA), "one row", id="log-of-one-row-without-system-columns"),
    ],
)
def test_memory_is_bounded_by_what_is_given_and_not_by_the_table(
    tmp_path: Path,
    pool: Any,  # noqa: ANN401 - as the fixture
    table: TableSpec,
    kind: str,
    batches: int,
) -> None:
    both: Any = Generated(batches, kind)
    tiered = {both.bucket: both.end}
    head = LakeHead(table.path, 7, "/w", 55, None, OffsetCommit(55, tiered, None, None, None, None, 0))
    options = VerifyOptions(tmp_path / "spill", available=False, most=10, memory_bytes=MEMORY)
    found = verify_table(Sides(both, both, both, table, head, tiered), options)
    assert (found.comparison.equal, found.comparison.lake_rows) == (True, batches * ROWS)
    assert pool.max_memory() < 2 * MEMORY
