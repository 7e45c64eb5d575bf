"""Spill files: bytes of many channels, put on local disks in order, sealed, and read once or several times.

A file is a row of segments, each of one channel: a header (magic, channel, length, checksum) and a body. Consecutive
writes into one channel share a segment until it is full; a segment never crosses files. Once sealed nothing changes any
more, so that a snapshot is no more than a position and a grant: files are deleted when the last grant is given back.
"""

from __future__ import annotations

import struct
import threading
import zlib
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lakeward.errors import StorageError
from lakeward.local_files import refusal
from lakeward.storage.spill_disk import LocalSpillDisk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    from lakeward.ports import SpillDisk, SpillFolder

SEGMENT_BYTES = 1 << 20
"""Bytes of a segment's body, at most: what is buffered before it is on disk, and read at once."""
FILE_BYTES = 64 << 20
"""Bytes of a file, at most, where a segment fits into it at all."""
HEADER = struct.Struct(">4sIII")
"""Magic, channel, bytes of the body, checksum of channel, length and body."""
MAGIC = b"LWSP"
_SUMMED = struct.Struct(">II")
LOCAL_DISK = LocalSpillDisk()


class SpillFile(NamedTuple):
    """A sealed file."""

    path: Path
    size_bytes: int


def checksum(channel: int, body: bytes | bytearray | memoryview) -> int:
    """Return a segment's checksum."""
    return zlib.crc32(body, zlib.crc32(_SUMMED.pack(channel, len(body))))


class SpillWriter:
    """Puts bytes on disk, and seals them. Called by one thread.

    Nothing is touched before the first byte is written, and nothing but the directories that were named.
    """

    def __init__(
        self,
        directories: Sequence[str],
        *,
        quota_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        file_bytes: int = FILE_BYTES,
        disk: SpillDisk = LOCAL_DISK,
    ) -> None:
        """Touch nothing. Files may be made in the directories, in turn; these have to exist.

        All files together have at most `quota_bytes`. The rest is as of `SEGMENT_BYTES` and `FILE_BYTES`.
        """
        self._directories = [Path(directory) for directory in directories]
        self._quota_bytes = quota_bytes
        self._segment_bytes = segment_bytes
        self._file_bytes = file_bytes
        self._disk = disk
        self._folders: dict[Path, SpillFolder] = {}
        self._numbers = count()
        self._next = 0
        self._channel = -1
        self._body = bytearray()
        self._files: list[SpillFile] = []
        self._out: BinaryIO | None = None
        self._path = Path()
        self._out_bytes = 0
        self._closed = False
        self.size_bytes = 0
        """Of all files, headers included, without what is still buffered."""

    def write(self, channel: int, data: bytes | bytearray | memoryview) -> None:
        """Add bytes, of any length, 0 too, to a channel; channels are numbered from 0.

        Raises:
            StorageError: a disk or the quota is full, a directory is not there, or the files are sealed or closed.
        """
        if self._closed:
            message = "spill files: written to after they were sealed or closed"
            raise StorageError(message)
        if channel != self._channel:
            self._end_segment()
            self._channel = channel
        rest = memoryview(data).cast("B")
        while rest.nbytes:
            taken = rest[: self._segment_bytes - len(self._body)]
            self._body += taken
            rest = rest[taken.nbytes :]
            if len(self._body) == self._segment_bytes:
                self._end_segment()

    def seal(self) -> SpillFiles:
        """Write what is buffered, and return the files, which from now on belong to the caller.

        Raises:
            StorageError: as of `write`.
        """
        if self._closed:
            message = "spill files: sealed or closed before"
            raise StorageError(message)
        self._end_segment()
        self._end_file()
        self._closed = True
        files, folders = tuple(self._files), tuple(self._folders.values())
        self._folders = {}
        return SpillFiles(files, folders, self._disk)

    def close(self) -> None:
        """Delete everything that is not sealed; calling it twice is harmless."""
        self._closed = True
        self._body.clear()
        out, self._out = self._out, None
        folders, self._folders = self._folders, {}
        try:
            if out is not None:
                out.close()
        finally:
            _delete(folders.values())

    def _end_segment(self) -> None:
        if not self._body:
            return
        body, self._body = self._body, bytearray()
        size = HEADER.size + len(body)
        if self.size_bytes + size > self._quota_bytes:
            message = (
                f"checkpoint.spill_quota: {self._quota_bytes} bytes are not enough for the rows to be restored: "
                f"{self.size_bytes} bytes are used, {size} more are needed"
            )
            raise StorageError(message)
        if self._out is not None and self._out_bytes + size > self._file_bytes:
            self._end_file()
        try:
            out = self._begin_file() if self._out is None else self._out
            _write(out, HEADER.pack(MAGIC, self._channel, len(body), checksum(self._channel, body)) + body)
        except OSError as error:
            raise _refused(error, self._directories) from error
        self._out_bytes += size
        self.size_bytes += size

    def _begin_file(self) -> BinaryIO:
        directory = self._next_directory()
        if directory not in self._folders:
            self._folders[directory] = self._disk.make_folder(directory)
        path = self._folders[directory].path / f"{next(self._numbers)}.spill"
        out = self._out = self._disk.create(path)
        self._out_bytes = 0
        self._path = path
        return out

    def _end_file(self) -> None:
        if self._out is None:
            return
        out, self._out = self._out, None
        try:
            out.close()
        except OSError as error:
            raise _refused(error, self._directories) from error
        self._files.append(SpillFile(self._path, self._out_bytes))

    def _next_directory(self) -> Path:
        """Return the next directory in turn that has room for a file; where none has, the one with most room."""
        if not self._directories:
            message = "checkpoint.spill_dirs: no directory is named for the rows to be restored"
            raise StorageError(message)
        number = len(self._directories)
        order = [self._directories[(self._next + step) % number] for step in range(number)]
        room = [self._disk.free_bytes(directory) for directory in order]
        found = next((step for step in range(number) if room[step] >= self._file_bytes), room.index(max(room)))
        self._next += found + 1
        return order[found]


