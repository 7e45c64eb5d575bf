"""Reads spill files once, and knows how much of them is not delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakeward.errors import CorruptFileError, StorageError
from lakeward.storage.spill import HEADER, MAGIC, checksum

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.storage.spill import SpillFiles


class Position(NamedTuple):
    """A place in sealed files. Positions compare in the order of the bytes."""

    file: int = 0
    segment: int = 0
    """Where in the file a segment begins."""
    offset: int = 0
    """Bytes of its body that are before this place."""


class Chunk(NamedTuple):
    """Bytes of one channel: at most a segment."""

    channel: int
    data: memoryview
    end: Position
    """The place after them."""


class SpillReader:
    """Reads forward. `read` is for one thread; `commit` and the properties for one other, or the same."""

    def __init__(self, files: SpillFiles) -> None:
        """Take a grant of the sealed files.

        Raises:
            StorageError: they are deleted.
        """
        files.grant()
        self._files = files
        self._cursor = _Cursor(files)
        self._committed = Position()
        self._closed = False

    @property
    def committed(self) -> Position:
        """The place up to which everything was delivered."""
        return self._committed

    def read(self, most: int) -> Chunk | None:
        """Read the next bytes of a segment, `most` (1 or more) of them; None at the end.

        Raises:
            CorruptFileError: a file is damaged or too short.
            StorageError: the disk refused, or the reader is closed.
        """
        if self._closed:
            message = "spill files: read after the reader was closed"
            raise StorageError(message)
        return self._cursor.read(most)

    def commit(self, end: Position) -> None:
        """Note that everything up to a place is delivered.

        Raises:
            StorageError: the place is before the last one.
        """
        if end < self._committed:
            message = f"spill files: committed {tuple(end)} after {tuple(self._committed)}"
            raise StorageError(message)
        self._committed = end

    @property
    def undelivered_bytes(self) -> int:
        """Bytes of what is not delivered, as it lies on disk: no byte is read for it."""
        file, segment, offset = self._committed
        size = sum(one.size_bytes for one in self._files.files[file:])
        return size - segment - (HEADER.size + offset if offset else 0)

    def close(self) -> None:
        """Give the grant back; calling it twice is harmless."""
        if not self._closed:
            self._closed = True
            self._files.release()


class _Cursor:
    """A place in the files, with the segment that it is in."""

    def __init__(self, files: SpillFiles) -> None:
        self._files = files.files
        self._disk = files.disk
        self._at = Position()
        self._body: memoryview | None = None
        self._channel = 0

    def read(self, most: int) -> Chunk | None:
        while True:
            if self._body is None and not self._load():
                return None
            body, offset = self._body, self._at.offset
            if body is not None and offset < body.nbytes:
                data = body[offset : offset + most]
                self._at = self._at._replace(offset=offset + data.nbytes)
                return Chunk(self._channel, data, self._at)
            self._at = Position(self._at.file, self._at.segment + HEADER.size + (body.nbytes if body else 0))
            self._body = None

    def _load(self) -> bool:
        """Read the segment at the place; return False at the end."""
        while self._at.file < len(self._files) and self._at.segment >= self._files[self._at.file].size_bytes:
            self._at = Position(self._at.file + 1)
        if self._at.file >= len(self._files):
            return False
        path, size_bytes = self._files[self._at.file]
        try:
            with self._disk.open(path) as stream:
                stream.seek(self._at.segment)
                header = stream.read(HEADER.size)
                if len(header) < HEADER.size:
                    raise _damaged(path, self._at, f"a header of {HEADER.size} bytes", f"{len(header)} bytes")
                magic, channel, length, crc = HEADER.unpack(header)
                if magic != MAGIC or self._at.segment + HEADER.size + length > size_bytes:
                    raise _damaged(path, self._at, "a segment's header", repr(header))
                body = stream.read(length)
        except OSError as error:
            message = f"{path}: rows to be restored cannot be read: {error}"
            raise StorageError(message) from error
        if len(body) < length:
            raise _damaged(path, self._at, f"a body of {length} bytes", f"{len(body)} bytes")
        found = checksum(channel, body)
        if found != crc:
            raise _damaged(path, self._at, f"a segment with the checksum {crc:08x}", f"{found:08x}")
        self._channel, self._body = channel, memoryview(body)
        return True


def _damaged(path: Path, at: Position, expected: str, found: str) -> CorruptFileError:
    return CorruptFileError(str(path), f"{expected} at byte {at.segment}", found)
