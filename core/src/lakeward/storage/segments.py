"""Rows beside checkpoints: Arrow IPC streams, each batch with a checksum of it and of the schema, each file with one.

They lie in `<service>/<incarnation>/<table id>-<epoch>/segments/<checkpoint>-<subtask>-<attempt>-<n>.arrow`.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import CorruptFileError, StorageError
from lakeward.model.exchange import Segment
from lakeward.storage.checkpoint_layout import epoch_folder, parse_folder, start_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from lakeward.model.checkpoints import Checkpoint, CheckpointRef
    from lakeward.model.identity import Incarnation
    from lakeward.storage.small_files import FileEntry, SmallFiles

_CRC = b"crc-of-schema-and-batch"
_CRC_OF_BATCH = b"crc"
"""Earlier versions wrote this one. It says nothing of the schema: a column's name may be damaged."""
_NAME = re.compile(
    r"(?P<epoch>[^/]+/[^/]+/(?P<table>\d+)-[^/]+)/segments/"
    r"(?P<new>\.)?(?P<checkpoint>\d+)-\d+-\d+-\d+\.arrow(?(new)\.new)",
    re.ASCII,
)


class _Counting:
    """Passes bytes on, and keeps their number and checksum."""

    closed = False

    def __init__(self, stream: Any, most_bytes: int = 0) -> None:  # noqa: ANN401 - a file of Arrow or of Python
        self._stream = stream
        self._most_bytes = most_bytes
        """Of the file: what is read at once is no longer, whatever a damaged length says."""
        self.size_bytes = self.crc = 0
        self.failed = False
        """Whether the store refused: Arrow raises an `OSError` for a damaged file too."""

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        self._stream.write(data)
        return self._count(data)

    def read(self, size: int = -1) -> bytes:
        try:
            data = bytes(self._stream.read(min(size, self._most_bytes) if size >= 0 else self._most_bytes))
        except OSError:
            self.failed = True
            raise
        self._count(data)
        return data

    def _count(self, data: Any) -> int:  # noqa: ANN401 - as above
        size = memoryview(data).nbytes
        self.size_bytes += size
        self.crc = zlib.crc32(data, self.crc)
        return size

    def flush(self) -> None:
        """See `io.IOBase.flush`; the file is flushed when it is closed."""

    def close(self) -> None:
        """Nothing: who opened the file closes it."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def segment_name(ref: CheckpointRef, name: str) -> str:
    """Return a segment's name, relative to the root."""
    return f"{epoch_folder(ref)}/segments/{name}"


def parse_segment(name: str) -> tuple[str, int, int] | None:
    """Return the folder of a segment's epoch, its table's id and its checkpoint's number; None if it is no segment.

    On a local disk that may be one whose process was killed before all of it was written: nothing ever refers to it.
    """
    match = _NAME.fullmatch(name)
    return None if match is None else (match["epoch"], int(match["table"]), int(match["checkpoint"]))


def without_checkpoint(
    entries: Iterable[FileEntry], left: Collection[CheckpointRef], incarnation: Incarnation
) -> list[tuple[str, int]]:
    """Return the segments of earlier starts' epochs that have no checkpoint, each with its table's id.

    `entries` is a listing, with names relative to the root; `left` are the checkpoints in it, whether they completed or
    not. Where no checkpoint of a later epoch refers to a segment, none will.
    """
    epochs = {epoch_folder(ref) for ref in left}
    found = []
    for entry in entries:
        segment = parse_segment(entry.name)
        if segment is None or segment[0] in epochs:
            continue
        ref = parse_folder(f"{segment[0]}/chk-{segment[2]}")
        if ref is not None and incarnation.succeeds(start_of(ref)):
            found.append((entry.name, segment[1]))
    return found


def segments_of(checkpoint: Checkpoint) -> list[Segment]:
    """Return every file of rows that a checkpoint refers to."""
    return [segment for part in checkpoint.subtasks for segment in part.segments()]


def check_segments(files: SmallFiles, segments: Iterable[Segment]) -> None:
    """Check that each file of rows exists and has its size.

    Raises:
        CorruptFileError: one does not; names it.
    """
    listed: dict[str, dict[str, int]] = {}
    for segment in segments:
        where = segment.name.rpartition("/")[0]
        if where not in listed:
            listed[where] = {entry.name: entry.size_bytes for entry in files.entries(where)}
        size = listed[where].get(segment.name)
        if size != segment.size_bytes:
            found = "no such file" if size is None else f"{size} bytes"
            raise CorruptFileError(files.path(segment.name), f"{segment.size_bytes} bytes", found)


def write_segment(files: SmallFiles, name: str, batches: Iterable[pa.RecordBatch]) -> Segment:
    """Write a segment, its name relative to the root; see `lakeward.ports.CheckpointStore.write_segment`."""
    rows = 0
    with files.writing(name) as out:
        counting = _Counting(out)
        writer: pa.RecordBatchStreamWriter | None = None
        start = 0
        for batch in batches:
            if writer is None:
                writer = pa.ipc.new_stream(counting, batch.schema)
                start = _schema_crc(batch.schema)
            writer.write_batch(batch, custom_metadata={_CRC: _checksum(batch, start)})
            rows += batch.num_rows
        if writer is None:
            message = f"{files.path(name)}: no rows to be written"
            raise StorageError(message)
        writer.close()
    return Segment(name, rows, counting.size_bytes, counting.crc)


def read_segment(files: SmallFiles, segment: Segment) -> Iterator[pa.RecordBatch]:
    """Read a segment; see `lakeward.ports.CheckpointStore.read_segment`."""
    file = files.path(segment.name)
    with files.reading(segment.name) as stream:
        if stream is None:
            raise CorruptFileError(file, f"{segment.size_bytes} bytes", "no such file")
        counting = _Counting(stream, segment.size_bytes)
        rows = 0
        try:
            with pa.ipc.open_stream(pa.PythonFile(counting, mode="r")) as reader:
                start = _schema_crc(reader.schema)
                while True:
                    batch, metadata = reader.read_next_batch_with_custom_metadata()
                    batch.validate()  # a damaged schema must not lead beyond the end of a buffer
                    if not _is_whole(batch, metadata or {}, start):
                        raise CorruptFileError(file, "batches with their own checksums", f"another one from row {rows}")
                    rows += batch.num_rows
                    yield batch
        except StopIteration:
            pass
        except (pa.ArrowException, EOFError, OSError) as error:
            if counting.failed:
                raise
            raise CorruptFileError(file, "an Arrow IPC stream", str(error)) from error
        while counting.read(1 << 16):
            pass
    expected, seen = (segment.rows, segment.size_bytes, segment.crc), (rows, counting.size_bytes, counting.crc)
    if expected != seen:
        text = "{} rows in {} bytes, checksum {:08x}"
        raise CorruptFileError(file, text.format(*expected), text.format(*seen))


def _is_whole(batch: pa.RecordBatch, metadata: Mapping[bytes, bytes], start: int) -> bool:
    if _CRC in metadata:
        return metadata[_CRC] == _checksum(batch, start)
    return metadata.get(_CRC_OF_BATCH) == _checksum(batch, 0)


def _schema_crc(schema: pa.Schema) -> int:
    return zlib.crc32(schema.serialize())


def _checksum(batch: pa.RecordBatch, start: int) -> bytes:
    return f"{zlib.crc32(batch.serialize(), start):08x}".encode()
