"""What a snapshot says of its files is compared with the files: readers leave out files by it, and order rows by it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.errors import LakeError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import BUCKET_COLUMN
from lakeward_lake_paimon.binary_row import encode_row, scalar_of
from lakeward_lake_paimon.kinds import Kind, parse_kind
from lakeward_lake_paimon.stored_values import extremes, ordered, read_row
from lakeward_paimon_kit.lies import Teller
from lakeward_paimon_kit.made import SYSTEM, TYPES, create_as_fluss
from lakeward_paimon_kit.upkeep import compact
from lakeward_testing.lake_partitions import LAYOUTS, partitioned, some_rows
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.tables import TableSpec
    from lakeward.ports import FileDifference
    from lakeward_lake_paimon.lake import PaimonLake
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

    Change = Callable[[dict[str, Any]], object]

DAILY = COLUMNS.append(pa.field("score", pa.float64())).append(pa.field("day", pa.string(), nullable=False))
KEY, TEXT, SCORE = Kind("BIGINT"), Kind("STRING"), Kind("DOUBLE")
VALUES = [KEY, TEXT, SCORE, TEXT]
NAN = float("nan")


def daily(*, keyed: bool = True, **changes: Any) -> TableSpec:  # noqa: ANN401 - fields of `TableSpec`
    """Return a partitioned table."""
    key = ("id", "day") if keyed else ()
    return log_table(DAILY, primary_key=key, bucket_key=("id",), partition_keys=("day",), **changes)


def tier(plugin: PaimonLakePlugin, lake: PaimonLake, table: TableSpec, number: int = 1) -> None:
    """Commit six rows in two partitions: ids -3 to 2, of which each round deletes that of its number."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    for place, day in enumerate(("d1", "d 2")):
        ids = range(-3, 0) if not place else range(3)
        rows = [{"id": one, "name": None if one == 1 else f"n{one}", "score": one / 2, "day": day} for one in ids]
        if table.has_primary_key:
            rows.append(rows[number % 3])
        changes = [3, 3, 3, 4] if table.has_primary_key else [0] * 3
        split = log_split(table, 0, (day,), place + 1)
        tiering.write(split, [source_batch(DAILY, rows, changes=changes)])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def found(lake: PaimonLake, most: int | None = None) -> list[FileDifference]:
    """Return what is wrong of the head's files."""
    return list(lake.check_files(PATH, head_of(lake).snapshot_id or 0, most))


def files(options: PaimonOptions, kind: str = "data") -> list[Path]:
    """Return the files of a kind, those of the partition `d 2` first."""
    return sorted(Path(options.warehouse).rglob(f"{kind}-*.parquet"), key=str)


@pytest.fixture
def teller(options: PaimonOptions) -> Teller:
    """Says something else of the table."""
    return Teller(Path(options.warehouse) / "shop.db" / "orders")


@pytest.mark.parametrize("system", [True, False], ids=["legacy", "clean"])
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_nothing_is_wrong_of_what_lakeward_writes_and_compacts(
    plugin: PaimonLakePlugin, lake: PaimonLake, *, keyed: bool, system: bool
) -> None:
    table = daily(keyed=keyed, system_columns=system)
    for number in range(1, 7):
        tier(plugin, lake, table, number)
    assert found(lake) == []
    assert bool(compact(plugin, lake)) == keyed
    assert found(lake) == []
    tier(plugin, lake, table, 7)
    assert found(lake) == []


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_nothing_is_wrong_of_any_type(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, *, keyed: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(n, one[1]) for n, one in TYPES.items())])
    table = (key_table if keyed else log_table)(schema, buckets=1)
    kinds = {"id": "BIGINT NOT NULL" if keyed else "BIGINT", **{name: one[0] for name, one in TYPES.items()}}
    create_as_fluss(options, table, kinds)
    tiering = TieringRound(plugin, lake, table, incarnation())
    values: dict[str, object] = {name: one[2] for name, one in TYPES.items()}
    rows: list[dict[str, object]] = [{"id": 1, **values}, {"id": 2}, {"id": 3, "f": NAN, "d": NAN}]
    rows += [{"id": 4, "f": -0.0, "d": 0.0}]
    tiering.write(log_split(table), [source_batch(schema, rows, changes=[1] * 4)])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert found(lake) == []


