"""Log segments in remote storage (fluss.md, "Log batches"): which files a fetch names, and their batches."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import CorruptFileError, SourceError
from lakeward_source_fluss.formats.logbatch import LogBatch, LogFormat, iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyarrow import NativeFile

    from lakeward_source_fluss.formats.storage import Storage

READ_BYTES = 8 << 20
"""Memory of one read; a batch that is larger is read alone, up to the segment's size."""
_LENGTH_AT, _PREFIX = 8, 12


class SegmentMissingError(SourceError):
    """A segment's file is not there (any more)."""


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """One file of a remote log: the offsets [`start_offset`, `end_offset`), to be read from byte `position` on."""

    path: str
    start_offset: int
    end_offset: int
    size: int
    position: int = 0


def remote_segments(
    tablet_dir: str, segments: Iterable[tuple[str, int, int, int]], first_start_pos: int = 0
) -> tuple[RemoteSegment, ...]:
    """Name the files of a fetch's answer, with `remote_log_tablet_dir`.

    `segments` are (id, start offset, end offset, bytes) of each, in the order of the answer. `first_start_pos` is the
    byte in the first file at which the wanted offset's batch, or one before it, begins.

    Raises:
        CorruptFileError: they are not in the order of their offsets, or name something outside the directory.
    """
    found: list[RemoteSegment] = []
    before = 0
    for segment_id, start, end, size in segments:
        if not segment_id or "/" in segment_id or segment_id in {".", ".."}:
            raise CorruptFileError(tablet_dir, "ids of segments", segment_id)
        position = 0 if found else first_start_pos
        if not (0 <= before <= start < end and 0 <= position <= size):
            raise CorruptFileError(tablet_dir, "segments in the order of their offsets", (start, end, size, position))
        found.append(RemoteSegment(f"{tablet_dir}/{segment_id}/{start:020d}.log", start, end, size, position))
        before = end
    return tuple(found)


def read_segment(
    segment: RemoteSegment, storage: Storage, start: int, log_format: LogFormat = LogFormat.ARROW
) -> Iterator[LogBatch]:
    """Yield a segment's batches that have an offset of `start` or later, whole, in their order.

    The first may begin before `start`; they go up to the segment's end offset at least.

    Yields:
        The batches in their order, up to the segment's end offset at least.

    Raises:
        CorruptFileError: the file is damaged, or ends before the segment's end offset.
        SegmentMissingError: the file is not there (any more).
        SourceError: the file cannot be read: ask the server again.
        NewerSourceError: a version of the format that is not known.
    """
    reached = -1
    for data in _chunks(segment, storage):
        for batch in iter_batches(data, log_format, origin=segment.path):
            if batch.base_offset < reached:
                raise CorruptFileError(segment.path, f"a batch at offset {reached} or later", batch.base_offset)
            reached = batch.next_offset
            if reached > start:
                yield batch
    if reached < segment.end_offset:
        raise CorruptFileError(segment.path, f"records up to offset {segment.end_offset}", reached)


def _chunks(segment: RemoteSegment, storage: Storage) -> Iterator[memoryview]:
    """Read whole batches at a time, a few megabytes of them."""
    filesystem, path = storage.locate(segment.path)
    try:
        with filesystem.open_input_file(path) as file:
            yield from _read(file, segment)
    except FileNotFoundError as missing:
        message = f"{segment.path}: a remote log segment cannot be read, the file is not there"
        raise SegmentMissingError(message) from missing
    except OSError as refused:
        message = f"{segment.path}: a remote log segment cannot be read: {refused}"
        raise SourceError(message) from refused


def _read(file: NativeFile, segment: RemoteSegment) -> Iterator[memoryview]:
    file.seek(segment.position)
    rest = b""
    wanted = READ_BYTES
    while fresh := file.read(wanted):
        data = memoryview(rest + fresh if rest else fresh)
        end, missing = _complete_batches(data, segment)
        if end:
            yield data[:end]
        rest = bytes(data[end:])
        wanted = max(READ_BYTES, missing)


def _complete_batches(data: memoryview, segment: RemoteSegment) -> tuple[int, int]:
    """Return how many bytes are whole batches, and how many the next batch lacks."""
    at = 0
    while len(data) - at >= _PREFIX:
        total = _PREFIX + struct.unpack_from("<i", data, at + _LENGTH_AT)[0]
        if not _PREFIX < total <= max(segment.size, _PREFIX):
            raise CorruptFileError(segment.path, f"batches of at most {segment.size} bytes", total)
        if total > len(data) - at:
            return at, total - (len(data) - at)
        at += total
    return at, 0
