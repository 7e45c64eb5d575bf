"""The merge of changes, against a plain dictionary."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakeward.errors import TableError, UsageError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import CHANGE_COLUMN, OFFSET_COLUMN, Change, TablePath
from lakeward_source_embedded.reader import EmbeddedReader
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from lakeward.model.tables import BucketState, TableSpec

PATH = TablePath("db", "t")
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.int32())])
Key = tuple[int, str]
CHANGES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 6), st.sampled_from(["mon", "tue"]), st.integers(0, 3)), max_size=12
)
STEPS = st.lists(st.one_of(CHANGES, st.just("snapshot"), st.just("maintain")), max_size=8)


def expected_records(rows: dict[Key, int], changes: list[tuple[bool, int, str, int]]) -> list[tuple[Key, int, int]]:
    """Merge one by one, as the rules say; `rows` is brought up to date."""
    records = []
    for upsert, number, day, value in changes:
        key = (number, day)
        old = rows.pop(key, None)
        if upsert:
            if old is not None:
                records.append((key, Change.UPDATE_BEFORE, old))
            records.append((key, Change.INSERT if old is None else Change.UPDATE_AFTER, value))
            rows[key] = value
        elif old is not None:
            records.append((key, Change.DELETE, old))
    return records


def read_bucket(store: EmbeddedStore, spec: TableSpec, state: BucketState) -> list[tuple[Key, int, int]]:
    reader = EmbeddedReader(store.root, spec)
    split = LogSplit("s", state.bucket, state.partition, state.start, state.end)
    rows = [row for batch in reader.read_log(split) for row in batch.records.to_pylist()]
    reader.close()
    assert [row[OFFSET_COLUMN] for row in rows] == list(range(state.start, state.end))
    return [((row["id"], row["day"]), row[CHANGE_COLUMN], row["v"]) for row in rows]


def read_snapshots(store: EmbeddedStore, spec: TableSpec) -> dict[Key, int]:
    rows: dict[Key, int] = {}
    reader = EmbeddedReader(store.root, spec)
    for state in store.buckets(PATH):
        if state.snapshot is None:
            continue
        split = SnapshotSplit("s", state.bucket, (), state.snapshot.snapshot_id, state.snapshot.log_offset)
        for batch in reader.read_snapshot(split):
            for row in batch.records.to_pylist():
                assert (row["id"], row["day"]) not in rows
                rows[row["id"], row["day"]] = row["v"]
    reader.close()
    return rows


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, partitioned=st.booleans(), buckets=st.integers(1, 3))
@example(steps=[[(True, 0, "mon", 0), (False, 0, "mon", 0)], [(False, 0, "mon", 0)]], partitioned=False, buckets=1)
def test_any_mix_of_loads_and_snapshots_is_what_a_dictionary_gives(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object], partitioned: bool, buckets: int
) -> None:
    with EmbeddedStore.create(tmp_path_factory.mktemp("store"), clock=FakeClock()) as store:
        spec = store.create_table(
            PATH,
            SCHEMA,
            primary_key=["id", "day"],
            partition_keys=["day"] if partitioned else [],
            buckets=buckets,
            properties={"table.kv.snapshot.num-retained": "1"},
        )
        rows: dict[Key, int] = {}
        records: list[tuple[Key, int, int]] = []
        for step in steps:
            if step == "snapshot":
                store.snapshot(PATH)
                assert read_snapshots(store, spec) == rows
            elif step == "maintain":
                store.maintain()
            elif isinstance(step, list) and step:
                upserts, ids, days, values = zip(*step, strict=True)
                operations = ["+U" if upsert else "-D" for upsert in upserts]
                store.load(PATH, pa.table({"id": ids, "day": days, "v": values, "op": operations}), change="op")
                records += expected_records(rows, step)
        found = [record for state in store.buckets(PATH) for record in read_bucket(store, spec, state)]
        assert sorted(found) == sorted(records)
        for key in rows:
            assert [record for record in found if record[0] == key] == [r for r in records if r[0] == key]


def test_text_key_and_growing_index_keep_every_row(store: EmbeddedStore) -> None:
    spec = store.create_table(PATH, SCHEMA, primary_key=["day", "id"], bucket_key=["day"], buckets=2)
    rows: dict[Key, int] = {}
    for step in range(12):
        part = {(number, f"key-{number}"): step for number in range(step * 7, step * 7 + 30)}
        ids, days = zip(*part, strict=True)
        store.load(PATH, pa.table({"id": ids, "day": days, "v": list(part.values())}))
        rows |= part

    store.snapshot(PATH)

    assert read_snapshots(store, spec) == rows
    assert len(list((store.root / "index" / "1").iterdir())) == 1


@pytest.mark.parametrize("others", [0, 1, 2])
def test_deleted_key_of_a_large_table_stays_deleted(store: EmbeddedStore, others: int) -> None:
    spec = store.create_table(PATH, SCHEMA, primary_key=["id", "day"])
    store.load(PATH, pa.table({"id": range(100), "day": ["a"] * 100}))
    store.load(PATH, pa.table({"id": [7], "day": ["a"], "op": ["-D"]}), change="op")
    for number in range(others):
        store.load(PATH, pa.table({"id": [50 + number], "day": ["a"]}))

    assert store.load(PATH, pa.table({"id": [7], "day": ["a"], "op": ["-D"]}), change="op") == 0
    store.load(PATH, pa.table({"id": [7], "day": ["a"], "v": [1]}))
    (state,) = store.buckets(PATH)
    assert read_bucket(store, spec, state)[-1] == ((7, "a"), Change.INSERT, 1)
    assert store.snapshot(PATH) == 1
    assert len(read_snapshots(store, spec)) == 100


def test_current_rows_survive_a_trimmed_log(store: EmbeddedStore) -> None:
    spec = store.create_table(PATH, SCHEMA, primary_key=["id", "day"])
    store.load(PATH, pa.table({"id": [1, 2], "day": ["a", "a"], "v": [10, 20]}))
    store.trim_log(PATH, 0, 2)
    store.load(PATH, pa.table({"id": [1], "day": ["a"], "v": [11]}))

    (state,) = store.buckets(PATH)

    assert read_bucket(store, spec, state) == [
        ((1, "a"), Change.UPDATE_BEFORE, 10),
        ((1, "a"), Change.UPDATE_AFTER, 11),
    ]
    store.snapshot(PATH)
    store.trim_log(PATH, 0, 4)
    assert not list((store.root / "log" / "1").iterdir())
    store.load(PATH, pa.table({"id": [2], "day": ["a"], "v": [21]}))
    (state,) = store.buckets(PATH)
    assert read_bucket(store, spec, state)[0] == ((2, "a"), Change.UPDATE_BEFORE, 20)


def test_dropped_partition_forgets_its_keys(store: EmbeddedStore) -> None:
    spec = store.create_table(PATH, SCHEMA, primary_key=["id", "day"], partition_keys=["day"])
    for day in ("mon", "tue"):
        store.load(PATH, pa.table({"id": [1], "day": [day], "v": [1]}))
    store.snapshot(PATH)
    store.drop_partition(PATH, ["mon"])
    for day in ("mon", "tue"):
        store.load(PATH, pa.table({"id": [1], "day": [day], "v": [2]}))

    found = {state.partition: read_bucket(store, spec, state)[-1][1] for state in store.buckets(PATH)}

    assert found == {("mon",): Change.INSERT, ("tue",): Change.UPDATE_AFTER}


def test_rows_written_before_a_column_came_are_old_rows_with_null(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA, primary_key=["id", "day"])
    store.load(PATH, pa.table({"id": [1], "day": ["a"], "v": [1]}))
    spec = store.add_column(PATH, pa.field("note", pa.string()))
    store.load(PATH, pa.table({"id": [1], "day": ["a"], "v": [2], "note": ["x"]}))
    store.snapshot(PATH)

    reader = EmbeddedReader(store.root, spec)
    (state,) = store.buckets(PATH)
    rows = [
        row for batch in reader.read_log(LogSplit("s", state.bucket, (), 0, 3)) for row in batch.records.to_pylist()
    ]
    reader.close()

    assert [(row["v"], row["note"]) for row in rows] == [(1, None), (1, None), (2, "x")]


WIDENED = [
    (pa.int8(), pa.int16(), -7),
    (pa.int32(), pa.int64(), 2**31 - 1),
    (pa.float32(), pa.float64(), 0.5),
    (pa.decimal128(5, 2), pa.decimal128(38, 2), Decimal("-999.99")),
]


@pytest.mark.parametrize("key", [(), ("id",)], ids=["log", "key"])
@pytest.mark.parametrize(("old", "new", "value"), WIDENED, ids=["tiny", "int", "float", "decimal"])
def test_rows_written_before_a_column_was_widened_keep_their_values(
    store: EmbeddedStore, old: pa.DataType, new: pa.DataType, value: object, key: tuple[str, ...]
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", old)])
    store.create_table(PATH, schema, primary_key=key, buckets=1)
    store.load(PATH, pa.table({"id": [1, 2], "v": [value, None]}, schema=schema))
    if key:
        store.snapshot(PATH)
    spec = store.widen_column(PATH, "v", new)
    store.load(PATH, pa.table({"id": [1], "v": pa.array([value], new)}, schema=spec.schema))
    (state,) = store.buckets(PATH)
    reader = EmbeddedReader(store.root, spec)
    rows = [one.records for one in reader.read_log(LogSplit("s", state.bucket, (), 0, state.end))]
    found = pa.Table.from_batches(rows)
    if state.snapshot is not None:
        old_rows = SnapshotSplit("s", state.bucket, (), state.snapshot.snapshot_id, state.snapshot.log_offset)
        kept = [row for one in reader.read_snapshot(old_rows) for row in one.records.to_pylist()]
        assert [(row["id"], row["v"]) for row in kept] == [(1, value), (2, None)]
    reader.close()

    assert found.schema.field("v").type == new
    assert found["v"].to_pylist() == [value, None, *([value] if key else []), value]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("id", pa.int64(), "expected one that is in no key"),
        ("v", pa.int32(), "column 'v' of type bigint: expected a larger integer, double for float, or a decimal of"),
        ("v", pa.int64(), "found bigint"),
        ("v", pa.float64(), "found double"),
        ("w", pa.int64(), "column 'w': expected one of id, v"),
    ],
)
def test_a_type_that_does_not_hold_more_is_refused(
    store: EmbeddedStore, name: str, kind: pa.DataType, said: str
) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("v", pa.int64())])
    before = store.create_table(PATH, schema, primary_key=("id",))
    with pytest.raises(UsageError, match=said):
        store.widen_column(PATH, name, kind)
    assert store.table(PATH) == before


def rows_of(store: EmbeddedStore, spec: TableSpec) -> list[dict[str, object]]:
    """Return all rows of the log as a round that knows this table reads them, without system columns."""
    (state,) = store.buckets(PATH)
    reader = EmbeddedReader(store.root, spec)
    batches = [one.records for one in reader.read_log(LogSplit("s", state.bucket, (), 0, state.end))]
    reader.close()
    return [{name: row[name] for name in spec.schema.names} for batch in batches for row in batch.to_pylist()]


def changed_table(store: EmbeddedStore, key: tuple[str, ...] = ()) -> pa.Schema:
    """Make a table with a row."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    store.create_table(PATH, schema, primary_key=key, buckets=1)
    store.load(PATH, pa.table({"id": [1], "v": ["a"]}, schema=schema))
    return schema


