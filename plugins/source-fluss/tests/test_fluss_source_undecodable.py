"""A row that cannot be decoded is an error that names bucket, offset, column and value, wherever it comes from."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError, RowError
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss.rpc.releases import Release
from lakeward_source_fluss_kit.oneserver import BUCKET, COLUMNS, OneServer, arrow_batch, compacted, log_batch

BAD_TEXT = b"a\xff"
TIME = FlussField("v", FlussType(Kind.TIME, precision=3))


@pytest.fixture
def server(release: Release) -> Iterator[OneServer]:
    """A server whose log is still empty."""
    with OneServer(primary_key=("id",), release=release) as started:
        yield started


def read_log(server: OneServer, stop: int, start: int = 0) -> None:
    with server.client() as client:
        list(server.reader(client).read_log(LogSplit("b0", BUCKET, (), start, stop)))


def read_snapshot(server: OneServer, spool: Path, *, skip_rows: int = 0, live: bool = False) -> None:
    with server.client() as client:
        split = SnapshotSplit("b0-s1", BUCKET, (), 1, 120, live)
        list(server.reader(client, spool).read_snapshot(split, skip_rows))


def rows(bad: int) -> list[bytes]:
    return [compacted(number, BAD_TEXT if number == bad else b"ok") for number in range(100)]


@pytest.mark.parametrize("bad", [0, 1, 63, 99])
def test_text_that_is_none_is_named_with_its_offset(server: OneServer, bad: int) -> None:
    server.batches = [log_batch(0, [compacted(1, b"x")] * 50), log_batch(50, rows(bad))]

    with pytest.raises(
        RowError, match=rf"table db\.t, bucket 10/0, offset {50 + bad}, column 'v': expected .* string, found b'a\\xff'"
    ):
        read_log(server, 150)


def test_rows_outside_the_split_are_nobodys_error(server: OneServer) -> None:
    server.batches = [log_batch(0, rows(20))]

    read_log(server, 100, start=21)
    read_log(server, 20)


def test_row_that_does_not_fit_its_columns_is_named_as_a_whole(server: OneServer) -> None:
    server.batches = [log_batch(0, [compacted(1, b"x"), b"\0\1\x05ab"])]

    with pytest.raises(
        RowError, match=r"bucket 10/0, offset 1: expected a row of 2 columns, found b'\\x00\\x01\\x05ab'"
    ):
        read_log(server, 2)


def test_number_that_its_type_cannot_hold_is_named(server: OneServer) -> None:
    with OneServer(columns=(COLUMNS[0], TIME)) as timed:
        timed.batches = [log_batch(0, [b"\0\1\1", b"\0\1" + b"\xff\xff\xff\xff\x07"])]
        with pytest.raises(
            RowError, match=r"offset 1, column 'v': expected a value of type time32\[ms\], found 2147483647"
        ):
            read_log(timed, 2)


def broken_arrow(base: int, texts: list[bytes]) -> bytes:
    """Return an Arrow batch whose texts are any bytes."""
    binary = pa.array(texts, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("v", pa.string())])
    return arrow_batch(base, pa.RecordBatch.from_arrays([pa.array(range(len(texts)), pa.int32()), text], schema=schema))


def test_text_in_an_arrow_log_is_named_as_well() -> None:
    with OneServer(properties={}) as arrow:
        arrow.batches = [broken_arrow(7, [b"fine", b"fine", BAD_TEXT, b"fine"])]
        arrow.earliest = 7
        with pytest.raises(RowError, match=r"offset 9, column 'v': .*found b'a\\xff'"):
            read_log(arrow, 11, start=8)


def test_arrow_batch_that_is_none_is_named_with_its_offsets() -> None:
    tail = struct.pack("<hbiqii", 1, 1, 2, -1, -1, 3) + b"no arrow at all"
    head = struct.pack("<bqI", 0, 17, google_crc32c.value(tail))
    with OneServer(properties={}) as arrow:
        arrow.batches = [struct.pack("<qi", 0, len(head) + len(tail)) + head + tail]
        with pytest.raises(RowError, match=r"bucket 10/0, offsets 0 to 2: .*Arrow record batch"):
            read_log(arrow, 3)


def test_batch_with_a_wrong_sum_is_damage_and_no_row(server: OneServer) -> None:
    raw = bytearray(log_batch(0, rows(-1)))
    raw[-1] ^= 1
    server.batches = [bytes(raw)]

    with pytest.raises(CorruptFileError, match="check sum"):
        read_log(server, 100)


@pytest.mark.parametrize("skip_rows", [0, 60])
def test_row_of_a_snapshot_is_named_by_its_number(server: OneServer, tmp_path: Path, skip_rows: int) -> None:
    (tmp_path / "spool").mkdir()
    values = [(bytes([number]), b"\1\0" + row) for number, row in enumerate(rows(77))]
    server.put_snapshot(tmp_path / "db", values, log_offset=120)

    with pytest.raises(
        RowError,
        match=r"bucket 10/0, offset below 120 \(row 77 of KV snapshot 1\), column 'v': .*found b'a\\xff'",
    ):
        read_snapshot(server, tmp_path / "spool", skip_rows=skip_rows)


def test_row_of_a_scan_is_named_by_its_number(tmp_path: Path) -> None:
    with OneServer(primary_key=("id",), release=Release.V1_0) as scanned:
        scanned.put_scan([b"\1\0" + row for row in rows(5)], log_offset=130)

        with pytest.raises(RowError, match=r"offset below 130 \(row 5 of a scan\), column 'v': .*found b'a\\xff'"):
            read_snapshot(scanned, tmp_path, live=True)


def test_error_of_a_row_suspends_its_table() -> None:
    assert RowError.permanent
