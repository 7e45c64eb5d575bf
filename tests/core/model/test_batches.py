from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import LogGapError, RowCountError
from lakeward.model.batches import BYTES_LEAST, BYTES_MOST, ROWS_LEAST, ROWS_MOST, BatchGatherer, SourceBatch
from lakeward.model.tables import OFFSET_COLUMN

SCHEMA = pa.schema([("text", pa.string()), (OFFSET_COLUMN, pa.int64())])
KIB = 1024


def part(first: int, rows: int, width: int = 0) -> pa.RecordBatch:
    texts = pa.array(["x" * width]).take(pa.array(np.zeros(rows, dtype=np.int64)))
    return pa.record_batch([texts, np.arange(first, first + rows)], schema=SCHEMA)


def gathered(parts: list[tuple[pa.RecordBatch | None, int, int]], start: int = 0) -> list[SourceBatch]:
    gatherer = BatchGatherer(SCHEMA, "bucket 7/0", start)
    batches = []
    for records, first, end in parts:
        rows = 0 if records is None else records.num_rows
        batches += gatherer.add(records, first, end, empty=end - first - rows)
    return [*batches, *gatherer.rest()]


def offsets(batches: list[SourceBatch]) -> list[int]:
    return [one for batch in batches for one in batch.records.column(OFFSET_COLUMN).to_pylist()]


def test_small_parts_are_joined_by_rows() -> None:
    batches = gathered([(part(first, 1000), first, first + 1000) for first in range(0, 100_000, 1000)])
    assert [(batch.records.num_rows, batch.next_offset) for batch in batches] == [(66_000, 66_000), (34_000, 100_000)]
    assert offsets(batches) == list(range(100_000))


def test_small_parts_are_joined_by_bytes() -> None:
    batches = gathered([(part(first, 10, 100 * KIB), first, first + 10) for first in range(0, 1000, 10)])
    assert max(batch.records.nbytes for batch in batches) <= BYTES_MOST
    assert all(batch.records.nbytes >= BYTES_LEAST for batch in batches[:-1])
    assert offsets(batches) == list(range(1000))


def test_a_large_part_is_cut_by_rows_and_keeps_its_offsets() -> None:
    batches = gathered([(part(0, ROWS_MOST + 5), 0, ROWS_MOST + 5)])
    assert [batch.next_offset for batch in batches] == [ROWS_MOST, ROWS_MOST + 5]
    assert offsets(batches) == list(range(ROWS_MOST + 5))


def test_a_wide_part_is_cut_by_bytes_and_keeps_its_offsets() -> None:
    batches = gathered([(part(0, 5000, 40 * KIB), 0, 5000)])
    assert max(batch.records.nbytes for batch in batches) <= BYTES_MOST
    assert offsets(batches) == list(range(5000))
    assert [batch.next_offset for batch in batches] == list(np.cumsum([batch.records.num_rows for batch in batches]))


def test_a_row_that_is_larger_than_a_batch_is_a_batch() -> None:
    batches = gathered([(part(n, 1, BYTES_MOST + 1), n, n + 1) for n in range(3)])
    assert [batch.records.num_rows for batch in batches] == [1, 1, 1]


def test_many_columns_are_cut_by_bytes() -> None:
    columns = [pa.array(np.arange(20_000))] * 2000
    schema = pa.schema([*((f"c{n}", pa.int64()) for n in range(1999)), (OFFSET_COLUMN, pa.int64())])
    gatherer = BatchGatherer(schema, "bucket 7/0", 0)
    batches = gatherer.add(pa.record_batch(columns, schema=schema), 0, 20_000)
    assert max(batch.records.nbytes for batch in batches) <= BYTES_MOST
    assert offsets(batches) == list(range(20_000))


def test_empty_offsets_move_on_and_are_counted() -> None:
    batches = gathered([(None, 0, 3), (part(3, 2), 3, 5), (None, 5, 9)])
    assert [(batch.records.num_rows, batch.next_offset, batch.empty_offsets) for batch in batches] == [(2, 9, 7)]
    assert [(batch.next_offset, batch.empty_offsets) for batch in gathered([(None, 4, 6)], 4)] == [(6, 2)]
    assert [(batch.next_offset, batch.records.num_rows) for batch in gathered([], 5)] == [(5, 0)]


def test_empty_offsets_stand_with_the_piece_that_they_lie_before() -> None:
    rows = ROWS_LEAST // 2
    wide = [
        (part(0, rows), 0, rows),
        (None, rows, rows + 4),
        (part(rows + 4, ROWS_MOST), rows + 4, rows + 4 + ROWS_MOST),
    ]
    batches = gathered(wide)
    begun = [0, *(batch.next_offset for batch in batches)]
    for batch, begin in zip(batches, begun, strict=False):
        assert batch.records.num_rows + (batch.empty_offsets or 0) == batch.next_offset - begin


def test_a_hole_names_both_offsets() -> None:
    with pytest.raises(LogGapError, match="bucket 7/0: expected log records from offset 3, found them from offset 5"):
        gathered([(part(0, 3), 0, 3), (part(5, 1), 5, 6)])


def test_a_part_that_lacks_records_names_both_counts() -> None:
    gatherer = BatchGatherer(SCHEMA, "bucket 7/0", 0)
    with pytest.raises(RowCountError, match="expected 60000 records between offsets 0 and 60000, found 0"):
        gatherer.add(part(0, 0), 0, 60_000)
