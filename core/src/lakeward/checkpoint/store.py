"""A durable store of small files on any filesystem of `pyarrow.fs`.

Locally a file is written under a temporary name, synced, renamed, and its directory synced, so that a crash leaves
the old or the new file whole; elsewhere it is one PUT.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from lakeward.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class SmallFiles:
    """Small files under one root. Names are relative, with `/` between parts. Thread-safe."""

    def __init__(self, root: str) -> None:
        """Open the root; it is made at the first write.

        Args:
            root: a directory, or a URI that `pyarrow.fs` knows.

        Raises:
            StorageError: no such kind of filesystem.
        """
        self.root = root
        try:
            if "://" in root:
                self._filesystem, self._base = pafs.FileSystem.from_uri(root)
            else:
                self._filesystem, self._base = pafs.LocalFileSystem(), str(Path(root).absolute())
        except (OSError, ValueError) as error:
            message = f"checkpoint.root: expected a directory or a URI of a known filesystem, found {root!r}: {error}"
            raise StorageError(message) from error
        self._local = isinstance(self._filesystem, pafs.LocalFileSystem)

    def path(self, name: str) -> str:
        """Return the full path of a file, for messages."""
        return f"{self._base}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Write a file durably, replacing an older one as a whole.

        Args:
            name: relative name.
            data: its bytes.

        Raises:
            StorageError: the disk or store refused.
        """
        try:
            if self._local:
                _write_local(Path(self.path(name)), data)
            else:
                with self._filesystem.open_output_stream(self.path(name)) as out:
                    out.write(data)
        except OSError as error:
            message = f"{self.path(name)}: cannot be written: {error}"
            raise StorageError(message) from error

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None if there is no such file.

        Raises:
            StorageError: the disk or store refused.
        """
        try:
            with self._filesystem.open_input_stream(self.path(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            message = f"{self.path(name)}: cannot be read: {error}"
            raise StorageError(message) from error

    def names(self, under: str, last: str) -> tuple[str, ...]:
        """Return the names of all files below a folder that are called `last`, sorted.

        Args:
            under: a relative folder.
            last: the file's own name.
        """
        selector = pafs.FileSelector(self.path(under), recursive=True, allow_not_found=True)
        try:
            found = self._filesystem.get_file_info(selector)
        except OSError as error:
            message = f"{self.path(under)}: cannot be listed: {error}"
            raise StorageError(message) from error
        cut = len(self._base) + 1
        return tuple(sorted(i.path[cut:] for i in found if i.type == pafs.FileType.File and i.base_name == last))

    def delete(self, name: str) -> None:
        """Delete a file, and locally the folders that it leaves empty; one that is not there is no error."""
        try:
            self._filesystem.delete_file(self.path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            message = f"{self.path(name)}: cannot be deleted: {error}"
            raise StorageError(message) from error
        if self._local:
            _prune(Path(self.path(name)).parent, Path(self._base))

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a lock between processes of this machine; elsewhere than on a local disk there is none.

        Args:
            name: of the lock file.
        """
        if not self._local:
            yield
            return
        target = Path(self.path(name))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(target, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            message = f"{target}: cannot be locked: {error}"
            raise StorageError(message) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _write_local(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(target)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _prune(folder: Path, base: Path) -> None:
    while folder not in (base, base.parent):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
