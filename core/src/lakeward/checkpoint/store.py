"""A durable store of small files on any filesystem of `pyarrow.fs`.

Locally a file is written under a temporary name, synced, renamed, and its directory synced, so that a crash leaves
the old or the new file whole; elsewhere it is one PUT.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pyarrow.fs as pafs

from lakeward.errors import StorageError


class SmallFiles:
    """Small files under one root, by relative name. Thread-safe; a file is written by one process."""

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
        self._writing = threading.Lock()
        """A write that its caller has given up may still be under way: a later one must land later."""
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
            with self._writing:
                self._write(name, data)
        except OSError as error:
            message = f"{self.path(name)}: cannot be written: {error}"
            raise StorageError(message) from error

    def _write(self, name: str, data: bytes) -> None:
        if self._local:
            _write_local(Path(self.path(name)), data)
        else:
            with self._filesystem.open_output_stream(self.path(name)) as out:
                out.write(data)

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


def _write_local(target: Path, data: bytes, tries: int = 3) -> None:
    fresh = target.with_name(f".{target.name}.new")  # one writer per file: each start writes its own
    try:
        _make_folders(target.parent)
        with fresh.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(target)
        _sync(target.parent)
    except FileNotFoundError:
        # A delete has just taken the folder away because it was empty.
        if tries == 1:
            raise
        _write_local(target, data, tries - 1)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to be told
            fresh.unlink(missing_ok=True)
        raise


def _make_folders(folder: Path) -> None:
    """Make what is missing; a new folder is durable once its parent is synced."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _prune(folder: Path, base: Path) -> None:
    while folder not in (base, base.parent):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
