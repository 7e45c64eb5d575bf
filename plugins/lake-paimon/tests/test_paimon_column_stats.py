"""What a manifest says of a file's columns: bounds are bounds as Paimon orders values, and readers leave files out."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeward.model.results import CommitOutcome
from lakeward_lake_paimon.binary_row import decode_row, encode_row, scalar_of
from lakeward_lake_paimon.column_stats import ColumnStats
from lakeward_lake_paimon.datafile import ParquetFile, parquet_options
from lakeward_lake_paimon.kinds import Field, Kind, arrow_field, parse_kind
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.manifests import partition_stats
from lakeward_lake_paimon.stats import Stats
from lakeward_lake_paimon.table import Table
from lakeward_lake_paimon.table_schema import TableSchema
from lakeward_paimon_kit.made import TYPES, create_as_fluss
from lakeward_paimon_kit.upkeep import compact
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.tables import TableSpec
    from lakeward.ports import Lake
    from lakeward_lake_paimon.manifests import Entry
    from lakeward_lake_paimon.options import PaimonOptions
    from lakeward_lake_paimon.plugin import PaimonLakePlugin
    from lakeward_paimon_kit.reader import PythonReader

NAN = float("nan")
TEXT = Kind("STRING")
LAST = chr(0x10FFFF)
_SECONDS = 10**13
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats(),
    "DECIMAL(9, 2)": st.integers(-(10**9) + 1, 10**9 - 1),
    "DECIMAL(18, 4)": st.integers(-(10**18) + 1, 10**18 - 1),
    "DECIMAL(19, 0)": st.integers(-(10**19) + 1, 10**19 - 1),
    "DECIMAL(38, 10)": st.integers(-(10**38) + 1, 10**38 - 1),
    "DATE": st.integers(-(2**31), 2**31 - 1),
    "TIME(0)": st.integers(0, 86_399_999),
    "TIMESTAMP(0)": st.tuples(st.integers(-_SECONDS, _SECONDS), st.just(0)),
    "TIMESTAMP(3)": st.tuples(st.integers(-_SECONDS, _SECONDS), st.just(0)),
    "TIMESTAMP(6)": st.tuples(st.integers(-_SECONDS, _SECONDS), st.integers(0, 999).map(lambda n: n * 1000)),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": st.tuples(
        st.integers(-_SECONDS, _SECONDS), st.integers(0, 999).map(lambda n: n * 1000)
    ),
    "STRING": st.text(st.sampled_from(["a", "\x00", "ß", "\ud7ff", "\ue000", "\U0001f600", LAST]), max_size=20).map(
        str.encode
    ),
}
"""Of each type with bounds, values as Paimon stores them."""


def schema_of(kinds: Sequence[Kind], **options: str) -> TableSchema:
    """Return the schema of a log table with columns `c0`, `c1`, ..."""
    fields = tuple(Field(number, f"c{number}", kind) for number, kind in enumerate(kinds))
    told = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    return TableSchema(0, fields, len(fields) - 1, (), (), told)


def gathered(folder: Path, schema: TableSchema, *groups: pa.Table) -> dict[str, tuple[Any, Any, int | None]]:
    """Return what is said of a file of some row groups, by the columns' names: least and greatest value, nulls."""
    written = schema.arrow_schema
    file = ParquetFile(LocalStorage(), str(folder / "file.parquet"), written, parquet_options(schema, "zstd", 1))
    for group in groups:
        file.write(group)
    file.close()
    Path(file.path).unlink()
    stats, names = ColumnStats.of_values(schema, written).gather(file)
    chosen = schema.names if names is None else names
    kinds = [field.kind for field in schema.named(chosen)]
    rows = zip(decode_row(stats.least, kinds), decode_row(stats.greatest, kinds), stats.nulls, strict=True)
    return dict(zip(chosen, rows, strict=True))


