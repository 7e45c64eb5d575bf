"""The data files of a store: their paths, and how they are written atomically.

A file is written under a temporary name, synced, renamed, and its directory is synced; only then may a row of the
database reference it. After a crash, files that no row references are deleted.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import StorageError
from lakeward.local_files import refusal, replacing, sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TEMPORARY = ".tmp"
_SYNC_ALL_FROM = 32
"""From this many files on, one sync of the whole system is cheaper than one for each file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Names under a store's directory. File names in the database are relative to `root`."""

    root: Path
    checked: set[tuple[str, int]] = field(default_factory=set, compare=False)
    """Batches of data files whose checksum was verified, by file and number: a file never changes."""

    def table_folders(self, table_id: int) -> tuple[Path, ...]:
        """Return the folders of one table: log, snapshots, index, lake offsets."""
        return tuple(self.root / kind / str(table_id) for kind in ("log", "kv", "index", "lake"))

    def new_file(self, kind: str, table_id: int, label: str, suffix: str = ".checked.arrow") -> str:
        """Choose a name that was never used, relative to `root`; its folder exists.

        `kind` is `log`, `kv`, `index` or `lake`; `label` is the readable part of the name.
        """
        folder = self.root / kind / str(table_id)
        with disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return f"{kind}/{table_id}/{label}-{uuid.uuid4().hex[:12]}{suffix}"

    def remove_lock(self, table_id: int) -> None:
        """Remove the lock of a dropped table, whose id is never used again; holders and waiters keep it."""
        remove((self._lock_file(table_id),))

    def _lock_file(self, table_id: int) -> Path:
        return self.root / "locks" / f"{table_id}.lock"

    @contextmanager
    def lock(self, table_id: int) -> Iterator[None]:
        """Hold the write lock of a table, across processes and threads; the end of a process frees it."""
        file = self._lock_file(table_id)
        with disk(file):
            file.parent.mkdir(exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            with disk(file):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        message = f"{path}: {refusal(error, path)}"
        raise StorageError(message) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write a small file atomically.

    Raises:
        StorageError: the disk refused; nothing is left.
    """
    with whole_file(path, durable=True) as temporary:
        temporary.write_bytes(data)


def sync_files(paths: Iterable[Path]) -> None:
    """Make files that were written with `sync=False` durable."""
    files = tuple(paths)
    if len(files) >= _SYNC_ALL_FROM:
        os.sync()
        return
    for path in files:
        sync(path)
    for folder in {path.parent for path in files}:
        sync(folder)


def remove(paths: Iterable[Path]) -> None:
    """Unlink files; one that is not there is no error."""
    for path in paths:
        with disk(path):
            path.unlink(missing_ok=True)


@contextmanager
def whole_file(path: Path, *, durable: bool) -> Iterator[Path]:
    """Let the caller write a file under a temporary name, then rename it; on a failure nothing is left.

    If `durable`, file and folder are synced.

    Raises:
        StorageError: the disk refused.
    """
    with disk(path), replacing(path, path.with_name(path.name + TEMPORARY), durable=durable) as temporary:
        yield temporary
