from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import LakeError, RowsGoneError
from lakeward.model.results import LakeHead, OffsetCommit
from lakeward.model.splits import LogSplit
from lakeward.model.tables import TablePath
from lakeward_ops.verify.lake_rows import ComparableRows
from lakeward_ops.verify.verification import Sides, Verification, VerifyOptions, verify_table
from lakeward_source_embedded.plugin import EmbeddedSourcePlugin
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.model.tables import TableSpec

pytestmark = pytest.mark.slow

LOG, KEYED = TablePath("nyc", "log"), TablePath("nyc", "keyed")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
NESTED = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])
WIDE: dict[str, tuple[pa.DataType, list[Any], Any]] = {
    "flag": (pa.bool_(), [True, None], False),
    "small": (pa.int8(), [-7, None], 7),
    "amount": (pa.decimal128(20, 4), [Decimal("1.0000"), None], Decimal("1.0001")),
    "ratio": (pa.float64(), [float("nan"), -0.0], 0.0),
    "at": (pa.timestamp("us"), [dt.datetime(1969, 12, 31, 23, 59), None], dt.datetime(1970, 1, 1)),  # noqa: DTZ001
    "fine": (pa.timestamp("ns"), [-1_001, None], 0),
    "day": (pa.date32(), [dt.date(2026, 1, 1), None], dt.date(2026, 1, 2)),
    "text": (pa.string(), ["", None], "ä"),
    "raw": (pa.binary(), [b"\x00", None], b""),
    "items": (pa.list_(pa.int32()), [[1, None], None], [1]),
    "pairs": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", 2)], None], [("a", 2)]),
    "nested": (NESTED, [{"x": float("nan"), "tags": [None]}, None], {"x": 0.0, "tags": []}),
}


@dataclass
class Rows:
    """A lake that has these rows of one snapshot."""

    table: pa.Table
    asked: int = 0

    def read_rows(self, path: TablePath, snapshot_id: int) -> Iterator[pa.RecordBatch]:
        self.asked = snapshot_id
        yield from self.table.to_batches() or [pa.RecordBatch.from_pylist([], self.table.schema)]