def rows_of(schema: TableSchema, *columns: Sequence[Any]) -> pa.Table:
    """Return values as Paimon stores them as a table."""
    arrays = [
        pa.array([scalar_of(value, field.kind) for value in values], arrow_field(field).type)
        for field, values in zip(schema.fields, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema.arrow_schema)


def order(value: Any) -> Any:  # noqa: ANN401 - of any type
    """Return what sorts values as Paimon does: NaN is the greatest number, -0.0 less than 0.0 (`Double.compareTo`)."""
    return (math.isnan(value), value, math.copysign(1, value)) if isinstance(value, float) else value


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_all_values_lie_within_the_bounds_and_nulls_are_counted(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    values = st.none() | KINDS[kind]
    groups = data.draw(st.lists(st.lists(values, min_size=1, max_size=5), min_size=1, max_size=3))
    schema = schema_of([parse_kind(kind)])
    least, greatest, nulls = gathered(tmp_path, schema, *(rows_of(schema, group) for group in groups))["c0"]
    there = [value for group in groups for value in group if value is not None]
    assert nulls == sum(value is None for group in groups for value in group)
    if least is None or greatest is None:
        assert (least, greatest) == (None, None)
        has_nan = any(isinstance(value, float) and math.isnan(value) for value in there)
        assert not there or has_nan or any(value.startswith(LAST.encode() * 16) for value in there)
    else:
        assert all(order(least) <= order(value) <= order(greatest) for value in there)
        assert isinstance(least, bytes) or (least in there and greatest in there)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("DOUBLE", [1.5, NAN], (None, None, 0)),
        ("FLOAT", [NAN, None], (None, None, 1)),
        ("DOUBLE", [math.inf, -math.inf], (-math.inf, math.inf, 0)),
        ("TIMESTAMP(9)", [(5, 123_456), None], (None, None, 1)),
        ("INT", [None, None], (None, None, 2)),
        ("STRING", [b"a" * 16], (b"a" * 16, b"a" * 16, 0)),
        ("STRING", [b"a" * 17], (b"a" * 16, b"a" * 15 + b"b", 0)),
        ("STRING", [("ß" * 17).encode()], (("ß" * 16).encode(), ("ß" * 15 + "à").encode(), 0)),
        (
            "STRING",
            [("\U0001f600" * 17).encode()],
            (("\U0001f600" * 16).encode(), ("\U0001f600" * 15 + "\U0001f601").encode(), 0),
        ),
        ("STRING", [("\ud7ff" * 17).encode()], (("\ud7ff" * 16).encode(), ("\ud7ff" * 15 + "\ue000").encode(), 0)),
        ("STRING", [("a" + LAST * 17).encode()], (("a" + LAST * 15).encode(), b"b", 0)),
        ("STRING", [b"a", (LAST * 17).encode()], (None, None, 0)),
        ("STRING", [b"a" * 5000], (None, None, 0)),  # Parquet has no bounds of more than 4096 bytes
        ("BYTES", [b"\x80", b"\x7f", None], (None, None, 1)),  # readers before 2.0 take them for signed numbers
        ("DECIMAL(38, 2)", [-1, 10**37, None], (-1, 10**37, 1)),
        ("DECIMAL(5, 2)", [-100, 5], (-100, 5, 0)),
    ],
)
def test_odd_values_have_these_bounds(tmp_path: Path, kind: str, values: list[Any], expected: tuple[Any, ...]) -> None:
    schema = schema_of([parse_kind(kind)])
    assert gathered(tmp_path, schema, rows_of(schema, values)) == {"c0": expected}


@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_both_zeros_are_within_the_bounds_of_one(tmp_path: Path, values: list[float]) -> None:
    schema = schema_of([Kind("DOUBLE")])
    least, greatest, _ = gathered(tmp_path, schema, *(rows_of(schema, [value]) for value in values))["c0"]
    assert (math.copysign(1, least), math.copysign(1, greatest)) == (-1, 1)


def test_text_that_is_no_utf8_has_no_bounds(tmp_path: Path) -> None:
    schema = schema_of([TEXT])
    raw = pa.array([b"\xed\xa0\x80"], pa.binary()).view(pa.string())
    assert gathered(tmp_path, schema, pa.Table.from_arrays([raw], schema=schema.arrow_schema)) == {
        "c0": (None, None, 0)
    }


def test_columns_behind_a_nested_one_have_their_own_bounds_and_the_nested_one_has_none(tmp_path: Path) -> None:
    nested = Kind("ROW", fields=(Field(7, "x", Kind("INT")), Field(8, "y", Kind("ARRAY", children=(Kind("INT"),)))))
    mapped = Kind("MAP", children=(Kind("STRING", nullable=False), Kind("INT")))
    schema = TableSchema(
        0,
        (Field(0, "a", nested), Field(1, "b.c", Kind("INT")), Field(2, "m", mapped), Field(3, "d", TEXT)),
        8,
        (),
        (),
        {},
    )
    rows = [
        {"a": {"x": 9, "y": [9]}, "b.c": 1, "m": [("k", 9)], "d": "t"},
        {"a": None, "b.c": None, "m": None, "d": "u"},
    ]
    found = gathered(tmp_path, schema, pa.Table.from_pylist(rows, schema=schema.arrow_schema))
    assert found == {"b.c": (1, 1, 1), "d": (b"t", b"u", 0)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"metadata_stats__mode": "none"}, {}),
        ({"metadata_stats__mode": "counts"}, {"c0": (None, None, 0), "c1": (None, None, 0)}),
        ({"metadata_stats__mode": "FULL"}, {"c0": (1, 2, 0), "c1": (b"a" * 20, b"b" * 20, 0)}),
        ({"metadata_stats__mode": "truncate(2)"}, {"c0": (1, 2, 0), "c1": (b"aa", b"bc", 0)}),
        ({"metadata_stats__mode": "of a later release"}, {}),
        ({"metadata_stats__mode": "none", "fields_c1_stats__mode": "truncate(1)"}, {"c1": (b"a", b"c", 0)}),
        ({"metadata_stats__keep__first__n__columns": "1"}, {"c0": (1, 2, 0)}),
        (
            {"metadata_stats__mode": "none", "metadata_stats__dense__store": "false"},
            {"c0": (None, None, None), "c1": (None, None, None)},
        ),
    ],
)
def test_a_tables_options_say_what_is_said_of_its_columns(
    tmp_path: Path, options: dict[str, str], expected: dict[str, Any]
) -> None:
    schema = schema_of([Kind("INT"), TEXT], **options)
    assert gathered(tmp_path, schema, rows_of(schema, [1, 2], [b"a" * 20, b"b" * 20])) == expected