@pytest.mark.parametrize("name", [name for name in TYPES if name not in {"f", "d", "a", "m", "r", "deep", "tm6"}])
def test_nothing_is_wrong_of_a_partition_of_any_type(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, name: str
) -> None:
    stored, kind, value, _ = TYPES[name]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", kind, nullable=False)])
    table = log_table(schema, primary_key=("id", "p"), bucket_key=("id",), partition_keys=("p",), buckets=1)
    create_as_fluss(options, table, {"id": "BIGINT NOT NULL", "p": f"{stored} NOT NULL"})
    tiering = TieringRound(plugin, lake, table, incarnation())
    tiering.write(log_split(table, 0, ("p1",)), [source_batch(schema, [{"id": 1, "p": value}], changes=[1])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert found(lake) == []


@pytest.mark.parametrize(
    "value", ["a b", "100%", "a/b", "a=b", "é", "..", "#?", "{a}", "", " ", "2024-01-01 00:00:00.500"]
)
def test_nothing_is_wrong_of_a_partition_of_any_name(plugin: PaimonLakePlugin, lake: PaimonLake, value: str) -> None:
    schema = COLUMNS.append(pa.field("p", pa.string()))
    tiering = TieringRound(plugin, lake, log_table(schema, partition_keys=("p",), buckets=1), incarnation())
    split = log_split(tiering.table, 0, ("p0",), 1)
    tiering.write(split, [source_batch(schema, [{"id": 1, "p": value}])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert found(lake) == []


def fan_out(plugin: PaimonLakePlugin, lake: PaimonLake, table: TableSpec, rows: list[dict[str, Any]]) -> None:
    """Commit rows, each partition by a writer of its own."""
    tiering = TieringRound(plugin, lake, table, incarnation())
    batch = source_batch(table.schema, rows, changes=[1] * len(rows))
    buckets = pa.array([0] * len(rows), pa.int32())
    field = pa.field(BUCKET_COLUMN, pa.int32(), nullable=False)
    batch = type(batch)(batch.records.append_column(field, buckets), batch.next_offset)
    codes, partitions = plugin.partitioner(tiering.task, table).partition(batch.records)
    for code, partition in enumerate(partitions):
        writer = plugin.partition_writer(tiering.task, table, partition, f"w{code}", 1, (), 1 << 20)
        writer.write(type(batch)(batch.records.filter(pa.array(codes == code)), batch.next_offset))
        tiering.files += writer.close()
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
@pytest.mark.parametrize("fields", LAYOUTS, ids=str)
def test_nothing_is_wrong_of_a_partitioning_of_the_lakes_own(
    plugin: PaimonLakePlugin, lake: PaimonLake, fields: tuple[str, ...], *, keyed: bool
) -> None:
    fan_out(plugin, lake, (key_table if keyed else log_table)(**partitioned(*fields)), some_rows(40))
    assert found(lake) == []


@pytest.mark.parametrize("text", ["day(at)", "year(at)", "month(at)", "hour(at)", "truncate(10, n)", "truncate(10, d)"])
def test_the_least_and_greatest_values_are_in_the_partitions_that_they_are_said_to_be_in(
    plugin: PaimonLakePlugin, lake: PaimonLake, text: str
) -> None:
    digits = pa.decimal128(38, 2)
    kinds: dict[str, pa.DataType] = {"id": pa.int64(), "at": pa.timestamp("us"), "n": pa.int64(), "d": digits}
    schema = pa.schema([pa.field(name, kind, nullable=name != "id") for name, kind in kinds.items()])
    times = (-62_135_596_800_000_000, -1, 0, 253_402_300_799_999_999, None)
    most = Decimal("9" * 36 + ".99")
    rows = [
        {"id": one, "at": at, "n": (-(2**63), 2**63 - 1)[one % 2], "d": (most.copy_negate(), most)[one % 2]}
        for one, at in enumerate(times)
    ]
    fan_out(plugin, lake, key_table(**partitioned(text) | {"schema": schema}), rows)
    assert found(lake) == []


@pytest.mark.parametrize(
    ("text", "lie", "expected", "said"),
    [
        ("day(at)", 3, "0", "3"),
        ("year(at)", 1971, "1970", "1971"),
        ("hour(at)", b"1970-01-01-01", "'1970-01-01-00'", "'1970-01-01-01'"),
        ("truncate(2, region)", b"s", "'no'", "'s'"),
    ],
)
def test_a_partition_that_is_not_what_it_is_computed_of_is_named(  # noqa: PLR0917 - parameters
    plugin: PaimonLakePlugin,
    lake: PaimonLake,
    options: PaimonOptions,
    teller: Teller,
    text: str,
    lie: object,
    expected: str,
    said: str,
) -> None:
    fan_out(plugin, lake, log_table(**partitioned(text)), [{"id": 0, "region": "north", "at": 0}])
    (path,) = files(options)
    (column,) = {field["name"] for field in schema_of(teller)["fields"]} - {"id", "region", "at", *SYSTEM}
    rows = pq.read_table(path, partitioning=None)
    place = rows.column_names.index(column)
    kind = next(parse_kind(one["type"]) for one in schema_of(teller)["fields"] if one["name"] == column)
    pq.write_table(rows.set_column(place, column, pa.array([scalar_of(lie, kind)])), path, store_schema=False)
    of_data(teller, path)(lambda entry: entry.update({"_PARTITION": encode_row([lie], [kind])}))
    found_here = {(one.expected, one.found) for one in found(lake) if one.what.startswith("partition key")}
    assert found_here == {(expected, said)}


def schema_of(teller: Teller) -> dict[str, Any]:
    """Return the table's schema."""
    stored: dict[str, Any] = json.loads((teller.folder / "schema" / "schema-0").read_bytes())
    return stored


ENTRY_LIES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str | None, str | None]] = {
    "rows": ({}, {"_ROW_COUNT": 4}, "row count", "3", "4"),
    "size": ({}, {"_FILE_SIZE": 7}, "size", None, "7"),
    "least sequence": ({}, {"_MIN_SEQUENCE_NUMBER": 2}, "lower bound of sequence numbers", "1", "2"),
    "greatest sequence": ({}, {"_MAX_SEQUENCE_NUMBER": 2}, "upper bound of sequence numbers", "3", "2"),
    "deletes": ({}, {"_DELETE_ROW_COUNT": 0}, "number of deletes", "1", "0"),
    "first key": ({}, {"_MIN_KEY": encode_row([1], [KEY])}, "lower bound of keys", "[0]", "[1]"),
    "last key": ({}, {"_MAX_KEY": encode_row([1], [KEY])}, "upper bound of keys", "[2]", "[1]"),
    "no key": ({}, {"_MIN_KEY": encode_row([], [])}, "first and last key", "rows of 1 columns", "other rows"),
    "bucket": ({"_BUCKET": 1}, {}, "bucket", "bucket-0", "bucket-1"),
    "buckets": ({"_TOTAL_BUCKETS": 3}, {}, "number of buckets", "one of [2]", "3"),
    "schema": ({}, {"_SCHEMA_ID": 7}, "schema", "one of [0]", "7"),
    "partition": ({"_PARTITION": encode_row([b"d3"], [TEXT])}, {}, "partition key day", "'d 2'", "'d3'"),
    "columns": ({}, {"_VALUE_STATS_COLS": ["id"]}, "statistics", "of 1 columns", "other rows"),
    "other columns": ({}, {"_VALUE_STATS_COLS": ["ids"]}, "statistics", None, "of ids"),
    "external": ({}, {"_EXTERNAL_PATH": "/nowhere/data.parquet"}, "file", "none of that name", "named by snapshot 2"),
    "beside": ({}, {"_EXTRA_FILES": ["data.index"]}, "file", "none of that name", None),
}  # fmt: skip


def of_data(teller: Teller, path: Path) -> Callable[[Change], None]:
    """Return what changes the entry of one file."""

    def say(change: Change) -> None:
        teller.say(lambda entry: entry["_FILE"]["_FILE_NAME"] == path.name and change(entry))

    return say


@pytest.mark.parametrize("name", ENTRY_LIES)
def test_what_an_entry_says_wrongly_of_a_file_is_named(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, teller: Teller, name: str
) -> None:
    entry, file, what, expected, said = ENTRY_LIES[name]
    tier(plugin, lake, daily(system_columns=False), 0)
    path = files(options)[0]
    of_data(teller, path)(lambda one: (one.update(entry), one["_FILE"].update(file)))
    about = [one for one in found(lake) if path.name in one.file or one.file.endswith("data.index")]
    assert [one.what for one in about] == [what]
    assert expected in {None, about[0].expected}
    assert said in {None, about[0].found}


def stats(least: list[Any], greatest: list[Any], nulls: list[int], kinds: list[Kind]) -> dict[str, Any]:
    """Return statistics as an entry has them."""
    return {
        "_MIN_VALUES": encode_row(least, kinds),
        "_MAX_VALUES": encode_row(greatest, kinds),
        "_NULL_COUNTS": nulls,
    }


RIGHT = ([0, b"n0", 0.0, b"d 2"], [2, b"n2", 1.0, b"d 2"], [0, 1, 0, 0])


@pytest.mark.parametrize(
    ("place", "lie", "what", "expected", "said"),
    [
        (0, (1, 2, 0), "lower bound of column id", "0", "1"),
        (0, (0, 1, 0), "upper bound of column id", "2", "1"),
        (1, (b"n1", b"n2", 1), "lower bound of column name", "'n0'", "'n1'"),
        (1, (b"n", b"n", 1), "upper bound of column name", "'n2'", "'n'"),
        (1, (b"n", b"o", 0), "null count of column name", "1", "0"),
        (2, (0.5, 1.0, 0), "lower bound of column score", "0.0", "0.5"),
        (3, (b"d 2", b"d 1", 0), "upper bound of column day", "'d 2'", "'d 1'"),
    ],
)
def test_what_statistics_say_wrongly_of_a_column_is_named(  # noqa: PLR0917 - parameters
    plugin: PaimonLakePlugin,
    lake: PaimonLake,
    options: PaimonOptions,
    teller: Teller,
    place: int,
    lie: tuple[Any, Any, int],
    what: str,
    expected: str,
    said: str,
) -> None:
    tier(plugin, lake, daily(system_columns=False), 0)
    path = files(options)[0]
    told = [[*one] for one in RIGHT]
    for values, one in zip(told, lie, strict=True):
        values[place] = one
    least, greatest, nulls = told
    changed = {"_VALUE_STATS": stats(least, greatest, nulls, VALUES), "_VALUE_STATS_COLS": None}
    of_data(teller, path)(lambda entry: entry["_FILE"].update(changed))
    assert [(one.file, one.what, one.expected, one.found) for one in found(lake)] == [(str(path), what, expected, said)]


def test_statistics_of_keys_are_compared_too(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, teller: Teller
) -> None:
    tier(plugin, lake, daily(), 0)
    of_data(teller, files(options)[0])(lambda entry: entry["_FILE"].update({"_KEY_STATS": stats([1], [1], [2], [KEY])}))
    assert [(one.what, one.expected, one.found) for one in found(lake)] == [
        ("lower bound of column _KEY_id", "0", "1"),
        ("upper bound of column _KEY_id", "2", "1"),
        ("null count of column _KEY_id", "0", "2"),
    ]


@pytest.mark.parametrize(
    ("values", "bounds", "wrong"),
    [
        ([0.0, -0.0, None], (-0.0, 0.0), []),
        ([-0.0, 0.0, 1.0], (0.0, 1.0), [("lower bound", "-0.0", "0.0")]),
        ([-1.0, -0.0, 0.0], (-1.0, -0.0), [("upper bound", "0.0", "-0.0")]),
        ([1.0, NAN], (1.0, 1.0), [("upper bound", "nan", "1.0")]),
        ([1.0, NAN], (1.0, NAN), []),
        ([None, None], (1.0, 0.0), []),
    ],
    ids=str,
)
def test_bounds_of_floating_point_numbers_are_those_of_java(  # noqa: PLR0917 - parameters
    plugin: PaimonLakePlugin,
    lake: PaimonLake,
    teller: Teller,
    values: list[float | None],
    bounds: tuple[float, float],
    wrong: list[tuple[str, str, str]],
) -> None:
    table = log_table(pa.schema([pa.field("d", pa.float64())]), buckets=1, system_columns=False)
    tiering = TieringRound(plugin, lake, table, incarnation())
    tiering.write(log_split(table), [source_batch(table.schema, [{"d": one} for one in values])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    claim = stats([bounds[0]], [bounds[1]], [values.count(None)], [SCORE])
    teller.say(lambda entry: entry["_FILE"].update({"_VALUE_STATS": claim, "_VALUE_STATS_COLS": None}))
    assert [(one.what, one.expected, one.found) for one in found(lake)] == [
        (f"{what} of column d", has, said) for what, has, said in wrong
    ]


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "above"),
    [
        ("BOOLEAN", pa.bool_(), False, True),
        ("TINYINT", pa.int8(), -5, 0),
        ("DATE", pa.date32(), -1, 0),
        ("TIME(3)", pa.time32("ms"), 5, 6),
        ("DECIMAL(9, 2)", pa.decimal128(9, 2), -1, 0),
        ("DECIMAL(30, 2)", pa.decimal128(30, 2), -(10**25), 0),
        ("TIMESTAMP(3)", pa.timestamp("ms"), (-1, 0), (0, 0)),
        ("TIMESTAMP(6)", pa.timestamp("us"), (-1, 7000), (-1, 8000)),
        ("TIMESTAMP(9)", pa.timestamp("ns"), (-1, 7), (-1, 8)),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.timestamp("us", "UTC"), (5, 0), (6, 0)),
        ("FLOAT", pa.float32(), 1.5, 2.5),
        ("CHAR(20)", pa.string(), b"a" * 17, b"b"),
        ("BYTES", pa.binary(), b"\x80", None),
    ],
)
def test_bounds_of_each_type_are_decoded(
    tmp_path: Path,
    kind: str,
    arrow: pa.DataType,
    value: Any,  # noqa: ANN401 - of any type
    above: Any,  # noqa: ANN401 - of any type
) -> None:
    parsed = parse_kind(kind)
    (stored,) = read_row(encode_row([value], [parsed]), [parsed])
    array = pa.array([scalar_of(value, parsed), None], arrow)
    if above is None:
        assert stored == value
        return
    assert extremes(array, parsed) == [stored, stored]
    (other,) = read_row(encode_row([above], [parsed]), [parsed])
    assert ordered(stored) < ordered(other)


@pytest.mark.parametrize(
    ("field", "lie", "what"),
    [
        ("_FILE_SIZE", 7, "size"),
        ("_NUM_ADDED_FILES", 3, "number of added files"),
        ("_NUM_DELETED_FILES", 1, "number of deleted files"),
        ("_MIN_BUCKET", 1, "lower bound of bucket"),
        ("_MAX_BUCKET", -1, "upper bound of bucket"),
        ("_MIN_LEVEL", 1, "lower bound of level"),
        ("_MAX_LEVEL", -1, "upper bound of level"),
        ("_PARTITION_STATS", stats([b"d1"], [b"d1"], [0], [TEXT]), "lower bound of partition key day"),
        ("_PARTITION_STATS", stats([b"d 2"], [b"d 2"], [0], [TEXT]), "upper bound of partition key day"),
        ("_PARTITION_STATS", stats([b"d"], [b"e"], [1], [TEXT]), "null count of partition key day"),
        ("_PARTITION_STATS", stats([], [], [], []), "partitions"),
    ],
)
def test_what_a_list_says_wrongly_of_a_manifest_is_named(  # noqa: PLR0917 - parameters
    plugin: PaimonLakePlugin, lake: PaimonLake, teller: Teller, field: str, lie: object, what: str
) -> None:
    tier(plugin, lake, daily(keyed=False))
    teller.say(manifests=lambda manifest: manifest.update({field: lie}))
    (one,) = found(lake)
    assert (one.what, Path(one.file).name[:9]) == (what, "manifest-")


@pytest.mark.parametrize("field", ["totalRecordCount", "deltaRecordCount", "changelogRecordCount"])
def test_what_a_snapshot_says_wrongly_of_its_rows_is_named(
    plugin: PaimonLakePlugin, lake: PaimonLake, teller: Teller, field: str
) -> None:
    tier(plugin, lake, daily())
    right = str(json.loads(teller.newest.read_bytes())[field])
    teller.say(snapshot={field: 77})
    assert [(one.what, one.expected, one.found) for one in found(lake)] == [(field, right, "77")]


@pytest.mark.parametrize("field", ["baseManifestList", "deltaManifestList", "changelogManifestList"])
def test_a_list_of_another_size_is_named(
    plugin: PaimonLakePlugin, lake: PaimonLake, teller: Teller, field: str
) -> None:
    tier(plugin, lake, daily())
    teller.say(snapshot={f"{field}Size": 7})
    name = json.loads(teller.newest.read_bytes())[field]
    assert [(Path(one.file).name, one.what, one.found) for one in found(lake)] == [(name, "size", "7")]


@pytest.mark.parametrize(
    ("kind", "said"), [(0, "added a second time"), (1, "taken away, though it was not there")], ids=["added", "deleted"]
)
def test_an_entry_that_makes_no_sense_is_named_and_no_rows_are_read_by_it(
    plugin: PaimonLakePlugin, lake: PaimonLake, teller: Teller, kind: int, said: str
) -> None:
    tier(plugin, lake, daily(keyed=False))
    teller.say(doubled=kind)
    assert {one.found for one in found(lake) if one.what == "entry of a manifest"} == {said}
    with pytest.raises(LakeError, match=said):
        list(lake.read_rows(PATH, head_of(lake).snapshot_id or 0))


@pytest.mark.parametrize("kind", ["data", "changelog"])
def test_a_file_that_is_not_there_is_named(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, kind: str
) -> None:
    tier(plugin, lake, daily())
    path = files(options, kind)[0]
    path.unlink()
    (one,) = found(lake)
    assert (Path(one.file).name, one.what, one.found) == (path.name, "file", "named by snapshot 2")
    if kind == "data":
        with pytest.raises(
            LakeError, match=rf"file {path.name} of snapshot 2 is not there; if the snapshot has expired meanwhile"
        ):
            list(lake.read_rows(PATH, 2))


@pytest.mark.parametrize("kind", ["data", "changelog"])
@pytest.mark.parametrize(
    ("edit", "whats"),
    [
        (lambda rows: rows.slice(1), {"size", "row count"}),
        (lambda rows: rows.take([1, 0, *range(2, len(rows))]), {"order"}),
        (lambda rows: pa.concat_tables([rows, rows.slice(len(rows) - 1)]), {"size", "row count", "order"}),
    ],
    ids=["removed", "swapped", "doubled"],
)
def test_rows_that_somebody_changed_in_a_file_contradict_what_is_said_of_it(  # noqa: PLR0917 - parameters
    plugin: PaimonLakePlugin,
    lake: PaimonLake,
    options: PaimonOptions,
    kind: str,
    edit: Callable[[pa.Table], pa.Table],
    whats: set[str],
) -> None:
    tier(plugin, lake, daily(), 0)
    path = files(options, kind)[0]
    pq.write_table(edit(pq.read_table(path, partitioning=None)), path, store_schema=False)
    wrong = found(lake)
    assert {one.file for one in wrong} <= {str(path)}
    # Files of changes may have a key more than once, and readers do not go by their order.
    assert {one.what for one in wrong} >= (whats if kind == "data" else whats - {"order"})
    assert kind == "data" or "order" not in {one.what for one in wrong}


def test_a_file_that_was_moved_to_another_partition_is_named(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions
) -> None:
    tier(plugin, lake, daily(keyed=False, system_columns=False))
    path = files(options)[0]
    elsewhere = path.parents[2] / "day=d1" / "bucket-0" / path.name
    path.rename(elsewhere)
    assert [(one.file, one.what, one.expected, one.found) for one in found(lake)] == [
        (str(elsewhere), "folder of partition key day", "day=d 2", "day=d1")
    ]


def test_a_file_whose_rows_are_of_another_bucket_is_named(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions
) -> None:
    tier(plugin, lake, daily())
    path = files(options)[0]
    rows = pq.read_table(path, partitioning=None)
    place = rows.column_names.index("__bucket")
    pq.write_table(rows.set_column(place, "__bucket", pa.array([1] * len(rows), pa.int32())), path, store_schema=False)
    assert ("bucket", "1", "0") in [(one.what, one.expected, one.found) for one in found(lake)]


def test_files_of_a_level_whose_keys_overlap_are_named(
    plugin: PaimonLakePlugin, lake: PaimonLake, teller: Teller
) -> None:
    table = daily(system_columns=False)
    for number in (1, 2):
        tier(plugin, lake, table, number)
    teller.say(lambda entry: entry["_FILE"].update({"_LEVEL": 5}))
    whats = {(one.what, one.expected, one.found) for one in found(lake) if "level" in one.what}
    assert whats >= {
        ("keys of level 5", "keys after [-1]", "from [-3]"),
        ("keys of level 5", "keys after [2]", "from [0]"),
    }


def test_a_file_that_says_another_schema_than_it_was_written_with_is_named(
    plugin: PaimonLakePlugin, lake: PaimonLake, teller: Teller
) -> None:
    tier(plugin, lake, daily(keyed=False, system_columns=False))
    newest = json.loads((teller.folder / "schema" / "schema-0").read_bytes())
    fields = [one | {"name": "label"} if one["name"] == "name" else one for one in newest["fields"]]
    (teller.folder / "schema" / "schema-1").write_text(json.dumps(newest | {"id": 1, "fields": fields}), "utf-8")
    assert found(lake) == []
    teller.say(lambda entry: entry["_FILE"].update({"_SCHEMA_ID": 1}))
    assert {(one.what, one.found) for one in found(lake)} == {("schema", "1, which has label")}


def test_sequence_numbers_of_a_log_table_are_one_for_each_row(
    plugin: PaimonLakePlugin, lake: PaimonLake, teller: Teller
) -> None:
    tier(plugin, lake, daily(keyed=False))
    teller.say(lambda entry: entry["_FILE"].update({"_MAX_SEQUENCE_NUMBER": entry["_FILE"]["_MIN_SEQUENCE_NUMBER"]}))
    assert {one.what for one in found(lake)} == {"sequence numbers"}


def test_changelog_files_of_earlier_snapshots_are_looked_at_and_those_of_expired_ones_are_not(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, teller: Teller
) -> None:
    tier(plugin, lake, daily(), 1)
    first = set(files(options, "changelog"))
    tier(plugin, lake, daily(), 2)
    for path in first:
        path.unlink()
    assert {(one.what, one.found) for one in found(lake)} == {("file", "named by snapshot 2")}
    (teller.folder / "snapshot" / "snapshot-2").unlink()
    assert found(lake) == []


def test_a_sample_looks_at_as_many_files_as_asked_for(
    plugin: PaimonLakePlugin, lake: PaimonLake, teller: Teller
) -> None:
    for number in range(3):
        tier(plugin, lake, daily(keyed=False), number)
    teller.say(lambda entry: entry["_FILE"].update({"_FILE_SIZE": 7}))
    assert [len(found(lake, most)) for most in (None, 0, 2, 100)] == [6, 0, 2, 6]


@pytest.mark.parametrize("kind", ["data", "changelog"])
def test_a_file_that_cannot_be_read_is_an_error_in_words(
    plugin: PaimonLakePlugin, lake: PaimonLake, options: PaimonOptions, kind: str
) -> None:
    tier(plugin, lake, daily())
    path = files(options, kind)[0]
    path.write_bytes(b"not a Parquet file")
    words = rf"file .*{path.name} of snapshot 2 cannot be read: "
    with pytest.raises(LakeError, match=words):
        found(lake)
    if kind == "data":
        with pytest.raises(LakeError, match=words):
            list(lake.read_rows(PATH, 2))


def test_a_snapshot_that_is_gone_is_an_error_in_words(plugin: PaimonLakePlugin, lake: PaimonLake) -> None:
    tier(plugin, lake, daily())
    for read in (lake.check_files(PATH, 9, None), lake.read_rows(PATH, 9)):
        with pytest.raises(
            LakeError, match=r"snapshot-9 is not there; if the snapshot has expired meanwhile, try again"
        ):
            list(read)
