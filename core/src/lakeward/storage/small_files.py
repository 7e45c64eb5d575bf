"""A durable store of small files on any filesystem of `pyarrow.fs`.

Locally a file is written under a temporary name, synced, renamed, and its directory synced, so that a crash leaves
the old or the new file whole; elsewhere it is one PUT.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.fs as pafs

from lakeward.errors import StorageError
from lakeward.local_files import require_plain
from lakeward.model.object_store import SCHEME
from lakeward.model.secrets import mask_uri
from lakeward.storage.atomic_write import prune, write_local, writing_local
from lakeward.storage.object_store import open_s3, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRIES = 5
"""How often a folder is listed or deleted again because others changed it meanwhile."""


class FileEntry(NamedTuple):
    """A file in a listing. `written_ms` is in milliseconds since 1970, by the store's clock (0: unknown)."""

    name: str
    size_bytes: int
    written_ms: int


class _KeyedLock:
    """Locks by name; a lock exists as long as it is held or waited for. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Wait until the lock of this name is free, and hold it."""
        lock = self._enter(name)
        try:
            with lock:
                yield
        finally:
            self._leave(name)

    def _enter(self, name: str) -> threading.Lock:
        with self._guard:
            lock, users = self._locks.get(name) or (threading.Lock(), 0)
            self._locks[name] = (lock, users + 1)
            return lock

    def _leave(self, name: str) -> None:
        with self._guard:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = (lock, users - 1)