class SpillFiles:
    """Sealed files, and who needs them still. Any thread may call it.

    Whoever reads holds a grant; the owner holds one from the beginning.
    """

    def __init__(self, files: tuple[SpillFile, ...], folders: Sequence[SpillFolder], disk: SpillDisk) -> None:
        """Take the files over, in the order in which they were written, with one grant.

        `folders` are deleted with the last grant.
        """
        self.files = files
        self.disk = disk
        self._folders = tuple(folders)
        self._lock = threading.Lock()
        self._grants = 1
        self._deleted = False

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size_bytes for file in self.files)

    @property
    def deleted(self) -> bool:
        """Whether the files are gone."""
        return self._deleted

    def grant(self) -> None:
        """Keep the files for one more.

        Raises:
            StorageError: they are deleted already.
        """
        with self._lock:
            if self._deleted:
                message = "spill files: wanted after they were deleted"
                raise StorageError(message)
            self._grants += 1

    def release(self) -> None:
        """Give a grant back; with the last one the files are deleted."""
        with self._lock:
            self._grants -= 1
            last = self._grants == 0 and not self._deleted
            self._deleted = self._deleted or last
        if last:
            _delete(self._folders)

    def close(self) -> None:
        """Delete the files whoever needs them; calling it twice is harmless."""
        with self._lock:
            first, self._deleted = not self._deleted, True
        if first:
            _delete(self._folders)


def _delete(folders: Iterable[SpillFolder]) -> None:
    refused: OSError | None = None
    for folder in folders:
        try:
            folder.delete()
        except OSError as error:
            refused = error
    if refused is not None:
        message = f"spill files cannot be deleted: {refused}"
        raise StorageError(message) from refused


def _write(out: BinaryIO, data: bytes | bytearray) -> None:
    """Write all of it: a disk that is nearly full takes a part before it refuses."""
    rest = memoryview(data)
    while rest.nbytes:
        rest = rest[out.write(rest) :]


def _refused(error: OSError, directories: Sequence[Path]) -> StorageError:
    named = ", ".join(map(str, directories))
    why = "; ".join(dict.fromkeys(refusal(error, directory) for directory in directories))
    return StorageError(f"checkpoint.spill_dirs ({named}): rows to be restored cannot be written: {why}")
