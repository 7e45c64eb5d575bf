# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001 - what is parametrised has the type of its table
"""Rows in both formats, against bytes that Fluss's own encoders made (fluss.md, "KV snapshots and rows")."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError, RowError, SchemaMismatchError
from lakeward_source_fluss.formats import rows
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.rows import Rows
from lakeward_source_fluss.formats.schema import FlussSchema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss_kit.plain_rows import decode_plainly


def typed(kind: Kind, *sizes: int, children: tuple[FlussType, ...] = ()) -> FlussType:
    length = sizes[0] if kind in {Kind.CHAR, Kind.BINARY} else 0
    precision = 0 if length or not sizes else sizes[0]
    scale = sizes[1] if len(sizes) == 2 else 0
    names = {Kind.ARRAY: ("element",), Kind.MAP: ("key", "value")}.get(kind, ("x", "y", "z"))
    return FlussType(kind, True, length, precision, scale, tuple(map(FlussField, names, children)))


def schema_of(*types: FlussType) -> FlussSchema:
    return FlussSchema(tuple(FlussField(f"c{number}", kind, None, number) for number, kind in enumerate(types)))


INT, S, L = typed(Kind.INTEGER), typed(Kind.STRING), typed(Kind.BIGINT)
TS3, TS6 = typed(Kind.TIMESTAMP, 3), typed(Kind.TIMESTAMP, 6)
LTZ3, LTZ9 = typed(Kind.TIMESTAMP_LTZ, 3), typed(Kind.TIMESTAMP_LTZ, 9)
SMALL, BIG = typed(Kind.DECIMAL, 10, 2), typed(Kind.DECIMAL, 30, 5)
VECTORS = [
    ([INT, S], [1, "abc"], "000103616263", "000300000001000000616263"),
    ([INT, S], [-1, None], "02ffffffff0f", "0200000000ffffffff"),
    ([INT, S], [None, "abc"], "0103616263", "0103000000616263"),
    (
        [INT, L, L],
        [300, 5_000_000_000, -2],
        "00ac0280e497d012feffffffffffffffff01",
        "002c01000000f2052a01000000feffffffffffffff",
    ),
    (
        [typed(Kind.BOOLEAN), typed(Kind.TINYINT), typed(Kind.SMALLINT), typed(Kind.FLOAT), typed(Kind.DOUBLE)],
        [True, -5, 258, 1.5, -2.25],
        "0001fb02010000c03f00000000000002c0",
        "0001fb02010000c03f00000000000002c0",
    ),
    ([typed(Kind.DATE), typed(Kind.TIME, 3)], [date(2022, 1, 8), 3723004], "00b89401fc9de301", "00384a0000fcce3800"),
    (
        [SMALL, SMALL],
        [Decimal("123.45"), Decimal("-1.00")],
        "00b9609cffffffffffffffff01",
        "0039300000000000009cffffffffffffff",
    ),
    ([BIG], [Decimal("12345678901234567890.12345")], "000b01056e0f36a6443de2df79", "000b00000001056e0f36a6443de2df79"),
    ([BIG], [Decimal(-1)], "0003fe7960", "0003000000fe7960"),
    (
        [TS3, TS6],
        [1700000000123, 1700000000123456],
        "00fbd095ffbc31fbd095ffbc31c0ea1b",
        "007b68e5cf8b0100007b68e5cf8b01000040f50600",
    ),
    ([LTZ3, LTZ9], [1, -1], "0001ffffffffffffffffff01bf843d", "000100000000000000ffffffffffffffff3f420f00"),
    (
        [typed(Kind.CHAR, 5), typed(Kind.BINARY, 3), typed(Kind.BYTES)],
        ["ab", b"\1\2\0", b"\xff"],
        "0002616202010201ff",
        "00010000006162000000010200ff",
    ),
    (
        [INT] * 9,
        [None, 1, 2, 3, 4, 5, 6, 7, None],
        "010101020304050607",
        "0101" + "".join(f"0{n}000000" for n in range(1, 8)),
    ),
]
NESTED = [
    (typed(Kind.ARRAY, children=(INT,)), [1, None, 3], "030000000200000001000000000000000300000000000000"),
    (
        typed(Kind.ARRAY, children=(S,)),
        ["a", "longer than seven", None],
        "03000000040000006100000000000081110000002000000000000000000000006c6f6e676572207468616e20736576656e00000000000000",
    ),
    (typed(Kind.ARRAY, children=(L,)), [7], "01000000000000000700000000000000"),
    (typed(Kind.ARRAY, children=(TS6,)), [1700000000123456], "010000000000000040f50600100000007b68e5cf8b010000"),
    (
        typed(Kind.ARRAY, children=(BIG,)),
        [Decimal(-1)],
        "01000000000000000300000010000000fe796000000000000000000000000000",
    ),
    (typed(Kind.ARRAY, children=(typed(Kind.BOOLEAN),)), [True, False], "02000000000000000100000000000000"),
    (
        typed(Kind.MAP, children=(S, INT)),
        [("k", 1)],
        "1000000001000000000000006b0000000000008101000000000000000100000000000000",
    ),
    (typed(Kind.ROW, children=(INT, S)), {"x": 1, "y": "abc"}, "000103616263"),
    (
        typed(Kind.ARRAY, children=(typed(Kind.ROW, children=(INT, S)),)),
        [{"x": 1, "y": "abc"}],
        "010000000000000006000000100000000001036162630000",
    ),
    (
        typed(Kind.ARRAY, children=(typed(Kind.ARRAY, children=(INT,)),)),
        [[1, 2]],
        "0100000000000000100000001000000002000000000000000100000002000000",
    ),
]


def compiled(data: Rows, schema: FlussSchema, encoding: Encoding) -> pa.RecordBatch:
    return rows.decode(data, schema, schema.to_arrow(), encoding)


decode_compacted = partial(rows.decode, encoding=Encoding.COMPACTED)
decoders = pytest.mark.parametrize("decode", [compiled, decode_plainly])


def expected(schema: FlussSchema, *values: list[object]) -> pa.RecordBatch:
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*values, strict=True), schema.to_arrow(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.to_arrow())


@decoders
@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize(("types", "values", "compacted", "indexed"), VECTORS)
def test_rows_of_fluss_encoders_are_read(  # noqa: PLR0917 - a table's columns
    decode, encoding, types, values, compacted, indexed
) -> None:
    schema = schema_of(*types)
    raw = bytes.fromhex(compacted if encoding is Encoding.COMPACTED else indexed)
    assert decode(Rows.of([raw, raw]), schema, encoding).equals(expected(schema, values, values))


@decoders
@pytest.mark.parametrize(("kind", "value", "payload"), NESTED)
def test_nested_values_of_fluss_encoders_are_read_between_nulls(decode, kind, value, payload) -> None:
    schema = schema_of(kind)
    raw = b"\0" + bytes([len(payload) // 2]) + bytes.fromhex(payload)
    found = decode(Rows.of([b"\1", raw, raw, b"\1"]), schema, Encoding.COMPACTED)
    assert found.equals(expected(schema, [None], [value], [value], [None]))


def test_a_null_bit_of_a_not_null_column_is_ignored() -> None:
    schema = FlussSchema((FlussField("a", FlussType(Kind.INTEGER, nullable=False)),))
    for decode in (compiled, decode_plainly):
        assert decode(Rows.of([bytes.fromhex("0105")]), schema, Encoding.COMPACTED).column("a").to_pylist() == [5]


def test_columns_of_an_older_schema_are_null_and_others_keep_their_name_by_id() -> None:
    old = FlussSchema((FlussField("id", INT, None, 0), FlussField("gone", S, None, 1), FlussField("was", L, None, 2)))
    new = FlussSchema((FlussField("id", INT, None, 0), FlussField("now", L, None, 2), FlussField("gone", INT, None, 3)))
    batch = rows.decode(
        Rows.of([bytes.fromhex("0001036162630a")]), old.seen_as(new), new.to_arrow(), Encoding.COMPACTED
    )
    assert batch.to_pylist() == [{"id": 1, "now": 10, "gone": None}]


def test_only_the_wanted_columns_are_given() -> None:
    schema = schema_of(INT, S)
    batch = rows.decode(
        Rows.of([bytes.fromhex("000103616263")]), schema, pa.schema([("c1", pa.string())]), Encoding.COMPACTED
    )
    assert batch.to_pylist() == [{"c1": "abc"}]


def test_a_narrower_type_is_widened_and_text_is_not_made_a_number() -> None:
    schema, raw = schema_of(INT, S), Rows.of([bytes.fromhex("000103616263")])
    assert decode_compacted(raw, schema, pa.schema([("c0", pa.int64())])).column(0).to_pylist() == [1]
    with pytest.raises(SchemaMismatchError, match="c1"):
        decode_compacted(raw, schema, pa.schema([("c1", pa.int32())]))


def test_no_rows_are_a_batch_of_the_wanted_columns() -> None:
    target = pa.schema([("c0", pa.int32()), ("other", pa.decimal128(10, 2))])
    assert decode_compacted(Rows.of([]), schema_of(INT), target).equals(pa.RecordBatch.from_pylist([], target))


@decoders
@pytest.mark.parametrize(
    ("types", "raw"),
    [
        ([INT, S], "0001036162"),
        ([INT, S], "00010361626364"),
        ([INT, S], ""),
        ([INT], "00ffffffffff01"),
        ([INT, S], "0001ffffffff0f"),
        ([BIG], "0000"),
        ([BIG], "0011" + "01" * 17),
        ([SMALL], "00feffffffffffffffff00"),
        ([S], "0002c328"),
        ([typed(Kind.TIME, 0)], "0080b8992900"),
        ([typed(Kind.BINARY, 1)], "00020102"),
        ([TS6], "0001ffffff0f"),
        ([NESTED[0][0]], "0004ffffff7f"),
        ([NESTED[1][0]], "001001000000000000000000000000000000ff"),
        ([NESTED[6][0]], "00041000ffff"),
    ],
)
def test_broken_rows_are_a_named_error(decode, types, raw) -> None:
    with pytest.raises(CorruptFileError, match="rows"):
        decode(Rows.of([bytes.fromhex(raw)], "rows"), schema_of(*types), Encoding.COMPACTED)


@decoders
def test_a_time_that_its_type_cannot_hold_is_an_error_of_the_row(decode) -> None:
    with pytest.raises(RowError, match="c0"):
        decode(Rows.of([bytes.fromhex("00ffffffffffffffff7f00")]), schema_of(LTZ9), Encoding.COMPACTED)


@decoders
def test_an_array_cannot_name_its_bytes_many_times(decode) -> None:
    count, size = 100, 1000
    slots = (b"\xe8\x03\0\0" + (size).to_bytes(4, "little")) * count
    array = count.to_bytes(4, "little") + bytes(16) + slots
    array += bytes(2000 - len(array))
    raw = b"\0" + bytes([0xD0, 0x0F]) + array
    with pytest.raises(CorruptFileError):
        decode(Rows.of([raw]), schema_of(NESTED[1][0]), Encoding.COMPACTED)


def test_rows_outside_their_buffer_are_refused() -> None:
    with pytest.raises(CorruptFileError):
        Rows(np.zeros(3, "u1"), np.array([0]), np.array([4]))


@pytest.mark.parametrize(
    ("kind", "encoding", "raw", "held"),
    [
        (INT, Encoding.COMPACTED, "00ac02", 300),
        (S, Encoding.INDEXED, "0003000000616263", b"abc"),
        (typed(Kind.CHAR, 5), Encoding.INDEXED, "006162000000", b"ab\0\0\0"),
        (typed(Kind.DOUBLE), Encoding.COMPACTED, "0000000000000002c0", -2.25),
        (typed(Kind.FLOAT), Encoding.COMPACTED, "000000c03f", 1.5),
        (BIG, Encoding.COMPACTED, "0003fe7960", b"\xfe\x79\x60"),
        (TS6, Encoding.INDEXED, "007b68e5cf8b01000040f50600", 1_700_000_000_123_456_000),
        (S, Encoding.COMPACTED, "01", None),
        (S, Encoding.COMPACTED, "000961", b"\0\x09a"),
    ],
)
def test_what_a_row_holds_in_a_column_is_found_for_errors(
    kind: FlussType, encoding: Encoding, raw: str, held: object
) -> None:
    assert rows.raw_value(Rows.of([b"\1", bytes.fromhex(raw)]), 1, "c0", schema_of(kind), encoding) == held


def test_schemas_are_read_without_loading_kernels() -> None:
    program = (
        "import sys, lakeward_source_fluss.formats.schema; print('numba' in sys.modules, 'rocksdict' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True, timeout=60
    )
    assert done.stdout.strip() == "False False"
