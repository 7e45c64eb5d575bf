"""The data files of a store: where they lie, how they are written whole, how they are opened without copying.

A file is written under a temporary name, synced, renamed, its directory is synced; only then may a row of the
database name it. What a crash leaves behind is named by no row and is swept.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import CorruptFileError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TEMPORARY = ".tmp"
_SYNC_ALL_FROM = 32
"""From so many files on, one sync of everything is cheaper than one for each."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Names under a store's directory. File names in the database are relative to `root`."""

    root: Path

    def table_folders(self, table_id: int) -> tuple[Path, ...]:
        """Return the folders of one table: log, snapshots, index, lake offsets."""
        return tuple(self.root / kind / str(table_id) for kind in ("log", "kv", "index", "lake"))

    def new_file(self, kind: str, table_id: int, label: str, suffix: str = ".arrow") -> str:
        """Choose a name that was never used.

        Args:
            kind: `log`, `kv`, `index` or `lake`.
            table_id: the table.
            label: the readable part of the name.
            suffix: of the file's name.

        Returns:
            The name relative to `root`; its folder exists.
        """
        folder = self.root / kind / str(table_id)
        with disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return f"{kind}/{table_id}/{label}-{uuid.uuid4().hex[:12]}{suffix}"

    def remove_lock(self, table_id: int) -> None:
        """Remove the lock of a dropped table, whose id never comes back; who holds it or waits for it keeps it."""
        remove((self._lock_file(table_id),))

    def _lock_file(self, table_id: int) -> Path:
        return self.root / "locks" / f"{table_id}.lock"

    @contextmanager
    def lock(self, table_id: int) -> Iterator[None]:
        """Be the only writer of a table, among all processes and threads; the end of a process frees it."""
        file = self._lock_file(table_id)
        with disk(file):
            file.parent.mkdir(exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with disk(file):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        raise StorageError(message) from error


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, sync: bool = True) -> None:
    """Write a whole Arrow IPC file, or none.

    Args:
        path: the final name.
        schema: of the batches.
        batches: written one after another, uncompressed, so that they can be mapped.
        sync: False where the caller calls `sync_files` before it names the file anywhere.

    Raises:
        StorageError: the disk refused; nothing is left.
    """
    with _whole(path, sync=sync) as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole small file, or none. Raises as `write_arrow`."""
    with _whole(path, sync=True) as sink:
        sink.write(data)


def sync_files(paths: Iterable[Path]) -> None:
    """Make files that were written with `sync=False` durable."""
    files = tuple(paths)
    if len(files) >= _SYNC_ALL_FROM:
        os.sync()
        return
    for path in files:
        _sync(path)
    for folder in {path.parent for path in files}:
        _sync(folder)


def open_arrow(path: Path) -> pa.ipc.RecordBatchFileReader:
    """Map an Arrow IPC file.

    Args:
        path: the file.

    Returns:
        A reader whose batches point into the mapped file; they live on when the file is unlinked.

    Raises:
        FileNotFoundError: it is gone; the caller knows what that means.
        CorruptFileError: it is no whole Arrow IPC file.
    """
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        raise CorruptFileError(str(path), "a whole Arrow IPC file", str(error)) from error


def read_batch(path: Path, reader: pa.ipc.RecordBatchFileReader, index: int) -> pa.RecordBatch:
    """Return one batch of a mapped file.

    Raises:
        CorruptFileError: the file lacks it, or it is damaged.
    """
    try:
        batch = reader.get_batch(index)
        batch.validate()
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        raise CorruptFileError(str(path), f"a whole batch {index}", str(error)) from error
    return batch


def remove(paths: Iterable[Path]) -> None:
    """Unlink files; one that is not there is no error."""
    for path in paths:
        with disk(path):
            path.unlink(missing_ok=True)


@contextmanager
def _whole(path: Path, *, sync: bool) -> Iterator[pa.NativeFile]:
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with disk(path):
            with pa.OSFile(str(temporary), "wb") as sink:
                yield sink
            if sync:
                _sync(temporary)
            temporary.rename(path)
            if sync:
                _sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
