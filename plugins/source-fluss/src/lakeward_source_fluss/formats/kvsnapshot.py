"""KV snapshots: RocksDB files that are fetched and read here (fluss.md, "KV snapshots and rows")."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import fs
from rocksdict import AccessType, Options, Rdict, ReadOptions

from lakeward.errors import CorruptFileError, SnapshotGoneError, StorageError
from lakeward.local_files import refusal
from lakeward_source_fluss.formats.encodings import Encoding
from lakeward_source_fluss.formats.records import decode_values
from lakeward_source_fluss.formats.rows import Rows
from lakeward_source_fluss.formats.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from lakeward_source_fluss.formats.schema import FlussSchema

COPY_BYTES = 4 << 20
"""Memory of one file's download."""
READ_AHEAD_BYTES = 4 << 20
BATCH_ROWS = 1 << 15
BATCH_BYTES = 64 << 20
"""A batch of long values ends with the value that reaches this, whatever its number of rows."""
_SPARE_BYTES = 16 << 20
"""Disk that a download leaves free."""


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The files of one snapshot: (remote path, local name) each, as GET_KV_SNAPSHOT_METADATA lists them."""

    files: tuple[tuple[str, str], ...]
    storage: Storage = field(default_factory=Storage)
    name: str = "snapshot"

    def __post_init__(self) -> None:
        """Refuse local names that lead elsewhere."""
        names = [name for _, name in self.files]
        for name in names:
            if not name or name in {".", ".."} or "/" in name or "\0" in name:
                raise CorruptFileError(self.name, "plain names of local files", name)
        if len(set(names)) != len(names):
            raise CorruptFileError(self.name, "a local name of its own for each file", sorted(names))

    def sizes(self) -> tuple[int, ...]:
        """Return the bytes of each file.

        Raises:
            SnapshotGoneError: a file is not there any more.
            StorageError: the storage refused.
        """
        located = [self.storage.locate(path) for path, _ in self.files]
        try:
            infos = [filesystem.get_file_info(path) for filesystem, path in located]
        except OSError as refused:
            raise self._refused(refused, self.name) from refused
        for info in infos:
            if info.type is not fs.FileType.File:
                raise self._gone(info.path)
        return tuple(info.size for info in infos)

    def download(self, into: Path, parallel: int = 4) -> int:
        """Fetch all files, `parallel` at a time with COPY_BYTES of memory each; return the bytes fetched.

        They go into an empty directory of our own, which must exist: RocksDB's reader writes into it.

        Raises:
            SnapshotGoneError: a file is not there any more.
            StorageError: the storage refused, or the disk is too small.
        """
        sizes = self.sizes()
        free = shutil.disk_usage(into).free
        if sum(sizes) + _SPARE_BYTES > free:
            message = f"{self.name}: expected {sum(sizes) + _SPARE_BYTES} bytes of free disk in {into}, found {free}"
            raise StorageError(message)
        with ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="snapshot") as workers:
            fetched = [
                workers.submit(self._fetch, *file, into, size) for file, size in zip(self.files, sizes, strict=True)
            ]
            try:
                return sum(future.result() for future in fetched)
            except BaseException:
                workers.shutdown(wait=False, cancel_futures=True)
                raise

    def _fetch(self, remote: str, local: str, into: Path, size: int) -> int:
        filesystem, path = self.storage.locate(remote)
        copied = 0
        try:
            # No compression is guessed from the name.
            with filesystem.open_input_stream(path, compression=None) as source, (into / local).open("xb") as sink:
                while chunk := source.read(COPY_BYTES):
                    copied += sink.write(chunk)
        except FileNotFoundError as gone:
            raise self._gone(remote) from gone
        except OSError as refused:
            raise self._refused(refused, into) from refused
        if copied != size:
            raise CorruptFileError(remote, f"{size} bytes", copied)
        return copied

    def _gone(self, path: str) -> SnapshotGoneError:
        return SnapshotGoneError(f"{self.name}: expected the file {path}, found none; the server has cleaned it up")

    def _refused(self, refused: OSError, place: str | Path) -> StorageError:
        return StorageError(f"{self.name}: cannot be fetched: {refusal(refused, place)}")


def read(
    directory: Path,
    schemas: Mapping[int, FlussSchema],
    target: pa.Schema,
    batch_rows: int = BATCH_ROWS,
    encoding: Encoding = Encoding.COMPACTED,
    *,
    skip_rows: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Read all rows of a downloaded snapshot, each key once, in the order of the key bytes.

    `schemas` are by id, with today's names; a mapping that fetches a missing one is welcome. `target` has the columns
    wanted. A batch has `batch_rows` rows, but for the last and for those that reach BATCH_BYTES. The encoding is the
    table's kv format. The first `skip_rows` rows are passed over without decoding them.

    Yields:
        Batches of the target's columns; the same ones each time.

    Raises:
        CorruptFileError: RocksDB cannot read the files, a value does not fit its schema, or there are fewer rows than
            are to be passed over.
        SchemaMismatchError: a column's type cannot become the target's.
        RowError: a value that the target's type cannot hold.
    """
    for values in read_values(directory, batch_rows, skip_rows):
        yield decode_values(values, schemas, target, encoding)


