"""Paimon's Java reader reads our tables: every type as a column, in a key and as a partition; rows, deletes, changes.

The reader's jar (46 MB) is fetched from Maven Central once. Where it cannot be had, the tests are skipped and say why.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.ports import FileCheckedLake
from lakeward_lake_paimon.binary_row import decode_row, encode_row, value_of
from lakeward_lake_paimon.bucket_function import bucket_of
from lakeward_lake_paimon.kinds import paimon_kind
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.table import Table
from lakeward_paimon_kit.java import JavaReader, java_reader
from lakeward_paimon_kit.made import TYPES, create_as_fluss, required
from lakeward_paimon_kit.rest import TOKEN, RestCatalogServer
from lakeward_paimon_kit.upkeep import compact
from lakeward_paimon_kit.wider import NEW, OLD, WIDE, widened
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    snapshot_split,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakeward.model.tables import TablePath, TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

pytestmark = pytest.mark.spark
KEY_TYPES = [name for name in TYPES if name not in {"f", "d", "a", "m", "r", "deep", "tm6"}]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaReader]:
    """Paimon's own reader."""
    with java_reader() as reader:
        yield reader


def tier(plugin: PaimonLakePlugin, lake: Lake, table: TableSpec, rows: list[dict[str, Any]], **told: Any) -> None:  # noqa: ANN401 - see below
    """Write rows of bucket 0 and commit them: `changes`, `number` of the round, `partition`."""
    tiering = TieringRound(plugin, lake, table, incarnation(), told.get("number", 1))
    split = log_split(table, 0, told.get("partition", ()))
    tiering.write(split, [source_batch(table.schema, rows, changes=told.get("changes"))])
    assert lake.commit(tiering.request(source_path="/offsets")) is CommitOutcome.LANDED


def check_claims(lake: Lake, path: TablePath = PATH) -> None:
    """Compare what is said of all files, those of Java's writer among them, with the files."""
    assert isinstance(lake, FileCheckedLake)
    assert list(lake.check_files(path, head_of(lake, path).snapshot_id or 0, None)) == []


@pytest.mark.parametrize("system", [True, False], ids=["legacy", "clean"])
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_each_type_comes_back(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader, *, keyed: bool, system: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(n, one[1]) for n, one in TYPES.items())])
    table = (key_table if keyed else log_table)(schema)
    types = {"id": "BIGINT NOT NULL" if keyed else "BIGINT", **{name: one[0] for name, one in TYPES.items()}}
    create_as_fluss(options, table, types, system=system)
    values = {name: one[2] for name, one in TYPES.items()}
    tier(plugin, lake, table, [{"id": 1, **values}, {"id": 2}])
    found = java.rows(java.table(options.warehouse, "shop.orders"), *schema.names)
    assert found == [("1", *(one[3] for one in TYPES.values())), ("2", *[None] * len(TYPES))]


@pytest.mark.parametrize("name", KEY_TYPES)
def test_a_key_of_each_type_is_ordered_as_paimon_orders_it(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader, name: str
) -> None:
    stored, kind, value, text = TYPES[name]
    others = {"b": False, "bn": b"\xff\x00\x00", "byt": b"\xff", "s": "a", "c": "zzzzz"}
    other = others.get(name) if name in others else _next(value)
    schema = pa.schema([pa.field("k", kind, nullable=False), pa.field("v", pa.string())])
    table = key_table(schema, primary_key=("k",), bucket_key=("k",), buckets=1)
    create_as_fluss(options, table, required({"k": stored, "v": "STRING"}, ["k"]))
    tier(plugin, lake, table, [{"k": other, "v": "other"}, {"k": value, "v": "old"}], changes=[1, 1])
    tier(plugin, lake, table, [{"k": value, "v": "old"}, {"k": value, "v": "new"}], changes=[2, 3], number=2)
    found = java.rows(java.table(options.warehouse, "shop.orders"), "k", "v")
    assert sorted(one[1] for one in found) == ["new", "other"]
    assert (text, "new") in found