def test_partitions_have_bounds_but_those_of_bytes() -> None:
    kinds = [Kind("INT"), Kind("BYTES")]
    found = partition_stats(
        [encode_row(values, kinds) for values in ((3, b"\x80"), (-1, b"\x7f"), (None, None))], kinds
    )
    assert (decode_row(found.least, kinds), decode_row(found.greatest, kinds)) == ((-1, None), (3, None))
    assert found.nulls == (1, 1)


def entries_of(options: PaimonOptions) -> list[Entry]:
    """Return the files of the head of the table."""
    table = Table.load(LocalStorage(), f"{options.warehouse}/shop.db/orders", PATH)
    assert table is not None
    return list(table.manifests.live(table.latest).values())


def tier(plugin: PaimonLakePlugin, lake: Lake, table: TableSpec, rows: list[dict[str, Any]], number: int = 1) -> None:
    """Write rows of bucket 0, and commit them."""
    tiering = TieringRound(plugin, lake, table, incarnation(), number)
    tiering.write(log_split(table), [source_batch(table.schema, rows, changes=[1] * len(rows))])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED


def test_keys_are_shortened_to_128_letters_whatever_the_tables_options_say(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions
) -> None:
    schema = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.string())])
    properties = {"paimon.metadata.stats-mode": "none"}
    table = key_table(schema, primary_key=("k",), bucket_key=("k",), buckets=1, properties=properties)
    tier(plugin, lake, table, [{"k": "a" * 200}, {"k": "b" * 200}])
    (file,) = (entry.file for entry in entries_of(options))
    assert decode_row(file.key_stats.least, [TEXT]) == (b"a" * 128,)
    assert decode_row(file.key_stats.greatest, [TEXT]) == (b"b" * 127 + b"c",)
    assert decode_row(file.min_key, [TEXT]) == (b"a" * 200,)
    assert (file.key_stats.nulls, file.value_stats_columns) == ((0,), ())


def test_each_level_and_the_changelog_have_their_own_mode(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions
) -> None:
    modes = {"metadata.stats-mode.per.level": "0:none, 5:full", "changelog-file.stats-mode": "counts"}
    properties = {f"paimon.{key}": value for key, value in modes.items()}
    table = key_table(buckets=1, system_columns=False, properties=properties)
    for number in range(1, 7):
        tier(plugin, lake, table, [{"id": number, "name": f"{number}" * 20}], number)
    assert {entry.file.value_stats_columns for entry in entries_of(options)} == {()}
    known = Table.load(LocalStorage(), f"{options.warehouse}/shop.db/orders", PATH)
    assert known is not None
    assert known.latest is not None
    (change,) = known.manifests.entries(known.manifests.read_list(known.latest.changelog_manifest_list))
    assert (change.file.value_stats_columns, change.file.value_stats.nulls) == (None, (0, 0))
    compact(plugin, lake)
    (file,) = (entry.file for entry in entries_of(options))
    kinds = [Kind("BIGINT"), TEXT]
    assert (file.level, file.value_stats_columns) == (5, None)
    assert decode_row(file.value_stats.least, kinds) == (1, b"1" * 20)
    assert decode_row(file.value_stats.greatest, kinds) == (6, b"6" * 20)