def read_values(directory: Path, batch_rows: int = BATCH_ROWS, skip_rows: int = 0) -> Iterator[Rows]:
    """Do as `read` does, but leave `decode_values` to the caller."""
    try:
        # Options of our own: the ones in the directory may be unknown to this version of RocksDB.
        database = Rdict(str(directory), options=Options(raw_mode=True), access_type=AccessType.read_only())
    except Exception as broken:  # rocksdict raises bare Exceptions
        raise CorruptFileError(str(directory), "a RocksDB database", str(broken)) from broken
    try:
        values = database.values(read_opt=_read_options())
        passed, last = _skip(values, skip_rows, directory)
        while batch := _next(values, batch_rows, directory):
            last = batch[-1]
            yield Rows.of(batch, str(directory))
        _check_end(database, last, directory)
        if passed < skip_rows:
            raise CorruptFileError(str(directory), f"at least {skip_rows} rows", passed)
    finally:
        database.close()


def _read_options() -> ReadOptions:
    options = ReadOptions()
    options.set_readahead_size(READ_AHEAD_BYTES)
    # Each block is read once.
    options.fill_cache(False)  # type: ignore[call-arg]  # its stub lacks the argument
    return options


def _check_end(database: Rdict, last: bytes | None, directory: Path) -> None:
    """Refuse an end that is none: rocksdict's iterators end silently where a block cannot be read.

    Values hold their key, so no two are the same: the last one read must be the last one there is.
    """
    found = None
    try:
        end = database.iter(read_opt=_read_options())
        end.seek_to_last()
        end.status()
        if end.valid():
            found = end.value()
    except Exception as broken:  # rocksdict raises bare Exceptions
        raise CorruptFileError(str(directory), "readable RocksDB files", str(broken)) from broken
    if found != last:
        raise CorruptFileError(str(directory), "RocksDB files that can be read to their end", "a block that cannot")


def _skip(values: Iterator[bytes], rows: int, directory: Path) -> tuple[int, bytes | None]:
    """Return how many values were passed over, and the last of them."""
    passed, last = 0, None
    try:
        for last in islice(values, rows):  # noqa: B007 - the last one is what is wanted
            passed += 1
    except Exception as broken:  # rocksdict raises bare Exceptions
        raise CorruptFileError(str(directory), "readable RocksDB files", str(broken)) from broken
    return passed, last


def _next(values: Iterator[bytes], batch_rows: int, directory: Path) -> list[bytes]:
    batch: list[bytes] = []
    size = 0
    try:
        for value in islice(values, batch_rows):
            batch.append(value)
            size += len(value)
            if size >= BATCH_BYTES:
                break
    except Exception as broken:  # rocksdict raises bare Exceptions
        raise CorruptFileError(str(directory), "readable RocksDB files", str(broken)) from broken
    return batch
