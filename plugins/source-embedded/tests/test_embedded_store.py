from __future__ import annotations

import sqlite3
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from lakeward.errors import ConfigError, CorruptFileError, RowError, StorageError, TableGoneError, UsageError
from lakeward.model.batches import ROWS_LEAST, ROWS_MOST
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.tables import OFFSET_COLUMN, KvSnapshot, TablePath
from lakeward.model.tiering import HeartbeatRequest, TableEpoch
from lakeward_source_embedded.columns import parse_columns
from lakeward_source_embedded.database import Database
from lakeward_source_embedded.reader import EmbeddedReader
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_testing.clock import FakeClock

PATH = TablePath("db", "t")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
INTERVAL_OFF = {"table.kv.snapshot.interval-s": "0"}


def read_all(store: EmbeddedStore, path: TablePath = PATH) -> list[pa.RecordBatch]:
    spec = store.table(path)
    reader = EmbeddedReader(store.root, spec)
    batches = [
        batch.records
        for state in store.buckets(path)
        for batch in reader.read_log(LogSplit("s", state.bucket, (), state.start, state.end))
    ]
    reader.close()
    return batches


def ids(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "name": ["x"] * (stop - start)})


# --- definitions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "arguments", "words"),
    [
        ("id bigint, __offset bigint", {}, "__offset"),
        ("id bigint", {"primary_key": ["nope"]}, "nope"),
        ("id bigint, n int", {"bucket_key": ["id", "n"]}, "at most one"),
        ("id bigint, n int", {"primary_key": ["id"], "bucket_key": ["n"]}, "primary key"),
        ("id bigint, d string", {"primary_key": ["id"], "partition_keys": ["d"]}, "primary key"),
        ("id bigint, d int", {"partition_keys": ["d"]}, "string column"),
        ("id tinyint", {"primary_key": ["id"]}, "bucket key 'id'"),
        ("id double", {"primary_key": ["id"]}, "exact equality"),
        ("id bigint", {"buckets": 0}, "buckets"),
    ],
)
def test_table_that_cannot_be_is_refused(
    store: EmbeddedStore, columns: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        store.create_table(PATH, parse_columns(columns), **arguments)
    assert store.tables() == ()


@pytest.mark.parametrize("data_type", [pa.uint32(), pa.large_string(), pa.date64(), pa.timestamp("us", "Europe/Rome")])
def test_type_that_fluss_lacks_is_refused(store: EmbeddedStore, data_type: pa.DataType) -> None:
    with pytest.raises(UsageError, match="column 'c'"):
        store.create_table(PATH, pa.schema([("c", data_type)]))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("table.kv.snapshot.num-retained", "0"),
        ("table.kv.snapshot.interval-s", "soon"),
        ("table.datalake.enabled", "yes"),
        ("table.kv.snapshot.intervall-s", "1"),
        ("tabel.log.ttl-s", "1"),
        ("retention", "1"),
    ],
)
def test_wrong_property_is_refused_with_its_key(store: EmbeddedStore, key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        store.create_table(PATH, SCHEMA, properties={key: text})


def test_property_of_a_lake_is_kept_as_it_is(store: EmbeddedStore) -> None:
    spec = store.create_table(PATH, SCHEMA, properties={"iceberg.write.format.default": "parquet"})
    assert spec.properties["iceberg.write.format.default"] == "parquet"


def test_default_bucket_key_is_the_first_key_column_that_is_no_partition_key(store: EmbeddedStore) -> None:
    schema = parse_columns("day string, id bigint, n int")

    spec = store.create_table(PATH, schema, primary_key=["day", "id"], partition_keys=["day"])

    assert spec.bucket_key == ("id",)
    assert [field.nullable for field in spec.schema] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("id bigint, name strng", "strng"),
        ("id bigint name string", "name"),
        ("price decimal(50,2)", r"decimal\(50,2\)"),
        ("tags array<string", "the end"),
        ("id bigint, id int", "id"),
        ("at timestamp(12)", "12"),
        ("", "the end"),
        ("a int not nul", "nul"),
    ],
)
def test_wrong_columns_are_refused_with_the_piece(text: str, piece: str) -> None:
    with pytest.raises(UsageError, match=piece):
        parse_columns(text)