class SmallFiles:
    """Small files under one root, by relative name. Thread-safe; a file is written by one process."""

    def __init__(self, root: str, filesystem: pafs.FileSystem | None = None) -> None:
        """Open the root; it is made at the first write.

        It is a directory, or a URI that `pyarrow.fs` knows; with `filesystem`, a path in it.

        Raises:
            StorageError: no such kind of filesystem.
        """
        self.root = root
        if filesystem is None:
            self._filesystem, self._base = _open(root)
        else:
            self._filesystem, self._base = filesystem, root
        self._locks = _KeyedLock()
        """A write whose caller no longer waits may still run: a later write of that file must wait for it."""
        self._local = isinstance(self._filesystem, pafs.LocalFileSystem)
        self._bucket_seen = not root.startswith(SCHEME)
        """Until a bucket was seen, "not there" may mean that the bucket is not there."""

    def path(self, name: str) -> str:
        """Return the full path of a file, for messages."""
        return f"{self._base}/{name}" if name else self._base

    def write(self, name: str, data: bytes) -> None:
        """Write a file (a relative name) durably, atomically replacing an older one.

        Raises:
            StorageError: the disk or store refused.
        """
        try:
            with self._locks.of(name):
                self._write(name, data)
        except OSError as error:
            message = f"{self.path(name)}: cannot be written: {reason(error, self.path(name))}"
            raise StorageError(message) from error

    def _write(self, name: str, data: bytes) -> None:
        if self._local:
            write_local(Path(self.path(name)), data)
        else:
            with self._filesystem.open_output_stream(self.path(name)) as out:
                out.write(data)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None if there is no such file.

        Raises:
            StorageError: the disk or store refused.
        """
        try:
            with self._input(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            self._look_for_bucket()
            return None
        except OSError as error:
            if self._is_gone(name):  # deleted while it was read: object stores report that by other errors
                self._look_for_bucket()
                return None
            message = f"{self.path(name)}: cannot be read: {reason(error, self.path(name))}"
            raise StorageError(message) from error

    def _is_gone(self, name: str) -> bool:
        try:
            return bool(self._filesystem.get_file_info(self.path(name)).type == pafs.FileType.NotFound)
        except OSError:
            return False  # nothing is known; raise the first error

    def _look_for_bucket(self) -> None:
        """Make sure that the bucket is there: a store says of a file in a missing one only that it is not there.

        Raises:
            StorageError: there is no such bucket, or the store does not answer.
        """
        if self._bucket_seen:
            return
        bucket = self._base.partition("/")[0]
        try:
            exists = self._filesystem.get_file_info(bucket).type != pafs.FileType.NotFound
        except OSError as error:
            message = f"{self._base}: cannot be read: {reason(error, self._base)}"
            raise StorageError(message) from error
        if not exists:
            message = f"{self._base}: there is no such bucket: {bucket}"
            raise StorageError(message)
        self._bucket_seen = True

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Write a file durably, piece by piece; it has its name once all of it is written.

        No file of this name is there yet.

        Yields:
            What takes the bytes.

        Raises:
            StorageError: the disk or store refused.
        """
        try:
            if self._local:
                with writing_local(Path(self.path(name))) as out:
                    yield out
            else:
                with self._filesystem.open_output_stream(self.path(name)) as out:
                    yield out
        except OSError as error:
            message = f"{self.path(name)}: cannot be written: {reason(error, self.path(name))}"
            raise StorageError(message) from error

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Read a file piece by piece.

        Yields:
            What gives the bytes, None if there is no such file.

        Raises:
            StorageError: the disk or store refused.
        """
        try:
            stream = self._open(name)
            if stream is None:
                yield None
                return
            with stream:
                yield stream
        except OSError as error:
            message = f"{self.path(name)}: cannot be read: {reason(error, self.path(name))}"
            raise StorageError(message) from error

    def _open(self, name: str) -> Any:  # noqa: ANN401 - a file of Arrow
        try:
            return self._input(name)
        except FileNotFoundError:
            self._look_for_bucket()
            return None

    def _input(self, name: str) -> Any:  # noqa: ANN401 - a file of Arrow
        if self._local:
            require_plain(self.path(name))
        return self._filesystem.open_input_stream(self.path(name))

    def names(self, under: str, last: str) -> tuple[str, ...]:
        """Return the names of all files below a relative folder that are called `last`, sorted."""
        return tuple(entry.name for entry in self.entries(under) if entry.name.rpartition("/")[2] == last)

    def entries(self, under: str) -> tuple[FileEntry, ...]:
        """Return all files below a folder, sorted by name; a folder that is not there has none.

        Raises:
            StorageError: the disk or store refused.
        """
        found = (info for info in self._infos(under, recursive=True) if info.type == pafs.FileType.File)
        return tuple(sorted((self._entry(info) for info in found), key=lambda entry: entry.name))

    def folders(self, under: str) -> tuple[str, ...]:
        """Return the names of the folders directly below a folder, sorted. Raises as `entries`."""
        found = self._infos(under, recursive=False)
        return tuple(sorted(info.base_name for info in found if info.type == pafs.FileType.Directory))

    def _infos(self, under: str, *, recursive: bool) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self.path(under), recursive=recursive, allow_not_found=True)
        for left in reversed(range(_TRIES)):
            try:
                found: list[pafs.FileInfo] = self._filesystem.get_file_info(selector)
                break
            except OSError as error:
                if left and isinstance(error, FileNotFoundError):
                    continue  # a folder below was deleted while it was listed
                message = f"{self.path(under)}: cannot be listed: {reason(error, self.path(under))}"
                raise StorageError(message) from error
        if not found:
            self._look_for_bucket()
        return found

    def _entry(self, info: pafs.FileInfo) -> FileEntry:
        return FileEntry(info.path[len(self._base) + 1 :], info.size or 0, (info.mtime_ns or 0) // 1_000_000)

    def delete_folder(self, name: str) -> None:
        """Delete a folder with its content, and on a local disk the parents that this leaves empty; repeatable.

        Raises:
            StorageError: the disk or store refused.
        """
        for left in reversed(range(_TRIES)):
            try:
                self._filesystem.delete_dir(self.path(name))
                break
            except OSError as error:
                if self._is_gone(name):
                    break
                if not left:
                    message = f"{self.path(name)}: cannot be deleted: {reason(error, self.path(name))}"
                    raise StorageError(message) from error
        if self._local:
            prune(Path(self.path(name)).parent, Path(self._base))

    def delete(self, name: str) -> None:
        """Delete a file, and locally the folders that it leaves empty; one that is not there is no error."""
        try:
            self._filesystem.delete_file(self.path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            message = f"{self.path(name)}: cannot be deleted: {reason(error, self.path(name))}"
            raise StorageError(message) from error
        if self._local:
            prune(Path(self.path(name)).parent, Path(self._base))


def _open(root: str) -> tuple[pafs.FileSystem, str]:
    try:
        if "://" not in root:
            return pafs.LocalFileSystem(), str(Path(root).absolute())
        filesystem, base = open_s3(root) if root.startswith(SCHEME) else pafs.FileSystem.from_uri(root)
    except (OSError, ValueError, TypeError) as error:
        shown = mask_uri(root)
        why = (reason(error, root) if isinstance(error, OSError) else str(error)).replace(root, shown)
        message = f"checkpoint.root: expected a directory or a URI of a known filesystem, found {shown!r}: {why}"
        raise StorageError(message) from error
    return filesystem, base.rstrip("/")
