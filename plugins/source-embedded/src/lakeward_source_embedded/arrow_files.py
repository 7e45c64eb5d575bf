"""Arrow IPC files with checksums: any Arrow reader can read them, and this one checks every byte that it reads.

The checksums are between the last batch and Arrow's footer, which Arrow's readers skip: CRC-32 of each MiB of
the head and of each batch, of what follows the batches, and of the checksums themselves. A file whose name ends in
`CHECKED` has them; those of earlier releases do not and are read as they are.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from lakeward.errors import CorruptFileError, StorageError
from lakeward.local_files import refusal
from lakeward_source_embedded.files import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CHECKED = ".checked.arrow"
_CHUNK = 1 << 20
_CHECKED_MOST = 100_000
"""Most batches that are remembered as checked."""
_VERSION = 1
_HEAD = struct.Struct(">4sHxxII")  # magic, version, bytes of a chunk, number of ranges
_TRAILER = struct.Struct(">IIII4s4x")  # CRC of the end, of this table up to here, its length, CRC of those, magic
_MAGIC = b"LKCK"
_EOS = 8
"""Bytes that mark the end of the batches for Arrow's stream readers."""
_TAIL = struct.Struct("<i6s")  # length of Arrow's footer, Arrow's magic
_ALIGNED = 8


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, sync: bool = True) -> None:
    """Write an Arrow IPC file with checksums atomically; the final name ends in `CHECKED`.

    Batches are written one after another, uncompressed, so that they can be mapped. `sync` is False if the caller calls
    `sync_files` before it references the file anywhere.

    Raises:
        StorageError: the disk refused; nothing is left.
    """
    with whole_file(path, durable=sync) as temporary, temporary.open("wb") as file:
        sink = _Sink(file)
        with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), schema) as writer:
            for batch in batches:
                sink.begin_part()
                writer.write_batch(batch)
            sink.hold()
        sink.finish()


class _Sink:
    """Writes to a file, computes a checksum of each chunk, and holds back what follows the batches."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0
        self._ends: list[int] = []
        self._sums: list[int] = []
        self._room = 0
        """Remaining bytes of the current chunk."""
        self._held: list[bytes] | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Take the next bytes; called by Arrow."""
        view = memoryview(data)
        if self._held is not None:
            self._held.append(bytes(view))
        else:
            self._file.write(view)
            self._sum(view)
        return len(view)

    def tell(self) -> int:
        """Return the position; called by Arrow."""
        return self._position + sum(map(len, self._held or ()))

    def flush(self) -> None:
        """Called by Arrow; the file is flushed when it is closed."""

    def begin_part(self) -> None:
        """End the head or a batch where the next one begins."""
        self._ends.append(self._position)
        self._room = 0

    def hold(self) -> None:
        """Hold back everything from here on."""
        self._held = []

    def finish(self) -> None:
        """Write what was held back, with the checksums in the middle of it."""
        after = b"".join(self._held or ())
        footer = len(after) - _TAIL.size - _TAIL.unpack_from(after, len(after) - _TAIL.size)[0]
        # If there is no batch, Arrow writes the head with the footer.
        head = after[: footer - _EOS]
        self._sum(memoryview(head))
        self._ends.append(self._position)
        self._file.write(head + after[footer - _EOS : footer])
        self._file.write(_table(self._ends, self._sums, after[footer - _EOS :]) + after[footer:])

    def _sum(self, data: memoryview) -> None:
        self._position += len(data)
        while len(data):
            if not self._room:
                self._sums.append(0)
                self._room = _CHUNK
            part, data = data[: self._room], data[self._room :]
            self._sums[-1] = zlib.crc32(part, self._sums[-1])
            self._room -= len(part)


class ArrowFile:
    """A mapped Arrow IPC file; its batches point into it and live on when it is unlinked."""

    def __init__(self, path: Path, checked: set[tuple[str, int]] | None = None) -> None:
        """Map the file; check its end, not yet its batches.

        `checked` has name and number of the batches that need no check any more; those that are checked are added.

        Raises:
            FileNotFoundError: it is gone; the caller knows what that means.
            CorruptFileError: it is not a complete Arrow IPC file, or a checksum is wrong.
            StorageError: this user may not read it.
        """
        self.path = path
        self._checked = set() if checked is None else checked
        try:
            with pa.memory_map(str(path)) as source:
                self._bytes = source.read_buffer()
            self._ends = _ends(path, memoryview(self._bytes)) if path.name.endswith(CHECKED) else None
            self._reader = pa.ipc.open_file(pa.BufferReader(self._bytes))
        except FileNotFoundError:
            raise
        except PermissionError as refused:  # of a damaged file Arrow says other things
            message = f"{path}: cannot be read: {refusal(refused, path)}"
            raise StorageError(message) from refused
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise CorruptFileError(str(path), "a whole Arrow IPC file", str(error)) from error
        if self._ends is not None and self._reader.num_record_batches != len(self._ends.ends) - 1:
            expected = f"{len(self._ends.ends) - 1} batches"
            raise CorruptFileError(str(path), expected, self._reader.num_record_batches)

    @property
    def batches(self) -> int:
        """How many batches it has."""
        return int(self._reader.num_record_batches)

    def batch(self, number: int, *, check: bool = True) -> pa.RecordBatch:
        """Return the batch of a number below `batches`; `check` is False if only its length is needed.

        Raises:
            CorruptFileError: the file lacks it, or it is damaged; names the offset of the damage.
        """
        if check and self._ends is not None and (self.path.name, number) not in self._checked:
            self._ends.check(self.path, memoryview(self._bytes), number + 1)
            if len(self._checked) >= _CHECKED_MOST:
                self._checked.clear()
            self._checked.add((self.path.name, number))
        try:
            batch = self._reader.get_batch(number)
            batch.validate()
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise CorruptFileError(str(self.path), f"a whole batch {number}", str(error)) from error
        return batch