def test_columns_of_all_types_are_read_and_stored(store: EmbeddedStore) -> None:
    schema = parse_columns(
        "a boolean, b tinyint, c smallint, d int not null, e bigint, f float, g double, h decimal(10,2), i char(3),"
        " j string, k binary(4), l bytes, m date, n time(3), o timestamp, p timestamp_ltz(3), q array<string not null>,"
        " r map<string, row<x int, `y z` array<int>>>, s timestamp(9)"
    )

    stored = store.create_table(PATH, schema).schema

    assert stored == schema
    assert stored.field("p").type == pa.timestamp("ms", "UTC")
    assert stored.field("q").type.value_field.nullable is False
    store.load(PATH, pa.table({"d": pa.array([1], pa.int32()), "h": pa.array([Decimal("1.50")])}))
    assert read_all(store)[0].to_pylist()[0]["h"] == Decimal("1.50")


# --- loading ----------------------------------------------------------------------------------------------------


def test_misfit_names_column_row_and_value_and_stores_nothing_of_its_batch(store: EmbeddedStore) -> None:
    store.create_table(PATH, parse_columns("id int not null, name string"))
    values = list(range(5000))
    values[4321] = 2**40
    with pytest.raises(RowError, match=r"'id', row 4321: expected int32, found 1099511627776"):
        store.load(PATH, pa.table({"id": pa.array(values, pa.int64())}))
    with pytest.raises(RowError, match=r"'id', row 2: expected int32 not null, found None"):
        store.load(PATH, pa.table({"id": [1, 2, None]}))
    with pytest.raises(RowError, match="'nam'"):
        store.load(PATH, pa.table({"id": [1], "nam": ["x"]}))
    with pytest.raises(RowError, match=r"'id': expected int32, found string"):
        store.load(PATH, pa.table({"id": ["7"]}))

    assert [state.end for state in store.buckets(PATH)] == [0]
    assert not (store.root / "log" / "1").exists()


def test_misfit_in_a_later_batch_says_what_is_stored(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeward_source_embedded.inputs.ROWS_MOST", 10)
    store.create_table(PATH, parse_columns("id bigint not null"))

    with pytest.raises(RowError, match=r"row 25: .* \(the 20 rows before this batch are stored\)"):
        store.load(PATH, pa.table({"id": [*range(25), None]}))
    assert [state.end for state in store.buckets(PATH)] == [20]


def test_null_inside_a_nested_column_is_found(store: EmbeddedStore) -> None:
    store.create_table(PATH, parse_columns("id bigint, tags array<string not null>, r row<x int not null>"))

    with pytest.raises(RowError, match=r"'tags', row 2"):
        store.load(PATH, pa.table({"tags": [["a"], None, ["b", None], []]}))
    with pytest.raises(RowError, match=r"'r', row 1"):
        store.load(PATH, pa.table({"r": pa.array([None, {"x": None}], pa.struct([("x", pa.int32())]))}))
    store.load(PATH, pa.table({"tags": [["a"], None, []], "r": [{"x": 1}, None, {"x": 2}]}))


def test_unknown_change_word_is_found(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA, primary_key=["id"])
    rows = pa.table({"id": [1, 2], "op": ["+I", "vanish"]})

    with pytest.raises(RowError, match=r"'op', row 1: expected insert, update or delete, found 'vanish'"):
        store.load(PATH, rows, change="op")


def test_delete_needs_the_key_alone(store: EmbeddedStore) -> None:
    store.create_table(PATH, parse_columns("id bigint, name string not null"), primary_key=["id"])
    store.load(PATH, pa.table({"id": [1], "name": ["a"]}))

    assert store.load(PATH, pa.table({"id": [1], "name": [None], "op": ["delete"]}), change="op") == 1
    with pytest.raises(RowError, match=r"'name', row 0"):
        store.load(PATH, pa.table({"id": [1], "name": [None], "op": ["insert"]}), change="op")


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow", "arrows"])
def test_file_of_any_format_gives_the_same_rows(store: EmbeddedStore, tmp_path: Path, ending: str) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "NA"], "op": ["I", "U", "D"]})
    file = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(rows, file)
    elif ending == "csv":
        csv.write_csv(rows, file)
    else:
        new = pa.ipc.new_file if ending == "arrow" else pa.ipc.new_stream
        with new(file, rows.schema) as writer:
            writer.write_table(rows)
    store.create_table(PATH, SCHEMA, primary_key=["id"])

    assert store.load_file(PATH, file, change_column="op") == 2
    found = pa.Table.from_batches(read_all(store)).to_pylist()
    assert [(row["id"], row["name"]) for row in found] == [(1, "a"), (2, None)]