@pytest.mark.parametrize("name", KEY_TYPES)
def test_the_bucket_of_a_key_of_each_type_is_javas(java: JavaReader, name: str) -> None:
    ids = count()
    kind = paimon_kind(TYPES[name][1], ids, nullable=True)
    assert kind is not None
    values = [value_of(pa.scalar(value, TYPES[name][1]), kind) for value in (TYPES[name][2], None)]
    for value in values:
        row = java.paimon.utils.SerializationUtils.deserializeBinaryRow(encode_row([value], [kind]))
        for buckets in (2, 7, 1000):
            expected = int(abs(math.fmod(row.hashCode(), buckets)))
            assert bucket_of([value], [kind], buckets) == expected


@pytest.mark.parametrize("name", KEY_TYPES)
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_a_partition_of_each_type_is_found_where_paimon_looks_for_it(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader, name: str, *, keyed: bool
) -> None:
    stored, kind, value, text = TYPES[name]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", kind, nullable=False)])
    key = ("id", "p") if keyed else ()
    table = log_table(schema, partition_keys=("p",), primary_key=key, buckets=1)
    create_as_fluss(options, table, required({"id": "BIGINT", "p": stored}, ["id", "p"]))
    tier(plugin, lake, table, [{"id": 1, "p": value}, {"id": 2, "p": value}], partition=("p1",), changes=[1, 1])
    read = java.table(options.warehouse, "shop.orders")
    assert java.rows(read, "id", "p") == [("1", text), ("2", text)]
    assert java.rows(read, "id", where=lambda build, _: build.isNotNull(1)) == [("1",), ("2",)]


def test_deletes_and_updates_over_rounds_leave_the_rows_of_the_source(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    table = key_table()
    first = TieringRound(plugin, lake, table, incarnation())
    first.write(
        snapshot_split(table), [source_batch(COLUMNS, [{"id": n, "name": "s"} for n in range(10)], snapshot=True)]
    )
    assert lake.commit(first.request()) is CommitOutcome.LANDED
    changes = [(3, Change.DELETE), (4, Change.UPDATE_BEFORE), (4, Change.UPDATE_AFTER), (11, Change.INSERT)]
    rows = [{"id": key, "name": f"c{change}"} for key, change in changes]
    tier(plugin, lake, table, rows, changes=[change for _, change in changes], number=2)
    found = java.rows(java.table(options.warehouse, "shop.orders"), "id", "name")
    expected = [(str(n), "s") for n in range(10) if n not in {3, 4}] + [("4", "c3"), ("11", "c1")]
    assert sorted(found) == sorted(expected)


def test_java_reads_a_compacted_table_its_deletes_and_what_came_after(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(n, one[1]) for n, one in TYPES.items())])
    table = key_table(schema, buckets=1)
    create_as_fluss(options, table, {"id": "BIGINT NOT NULL", **{name: one[0] for name, one in TYPES.items()}})
    values = {name: one[2] for name, one in TYPES.items()}
    for number in range(1, 7):
        rows: list[dict[str, Any]] = [{"id": number, **values}, {"id": 9, "s": f"round {number}"}, {"id": number - 1}]
        tier(plugin, lake, table, rows, changes=[1, 3, 4], number=number)
    compact(plugin, lake)
    files = java.table(options.warehouse, "shop.orders$files")
    assert java.rows(files, "level", "record_count") == [("5", "2")]
    read = java.table(options.warehouse, "shop.orders")
    assert java.rows(read, *schema.names)[0] == ("6", *(one[3] for one in TYPES.values()))
    tier(plugin, lake, table, [{"id": 9, "s": "after"}, {"id": 6}], changes=[3, 4], number=7)
    assert java.rows(java.table(options.warehouse, "shop.orders"), "id", "s") == [("9", "after")]


def test_java_reads_the_changes_of_a_snapshot_from_the_changelog(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    table = key_table()
    tier(plugin, lake, table, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], changes=[1, 1])
    rows = [{"id": 1, "name": "a"}, {"id": 1, "name": "c"}, {"id": 2, "name": "b"}]
    tier(plugin, lake, table, rows, changes=[2, 3, 4], number=2)
    audit = java.table(options.warehouse, "shop.orders$audit_log", incremental__between="2,3")
    found = java.rows(audit, "rowkind", "id", "name")
    assert found == [("-U", "1", "a"), ("+U", "1", "c"), ("-D", "2", "b")]


