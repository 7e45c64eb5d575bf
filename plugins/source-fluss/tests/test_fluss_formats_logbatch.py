"""Log batches and value batches: bytes that Fluss's own encoders made, and hostile ones."""

from __future__ import annotations

import struct

import google_crc32c
import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError, NewerSourceError
from lakeward.model.tables import Change
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.logbatch import LogFormat, decode, iter_batches
from lakeward_source_fluss.formats.records import decode_values, value_batch
from lakeward_source_fluss.formats.schema import FlussSchema
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss_kit.schemas import project

ROW = "07000000 01 000103616263 03000000 04 0202"
TAIL = "0100000100000007000000000000000300000002000000"
V0 = f"640000000000000036000000 00 0000000000000000 d1f92e90 {TAIL} {ROW}"
V1 = f"64000000000000003a000000 01 0000000000000000 7a9b8a9e {TAIL} 00000000 {ROW}"
V2 = f"64000000000000003e000000 02 0000000000000000 ffffffff 7a9b8a9e {TAIL} 00000000 {ROW}"
INDEXED = (
    "000000000000000035000000000000000000000000fab8c3ab01000100000000ffffffffffffffffffffffff010000000d000000"
    "00 000300000001000000616263"
)
SCHEMA = FlussSchema((FlussField("id", FlussType(Kind.INTEGER)), FlussField("s", FlussType(Kind.STRING))))


def test_batches_of_all_three_versions_are_read() -> None:
    for text in (V0, V1, V2):
        (batch,) = iter_batches(memoryview(bytes.fromhex(text)), LogFormat.COMPACTED)
        assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.schema_id) == (100, 101, 102, 1)
        assert batch.changes.tolist() == [Change.INSERT, Change.DELETE]
        rows = decode(batch, SCHEMA, SCHEMA.to_arrow())
        assert rows.to_pylist() == [{"id": 1, "s": "abc"}, {"id": 2, "s": None}]


def test_an_indexed_log_is_read() -> None:
    (batch,) = iter_batches(memoryview(bytes.fromhex(INDEXED)), LogFormat.INDEXED)
    assert decode(batch, SCHEMA, SCHEMA.to_arrow()).to_pylist() == [{"id": 1, "s": "abc"}]
    assert batch.changes.tolist() == [Change.APPEND]


def test_a_batch_without_records_uses_offsets() -> None:
    raw = "02000000000000002400000000d45530fda1010000f759189a0100000000000002000000000000000100000000000000"
    (batch,) = iter_batches(memoryview(bytes.fromhex(raw)))
    assert (batch.rows, batch.base_offset, batch.next_offset) == (0, 2, 3)
    assert decode(batch, SCHEMA, SCHEMA.to_arrow()).num_rows == 0


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    raw = bytes.fromhex(V0)
    for cut in range(len(raw)):
        assert [batch.base_offset for batch in iter_batches(memoryview(raw + raw[:cut]), LogFormat.COMPACTED)] == [100]


def test_a_flipped_bit_is_found_by_the_check_sum() -> None:
    raw = bytearray(bytes.fromhex(V0))
    raw[-1] ^= 1
    with pytest.raises(CorruptFileError, match="check sum"):
        list(iter_batches(memoryview(raw), LogFormat.COMPACTED))


def test_an_unknown_version_is_an_error_and_is_not_guessed() -> None:
    raw = bytearray(bytes.fromhex(V0))
    raw[12] = 3
    with pytest.raises(NewerSourceError, match="found 3"):
        list(iter_batches(memoryview(raw), LogFormat.COMPACTED))


@pytest.mark.parametrize("length", [-1, 0, 35, -(1 << 31)])
def test_a_length_below_a_header_is_an_error(length: int) -> None:
    raw = bytearray(bytes.fromhex(V0))
    struct.pack_into("<i", raw, 8, length)
    with pytest.raises(CorruptFileError, match="at least"):
        list(iter_batches(memoryview(raw), LogFormat.COMPACTED))


def arrow_log(batch: pa.RecordBatch, codec: str | None, changes: bytes = b"", rows: int | None = None) -> bytes:
    payload: bytes = changes + batch.serialize().to_pybytes()
    if codec is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(batch)
        stream = pa.ipc.MessageReader.open_stream(pa.py_buffer(sink.getvalue()))
        stream.read_next_message()
        payload = changes + stream.read_next_message().serialize().to_pybytes()
    count = batch.num_rows if rows is None else rows
    tail = struct.pack("<hbiqii", 1, 0 if changes else 1, max(count - 1, 0), -1, -1, count) + payload
    head = struct.pack("<bqI", 0, 17, google_crc32c.value(tail))
    return struct.pack("<qi", 5, len(head) + len(tail)) + head + tail


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("shift", [0, 3])
def test_arrow_logs_of_every_codec_are_read_at_any_position(codec: str | None, shift: int) -> None:
    wanted = pa.record_batch({"id": pa.array(range(999), pa.int32()), "s": [f"row {n}" for n in range(999)]})
    raw = memoryview(bytes(shift) + arrow_log(wanted, codec, bytes([1]) * 999))[shift:]
    (batch,) = iter_batches(raw)
    assert decode(batch, SCHEMA, SCHEMA.to_arrow()).equals(wanted)
    assert batch.changes.tolist() == [1] * 999
    assert decode(batch, SCHEMA, pa.schema([("s", pa.string())])).column_names == ["s"]


def test_a_buffer_that_says_it_becomes_huge_is_refused_before_it_is_read() -> None:
    rows = pa.record_batch({"id": pa.array([1] * 5000, pa.int32())})
    raw = bytearray(arrow_log(rows, "zstd"))
    at = raw.find(struct.pack("<q", 20000))
    struct.pack_into("<q", raw, at, 1 << 40)
    (batch,) = iter_batches(memoryview(raw), verify=False)
    with pytest.raises(CorruptFileError, match="at most"):
        decode(batch, project(SCHEMA, (0,)), rows.schema)


def test_an_arrow_batch_of_another_number_of_rows_is_refused() -> None:
    rows = pa.record_batch({"id": pa.array([1, 2], pa.int32())})
    (batch,) = iter_batches(memoryview(arrow_log(rows, None, rows=1)))
    with pytest.raises(CorruptFileError, match="1 rows"):
        decode(batch, project(SCHEMA, (0,)), rows.schema)


def test_values_of_two_schemas_keep_their_order() -> None:
    new = FlussSchema((*SCHEMA.columns, FlussField("x", FlussType(Kind.BIGINT))))
    raw = bytes.fromhex("1d000000 00 02000000 08000000 0100 002a03616263 08000000 0100 02ffffffff0f")
    values = value_batch(memoryview(raw))
    assert decode_values(values, {1: SCHEMA}, SCHEMA.to_arrow(), Encoding.COMPACTED).to_pylist() == [
        {"id": 42, "s": "abc"},
        {"id": -1, "s": None},
    ]
    mixed = type(values).of([bytes.fromhex(value) for value in ("02000001016116", "010000020162", "02000003016321")])
    found = decode_values(mixed, {1: SCHEMA, 2: new}, new.to_arrow(), Encoding.COMPACTED)
    assert found.column("id").to_pylist() == [1, 2, 3]
    assert found.column("x").to_pylist() == [22, None, 33]
    with pytest.raises(CorruptFileError, match="schema id 2"):
        decode_values(mixed, {1: SCHEMA}, new.to_arrow(), Encoding.COMPACTED)