def test_csv_that_does_not_fit_names_file_and_value(store: EmbeddedStore, tmp_path: Path) -> None:
    store.create_table(PATH, SCHEMA)
    (tmp_path / "rows.csv").write_text("id,name\n1,a\nseven,b\n", encoding="utf-8")

    with pytest.raises(RowError, match=r"rows\.csv.*seven"):
        store.load_file(PATH, tmp_path / "rows.csv")
    for name in ("none.csv", "rows.xls"):
        with pytest.raises(UsageError, match=name):
            store.load_file(PATH, tmp_path / name)


def test_rows_without_bucket_key_are_spread_and_none_is_lost(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA, buckets=4)
    store.load(PATH, ids(0, 1000))
    store.load(PATH, ids(1000, 1001))

    assert sorted(pa.Table.from_batches(read_all(store))["id"].to_pylist()) == list(range(1001))
    assert {state.end for state in store.buckets(PATH)} <= {250, 251}


# --- reading ----------------------------------------------------------------------------------------------------


def test_small_segments_are_gathered_and_large_ones_cut(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA)
    for start in range(0, 200, 10):
        store.load(PATH, ids(start, start + 10))
    store.load(PATH, ids(200, 600_000))

    lengths = [len(batch) for batch in read_all(store)]

    assert lengths[0] == 200
    assert max(lengths) <= ROWS_MOST
    assert min(lengths[1:]) >= ROWS_LEAST
    assert pa.Table.from_batches(read_all(store))[OFFSET_COLUMN].to_pylist() == list(range(600_000))


def test_snapshot_that_was_opened_can_be_read_after_clean_up(store: EmbeddedStore) -> None:
    spec = store.create_table(PATH, SCHEMA, primary_key=["id"], properties={"table.kv.snapshot.num-retained": "1"})
    store.load(PATH, ids(0, 10))
    store.snapshot(PATH)
    (state,) = store.buckets(PATH)
    assert state.snapshot is not None
    reader = EmbeddedReader(store.root, spec)
    batches = reader.read_snapshot(SnapshotSplit("s", state.bucket, (), 0, state.snapshot.log_offset))
    store.load(PATH, ids(10, 11))
    store.snapshot(PATH)

    assert EmbeddedSource(store).missing_snapshots([state.snapshot]) == {state.snapshot}
    assert sum(len(batch.records) for batch in batches) == 10
    reader.close()


# --- upkeep -----------------------------------------------------------------------------------------------------


def test_load_takes_snapshots_that_are_due_by_rows(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA, primary_key=["id"], properties=INTERVAL_OFF | {"table.kv.snapshot.rows": "10"})
    store.load(PATH, ids(0, 9))
    assert store.buckets(PATH)[0].snapshot is None
    store.load(PATH, ids(9, 10))

    (state,) = store.buckets(PATH)
    assert state.snapshot == KvSnapshot(state.bucket, 0, 10)


def test_load_takes_snapshots_that_are_due_by_time_and_deletes_old_files(
    store: EmbeddedStore, clock: FakeClock
) -> None:
    store.create_table(PATH, SCHEMA, primary_key=["id"])
    for step in range(5):
        clock.advance(601)
        store.load(PATH, ids(step, step + 1))

    assert len(list((store.root / "kv" / "1").iterdir())) == 2
    snapshot = store.buckets(PATH)[0].snapshot
    assert snapshot is not None
    assert snapshot.snapshot_id == 4
    clock.advance(601)
    store.maintain()
    assert store.buckets(PATH)[0].snapshot == snapshot


