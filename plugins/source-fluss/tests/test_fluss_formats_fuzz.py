"""Hostile and truncated bytes: a typed error or a right answer, from compiled and from plain decoders alike."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeward.errors import CorruptFileError, LakewardError, NewerSourceError, RowError, SchemaMismatchError
from lakeward_source_fluss.formats import rows
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.logbatch import LogFormat, decode, iter_batches
from lakeward_source_fluss.formats.records import decode_values, value_batch
from lakeward_source_fluss.formats.rows import Rows
from lakeward_source_fluss.formats.schema import FlussSchema, parse_schema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss_kit.plain_rows import decode_plainly
from lakeward_source_fluss_kit.schemas import dump_schema

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

PLAIN = [kind for kind in Kind if kind not in {Kind.ARRAY, Kind.MAP, Kind.ROW}]
LIMIT = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def plain_types(draw: st.DrawFn) -> FlussType:
    kind = draw(st.sampled_from(PLAIN))
    nullable = draw(st.booleans())
    if kind in {Kind.CHAR, Kind.BINARY}:
        return FlussType(kind, nullable, length=draw(st.integers(1, 9)))
    if kind is Kind.DECIMAL:
        precision = draw(st.integers(1, 38))
        return FlussType(kind, nullable, precision=precision, scale=draw(st.integers(0, precision)))
    if kind in {Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ}:
        return FlussType(kind, nullable, precision=draw(st.integers(0, 9)))
    return FlussType(kind, nullable)


def nest(inner: st.SearchStrategy[FlussType]) -> st.SearchStrategy[FlussType]:
    arrays = inner.map(lambda kind: FlussType(Kind.ARRAY, children=(FlussField("element", kind),)))
    pairs = st.tuples(inner, inner)
    maps = pairs.map(
        lambda pair: FlussType(Kind.MAP, children=(FlussField("key", pair[0]), FlussField("value", pair[1])))
    )
    fields = st.lists(inner, max_size=3)
    structs = fields.map(
        lambda kinds: FlussType(Kind.ROW, children=tuple(FlussField(f"f{n}", kind) for n, kind in enumerate(kinds)))
    )
    return arrays | maps | structs


TYPES = st.recursive(plain_types(), nest, max_leaves=4)
SCHEMAS = st.lists(TYPES, min_size=1, max_size=10).map(
    lambda kinds: FlussSchema(tuple(FlussField(f"c{n}", kind, None, n) for n, kind in enumerate(kinds)))
)


def outcome(work: Callable[[], pa.RecordBatch]) -> Any:  # noqa: ANN401 - a batch or the class of an error
    try:
        found = work()
    except (CorruptFileError, RowError) as refused:
        return type(refused)
    found.validate(full=True)
    return found


def both(data: list[bytes], schema: FlussSchema, encoding: Encoding) -> tuple[Any, Any]:
    some = Rows.of(data)
    return (
        outcome(lambda: rows.decode(some, schema, schema.to_arrow(), encoding)),
        outcome(lambda: decode_plainly(some, schema, encoding)),
    )


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 - see `outcome`
    if isinstance(one, pa.RecordBatch) and isinstance(other, pa.RecordBatch):
        # NaN differs from itself; its text does not.
        return one.equals(other) or str(one.to_pylist()) == str(other.to_pylist())
    return isinstance(one, type) and isinstance(other, type)


@pytest.mark.parametrize("encoding", Encoding)
@given(schema=SCHEMAS, data=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
@LIMIT
def test_any_bytes_are_rows_or_an_error_for_both_decoders(
    encoding: Encoding, schema: FlussSchema, data: list[bytes]
) -> None:
    one, other = both(data, schema, encoding)
    assert same(one, other), (one, other)


@st.composite
def broken_values(draw: st.DrawFn) -> tuple[FlussSchema, list[bytes]]:
    """Rows of one nested column whose array header is plausible, so that more of the kernels is reached."""
    inner = draw(TYPES)
    kind = FlussType(Kind.ARRAY, children=(FlussField("element", inner),))
    count = draw(st.integers(0, 5))
    words = draw(st.lists(st.integers(0, 40) | st.integers(0, (1 << 32) - 1), max_size=12))
    array = struct.pack("<i", count) + bytes(4 * (count > 0)) + b"".join(struct.pack("<I", word) for word in words)
    row = bytes([0, len(array)]) + array
    return FlussSchema((FlussField("c", kind, None, 0),)), [row, b"\1", row]


@given(broken_values())
@LIMIT
def test_arrays_with_wild_slots_are_values_or_an_error_for_both_decoders(case: tuple[FlussSchema, list[bytes]]) -> None:
    one, other = both(case[1], case[0], Encoding.COMPACTED)
    assert same(one, other), (one, other)


SIMPLE = FlussSchema(
    (
        FlussField("id", FlussType(Kind.BIGINT)),
        FlussField("s", FlussType(Kind.STRING)),
        FlussField("a", FlussType(Kind.ARRAY, children=(FlussField("element", FlussType(Kind.INTEGER)),))),
    )
)


def log(payload: bytes, count: int, attributes: int, delta: int) -> bytes:
    tail = struct.pack("<hbiqii", 1, attributes, delta, -1, -1, count) + payload
    head = struct.pack("<bqI", 0, 17, google_crc32c.value(tail))
    return struct.pack("<qi", 5, len(head) + len(tail)) + head + tail


def read_log(raw: bytes, log_format: LogFormat, *, verify: bool = True) -> None:
    for batch in iter_batches(memoryview(raw), log_format, verify=verify):
        found = decode(batch, SIMPLE, SIMPLE.to_arrow())
        found.validate(full=True)
        assert found.num_rows == batch.rows == len(batch.changes)


def arrow_payload(codec: str | None) -> bytes:
    batch = pa.RecordBatch.from_pylist(
        [{"id": n, "s": f"row {n}", "a": [n, None]} for n in range(50)], SIMPLE.to_arrow()
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    payload: bytes = messages.read_next_message().serialize().to_pybytes()
    return payload


ARROW = {codec: log(arrow_payload(codec), 50, 1, 49) for codec in (None, "lz4", "zstd")}
EXTREMES = st.sampled_from(
    [0, 1, -1, 7, 8, 127, 128, 255, 1 << 16, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, (1 << 63) - 1]
)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@given(data=st.data())
@LIMIT
def test_an_arrow_log_with_any_change_is_read_or_an_error(codec: str | None, data: st.DataObject) -> None:
    raw = bytearray(ARROW[codec])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(raw) - 1))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        value = data.draw(EXTREMES) & ((1 << 8 * width) - 1)
        raw[position : position + width] = value.to_bytes(width, "little")[: len(raw) - position]
    with_errors(lambda: read_log(bytes(raw), LogFormat.ARROW, verify=False))


def with_errors(work: Callable[[], None]) -> None:
    with suppress(CorruptFileError, NewerSourceError, RowError):
        work()


@given(data=st.binary(max_size=200), log_format=st.sampled_from(LogFormat), magic=st.integers(0, 3))
@LIMIT
def test_any_bytes_are_a_log_or_an_error(data: bytes, log_format: LogFormat, magic: int) -> None:
    with_errors(lambda: read_log(data, log_format, verify=False))
    header = struct.pack("<qib", 0, len(data) + 1, magic)
    with_errors(lambda: read_log(header + data, log_format, verify=False))


@given(
    payload=st.binary(max_size=100),
    count=st.integers(0, 40) | st.sampled_from([1 << 30, (1 << 31) - 1]),
    log_format=st.sampled_from(LogFormat),
    attributes=st.integers(0, 1),
)
@LIMIT
def test_any_records_under_a_right_sum_are_read_or_an_error(
    payload: bytes, count: int, log_format: LogFormat, attributes: int
) -> None:
    raw = log(payload, count, attributes, max(count - 1, 0))
    with_errors(lambda: read_log(raw, log_format))


@given(st.binary(max_size=80), st.integers(-1, 1 << 31))
@LIMIT
def test_any_bytes_are_a_value_batch_or_an_error(data: bytes, count: int) -> None:
    def work(raw: bytes) -> None:
        values = value_batch(memoryview(raw))
        decode_values(values, {1: SIMPLE}, SIMPLE.to_arrow(), Encoding.COMPACTED)

    with_errors(lambda: work(data))
    with_errors(lambda: work(struct.pack("<ibI", len(data) + 5, 0, max(count, 0)) + data))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([kind.value for kind in Kind]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "name", "columns", "data_type", "fields", "id", "nullable"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
@LIMIT
def test_any_json_is_a_schema_or_an_error(value: object) -> None:
    for text in (json.dumps(value), json.dumps({"columns": [{"name": "a", "data_type": value}]})):
        with suppress(SchemaMismatchError, NewerSourceError):
            parse_schema(text).to_arrow()


def test_a_schema_of_endless_depth_is_an_error() -> None:
    for depth in (40, 100_000):
        inner = '{"type":"ARRAY","element_type":' * depth + '{"type":"INTEGER"}' + "}" * depth
        with pytest.raises(SchemaMismatchError):
            parse_schema('{"columns":[{"name":"a","data_type":' + inner + "}]}")


@given(SCHEMAS)
@LIMIT
def test_a_schema_is_the_same_after_writing_and_reading_it(schema: FlussSchema) -> None:
    assert parse_schema(dump_schema(schema)).to_arrow().equals(schema.to_arrow())


def test_a_count_of_rows_without_bytes_allocates_nothing() -> None:
    for log_format in LogFormat:
        with pytest.raises(LakewardError):
            read_log(log(b"", (1 << 31) - 1, 1, (1 << 31) - 2), log_format)
    with pytest.raises(CorruptFileError):
        Rows(np.zeros(4, "u1"), np.array([5]), np.array([3]))
