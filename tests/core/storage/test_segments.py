"""Rows beside checkpoints, on a local disk; what every store has to do is in the conformance suite."""

from __future__ import annotations

import io
import itertools
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import CorruptFileError, StorageError
from lakeward.model.exchange import Segment
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.segments import parse_segment, segment_name
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import FIRST, SERVICE, batches, reference, write_segment
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path: Path) -> SmallFiles:
    return SmallFiles(str(tmp_path))


@pytest.fixture
def store(files: SmallFiles) -> CheckpointFiles:
    return CheckpointFiles(files, FakeClock())


def test_each_byte_that_changes_is_detected_and_lets_no_row_out_that_was_not_written(
    store: CheckpointFiles, tmp_path: Path
) -> None:
    """Not even with a column of another name or type, before the end of the file tells that it is damaged."""
    segment = write_segment(store, reference())
    written = tuple(store.read_segment(segment))
    path = tmp_path / segment.name
    data = path.read_bytes()
    for position, mask in itertools.product(range(len(data)), (0x01, 0x10, 0x80)):
        damaged = bytearray(data)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        assert_damaged(store, segment, written)


def test_each_cut_is_detected(store: CheckpointFiles, tmp_path: Path) -> None:
    segment = write_segment(store, reference())
    written = tuple(store.read_segment(segment))
    path = tmp_path / segment.name
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        assert_damaged(store, segment, written)


def assert_damaged(store: CheckpointFiles, segment: Segment, written: tuple[pa.RecordBatch, ...]) -> None:
    """It gives out what was written, if anything, and then says that the file is damaged."""
    with pytest.raises(CorruptFileError) as caught:
        assert_equal(store.read_segment(segment), written)
    assert caught.value.file.endswith(segment.name)


def assert_equal(found: Iterator[pa.RecordBatch], written: tuple[pa.RecordBatch, ...]) -> None:
    for batch, expected in zip(found, written, strict=True):
        assert batch.equals(expected, check_metadata=True)


def test_a_file_of_an_earlier_version_is_read(store: CheckpointFiles, files: SmallFiles) -> None:
    """Its checksums are those of the batches alone."""
    out = io.BytesIO()
    rows = batches(2, 3)
    with pa.ipc.new_stream(out, rows[0].schema) as writer:
        for batch in rows:
            writer.write_batch(batch, custom_metadata={b"crc": f"{zlib.crc32(batch.serialize()):08x}".encode()})
    data = out.getvalue()
    segment = Segment(segment_name(reference(), "1-0-1-1.arrow"), 5, len(data), zlib.crc32(data))
    files.write(segment.name, data)
    assert tuple(store.read_segment(segment)) == tuple(rows)


def test_a_batch_that_changed_is_not_given_out(store: CheckpointFiles, files: SmallFiles) -> None:
    segment = write_segment(store, reference())
    data = files.read(segment.name)
    assert data is not None
    files.write(segment.name, data.replace(b"name 0", b"name 9", 1))

    with pytest.raises(CorruptFileError, match="expected batches with their own checksums"):
        next(store.read_segment(segment))


def test_rows_of_another_segment_are_refused(store: CheckpointFiles, files: SmallFiles) -> None:
    """Whole in itself, but not what the checkpoint refers to."""
    segment = write_segment(store, reference())
    other = store.write_segment(reference(), "1-0-1-2.arrow", batches(2, 3))
    data = files.read(other.name)
    assert data is not None
    files.write(segment.name, data)

    with pytest.raises(CorruptFileError, match=r"1-0-1-1\.arrow: expected 5 rows in .*, found '5 rows in "):
        list(store.read_segment(segment))


def test_a_store_that_refuses_is_not_taken_for_damage(tmp_path: Path) -> None:
    class Refusing(SmallFiles):
        def _open(self, name: str) -> io.RawIOBase:
            return Refused()

    class Refused(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            message = f"slow down ({size})"
            raise OSError(message)

    segment = write_segment(CheckpointFiles(SmallFiles(str(tmp_path)), FakeClock()), reference())

    with pytest.raises(StorageError, match=r"1-0-1-1\.arrow: cannot be read: slow down"):
        list(CheckpointFiles(Refusing(str(tmp_path)), FakeClock()).read_segment(segment))


def test_no_rows_make_no_file(store: CheckpointFiles, files: SmallFiles) -> None:
    with pytest.raises(StorageError, match="no rows to be written"):
        store.write_segment(reference(), "1-0-1-1.arrow", ())

    assert files.entries(SERVICE) == ()


def test_what_is_written_half_is_no_segment(store: CheckpointFiles, files: SmallFiles) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(3)
        message = "the rows ended early"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="ended early"):
        store.write_segment(reference(), "1-0-1-1.arrow", failing())

    assert [entry.name for entry in files.entries(SERVICE) if parse_segment(entry.name)] == []


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (f"svc/{FIRST}/7-3/segments/12-0-1-7.arrow", (f"svc/{FIRST}/7-3", 7, 12)),
        (f"svc/{FIRST}/7--1/segments/1-0-1-1.arrow", (f"svc/{FIRST}/7--1", 7, 1)),
        (f"svc/{FIRST}/7-3/segments/.12-0-1-7.arrow.new", (f"svc/{FIRST}/7-3", 7, 12)),
        (f"svc/{FIRST}/7-3/segments/.12-0-1-7.arrow", None),
        (f"svc/{FIRST}/7-3/segments/12-0-1-7.arrow.new", None),
        (f"svc/{FIRST}/7-3/chk-12/part-0-1", None),
        (f"svc/{FIRST}/7-3/segments/12-0-1.arrow", None),
    ],
)
def test_a_segment_is_known_by_its_name(name: str, parsed: tuple[str, int, int] | None) -> None:
    assert parse_segment(name) == parsed