def test_rows_written_before_a_column_was_renamed_are_read_under_its_new_name(store: EmbeddedStore) -> None:
    changed_table(store)
    spec = store.rename_column(PATH, "v", "w")
    store.load(PATH, pa.Table.from_pylist([{"id": 2, "w": "b"}], schema=spec.schema))
    assert rows_of(store, spec) == [{"id": 1, "w": "a"}, {"id": 2, "w": "b"}]


def test_the_current_rows_of_a_key_have_the_values_of_a_renamed_column(store: EmbeddedStore) -> None:
    changed_table(store, ("id",))
    spec = store.rename_column(PATH, "v", "w")
    store.load(PATH, pa.Table.from_pylist([{"id": 2, "w": "b"}], schema=spec.schema))
    store.snapshot(PATH)
    (state,) = store.buckets(PATH)
    assert state.snapshot is not None
    split = SnapshotSplit("s", state.bucket, (), state.snapshot.snapshot_id, state.snapshot.log_offset)
    reader = EmbeddedReader(store.root, spec)
    found = [(row["id"], row["w"]) for one in reader.read_snapshot(split) for row in one.records.to_pylist()]
    reader.close()
    assert sorted(found) == [(1, "a"), (2, "b")]


def test_a_round_goes_on_under_the_old_name_of_a_column_that_is_renamed_meanwhile(store: EmbeddedStore) -> None:
    changed_table(store)
    planned = store.table(PATH)
    now = store.rename_column(PATH, "v", "w")
    store.load(PATH, pa.Table.from_pylist([{"id": 2, "w": "b"}], schema=now.schema))
    assert rows_of(store, planned) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def test_a_column_that_comes_back_after_it_was_dropped_has_none_of_its_old_values(store: EmbeddedStore) -> None:
    changed_table(store)
    without = store.drop_column(PATH, "v")
    assert rows_of(store, without) == [{"id": 1}]
    spec = store.add_column(PATH, pa.field("v", pa.string()))
    store.load(PATH, pa.Table.from_pylist([{"id": 2, "v": "b"}], schema=spec.schema))
    assert rows_of(store, spec) == [{"id": 1, "v": None}, {"id": 2, "v": "b"}]