def test_log_is_kept_until_the_lake_has_it_and_then_until_its_age(store: EmbeddedStore, clock: FakeClock) -> None:
    spec = store.create_table(PATH, SCHEMA, properties={"table.log.ttl-s": "60"})
    source = EmbeddedSource(store)
    store.load(PATH, ids(0, 5))
    clock.advance(61)
    store.load(PATH, ids(5, 9))
    store.maintain()
    assert store.buckets(PATH)[0].start == 0

    offsets = {state.bucket: state.end for state in store.buckets(PATH)}
    source.commit(spec, 1, source.prepare(spec, offsets), offsets)
    store.maintain()

    assert store.buckets(PATH)[0].start == 5
    assert len(list((store.root / "log" / "1").iterdir())) == 1


def test_only_a_table_that_no_lake_is_to_have_loses_unread_records_with_time(store: EmbeddedStore) -> None:
    properties = {"table.log.ttl-s": "60"}
    kept = store.create_table(PATH, SCHEMA, properties=properties)
    lost = store.create_table(
        TablePath("nyc", "raw"), SCHEMA, properties={**properties, "table.datalake.enabled": "false"}
    )
    assert (kept.unread_kept_s, lost.unread_kept_s) == (None, 60.0)


def test_maintain_sweeps_what_crashes_left(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA, primary_key=["id"])
    store.load(PATH, ids(0, 3))
    store.snapshot(PATH)
    left = [store.root / "log/1/x.arrow.tmp", store.root / "kv/1/y.arrow", store.root / "log/99/z.arrow"]
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.touch()

    store.maintain()

    assert not any(file.exists() for file in left)
    assert len(read_all(store)[0]) == 3


def test_drop_leaves_no_file(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA, primary_key=["id"])
    store.load(PATH, ids(0, 3))
    store.snapshot(PATH)
    store.drop_table(PATH)

    assert not [file for kind in ("log", "kv", "index") for file in (store.root / kind).rglob("*")]
    with pytest.raises(TableGoneError):
        store.load(PATH, ids(0, 1))


# --- leases, queue, lake record ---------------------------------------------------------------------------------


def test_leases_are_listed_until_they_are_reaped(store: EmbeddedStore, clock: FakeClock) -> None:
    store.create_table(PATH, SCHEMA, primary_key=["id"])
    bucket = store.buckets(PATH)[0].bucket
    EmbeddedSource(store).leases.acquire("a", 10, {bucket: 12345})

    (lease,) = store.leases()
    assert (lease.lease_id, lease.expires_ms, dict(lease.held)) == ("a", clock.wall_ms() + 10_000, {bucket: 12345})
    clock.advance(11)
    store.maintain()
    assert store.leases() == ()


@pytest.mark.parametrize(("lease_id", "duration_s"), [("a/b", 1), ("", 1), ("x" * 200, 1), ("a", 0), ("a", -1)])
def test_wrong_lease_is_refused(store: EmbeddedStore, lease_id: str, duration_s: float) -> None:
    with pytest.raises(UsageError):
        EmbeddedSource(store).leases.acquire(lease_id, duration_s, {})


def test_new_table_is_due_at_once_and_the_queue_is_first_in_first_out(store: EmbeddedStore, clock: FakeClock) -> None:
    source = EmbeddedSource(store)
    paths = [TablePath("db", f"t{number}") for number in (3, 1, 2)]
    for path in paths:
        store.create_table(path, SCHEMA)
        clock.advance(1)

    assignments = [source.heartbeat(HeartbeatRequest(request=True)).assignment for _ in range(4)]

    assert [None if assignment is None else assignment.path for assignment in assignments] == [*paths, None]
    assert {assignment.epoch for assignment in assignments if assignment} == {1}