class _Ends:
    """Where the head and each batch end, and the checksums of their chunks."""

    def __init__(self, ends: tuple[int, ...], sums: tuple[int, ...]) -> None:
        self.ends = ends
        self._sums = sums
        self._first = [0]
        for start, end in zip((0, *ends), ends, strict=False):
            self._first.append(self._first[-1] + _chunks(start, end))

    def check(self, path: Path, data: memoryview, part: int) -> None:
        """Check the head (0) or a batch (1 and on)."""
        if part >= len(self.ends):
            raise CorruptFileError(str(path), f"a whole batch {part - 1}", f"{len(self.ends) - 1} batches")
        start = self.ends[part - 1] if part else 0
        for number in range(self._first[part], self._first[part + 1]):
            stop = min(start + _CHUNK, self.ends[part])
            _check(path, data, start, stop, self._sums[number])
            start = stop


def _chunks(start: int, end: int) -> int:
    return -(-(end - start) // _CHUNK)


def _table(ends: list[int], sums: list[int], after: bytes) -> bytes:
    """Return the checksums as they are in the file; `after` are the other bytes behind the batches."""
    table = _HEAD.pack(_MAGIC, _VERSION, _CHUNK, len(ends)) + struct.pack(f">{len(ends)}Q{len(sums)}I", *ends, *sums)
    # Arrow wants its footer as aligned as it was.
    table += bytes(-(len(table) + _TRAILER.size) % _ALIGNED)
    words = struct.pack(">III", zlib.crc32(after), zlib.crc32(table), len(table))
    return table + words + struct.pack(">I4s4x", zlib.crc32(words), _MAGIC)


def _ends(path: Path, data: memoryview) -> _Ends:
    """Read the checksums, and check everything except the batches."""
    size = len(data)
    if size < _TAIL.size + _TRAILER.size:
        raise CorruptFileError(str(path), "an Arrow IPC file with checksums", f"{size} bytes")
    length, arrow = _TAIL.unpack_from(data, size - _TAIL.size)
    footer = size - _TAIL.size - length
    trailer = footer - _TRAILER.size
    if arrow != b"ARROW1" or length < 0 or trailer < 0:
        raise CorruptFileError(str(path), f"the end of an Arrow IPC file at offset {size - _TAIL.size}", arrow)
    after_sum, table_sum, table_length, words_sum, magic = _TRAILER.unpack_from(data, trailer)
    if magic != _MAGIC or zlib.crc32(data[trailer : trailer + 12]) != words_sum or table_length > trailer - _EOS:
        raise CorruptFileError(str(path), f"whole checksums at offset {trailer}", bytes(magic))
    table = trailer - table_length
    _check(path, data, table, trailer, table_sum)
    _, version, chunk, count = _HEAD.unpack_from(data, table)
    if version != _VERSION or chunk != _CHUNK:
        raise CorruptFileError(str(path), f"checksums of version {_VERSION} at offset {table}", version)
    ends = struct.unpack_from(f">{count}Q", data, table + _HEAD.size)
    number = sum(_chunks(start, end) for start, end in zip((0, *ends), ends, strict=False))
    sums = struct.unpack_from(f">{number}I", data, table + _HEAD.size + 8 * count)
    found = zlib.crc32(data[footer:], zlib.crc32(data[table - _EOS : table]))
    if found != after_sum:
        raise CorruptFileError(str(path), f"a footer at offset {footer} with checksum {after_sum:08x}", f"{found:08x}")
    parts = _Ends(ends, sums)
    parts.check(path, data, 0)
    return parts


def _check(path: Path, data: memoryview, start: int, stop: int, expected: int) -> None:
    found = zlib.crc32(data[start:stop])
    if found != expected:
        message = f"checksum {expected:08x} of the bytes from offset {start} to {stop}"
        raise CorruptFileError(str(path), message, f"{found:08x}")