def test_java_reads_the_same_changes_before_and_after_a_compaction(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    table = key_table(buckets=1)
    for number in range(1, 7):
        rows = [{"id": number, "name": "a"}, {"id": 0, "name": "b"}, {"id": 0, "name": "c"}, {"id": 9, "name": "d"}]
        tier(plugin, lake, table, rows, changes=[1, 2, 3, 4], number=number)
    changes: list[list[tuple[str, ...]]] = []
    for _ in range(2):
        head = head_of(lake).snapshot_id
        audit = java.table(options.warehouse, "shop.orders$audit_log", incremental__between=f"1,{head}")
        changes.append(java.rows(audit, "rowkind", "id", "name"))
        compact(plugin, lake)
    assert len(changes[0]) == 6 * 4
    assert changes[1] == changes[0]


def test_java_and_we_take_turns_on_a_key_table_and_the_last_change_of_a_key_counts(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    table = key_table(system_columns=False, buckets=1)
    expected: dict[str, str] = {}
    for number in range(1, 6):
        tier(
            plugin,
            lake,
            table,
            [{"id": 0, "name": f"we {number}"}, {"id": number, "name": "we"}],
            changes=[3, 1],
            number=number,
        )
        assert ("0", f"we {number}") in java.rows(java.table(options.warehouse, "shop.orders"))
        java.write(java.table(options.warehouse, "shop.orders"), [(0, f"java {number}"), (100 + number, "java")])
        assert ("0", f"java {number}") in java.rows(java.table(options.warehouse, "shop.orders"))
        expected |= {"0": f"java {number}", str(number): "we", str(100 + number): "java"}
    found = java.rows(java.table(options.warehouse, "shop.orders"))
    assert sorted(found) == sorted(expected.items())
    check_claims(lake)
    compact(plugin, lake)
    check_claims(lake)
    assert sorted(java.rows(java.table(options.warehouse, "shop.orders"))) == sorted(found)


def test_java_compacts_what_we_wrote_while_a_round_runs_and_the_round_lands(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    table = key_table(system_columns=False, buckets=1)
    for number in range(1, 5):
        tier(plugin, lake, table, [{"id": 7, "name": f"{number}"}, {"id": number}], changes=[3, 1], number=number)
    running = TieringRound(plugin, lake, table, incarnation(), 5)
    late = source_batch(COLUMNS, [{"id": 7, "name": "late"}, {"id": 1}], changes=[Change.UPDATE_AFTER, Change.DELETE])
    running.write(log_split(table), [late])
    java.write(java.table(options.warehouse, "shop.orders"), [], compact=True)
    assert [one[0] for one in java.rows(java.table(options.warehouse, "shop.orders$files"), "level")] == ["5"]
    assert lake.commit(running.request()) is CommitOutcome.LANDED
    found = java.rows(java.table(options.warehouse, "shop.orders"))
    assert found == [("2", None), ("3", None), ("4", None), ("7", "late")]
    assert head_of(lake).files == 2
    check_claims(lake)


def test_java_appends_to_our_log_table_and_we_to_its(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    table = log_table(system_columns=False, buckets=1, bucket_key=("id",))
    for number in range(1, 4):
        tier(plugin, lake, table, [{"id": number, "name": "we"}], number=number)
        java.write(java.table(options.warehouse, "shop.orders"), [(10 * number, "java")])
    found = [one[0] for one in java.rows(java.table(options.warehouse, "shop.orders"), "id")]
    assert found == ["1", "10", "2", "20", "3", "30"]
    check_claims(lake)


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_we_say_of_columns_what_javas_writer_says_of_the_same_rows(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader, *, keyed: bool
) -> None:
    names = [name for name in TYPES if name not in {"t9", "l9"}]  # with them all timestamps are INT96
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(n, TYPES[n][1]) for n in names)])
    table = (key_table if keyed else log_table)(schema, buckets=1, bucket_key=("id",), system_columns=False)
    types = required({"id": "BIGINT", **{name: TYPES[name][0] for name in names}}, ["id"] if keyed else [])
    for one in (table, replace(table, path=replace(PATH, table="copied"))):
        create_as_fluss(options, one, types, system=False)
    values = {name: TYPES[name][2] for name in names}
    long: dict[str, Any] = {
        "s": "\U0001f600" * 20,
        "byt": b"\xff" * 15 + b"\x01\xff\xff",
        "d": -0.0,
        "d38": Decimal(-1),
    }
    tier(plugin, lake, table, [{"id": 1, **values}, {"id": 2}, {"id": 3, **values, **long}], changes=[1, 1, 1])
    java.copy(java.table(options.warehouse, "shop.orders"), java.table(options.warehouse, "shop.copied"))
    ours, theirs = said_of(options, "orders"), said_of(options, "copied")
    assert {key: (value, theirs.get(key)) for key, value in ours.items() if value != theirs.get(key)} == {}
    assert ours.keys() == theirs.keys()
    check_claims(lake, replace(PATH, table="copied"))


def said_of(options: PaimonOptions, name: str) -> dict[str, Any]:
    """Return what the manifest of a table of one file says of its columns."""
    table = Table.load(LocalStorage(), f"{options.warehouse}/shop.db/{name}", replace(PATH, table=name))
    assert table is not None
    (entry,) = table.manifests.live(table.latest).values()
    names = entry.file.value_stats_columns or table.schema.names
    found: dict[str, Any] = {"ends": (entry.file.min_key, entry.file.max_key)}
    for stats, of in ((entry.file.value_stats, names), (entry.file.key_stats, table.schema.key_columns)):
        kinds = [field.kind for field in table.schema.named(of)]
        rows = zip(of, decode_row(stats.least, kinds), decode_row(stats.greatest, kinds), stats.nulls, strict=True)
        found |= {f"{len(of)} {one[0]}": one[1:] for one in rows}
    return found


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_java_finds_the_rows_of_a_filter_and_leaves_files_out(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader, *, keyed: bool
) -> None:
    table = (key_table if keyed else log_table)(system_columns=False, buckets=1, bucket_key=("id",))
    big = 1 << 40  # a small number would be an Integer in Java
    for number, name in enumerate(["a" * 20, "m" * 20, "z" * 20]):
        rows: list[dict[str, Any]] = [{"id": big + 2 * number, "name": name}, {"id": big + 2 * number + 1}]
        tier(plugin, lake, table, rows, changes=[1, 1], number=number + 1)
    read = java.table(options.warehouse, "shop.orders")
    text = java.paimon.data.BinaryString.fromString
    # Of a key table with files of level 0 only the key leaves files out: an older row could come to light.
    every, two, one = (3, 3, 3) if keyed else (3, 2, 1)
    for where, found, files in (
        (lambda build, _: build.equal(0, big + 2), [big + 2], 1),
        (lambda build, _: build.greaterThan(0, big + 2), [big + 3, big + 4, big + 5], 2),
        (lambda build, _: build.equal(1, text("m" * 20)), [big + 2], one),
        (lambda build, _: build.startsWith(1, text("zz")), [big + 4], one),
        (lambda build, _: build.lessOrEqual(1, text("m" * 20)), [big, big + 2], two),
        (lambda build, _: build.isNotNull(1), [big, big + 2, big + 4], every),
        (lambda build, _: build.equal(1, text("none")), [], 0),
    ):
        assert java.files(read, where) == files
        assert {str(key) for key in found} <= {row[0] for row in java.rows(read, "id", where=where)}


@pytest.mark.parametrize("compacted", [False, True], ids=["as written", "compacted"])
@pytest.mark.parametrize("key", [False, True], ids=["log", "key"])
def test_java_reads_rows_of_before_and_after_a_type_became_wider(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader, *, key: bool, compacted: bool
) -> None:
    rows = widened(plugin, lake, key=key)
    if compacted and key:
        assert compact(plugin, lake) == 1
    read = java.table(options.warehouse, "shop.orders")

    found = java.rows(read, "id", "whole", "real", "price", "sum")

    names = ("id", "whole", "real", "price", "sum")
    expected = [tuple(None if row[name] is None else str(row[name]) for name in names) for row in rows]
    assert sorted(found) == expected
    for value in (OLD["real"], NEW["real"]):  # py4j would make an Integer of a small number
        ids = {str(row["id"]) for row in rows if row["real"] == value}
        assert ids <= {row[0] for row in java.rows(read, "id", where=_equal(WIDE.names.index("real"), value))}
    check_claims(lake)


def _equal(place: int, value: object) -> Callable[[Any, Any], Any]:
    return lambda build, _: build.equal(place, value)


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "key"])
def test_java_finds_rows_by_bytes_that_it_takes_for_negative_numbers(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader, *, keyed: bool
) -> None:
    schema = pa.schema([pa.field(name, pa.binary(), nullable=False) for name in ("k", "p", "v")])
    keys = {"primary_key": ("k", "p"), "bucket_key": ("k",)} if keyed else {}
    table = log_table(schema, partition_keys=("p",), buckets=1, system_columns=False, **keys)
    create_as_fluss(options, table, required(dict.fromkeys(schema.names, "BYTES"), ["k", "p", "v"]), system=False)
    tiering = TieringRound(plugin, lake, table, incarnation())
    for number, part in enumerate([b"\x7f", b"\x80"]):
        rows = [{"k": one, "p": part, "v": one} for one in (b"\x7f", b"\x80")]
        split = log_split(table, 0, (part.hex(),), number + 1)
        tiering.write(split, [source_batch(schema, rows, changes=[1, 1])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    read = java.table(options.warehouse, "shop.orders")
    for column in range(3):
        found = java.rows(read, where=lambda build, _: build.equal(column, b"\x80"))  # noqa: B023 - called at once
        assert len([row for row in found if row[column] == "\ufffd"]) == 2


def test_java_sees_stamps_and_commits_as_fluss_makes_them(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, java: JavaReader
) -> None:
    tier(plugin, lake, log_table(), [{"id": 1}])
    found = java.rows(java.table(options.warehouse, "shop.orders$snapshots"))
    assert [(one[0], one[2], one[3], one[4], one[9]) for one in found] == [
        ("1", "lakeward", str(2**63 - 1), "APPEND", "0"),
        ("2", "__fluss_lake_tiering", str(2**63 - 1), "APPEND", "1"),
    ]
    assert str(PATH) == "shop.orders"


def _next(value: Any) -> Any:  # noqa: ANN401 - of any type
    from datetime import date, datetime, time, timedelta  # noqa: PLC0415 - of this alone

    if isinstance(value, time):
        return time(value.hour, value.minute, value.second + 1)
    if isinstance(value, datetime):
        return value + timedelta(seconds=1)
    return value + timedelta(days=1) if isinstance(value, date) else value + 1


def test_java_reads_and_writes_a_table_of_the_same_rest_catalog(
    plugin: PaimonLakePlugin, java: JavaReader, tmp_path: Path
) -> None:
    with RestCatalogServer.running(tmp_path / "warehouse") as catalog:
        told = {"metastore": "rest", "uri": catalog.uri, "warehouse": "lake", "token.provider": "bear", "token": TOKEN}
        options = PaimonOptions(metastore="rest", uri=catalog.uri, warehouse="lake", properties={"token": TOKEN})
        lake = plugin.open(options, FakeClock())
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
        table = replace(key_table(schema, buckets=1), system_columns=False)
        tier(plugin, lake, table, [{"id": 1, "name": "ours"}, {"id": 2, "name": "ours"}], changes=[1, 1], number=1)
        tier(plugin, lake, table, [{"id": 1, "name": "later"}], changes=[1], number=2)
        found = java.table_of(told, "shop.orders")
        assert sorted(java.rows(found, "id", "name")) == [("1", "later"), ("2", "ours")]
        java.write(found, [(2, "java's"), (3, "java's")])
        tier(plugin, lake, table, [{"id": 3, "name": "last"}], changes=[1], number=3)
        found = java.table_of(told, "shop.orders")
        assert sorted(java.rows(found, "id", "name")) == [("1", "later"), ("2", "java's"), ("3", "last")]
        assert head_of(lake).snapshot_id == 5
