"""Remote log segments: their names, and their batches read in pieces."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import pytest

from lakeward.errors import CorruptFileError, SourceError
from lakeward_source_fluss.formats import remote
from lakeward_source_fluss.formats.logbatch import LogFormat
from lakeward_source_fluss.formats.remote import RemoteSegment, read_segment, remote_segments
from lakeward_source_fluss.formats.storage import Storage


def batch(base: int, rows: int, width: int = 3) -> bytes:
    record = struct.pack("<ib", width + 1, 1) + bytes(width)
    tail = struct.pack("<hbiqii", 1, 0, rows - 1, -1, -1, rows) + record * rows
    head = struct.pack("<bqI", 0, 17, google_crc32c.value(tail))
    return struct.pack("<qi", base, len(head) + len(tail)) + head + tail


@pytest.fixture
def segment(tmp_path: Path) -> RemoteSegment:
    """A segment of the offsets 100 to 200, in batches of ten."""
    raw = b"".join(batch(base, 10) for base in range(100, 200, 10))
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / f"{100:020d}.log").write_bytes(raw)
    (found,) = remote_segments(f"file:{tmp_path}", [("abc", 100, 200, len(raw))])
    return found


def bases(segment: RemoteSegment, start: int) -> list[int]:
    return [found.base_offset for found in read_segment(segment, Storage(), start, LogFormat.COMPACTED)]


@pytest.mark.parametrize("size", [20, 200, 1 << 20])
def test_batches_are_read_whole_however_the_file_is_cut(
    segment: RemoteSegment, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(remote, "READ_BYTES", size)
    assert bases(segment, 0) == list(range(100, 200, 10))
    assert bases(segment, 155) == [150, 160, 170, 180, 190]
    assert bases(segment, 200) == []


def test_reading_begins_at_the_position_that_the_server_named(segment: RemoteSegment) -> None:
    later = RemoteSegment(segment.path, 100, 200, segment.size, segment.size * 7 // 10)
    assert bases(later, 0) == [170, 180, 190]


def test_a_file_that_ends_early_never_passes_for_the_whole(segment: RemoteSegment) -> None:
    path = Path(segment.path.removeprefix("file:"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="up to offset 200"):
        bases(segment, 0)


def test_a_file_that_is_gone_is_asked_for_again(segment: RemoteSegment) -> None:
    Path(segment.path.removeprefix("file:")).unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        bases(segment, 0)


def test_batches_out_of_order_are_refused(segment: RemoteSegment) -> None:
    Path(segment.path.removeprefix("file:")).write_bytes(batch(110, 90) + batch(100, 10))
    with pytest.raises(CorruptFileError, match="offset 200 or later"):
        bases(segment, 0)


def test_a_length_beyond_the_segment_is_refused_before_it_is_read(segment: RemoteSegment) -> None:
    raw = bytearray(batch(100, 100))
    struct.pack_into("<i", raw, 8, (1 << 31) - 20)
    Path(segment.path.removeprefix("file:")).write_bytes(raw)
    with pytest.raises(CorruptFileError, match="at most"):
        bases(segment, 0)


@pytest.mark.parametrize(
    "segments",
    [
        [("..", 0, 10, 5)],
        [("a/b", 0, 10, 5)],
        [("", 0, 10, 5)],
        [("a", 10, 10, 5)],
        [("a", 10, 20, 5), ("b", 15, 30, 5)],
        [("a", -1, 20, 5)],
    ],
)
def test_segments_that_cannot_be_are_refused(segments: list[tuple[str, int, int, int]]) -> None:
    with pytest.raises(CorruptFileError):
        remote_segments("/remote", segments)


def test_only_the_first_segment_has_a_position() -> None:
    first, second = remote_segments("/r", [("a", 0, 10, 50), ("b", 10, 20, 50)], 7)
    assert (first.position, second.position) == (7, 0)
    assert second.path == "/r/b/00000000000000000010.log"