@pytest.mark.parametrize(
    ("name", "new", "said"),
    [
        ("id", "number", "expected one that is in no key"),
        ("v", "id", "column 'id': expected a new name"),
        ("v", "__offset", "are reserved"),
        ("w", "x", "column 'w': expected one of id, v"),
    ],
)
def test_a_rename_that_cannot_be_is_refused(store: EmbeddedStore, name: str, new: str, said: str) -> None:
    changed_table(store, ("id",))
    before = store.table(PATH)
    with pytest.raises(UsageError, match=said):
        store.rename_column(PATH, name, new)
    assert store.table(PATH) == before


def test_the_only_column_is_not_dropped(store: EmbeddedStore) -> None:
    store.create_table(PATH, pa.schema([pa.field("v", pa.int64())]), buckets=1)
    with pytest.raises(UsageError, match="found the only one of table"):
        store.drop_column(PATH, "v")


@pytest.mark.parametrize("change", ["add", "widen"])
def test_rows_that_are_newer_than_the_round_are_left_to_the_next_one(store: EmbeddedStore, change: str) -> None:
    schema = pa.schema([pa.field("id", pa.int32())])
    planned = store.create_table(PATH, schema, buckets=1)
    store.load(PATH, pa.table({"id": [1]}, schema=schema))
    if change == "add":
        now = store.add_column(PATH, pa.field("note", pa.string()))
    else:
        now = store.widen_column(PATH, "id", pa.int64())
    store.load(PATH, pa.Table.from_pylist([{"id": 2}], schema=now.schema))
    (state,) = store.buckets(PATH)
    reader = EmbeddedReader(store.root, planned)
    assert [one.records.num_rows for one in reader.read_log(LogSplit("s", state.bucket, (), 0, 1))] == [1]
    with pytest.raises(TableError, match="was changed while the round ran; the next one takes the new columns in"):
        list(reader.read_log(LogSplit("s", state.bucket, (), 0, 2)))
    reader.close()