def test_a_file_of_a_checkpoint_without_statistics_is_committed_without_them(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions
) -> None:
    tiering = TieringRound(plugin, lake, log_table(), incarnation())
    (file,) = tiering.write(log_split(tiering.table), [source_batch(COLUMNS, [{"id": 1}])])
    plain = msgspec.msgpack.decode(file.detail)
    for name in ("least_values", "greatest_values", "nulls", "stats_columns"):
        plain.pop(name, None)
    tiering.files[:] = [msgspec.structs.replace(file, detail=msgspec.msgpack.encode(plain))]
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    (entry,) = entries_of(options)
    assert (entry.file.value_stats_columns, entry.file.value_stats) == ((), Stats())


def test_a_filter_on_a_column_that_was_added_finds_the_rows_before_and_after(
    plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions, python_reader: PythonReader
) -> None:
    wider = COLUMNS.append(pa.field("late", pa.int64()))
    tier(plugin, lake, log_table(buckets=1), [{"id": 1, "name": "a"}])
    tier(plugin, lake, log_table(wider, buckets=1), [{"id": 2, "name": "b", "late": 5}], 2)
    # pypaimon leaves no file out by a column that it lacks, but where it asks for nulls alone.
    for where, ids, files in (
        (("equal", "late", 5), [2], 2),
        (("less_than", "late", 5), [], 1),
        (("is_null", "late"), [1], 1),
        (("equal", "name", "a"), [1], 1),
        (("greater_than", "name", "a"), [2], 1),
    ):
        rows, read = python_reader.scan(options.warehouse, str(PATH), where)
        assert (rows["id"].to_pylist(), read) == (ids, files), where


RANGES: dict[str, tuple[Any, Any]] = {
    "ti": (-100, 100),
    "si": (-300, 300),
    "bi": (-(2**40), 2**40),
    "f": (-1.5, 1.5),
    "d": (-2.5, 2.5),
    "c": ("aaaaa", "zzzzz"),
    "s": ("b" * 30, "y\U0001f600" * 30),
    "d5": (Decimal("-1.00"), Decimal("1.25")),
    "d18": (Decimal("-1.0000"), Decimal("12345678901234.0001")),
    "d38": (Decimal("-1e20"), Decimal("1e20")),
    "dt": (date(1969, 12, 31), date(2262, 5, 1)),
    "t0": (datetime(1969, 12, 31, 23, 59, 59), datetime(9999, 12, 31)),  # noqa: DTZ001 - without a zone
    "t3": (datetime(1, 1, 1), datetime(2024, 1, 2, 3, 4, 5, 678000)),  # noqa: DTZ001 - as above
    "t6": (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001 - as above
    "l6": (datetime(1969, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
}
"""Of each type by its column's name, values of which the second is the greater one."""


@pytest.fixture(params=["log", "key"])
def filled(
    request: pytest.FixtureRequest, plugin: PaimonLakePlugin, lake: Lake, options: PaimonOptions
) -> tuple[TableSpec, PaimonOptions]:
    """A table of two files: in the first each column has its lesser value, in the second the greater one and null."""
    keyed = request.param == "key"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(n, TYPES[n][1]) for n in RANGES)])
    table = (key_table if keyed else log_table)(schema, buckets=1, bucket_key=("id",), system_columns=False)
    types = {"id": "BIGINT NOT NULL" if keyed else "BIGINT", **{name: TYPES[name][0] for name in RANGES}}
    create_as_fluss(options, table, types, system=False)
    tier(plugin, lake, table, [{"id": 1, **{name: values[0] for name, values in RANGES.items()}}])
    tier(plugin, lake, table, [{"id": 2, **{name: values[1] for name, values in RANGES.items()}}, {"id": 3}], 2)
    return table, options


def test_a_reader_with_a_filter_finds_the_rows_and_leaves_the_other_file_out(
    filled: tuple[TableSpec, PaimonOptions], python_reader: PythonReader
) -> None:
    table, options = filled
    # Of a key table with files of level 0 only the key leaves files out: an older row could come to light.
    each, both = (2, 2) if table.has_primary_key else (1, 2)
    for name, (less, greater) in RANGES.items():
        for where, ids, files in (
            (("equal", name, less), [1], each),
            (("equal", name, greater), [2], each),
            (("less_than", name, greater), [1], each if name != "s" else both),
            (("greater_than", name, less), [2], each if name != "s" else both),
            (("greater_or_equal", name, less), [1, 2], both),
            (("is_null", name), [3], each),
        ):
            rows, read = python_reader.scan(options.warehouse, str(PATH), where)
            assert (sorted(rows["id"].to_pylist()), read) == (ids, files), where
    for where, ids in ((("equal", "id", 1), [1]), (("greater_than", "id", 1), [2, 3]), (("equal", "id", 3), [3])):
        rows, read = python_reader.scan(options.warehouse, str(PATH), where)
        assert (sorted(rows["id"].to_pylist()), read) == (ids, 1), where
