"""Rows of tens of kilobytes to a hundred megabytes: every one comes out again, in batches of a bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError, RowError
from lakeward.model.batches import BYTES_MOST
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import TablePath
from lakeward_source_embedded.arrow_files import write_arrow
from lakeward_source_embedded.reader import EmbeddedReader

if TYPE_CHECKING:
    from lakeward.ports import SourceBatch
    from lakeward_source_embedded.store import EmbeddedStore

PATH = TablePath("shop", "documents")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
KIB, MIB = 1 << 10, 1 << 20


def documents(ids: range, width: int) -> pa.Table:
    """Rows as a writer would have them: several chunks, none near 2 GiB."""
    parts = []
    for start in range(ids.start, ids.stop, 5000):
        numbers = np.arange(start, min(start + 5000, ids.stop))
        texts = pa.array([f"{n:08d}" + "x" * (width - 8) for n in numbers])
        parts.append(pa.record_batch([numbers, texts], schema=SCHEMA))
    return pa.Table.from_batches(parts, schema=SCHEMA)


def create(store: EmbeddedStore, *, keyed: bool, buckets: int = 1) -> None:
    properties = {"table.kv.snapshot.interval-s": "0"}
    store.create_table(PATH, SCHEMA, ("id",) if keyed else (), buckets=buckets, properties=properties)


def read_log(store: EmbeddedStore, start: int = 0) -> list[SourceBatch]:
    (state,) = store.buckets(PATH)
    reader = EmbeddedReader(store.root, store.table(PATH))
    return list(reader.read_log(LogSplit("s", state.bucket, (), start, state.end)))


def read_snapshot(store: EmbeddedStore) -> list[SourceBatch]:
    (state,) = store.buckets(PATH)
    assert state.snapshot is not None
    reader = EmbeddedReader(store.root, store.table(PATH))
    split = SnapshotSplit("s", state.bucket, (), state.snapshot.snapshot_id, state.snapshot.log_offset)
    return list(reader.read_snapshot(split))


def ids(batches: list[SourceBatch]) -> list[int]:
    return [one for batch in batches for one in batch.records.column("id").to_pylist()]


def whole(batches: list[SourceBatch], width: int) -> bool:
    """Return whether each row has its own text, and no batch is too large."""
    return all(
        batch.records.nbytes <= BYTES_MOST
        and batch.records.column("text").to_pylist() == [f"{n:08d}" + "x" * (width - 8) for n in ids([batch])]
        for batch in batches
    )


def test_wide_rows_of_a_log_come_out_in_batches_of_a_bounded_size(store: EmbeddedStore) -> None:
    create(store, keyed=False)
    store.load(PATH, documents(range(7000), 40 * KIB))
    batches = read_log(store)
    assert whole(batches, 40 * KIB)
    assert ids(batches) == list(range(7000))


def test_wide_rows_of_a_snapshot_lie_in_batches_of_a_bounded_size(store: EmbeddedStore) -> None:
    create(store, keyed=True)
    store.load(PATH, documents(range(7000), 40 * KIB))
    store.snapshot(PATH)
    (file,) = (store.root / "kv").rglob("*.arrow")
    with pa.memory_map(str(file)) as mapped:
        reader = pa.ipc.open_file(mapped)
        sizes = [reader.get_batch(n).nbytes for n in range(reader.num_record_batches)]
    assert max(sizes) <= BYTES_MOST
    assert sorted(ids(read_snapshot(store))) == list(range(7000))


def test_wide_rows_are_replaced_by_small_ones_however_many_bytes_the_old_ones_have(store: EmbeddedStore) -> None:
    create(store, keyed=True)
    store.load(PATH, documents(range(7000), 40 * KIB))
    store.load(PATH, documents(range(7000), 10))
    after = [batch.records.select(["id", "text"]) for batch in read_log(store, 7000)]
    assert [text for batch in after for text in batch.column("text").to_pylist()][1::2] == [
        f"{n:08d}xx" for n in [one for batch in after for one in batch.column("id").to_pylist()][1::2]
    ]
    store.snapshot(PATH)
    assert whole(read_snapshot(store), 10)
    assert sorted(ids(read_snapshot(store))) == list(range(7000))


def test_text_that_comes_as_a_dictionary_is_counted_by_what_it_becomes(store: EmbeddedStore) -> None:
    create(store, keyed=False)
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(60_000, dtype=np.int32)), pa.array(["x" * 40 * KIB]))
    with pytest.raises(RowError):
        store.load(PATH, pa.table({"id": np.arange(60_000), "text": pa.array([1] * 60_000)}))
    store.load(PATH, pa.table({"id": np.arange(10_000), "text": texts.slice(0, 10_000)}))
    assert ids(read_log(store)) == list(range(10_000))


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_rows_of_a_hundred_megabytes(store: EmbeddedStore, keyed: bool) -> None:
    create(store, keyed=keyed)
    store.load(PATH, documents(range(3), 100 * MIB))
    assert [batch.records.num_rows for batch in read_log(store)] == [1, 1, 1]
    if keyed:
        store.load(PATH, documents(range(3), 100 * MIB))
        store.snapshot(PATH)
        assert sorted(ids(read_snapshot(store))) == [0, 1, 2]
        assert ids(read_log(store, 3)) == [0, 0, 1, 1, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_two_thousand_columns(store: EmbeddedStore, keyed: bool) -> None:
    fields = [pa.field("id", pa.int64(), nullable=False), *(pa.field(f"c{n}", pa.int64()) for n in range(1999))]
    schema = pa.schema(fields)
    store.create_table(PATH, schema, ("id",) if keyed else (), properties={"table.kv.snapshot.interval-s": "0"})
    numbers = pa.array(np.arange(9_000))
    store.load(PATH, pa.table([numbers] * 2000, schema=schema))
    batches = read_log(store)
    assert max(batch.records.nbytes for batch in batches) <= BYTES_MOST
    assert sorted(ids(batches)) == list(range(9_000))
    if keyed:
        store.snapshot(PATH)
        assert sorted(ids(read_snapshot(store))) == list(range(9_000))


def test_a_snapshot_file_with_fewer_rows_than_it_was_registered_with_is_an_error(store: EmbeddedStore) -> None:
    create(store, keyed=True)
    store.load(PATH, documents(range(10), 10))
    store.snapshot(PATH)
    (file,) = (store.root / "kv").rglob("*.arrow")
    write_arrow(file, SCHEMA, [])
    with pytest.raises(CorruptFileError, match="expected 10 rows, found 0"):
        read_snapshot(store)
    with pytest.raises(CorruptFileError, match="rows, found 0"):
        store.load(PATH, documents(range(10), 12))


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_more_wide_rows_than_32_bits_can_count(store: EmbeddedStore, keyed: bool) -> None:
    create(store, keyed=keyed)
    store.load(PATH, documents(range(60_000), 40 * KIB))
    assert sum(batch.records.num_rows for batch in read_log(store)) == 60_000
    if keyed:
        store.snapshot(PATH)
        assert sorted(ids(read_snapshot(store))) == list(range(60_000))