class Place:
    """An embedded store, and what a lake has of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.store = EmbeddedStore.create(directory / "store", clock=self.clock)
        self.source = EmbeddedSource(self.store)
        self.number = 0

    def log(self, schema: pa.Schema = SCHEMA, **options: Any) -> TableSpec:  # noqa: ANN401 - fields of any type
        return self.store.create_table(LOG, schema, **{"buckets": 1, **options})

    def keyed(self, **options: Any) -> TableSpec:  # noqa: ANN401 - fields of any type
        return self.store.create_table(KEYED, SCHEMA, ["id"], **{"buckets": 2, **options})

    def load(self, path: TablePath, rows: dict[int, str | None], change: str | None = None) -> None:
        table = pa.table({"id": list(rows), "name": list(rows.values())}, SCHEMA)
        if change is not None:
            table = table.append_column("op", pa.array([change] * len(table)))
        self.store.load(path, table, change="op" if change else None)

    def lake(self, spec: TableSpec) -> pa.Table:
        """Return what the lake has to have of a table, by a way of its own: all records, kept in a dict."""
        rows: dict[Any, dict[str, Any]] = {}
        plugin = EmbeddedSourcePlugin()
        with_key = spec.primary_key
        reader = plugin.reader(self.source.reader_task(spec), spec)
        for state in self.source.buckets(spec):
            if state.start == state.end:
                continue
            for batch in reader.read_log(LogSplit("x", state.bucket, state.partition, state.start, state.end)):
                for row in batch.records.to_pylist():
                    change = row.pop("__change")
                    row["__bucket"] = state.bucket.bucket
                    key = tuple(row[name] for name in with_key) or (*state.partition, row["__bucket"], row["__offset"])
                    if change == 4:
                        del rows[key]
                    elif change != 2:
                        rows[key] = row
        reader.close()
        system = [("__bucket", pa.int32()), ("__offset", pa.int64()), ("__timestamp", pa.timestamp("us", "UTC"))]
        return pa.Table.from_pylist(list(rows.values()), pa.schema([*spec.schema, *system]))

    def verify(self, spec: TableSpec, lake: pa.Table, **options: Any) -> Verification:  # noqa: ANN401 - fields of any type
        """Compare with a lake table that claims the source's end offsets, or `offsets`."""
        ends = {state.bucket: state.end for state in self.source.buckets(spec)}
        tiered = options.pop("offsets", ends)
        head = LakeHead(spec.path, spec.table_id, "/w", 55, None, OffsetCommit(55, tiered, None, None, None, None, 0))
        reader = EmbeddedSourcePlugin().reader(self.source.reader_task(spec), spec)
        rows = Rows(lake)
        sides = Sides(self.source, reader, rows, spec, head, tiered)
        self.number += 1
        folder = self.directory / f"spill-{self.number}"
        chosen = VerifyOptions(folder, available=False, most=10, memory_bytes=64 << 20)
        try:
            return verify_table(sides, replace(chosen, **options))
        finally:
            reader.close()
            assert rows.asked in {0, 55}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Make an empty store."""
    made = Place(tmp_path)
    yield made
    made.store.close()


def counts(found: Verification) -> dict[str, int]:
    return {kind: number for kind, number in found.comparison.counts.items() if number}


def first(found: Verification) -> tuple[str, dict[str, str], str, str, str]:
    (one,) = found.comparison.first
    return one.kind, one.key, one.column, one.source, one.lake


def edited(table: pa.Table, row: int, column: str, value: object) -> pa.Table:
    place = table.schema.get_field_index(column)
    values = table.column(column).to_pylist()
    values[row] = value
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


def without(table: pa.Table, row: int) -> pa.Table:
    return pa.concat_tables([table.slice(0, row), table.slice(row + 1)])


@pytest.fixture(params=["log", "keyed"])
def table(place: Place, request: pytest.FixtureRequest) -> TableSpec:
    """A table of 50 rows; those of the keyed one have changed since, and one is deleted."""
    names: dict[int, str | None] = {number: f"n{number}" for number in range(50)}
    if request.param == "log":
        spec = place.log(buckets=2)
        place.load(LOG, names)
        return spec
    spec = place.keyed()
    place.load(KEYED, names | {50: "away"}, "insert")
    place.load(KEYED, {7: "new", 8: None}, "update")
    place.load(KEYED, {50: None}, "delete")
    return spec


def test_an_equal_lake_is_equal(place: Place, table: TableSpec) -> None:
    found = place.verify(table, place.lake(table))
    assert found.comparison.equal
    assert (found.comparison.source_rows, found.comparison.lake_rows) == (50, 50)


def test_a_removed_row_is_missing(place: Place, table: TableSpec) -> None:
    lake = place.lake(table)
    found = place.verify(table, without(lake, 3))
    assert counts(found) == {"missing": 1}
    assert first(found)[1] == {name: str(lake.column(name)[3].as_py()) for name in found.key}


def test_a_row_that_was_added_by_hand_is_extra(place: Place, table: TableSpec) -> None:
    lake = place.lake(table)
    more = edited(edited(lake.slice(0, 1), 0, "id", 900), 0, "__offset", 900)
    found = place.verify(table, pa.concat_tables([lake, more]))
    assert counts(found) == {"extra": 1}


@pytest.mark.parametrize("available", [False, True], ids=["all", "available"])
@pytest.mark.parametrize("columns", [("__bucket",), ("__offset",), ("__bucket", "__offset", "__timestamp")], ids=str)
def test_an_added_row_without_bucket_or_offset_is_extra(
    place: Place, table: TableSpec, columns: tuple[str, ...], *, available: bool
) -> None:
    lake = place.lake(table)
    more = edited(lake.slice(0, 1), 0, "id", 900)
    for column in columns:
        more = edited(more, 0, column, None)
    found = place.verify(table, pa.concat_tables([lake, more]), available=available)
    assert (counts(found), found.left_out) == ({"extra": 1}, 0)


def test_an_added_row_without_partition_is_extra_even_where_partitions_were_dropped(place: Place) -> None:
    schema = pa.schema([("day", pa.string()), ("id", pa.int64())])
    spec = place.log(schema, partition_keys=["day"])
    place.store.load(LOG, pa.table({"day": ["mon", "tue"], "id": [1, 2]}, schema))
    offsets, lake = {state.bucket: state.end for state in place.source.buckets(spec)}, place.lake(spec)
    place.store.drop_partition(LOG, ("mon",))
    more = pa.concat_tables([lake, edited(lake.slice(0, 1), 0, "day", None)])
    found = place.verify(spec, more, offsets=offsets, available=True)
    assert (counts(found), found.left_out) == ({"extra": 1}, 1)


@pytest.mark.parametrize("column", ["__offset", "__timestamp"])
def test_a_row_from_a_kv_snapshot_has_an_offset_and_a_time(place: Place, column: str) -> None:
    """Which ones is not known; but null is what nobody ever wrote."""
    spec = place.keyed()
    place.load(KEYED, {1: "a", 2: "b"}, "insert")
    lake = place.lake(spec)
    place.store.snapshot(KEYED)
    found = place.verify(spec, edited(lake, 0, column, None))
    assert counts(found) == {"changed": 1}
    assert (first(found)[2], first(found)[4]) == (column, "null")


def test_offsets_beside_a_null_are_compared_exactly(place: Place) -> None:
    """An array of numbers with a null would be of floats, which do not tell these offsets apart."""
    rows = pa.record_batch({"__bucket": pa.array([0, 0, None], pa.int32()), "__offset": [2**53, 2**53 + 1, None]})
    comparable = ComparableRows((), {("0",): 2**53 + 1}, dropped=False)
    assert comparable.of(rows).column("__offset").to_pylist() == [2**53 + 1, None]
    assert comparable.left_out == 1


def test_a_doubled_row_is_found(place: Place, table: TableSpec) -> None:
    lake = place.lake(table)
    assert counts(place.verify(table, pa.concat_tables([lake, lake.slice(4, 1)]))) == {"doubled": 1}


def test_a_changed_value_is_shown_with_both_values(place: Place, table: TableSpec) -> None:
    lake = place.lake(table)
    row = lake.column("id").to_pylist().index(9)
    found = place.verify(table, edited(lake, row, "name", "by hand"))
    assert counts(found) == {"changed": 1}
    assert first(found)[2:] == ("name", "'n9'", "'by hand'")


@pytest.mark.parametrize("column", ["__bucket", "__offset", "__timestamp"])
def test_a_changed_system_column_is_found(place: Place, table: TableSpec, column: str) -> None:
    lake = place.lake(table)
    value = 77 if column != "__timestamp" else dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    assert not place.verify(table, edited(lake, 3, column, value)).comparison.equal


def test_offset_and_time_of_a_row_from_a_kv_snapshot_are_not_compared(place: Place) -> None:
    spec = place.keyed()
    place.load(KEYED, {1: "a", 2: "b"}, "insert")
    lake = place.lake(spec)
    assert place.verify(
        spec, edited(edited(lake, 0, "__offset", -1), 0, "__timestamp", dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
    ).comparison.equal
    place.store.snapshot(KEYED)
    assert place.verify(spec, lake).comparison.equal


def test_changes_after_the_lakes_offsets_do_not_count(place: Place, table: TableSpec) -> None:
    offsets = {state.bucket: state.end for state in place.source.buckets(table)}
    lake = place.lake(table)
    place.load(table.path, {7: "later"}, "update" if table.has_primary_key else None)
    if table.has_primary_key:
        place.store.snapshot(table.path)
    assert place.verify(table, lake, offsets=offsets).comparison.equal


def test_a_key_of_a_snapshot_and_the_log_after_it_is_as_of_the_lakes_offsets(place: Place) -> None:
    spec = place.keyed()
    place.load(KEYED, dict.fromkeys(range(40), "old"), "insert")
    place.store.snapshot(KEYED)
    place.load(KEYED, dict.fromkeys(range(9), "new"), "update")
    place.load(KEYED, dict.fromkeys(range(30, 35)), "delete")
    lake = place.lake(spec)
    assert place.verify(spec, lake).comparison.equal
    stale = edited(lake, lake.column("id").to_pylist().index(3), "name", "old")
    assert first(place.verify(spec, stale))[2:] == ("name", "'new'", "'old'")


def test_values_of_each_type_are_compared_exactly(place: Place) -> None:
    spec = place.log(pa.schema([pa.field(name, kind) for name, (kind, _, _) in WIDE.items()]))
    source = pa.table({name: pa.array(values, kind) for name, (kind, values, _) in WIDE.items()})
    place.store.load(LOG, source)
    lake = place.lake(spec)
    names = {"small": pa.int32(), "fine": pa.timestamp("us"), "text": pa.large_string()}
    for name, kind in names.items():  # as a lake would have them
        at = lake.schema.get_field_index(name)
        values = pa.array([-2, None], pa.timestamp("us")) if name == "fine" else lake.column(name).cast(kind)
        lake = lake.set_column(at, name, values)
    assert place.verify(spec, lake).comparison.equal
    for column, (_, _, other) in WIDE.items():
        for row, value in ((0, other), (1, other), (0, None)):
            found = place.verify(spec, edited(lake, row, column, value))
            assert (counts(found), first(found)[2]) == ({"changed": 1}, column)


def test_a_table_that_is_larger_than_memory_is_compared_all_the_same(place: Place, table: TableSpec) -> None:
    change = "insert" if table.has_primary_key else None
    place.load(table.path, dict.fromkeys(range(100, 650), "x" * 200), change)
    lake = place.lake(table)
    found = place.verify(table, without(lake, 500), memory_bytes=2_000)
    assert (counts(found), found.comparison.source_rows) == ({"missing": 1}, 600)
    assert any(place.directory.glob("spill-*/source/*/"))  # files were divided again


def test_no_more_differences_are_kept_than_asked_for(place: Place, table: TableSpec) -> None:
    found = place.verify(table, place.lake(table).slice(0, 20), most=4)
    assert (counts(found), len(found.comparison.first)) == ({"missing": 30}, 4)


def trimmed(place: Place) -> tuple[TableSpec, pa.Table]:
    """A log table whose first 10 of 15 records the source has deleted, and a lake that has all of them."""
    spec = place.log()
    place.load(LOG, dict.fromkeys(range(15), "a"))
    lake = place.lake(spec)
    place.store.trim_log(LOG, 0, 10)
    return spec, lake


def test_rows_that_the_source_no_longer_has_are_an_error_that_says_what_to_do(place: Place) -> None:
    spec, lake = trimmed(place)
    with pytest.raises(RowsGoneError, match=r"bucket 1/0: offsets below 10.*--available"):
        place.verify(spec, lake)
    found = place.verify(spec, lake, available=True)
    assert (found.comparison.equal, found.left_out, found.comparison.lake_rows) == (True, 10, 5)
    assert counts(place.verify(spec, without(lake, 12), available=True)) == {"missing": 1}


def test_a_key_table_whose_log_and_snapshots_begin_too_late_cannot_be_compared(place: Place) -> None:
    spec = place.keyed(buckets=1)
    place.load(KEYED, {1: "a"}, "insert")
    offsets, lake = {state.bucket: state.end for state in place.source.buckets(spec)}, place.lake(spec)
    place.load(KEYED, {1: "b"}, "update")
    place.store.snapshot(KEYED)
    place.store.trim_log(KEYED, 0, 2)
    with pytest.raises(RowsGoneError, match="no longer has all rows"):
        place.verify(spec, lake, offsets=offsets)
    found = place.verify(spec, lake, offsets=offsets, available=True)
    assert (found.comparison.equal, found.left_out) == (True, 1)


def test_partitions_are_told_apart_and_a_dropped_one_cannot_be_compared(place: Place) -> None:
    schema = pa.schema([("day", pa.string()), ("id", pa.int64())])
    spec = place.log(schema, partition_keys=["day"])
    place.store.load(LOG, pa.table({"day": ["mon", "tue"], "id": [1, 2]}, schema))
    offsets, lake = {state.bucket: state.end for state in place.source.buckets(spec)}, place.lake(spec)
    assert place.verify(spec, lake).comparison.equal
    assert first(place.verify(spec, without(lake, 0)))[1]["day"] == "'mon'"
    place.store.drop_partition(LOG, ("mon",))
    with pytest.raises(RowsGoneError, match="its partition was dropped"):
        place.verify(spec, lake, offsets=offsets)
    found = place.verify(spec, lake, offsets=offsets, available=True)
    assert (found.comparison.equal, found.left_out, found.comparison.lake_rows) == (True, 1, 1)


def test_a_column_that_the_lake_does_not_have_yet_is_left_out_and_said_so(place: Place, table: TableSpec) -> None:
    found = place.verify(table, place.lake(table).drop_columns(["name"]))
    assert (found.equal, found.not_in_lake, found.lost) == (True, ("name",), {})


def test_a_column_that_the_lake_has_lost_is_a_difference(place: Place, table: TableSpec) -> None:
    lake = place.lake(table).drop_columns(["name"])
    what = {"name": "dropped", "of_nobody": "dropped"}
    found = place.verify(table, lake.replace_schema_metadata({"lost_columns": json.dumps(what)}))
    assert (found.equal, found.not_in_lake, found.lost) == (False, (), {"name": "dropped"})
    assert counts(found) == {}


def test_a_key_column_that_the_lake_has_lost_is_named_with_what_became_of_it(place: Place) -> None:
    spec = place.keyed()
    place.load(KEYED, {1: "a"}, "insert")
    lake = place.lake(spec).drop_columns(["id"]).replace_schema_metadata({"lost_columns": '{"id": "dropped"}'})
    with pytest.raises(LakeError, match=r"found no id \(dropped\)$"):
        place.verify(spec, lake)


def test_a_field_of_a_nested_column_that_the_lake_does_not_have_is_a_difference(place: Place) -> None:
    inner = pa.struct([("x", pa.float64()), ("y", pa.int64())])
    spec = place.log(pa.schema([("id", pa.int64()), ("point", inner), ("path", pa.list_(inner))]))
    place.store.load(LOG, pa.table({"id": [1], "point": [{"x": 1.0, "y": 2}], "path": [[]]}, spec.schema))
    lake = place.lake(spec)
    less = pa.struct([("x", pa.float64())])
    lake = lake.set_column(1, "point", pa.array([{"x": 1.0}], less)).set_column(
        2, "path", pa.array([[]], pa.list_(less))
    )
    found = place.verify(spec, lake)
    assert (found.equal, list(found.lost)) == (False, ["point.y", "path.element.y"])


def test_a_lake_table_without_system_columns_cannot_be_compared(place: Place, table: TableSpec) -> None:
    with pytest.raises(LakeError, match="found no __offset"):
        place.verify(table, place.lake(table).drop_columns(["__offset"]))


def test_keys_of_the_source_that_the_lake_cannot_tell_apart_are_never_taken_for_one(place: Place) -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("ns"), nullable=False), pa.field("name", pa.string())])
    spec = place.store.create_table(KEYED, schema, ["at"], buckets=1)
    place.store.load(KEYED, pa.table([[1_001, 1_002], ["a", "b"]], schema))
    lake = place.lake(replace(spec, primary_key=())).slice(1)
    lake = lake.set_column(0, "at", pa.array([1], pa.timestamp("us")))
    with pytest.raises(LakeError, match="column 'at': timestamp\\[ns\\] cannot be compared as timestamp\\[us\\]"):
        place.verify(spec, lake)


def nameless(lake: pa.Table) -> pa.Table:
    """Return rows as Fluss 1.0 wants them in the lake: nothing says where they come from."""
    return lake.drop_columns(["__bucket", "__offset", "__timestamp"])


def test_a_lake_without_system_columns_is_compared_by_key_and_without_one_by_whole_rows(
    place: Place, table: TableSpec
) -> None:
    lake = nameless(place.lake(table))
    found = place.verify(table, lake)
    assert (found.equal, found.comparison.source_rows, found.comparison.lake_rows) == (True, 50, 50)
    assert counts(place.verify(table, without(lake, 3))) == {"missing": 1}
    assert counts(place.verify(table, pa.concat_tables([lake, lake.slice(4, 1)]))) == {"doubled": 1}
    assert counts(place.verify(table, pa.concat_tables([lake, edited(lake.slice(0, 1), 0, "id", 900)]))) == {"extra": 1}
    changed = counts(place.verify(table, edited(lake, lake.column("id").to_pylist().index(9), "name", "by hand")))
    assert changed == ({"changed": 1} if table.has_primary_key else {"missing": 1, "extra": 1})


def test_a_row_that_is_there_several_times_is_counted(place: Place) -> None:
    """Nothing tells such rows apart; one too few or too many is found, and each is a difference of its own."""
    spec = place.log(buckets=3)
    for _ in range(5):
        place.load(LOG, {1: "same", 2: "same"})
    lake = nameless(place.lake(spec))
    assert place.verify(spec, lake).equal
    less = place.verify(spec, lake.slice(3))
    assert (counts(less), len(less.comparison.first), less.comparison.lake_rows) == ({"missing": 3}, 3, 7)
    more = place.verify(spec, pa.concat_tables([lake, lake.slice(0, 2)]))
    assert (counts(more), more.comparison.lake_rows) == ({"doubled": 2}, 12)


def test_whole_rows_are_the_same_exactly_if_each_value_is(place: Place) -> None:
    """Also nested ones, NaN and zeros of both signs; a map has no order."""
    spec = place.log(pa.schema([pa.field(name, kind) for name, (kind, _, _) in WIDE.items()]))
    place.store.load(LOG, pa.table({name: pa.array(values, kind) for name, (kind, values, _) in WIDE.items()}))
    lake = nameless(place.lake(spec))
    place_of_fine = lake.schema.get_field_index("fine")
    lake = lake.set_column(place_of_fine, "fine", pa.array([-2, None], pa.timestamp("us")))
    assert place.verify(spec, lake).equal
    turned = lake.schema.get_field_index("pairs")
    pairs = pa.array([[("b", 2), ("a", 1)], None], WIDE["pairs"][0])
    assert place.verify(spec, lake.set_column(turned, "pairs", pairs)).equal
    for column, (_, _, other) in WIDE.items():
        assert counts(place.verify(spec, edited(lake, 0, column, other))) == {"missing": 1, "extra": 1}, column


def test_a_lake_without_offsets_that_has_more_than_the_source_is_compared_as_far_as_it_can_be(place: Place) -> None:
    """Which rows the source has dropped cannot be told, so what it does not have is left out, and said so."""
    spec, whole = trimmed(place)
    lake = nameless(whole)
    with pytest.raises(RowsGoneError, match=r"bucket 1/0: offsets below 10.*--available"):
        place.verify(spec, lake)
    found = place.verify(spec, lake, available=True)
    assert (found.equal, found.left_out, found.comparison.lake_rows) == (True, 10, 5)
    assert counts(place.verify(spec, without(lake, 12), available=True)) == {"missing": 1}


def test_keys_that_the_source_no_longer_has_are_left_out_without_system_columns(place: Place) -> None:
    spec = place.keyed(buckets=1)
    place.load(KEYED, {1: "a"}, "insert")
    offsets, lake = {state.bucket: state.end for state in place.source.buckets(spec)}, nameless(place.lake(spec))
    place.load(KEYED, {1: "b"}, "update")
    place.store.snapshot(KEYED)
    place.store.trim_log(KEYED, 0, 2)
    with pytest.raises(RowsGoneError, match="no longer has all rows"):
        place.verify(spec, lake, offsets=offsets)
    found = place.verify(spec, lake, offsets=offsets, available=True)
    assert (found.equal, found.left_out, found.comparison.lake_rows) == (True, 1, 0)


def test_a_key_alone_is_compared_by_the_key_and_not_counted(place: Place) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    spec = place.store.create_table(KEYED, schema, ["id"], buckets=1)
    place.store.load(KEYED, pa.table({"id": [1, 2], "op": ["insert", "insert"]}), change="op")
    place.store.load(KEYED, pa.table({"id": [2], "op": ["delete"]}), change="op")
    assert place.verify(spec, nameless(place.lake(spec))).equal
