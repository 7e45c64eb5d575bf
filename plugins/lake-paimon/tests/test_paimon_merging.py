"""What a merge of a bucket's files writes, and which files are merged when: compared with plain models."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from lakeward.errors import LakeError, StorageError
from lakeward_lake_paimon import compaction
from lakeward_lake_paimon.binary_row import EMPTY_ROW, decode_row
from lakeward_lake_paimon.compaction import MOST_RUNS, due_merges, still_fits
from lakeward_lake_paimon.datafile import ParquetFile, parquet_options
from lakeward_lake_paimon.key_rows import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, VALUE_KIND, KeyLayout
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.manifests import ADD, DataFile, Entry
from lakeward_lake_paimon.merge_files import merge_files
from lakeward_lake_paimon.merge_task import MergeFile, MergeTask, pack_files, pack_task, unpack_files, unpack_task
from lakeward_lake_paimon.merging import merge_runs
from lakeward_lake_paimon.parquet_batches import read_batches
from lakeward_lake_paimon.table_schema import new_schema
from lakeward_testing.lake_tables import key_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lakeward_lake_paimon.compaction import Merge

    Key = tuple[str, int]
    Row = tuple[int, str]

COLUMNS = pa.schema(
    [pa.field("region", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]
)
TABLE = key_table(COLUMNS, primary_key=("region", "id"), bucket_key=("region", "id"), system_columns=False)
SCHEMA = new_schema(TABLE, system_columns=False, time_ms=0)
LAYOUT = KeyLayout(SCHEMA)
OPTIONS = parquet_options(SCHEMA, "zstd", 1)
GONE = {UPDATE_BEFORE, DELETE}
KEYS = st.tuples(st.sampled_from(["", "a", "ä", "zz"]), st.integers(-3, 3))
ROWS = st.tuples(st.sampled_from([INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE]), st.text(max_size=3))
RUNS = st.lists(st.dictionaries(KEYS, ROWS, min_size=1), min_size=1, max_size=6)


def task_of(folder: str, runs: Sequence[Sequence[Mapping[Key, Row]]], **told: Any) -> MergeTask:  # noqa: ANN401 - fields
    """Write runs, the oldest first, each of files whose keys ascend; return the task that merges them."""
    numbers, written = count(), []
    for run in runs:
        files = []
        for rows in run:
            path = f"{folder}/bucket-0/in-{next(numbers)}.parquet"
            sequences = pa.array([next(numbers) for _ in rows], pa.int64())
            kinds = pa.chunked_array([pa.array([kind for kind, _ in rows.values()], pa.int8())])
            values = [{"region": key[0], "id": key[1], "name": row[1]} for key, row in rows.items()]
            file = ParquetFile(LocalStorage(), path, LAYOUT.schema, OPTIONS)
            file.write(LAYOUT.file_rows(pa.Table.from_pylist(values, COLUMNS), sequences, kinds))
            file.close()
            files.append(MergeFile(path, SCHEMA.id, 0, path))
        written.append(tuple(files))
    fixed: dict[str, Any] = {
        "location": folder,
        "schemas": (SCHEMA.to_bytes(),),
        "partition": EMPTY_ROW,
        "bucket": 0,
        "total_buckets": 1,
        "runs": tuple(reversed(written)),
        "level": 5,
        "drops_deletes": True,
        "token": "job",
        "target_size_bytes": 1 << 20,
        "compression": "zstd",
        "compression_level": 1,
        "storage": {},
    }
    return unpack_task(pack_task(MergeTask(**(fixed | told))))


def merged(task: MergeTask, **told: Any) -> list[tuple[DataFile, pa.Table]]:  # noqa: ANN401 - of `merge_files`
    """Do a task; return the new files, and what is in them."""
    files = unpack_files(pack_files(merge_files(LocalStorage(), task, 0, told.pop("check", lambda: None), **told)))
    return [(file, pq.read_table(f"{task.location}/bucket-0/{file.name}")) for file in files]


def keys_of(rows: pa.Table) -> list[Key]:
    """Return the keys of rows, in their order."""
    return list(zip(rows["region"].to_pylist(), rows["id"].to_pylist(), strict=True))


def order(key: Key) -> tuple[bytes, int]:
    """Return what Paimon orders a key by."""
    return key[0].encode(), key[1]


@given(runs=RUNS, drops=st.booleans(), target=st.sampled_from([1, 1 << 20]))
@settings(max_examples=60, deadline=None)
def test_a_merge_leaves_the_newest_row_of_each_key_in_order_and_files_say_what_is_in_them(
    runs: list[dict[Key, Row]], target: int, *, drops: bool
) -> None:
    model: dict[Key, Row] = {}
    for run in runs:
        model |= run
    expected = {key: row for key, row in model.items() if not drops or row[0] not in GONE}
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(folder, [[run] for run in runs], drops_deletes=drops, target_size_bytes=target)
        files = merged(task)
    found: list[tuple[Key, Row]] = []
    kinds = [field.kind for field in LAYOUT.keys]
    for file, rows in files:
        keys, row_kinds = keys_of(rows), rows[VALUE_KIND].to_pylist()
        found += zip(keys, zip(row_kinds, rows["name"].to_pylist(), strict=True), strict=True)
        assert keys == list(zip(rows["_KEY_region"].to_pylist(), rows["_KEY_id"].to_pylist(), strict=True))
        ends = (tuple(decode_row(file.min_key, kinds)), tuple(decode_row(file.max_key, kinds)))
        assert ends == (order(keys[0]), order(keys[-1]))
        numbers = rows["_SEQUENCE_NUMBER"].to_pylist()
        assert (file.min_sequence, file.max_sequence) == (min(numbers), max(numbers))
        assert (file.rows, file.deleted_rows) == (len(keys), sum(kind in GONE for kind in row_kinds))
        assert (file.level, file.schema_id) == (5, SCHEMA.id)
    assert dict(found) == expected
    assert [key for key, _ in found] == sorted(expected, key=order)


def test_a_run_of_several_files_is_read_as_one(tmp_path: Path) -> None:
    old = [{("a", number): (INSERT, "old")} for number in range(5)]
    task = task_of(str(tmp_path), [old, [{("a", 2): (DELETE, "")}, {("a", 9): (INSERT, "new")}]])
    ((file, rows),) = merged(task)
    assert keys_of(rows) == [("a", number) for number in (0, 1, 3, 4, 9)]
    assert file.rows == 5


def test_where_all_rows_are_deletes_no_file_is_written(tmp_path: Path) -> None:
    task = task_of(str(tmp_path), [[{("a", 1): (INSERT, "x")}], [{("a", 1): (DELETE, "")}]])
    assert merged(task) == []


@dataclass(slots=True)
class Held:
    """How many rows of each run were read, and how many of them are still to come out."""

    read: Counter[int]

    def run(self, number: int, rows: pa.Table, size: int) -> Iterator[pa.Table]:
        """Yield a run in batches."""
        for start in range(0, rows.num_rows, size):
            self.read[number] += min(size, rows.num_rows - start)
            yield rows.slice(start, size)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_of_each_run_a_merge_holds_one_batch(size: int) -> None:
    runs = [
        pa.table({"k": range(number, 2000, number + 1), "_SEQUENCE_NUMBER": range(number, 2000, number + 1)})
        for number in range(4)
    ]
    held = Held(Counter())
    passed = -1
    for rows in merge_runs([held.run(number, rows, size) for number, rows in enumerate(runs)], ["k"]):
        assert rows.num_rows <= size * len(runs)
        passed = rows["k"][-1].as_py()
        for number, run in enumerate(runs):
            left = held.read[number] - sum(key <= passed for key in run["k"].to_pylist())
            assert left <= size
    assert passed == 1999


def test_memory_bounds_the_batches_and_the_row_groups_of_a_bucket_of_any_size(tmp_path: Path) -> None:
    wide = [{("a", 3 * number + run): (INSERT, f"{number:01000d}") for number in range(2000)} for run in range(3)]
    task, checks = task_of(str(tmp_path), [[one] for one in wide], target_size_bytes=1 << 30), count()
    memory = 1 << 18
    ((file, _),) = merged(task, memory_bytes=memory, check=lambda: next(checks))
    told = pq.read_metadata(tmp_path / "bucket-0" / file.name)
    groups = [told.row_group(number).num_rows * 1000 for number in range(told.num_row_groups)]
    assert sum(groups) == 6000 * 1000
    assert max(groups) < memory
    assert next(checks) > 6000 // (3 * 64)


def test_a_merge_that_has_to_stop_or_whose_file_is_gone_leaves_nothing(tmp_path: Path) -> None:
    task = task_of(str(tmp_path), [[{("a", number): (INSERT, "x" * 1000)}] for number in range(300)])
    before = sorted((tmp_path / "bucket-0").iterdir())
    left = iter(range(20))

    def stop() -> None:
        if next(left, None) is None:
            message = "out of time"
            raise LakeError(message)

    with pytest.raises(LakeError, match="out of time"):
        merged(structs.replace(task, target_size_bytes=1), check=stop, memory_bytes=1)
    assert sorted((tmp_path / "bucket-0").iterdir()) == before
    before.pop().unlink()
    with pytest.raises(StorageError):
        merged(task)
    assert sorted((tmp_path / "bucket-0").iterdir()) == before


_NAMES = count()


def entry(level: int, size: int, newest: int) -> Entry:
    """Return a live file."""
    file = DataFile(f"{next(_NAMES)}.parquet", size, size, 0, newest, newest, 0, level=level)
    return Entry(ADD, EMPTY_ROW, 0, 1, file)


def applied(live: list[Entry], merge: Merge) -> list[Entry]:
    """Return the files after a merge, as large as those before it."""
    others = [one for one in live if one not in merge.entries]
    newest = max(one.file.max_sequence for one in merge.entries)
    return [*others, entry(merge.level, merge.size_bytes, newest)]


@given(data=st.data(), trigger=st.integers(1, 6), levels=st.integers(2, 8))
@settings(max_examples=100, deadline=None)
def test_merges_keep_the_order_of_runs_drop_deletes_with_nothing_below_and_come_to_an_end(
    data: st.DataObject, trigger: int, levels: int
) -> None:
    sizes = st.integers(1, 1 << 31)
    full = data.draw(st.lists(st.integers(1, levels - 1), unique=True))
    live = [entry(level, data.draw(sizes), 1000 - level) for level in full]
    told = {"num-sorted-run.compaction-trigger": str(trigger), "num-levels": str(levels)}
    schema = replace(SCHEMA, options={**SCHEMA.options, **told})
    for number in range(data.draw(st.integers(1, 3))):
        live += [entry(0, data.draw(sizes), 2000 + 100 * number + one) for one in range(data.draw(st.integers(0, 50)))]
        for _ in range(50):
            found = due_merges(schema, live)
            if not found:
                break
            (merge,) = found
            assert len(merge.runs) > 1
            assert len(merge.runs) <= MOST_RUNS + levels
            others = [one for one in live if one not in merge.entries]
            oldest = min(one.file.max_sequence for one in merge.entries)
            below = [one for one in others if one.file.max_sequence < oldest]
            assert merge.drops_deletes == (not below)
            assert still_fits(merge.level, others, drops_deletes=merge.drops_deletes)
            assert 0 < merge.level < levels
            live = applied(live, merge)
        else:
            pytest.fail("a bucket is due for ever")
        assert len(live) < max(2, trigger)


@pytest.mark.parametrize(
    ("level", "drops_deletes", "others", "fits"),
    [
        (5, True, [], True),
        (5, True, [0, 0], True),
        (5, True, [3], False),
        (4, False, [5], True),
        (4, False, [4], False),
        (4, False, [3, 5], False),
    ],
)
def test_a_merge_fits_beside_newer_files_and_below_nothing_that_came_meanwhile(
    level: int, others: list[int], *, drops_deletes: bool, fits: bool
) -> None:
    there = [entry(one, 1, 1) for one in others]
    assert still_fits(level, there, drops_deletes=drops_deletes) == fits


@pytest.mark.parametrize(
    "option",
    [
        {"write-only": "true"},
        {"deletion-vectors.enabled": "true"},
        {"merge-engine": "partial-update"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "full-compaction"},
        {"sequence.field": "at"},
    ],
)
def test_tables_that_another_engine_compacts_are_left_alone(option: dict[str, str]) -> None:
    live = [entry(0, 1, number) for number in range(compaction.TRIGGER)]
    assert len(due_merges(SCHEMA, live)) == 1
    assert due_merges(replace(SCHEMA, options={**SCHEMA.options, **option}), live) == []


def test_a_bucket_with_files_of_another_format_is_left_alone() -> None:
    live = [entry(0, 1, number) for number in range(compaction.TRIGGER)]
    orc = replace(live[0], file=replace(live[0].file, name="x.orc"))
    assert due_merges(SCHEMA, [*live[1:], orc]) == []


def test_a_large_row_group_is_read_in_pieces_and_never_whole(tmp_path: Path) -> None:
    file, rows, row_bytes = tmp_path / "large.parquet", 32_768, 1024
    random = np.random.default_rng(1)
    texts = pa.array([random.bytes(row_bytes) for _ in range(rows)], pa.binary())
    pq.write_table(pa.table({"raw": texts}), file, row_group_size=rows)
    del texts
    pool, before = pa.default_memory_pool(), pa.default_memory_pool().bytes_allocated()
    with pa.OSFile(str(file)) as source:
        batches = read_batches(source, {}, 256, 1 << 16)
        held = [pool.bytes_allocated() - before for _ in batches]

    assert len(held) == rows // 256
    assert max(held) < rows * row_bytes // 4
