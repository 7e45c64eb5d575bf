"""Times beyond the nanoseconds' years and CHAR with its padding: the same from snapshots, scans and logs."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakeward.model.splits import LogSplit
from lakeward_source_fluss.formats import rows
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.logbatch import decode, iter_batches
from lakeward_source_fluss.formats.rows import Rows
from lakeward_source_fluss.formats.schema import FlussSchema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss_kit.oneserver import BUCKET, OneServer, arrow_batch
from lakeward_source_fluss_kit.plain_rows import decode_plainly

NANOS = FlussType(Kind.TIMESTAMP, precision=9)
LOCAL = FlussType(Kind.TIMESTAMP_LTZ, precision=7)
CHAR = FlussType(Kind.CHAR, length=5)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - a timestamp without time zone
FIRST = datetime(1, 1, 1)  # noqa: DTZ001 - as above
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as above


def nested(kind: FlussType) -> FlussType:
    """Return a row with an array and a map of a type, and the type itself."""
    array = FlussType(Kind.ARRAY, children=(FlussField("element", kind),))
    pairs = FlussType(Kind.MAP, children=(FlussField("key", FlussType(Kind.STRING)), FlussField("value", kind)))
    return FlussType(Kind.ROW, children=(FlussField("a", array), FlussField("m", pairs), FlussField("v", kind)))


def schema_of(*kinds: FlussType) -> FlussSchema:
    return FlussSchema(tuple(FlussField(f"c{number}", kind, None, number) for number, kind in enumerate(kinds)))


def compiled(data: Rows, schema: FlussSchema, encoding: Encoding) -> pa.RecordBatch:
    return rows.decode(data, schema, schema.to_arrow(), encoding)


@pytest.mark.parametrize("read", [compiled, decode_plainly])
@pytest.mark.parametrize("moment", [FIRST, LAST, datetime(2262, 4, 12)])  # noqa: DTZ001 - as above
def test_timestamps_of_nine_digits_have_all_years(read, moment: datetime) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    millis, micros = divmod((moment - EPOCH) // (LAST.resolution), 1000)
    row = b"\0" + struct.pack("<qi", millis, micros * 1000 + 999) * 2

    found = read(Rows.of([row]), schema_of(NANOS, LOCAL), Encoding.INDEXED)

    assert found.to_pylist() == [{"c0": moment, "c1": moment.replace(tzinfo=UTC)}]


def logged(schema: FlussSchema, values: list[dict[str, object]]) -> pa.RecordBatch:
    """Return an Arrow batch as Fluss writes it."""
    return pa.RecordBatch.from_pylist(values, schema.to_arrow(logged=True))


def read_log(schema: FlussSchema, values: list[dict[str, object]], *, padded: bool = False) -> list[dict[str, object]]:
    (batch,) = iter_batches(memoryview(arrow_batch(0, logged(schema, values))))
    found = decode(batch, schema, schema.to_arrow(), padded=padded)
    found.validate(full=True)
    rows: list[dict[str, object]] = found.to_pylist()
    assert decode(batch, schema, schema.to_arrow(), 1, 2, padded=padded).to_pylist() == rows[1:3]
    return rows


def test_nanoseconds_of_arrow_logs_are_cut_towards_the_past_at_any_depth() -> None:
    times = [-1, None, 1999, -1001]
    wanted = [-1, None, 1, -2]
    logged_times = [None if one is None else pa.scalar(one, pa.timestamp("ns")) for one in times]
    kind = pa.timestamp("us")
    values = [{"c0": one, "c1": {"a": [one, None], "m": [("k", one)], "v": one}} for one in logged_times] + [
        {"c0": None, "c1": None}
    ]

    found = read_log(schema_of(NANOS, nested(NANOS)), values)

    expected = [None if one is None else pa.scalar(one, kind).as_py() for one in wanted]
    assert found == [{"c0": one, "c1": {"a": [one, None], "m": [("k", one)], "v": one}} for one in expected] + [
        {"c0": None, "c1": None}
    ]


def test_char_of_indexed_tables_comes_out_of_arrow_logs_without_its_padding() -> None:
    padded, bare = "a\0\0\0\0", "a"
    values: list[dict[str, object]] = [
        {"c0": one, "c1": {"a": [one, None], "m": [("k", one)], "v": one}} for one in (padded, None, bare)
    ]

    found = read_log(schema_of(CHAR, nested(CHAR)), values, padded=True)

    assert found == [{"c0": one, "c1": {"a": [one, None], "m": [("k", one)], "v": one}} for one in (bare, None, bare)]


def test_zero_bytes_of_other_texts_stay() -> None:
    text = schema_of(FlussType(Kind.STRING), CHAR)

    assert read_log(text, [{"c0": "a\0", "c1": "b\0"}] * 3, padded=True)[0] == {"c0": "a\0", "c1": "b"}
    assert read_log(text, [{"c0": "a\0", "c1": "b\0"}] * 3)[0] == {"c0": "a\0", "c1": "b\0"}


@pytest.mark.parametrize(
    ("properties", "key", "expected"),
    [
        ({"table.kv.format": "INDEXED"}, ("c0",), "a"),
        ({"table.kv.format": "COMPACTED"}, ("c0",), "a\0\0\0\0"),
        ({"table.kv.format": "INDEXED"}, (), "a\0\0\0\0"),
    ],
)
def test_reader_knows_of_the_padding_by_the_tables_format(
    properties: dict[str, str], key: tuple[str, ...], expected: str
) -> None:
    schema = schema_of(CHAR)
    with OneServer(columns=schema.columns, primary_key=key, properties=properties) as server, server.client() as client:
        server.batches = [arrow_batch(0, logged(schema, [{"c0": "a\0\0\0\0"}]))]
        (batch,) = server.reader(client).read_log(LogSplit("b0", BUCKET, (), 0, 1))
        assert batch.records.column("c0").to_pylist() == [expected]


@pytest.mark.parametrize("kind", [Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ])
@pytest.mark.parametrize(("precision", "metadata"), [(6, None), (7, {b"precision": b"7"}), (9, {b"precision": b"9"})])
def test_a_timestamp_that_is_given_on_with_fewer_digits_says_how_many_it_has(
    kind: Kind, precision: int, metadata: dict[bytes, bytes] | None
) -> None:
    assert FlussField("at", FlussType(kind, precision=precision)).to_arrow().metadata == metadata