def test_failed_after_finished_is_pending_at_once(store: EmbeddedStore) -> None:
    source = EmbeddedSource(store)
    store.create_table(PATH, SCHEMA)
    assignment = source.heartbeat(HeartbeatRequest(request=True)).assignment
    assert assignment is not None
    table_epoch = TableEpoch(assignment.table_id, assignment.epoch, 0)
    source.heartbeat(HeartbeatRequest(finished=(table_epoch,)))

    again = source.heartbeat(HeartbeatRequest(failed=(table_epoch,), request=True)).assignment

    assert again is not None
    assert again.epoch == 2


def test_table_without_lake_is_neither_listed_nor_handed_out(store: EmbeddedStore) -> None:
    source = EmbeddedSource(store)
    store.create_table(PATH, SCHEMA, properties={"table.datalake.enabled": "false"})
    assert not source.tables()
    assert source.heartbeat(HeartbeatRequest(request=True)).assignment is None

    store.set_property(PATH, "table.datalake.enabled", "true")

    assert source.heartbeat(HeartbeatRequest(request=True)).assignment is not None


def test_timeout_of_the_queue_is_a_setting_of_the_store(store: EmbeddedStore, clock: FakeClock) -> None:
    store.set_option("tiering-timeout-s", "5")
    store.create_table(PATH, SCHEMA)
    other = EmbeddedStore.open(store.root, clock=clock)
    assert EmbeddedSource(other).heartbeat(HeartbeatRequest(request=True)).assignment is not None
    clock.advance(6)

    assignment = EmbeddedSource(store).heartbeat(HeartbeatRequest(request=True)).assignment

    assert assignment is not None
    assert assignment.epoch == 2
    assert other.options() == {"lease-api": "true", "tiering-timeout-s": "5"}
    other.close()
    with pytest.raises(ConfigError, match="tiering-timeout-s"):
        store.set_option("tiering-timeout", "5")


def test_record_can_be_set_back_to_an_older_snapshot_whose_file_is_gone(store: EmbeddedStore) -> None:
    spec = store.create_table(PATH, SCHEMA)
    source = EmbeddedSource(store)
    bucket = store.buckets(PATH)[0].bucket
    older = source.prepare(spec, {bucket: 1})
    source.commit(spec, 10, older, {bucket: 1})
    newer = source.prepare(spec, {bucket: 2})
    source.commit(spec, 11, newer, {bucket: 2})

    source.commit(spec, 10, older, {bucket: 1})

    record = source.lake_record(spec)
    assert record is not None
    assert (record.snapshot_id, dict(record.offsets)) == (10, {bucket: 1})
    assert dict(source.read_offsets(spec, older)) == {bucket: 1}


# --- damage -----------------------------------------------------------------------------------------------------


def test_damaged_segment_is_named(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA)
    store.load(PATH, ids(0, 1000))
    (file,) = (store.root / "log" / "1").iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:100], whole[:-200], b"x" * len(whole)):
        file.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=file.name):
            read_all(store)
    file.unlink()
    with pytest.raises(CorruptFileError, match=file.name):
        read_all(store)


def test_damaged_database_is_named(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA)
    store.close()
    file = store.root / "store.db"
    file.write_bytes(b"no database" * 1000)

    with pytest.raises(CorruptFileError, match=r"store\.db"):
        EmbeddedStore.open(store.root)


def test_unknown_format_is_refused(store: EmbeddedStore) -> None:
    with sqlite3.connect(store.root / "store.db") as sql:
        sql.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    sql.close()

    with pytest.raises(CorruptFileError, match="99"):
        EmbeddedStore.open(store.root)


def test_directory_without_store_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="embedded store"):
        EmbeddedStore.open(tmp_path)
    assert not list(tmp_path.iterdir())


def test_disk_that_refuses_is_a_storage_error_and_nothing_is_half_done(store: EmbeddedStore) -> None:
    store.create_table(PATH, SCHEMA)
    (store.root / "log").write_text("in the way", encoding="utf-8")

    with pytest.raises(StorageError, match="log"):
        store.load(PATH, ids(0, 1))
    assert [state.end for state in store.buckets(PATH)] == [0]


def test_connections_are_closed_with_the_last_reference_to_their_store(store: EmbeddedStore) -> None:
    database = Database(store.root)
    with database.read() as connection:
        pass
    del database
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")
