"""Wide rows and wide tables: as many rows come out as went in, in batches that have a size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.model.batches import BYTES_MOST, SourceBatch
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward_source_fluss.formats import kvsnapshot
from lakeward_source_fluss.formats.types import FlussField, FlussType, Kind
from lakeward_source_fluss_kit.oneserver import BUCKET, COLUMNS, OneServer, arrow_batch, compacted, log_batch, varint

NUMBERS = tuple(FlussField(f"c{number}", FlussType(Kind.INTEGER), None, number) for number in range(2000))
NULLS = b"\xff" * 250
CELLS = 1 << 22


@pytest.fixture
def opened() -> Iterator[Callable[[OneServer], OneServer]]:
    """Closes the servers that are given to it."""
    servers: list[OneServer] = []

    def keep(server: OneServer) -> OneServer:
        servers.append(server)
        return server

    yield keep
    for server in servers:
        server.server.close()


def read_log(server: OneServer, stop: int) -> Iterator[SourceBatch]:
    with server.client() as client:
        yield from server.reader(client).read_log(LogSplit("b0", BUCKET, (), 0, stop))


def read_snapshot(server: OneServer, spool: Path | None = None, *, live: bool = False) -> Iterator[SourceBatch]:
    with server.client() as client:
        reader = server.reader(client, spool)
        yield from reader.read_snapshot(SnapshotSplit("b0-s1", BUCKET, (), 1, 7, live))


def text_of(batch: SourceBatch) -> int:
    """Return the bytes of a batch's column `v`."""
    return int(batch.records.column("v").nbytes)


@pytest.mark.slow
def test_60_000_rows_of_40_kilobytes_come_out_as_60_000_rows(opened: Callable[[OneServer], OneServer]) -> None:
    server = opened(OneServer(properties={}))
    schema = server.table.schema
    texts = pa.array(["x" * 40_000] * 1500, pa.string())
    ids = range(0, 60_000, 1500)
    server.batches = [
        arrow_batch(
            base, pa.RecordBatch.from_arrays([pa.array(range(base, base + 1500), pa.int32()), texts], schema=schema)
        )
        for base in ids
    ]
    server.fetch_bytes = 1

    expected = 0
    for batch in read_log(server, 60_000):
        numbers = batch.records.column("id").to_pylist()
        assert numbers == list(range(expected, expected + len(numbers)))
        assert text_of(batch) == pytest.approx(40_000 * len(numbers), rel=0.01)
        assert batch.records.nbytes <= BYTES_MOST
        expected = batch.next_offset
    assert expected == 60_000


@pytest.mark.slow
def test_rows_of_100_megabytes_are_each_a_batch(opened: Callable[[OneServer], OneServer]) -> None:
    server = opened(OneServer())
    server.batches = [log_batch(base, [compacted(base, b"x" * 100_000_000)]) for base in range(2)]

    found = [(batch.records.num_rows, batch.next_offset, text_of(batch) > 100_000_000) for batch in read_log(server, 2)]

    assert found == [(1, 1, True), (1, 2, True)]


def test_snapshot_of_long_values_is_read_in_batches_of_a_size(
    opened: Callable[[OneServer], OneServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvsnapshot, "BATCH_BYTES", 1 << 20)
    server = opened(OneServer(primary_key=("id",)))
    (tmp_path / "spool").mkdir()
    values = ((key.to_bytes(2, "big"), b"\1\0" + compacted(key, b"x" * 100_000)) for key in range(100))
    server.put_snapshot(tmp_path / "db", values, log_offset=7)

    batches = list(read_snapshot(server, tmp_path / "spool"))

    assert [number for batch in batches for number in batch.records.column("id").to_pylist()] == list(range(100))
    assert max(text_of(batch) for batch in batches) <= 1_200_000


def test_snapshot_of_2_000_columns_is_decoded_a_part_at_a_time(
    opened: Callable[[OneServer], OneServer], tmp_path: Path
) -> None:
    server = opened(OneServer(columns=NUMBERS, primary_key=("c0",)))
    (tmp_path / "spool").mkdir()
    values = ((key.to_bytes(2, "big"), b"\1\0" + b"\xfe" + NULLS[1:] + varint(key)) for key in range(5000))
    server.put_snapshot(tmp_path / "db", values, log_offset=7)

    batches = list(read_snapshot(server, tmp_path / "spool"))

    assert [number for batch in batches for number in batch.records.column("c0").to_pylist()] == list(range(5000))
    assert max(batch.records.num_rows for batch in batches) * 2000 <= CELLS


def test_log_of_2_000_columns_is_decoded_a_part_at_a_time(opened: Callable[[OneServer], OneServer]) -> None:
    server = opened(OneServer(columns=NUMBERS))
    server.batches = [log_batch(0, [NULLS] * 5000, offsets=5003), log_batch(5003, [NULLS] * 10)]

    batches = list(read_log(server, 5012))

    assert sum(batch.records.num_rows for batch in batches) == 5009
    assert sum(batch.empty_offsets or 0 for batch in batches) == 3
    assert batches[-1].next_offset == 5012


def test_short_values_of_a_wide_binary_column_are_no_error(opened: Callable[[OneServer], OneServer]) -> None:
    wide = FlussField("b", FlussType(Kind.BINARY, length=100_000), None, 1)
    server = opened(OneServer(columns=(COLUMNS[0], wide), primary_key=("id",)))
    rows = [b"\1\0" + b"\0" + varint(number) + b"\1x" for number in range(6000)]
    server.put_scan(rows, log_offset=9)

    seen = 0
    for batch in read_snapshot(server, live=True):
        assert batch.records.column("b")[0].as_py().rstrip(b"\0") == b"x"
        assert batch.records.nbytes <= 2 * BYTES_MOST
        seen += batch.records.num_rows
    assert seen == 6000
