"""Files of this machine, and the one thing that Arrow has not: creating a file that must not exist.

It is a link to a file that is written already: the name appears with all its bytes, or not at all, and exactly one of
two that try gets it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow.fs as pafs

from lakeward.errors import OutcomeUnknownError
from lakeward.local_files import refusal, storage_errors, sync
from lakeward_lake_paimon.known_files import KnownFiles
from lakeward_lake_paimon.storage import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class PinnedFolder:
    """See `lakeward_lake_paimon.storage.Folder`. It stays the same one while its path may come to be another's.

    A table that is set aside is renamed, and a new one takes its path. A process that wakes up only then must not
    change the new one: what it does here happens in the folder that it has looked at.
    """

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            OSError: it is not there, or the disk refused.
        """
        self.path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        """Return the folder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self._handle)

    @property
    def is_at_its_path(self) -> bool:
        """Whether the path still leads here."""
        try:
            there, here = Path(self.path).stat(), os.fstat(self._handle)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def create(self, name: str, data: bytes, tag: str) -> bool:
        """Create a file with all its bytes; return False, and change nothing, if there is one of that name.

        `tag` is part of the name of the temporary file, by which what a crash leaves is found (`is_leftover`).

        Raises:
            StorageError: the disk refused, and nothing was created.
            OutcomeUnknownError: the disk refused, and it cannot be told whether the file was created.
        """
        with self._written(data, tag) as temporary:
            created = self._link(temporary, name, data)
        with suppress(OSError):  # it is there, whatever a crash of the machine may do
            os.fsync(self._handle)
        return created

    def names(self) -> tuple[str, ...]:
        """Return the names in it.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(self.path):
            return tuple(os.listdir(self._handle))  # noqa: PTH208 - of the folder itself, whatever its path is by now

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None where there is none.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(f"{self.path}/{name}"):
            try:
                return self._read(name)
            except FileNotFoundError:
                return None

    def replace(self, name: str, data: bytes) -> None:
        """Write a file whole, in the place of another one.

        Raises:
            StorageError: the disk refused; the other one is as it was.
        """
        with self._written(data, "hint") as temporary:
            os.rename(temporary, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(f"{self.path}/{name}"), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._handle)

    @contextmanager
    def _written(self, data: bytes, tag: str) -> Iterator[str]:
        """Yield the name of a file with these bytes, which is gone afterwards if it still has that name."""
        name = f"{TEMPORARY}{tag}-{secrets.token_hex(4)}"
        with storage_errors(f"{self.path}/{name}"):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with open(name, "wb", opener=lambda path, _: os.open(path, flags, 0o666, dir_fd=self._handle)) as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield name
            finally:
                with suppress(OSError):  # what is left is found by its tag
                    os.unlink(name, dir_fd=self._handle)

    def _link(self, temporary: str, name: str, data: bytes) -> bool:
        try:
            os.link(temporary, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except FileExistsError:
            return False
        except OSError as refused:
            # On a network disk the answer may be lost, and the link be there.
            try:
                return self._read(name) == data
            except FileNotFoundError:
                raise refused from None
            except OSError as away:
                message = f"{self.path}/{name}: cannot tell whether it was created: {refusal(away, self.path)}"
                raise OutcomeUnknownError(message) from refused
        return True

    def _read(self, name: str) -> bytes:
        with open(name, "rb", opener=lambda path, flags: os.open(path, flags, dir_fd=self._handle)) as file:
            return file.read()


class LocalStorage:
    """See `lakeward_lake_paimon.storage.Storage`. Paths are absolute."""

    renames = True

    def __init__(self) -> None:
        """Have made no directory yet."""
        self.known = KnownFiles()
        self._fs = pafs.LocalFileSystem()
        self._made: set[str] = set()

    def pin(self, folder: str) -> PinnedFolder:
        """Open a folder to change it, whatever path it may get meanwhile; it is made if it is not there.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)
            return PinnedFolder(folder)

    def create(self, path: str, data: bytes, tag: str) -> bool:
        """Create a file as `PinnedFolder.create`; its folder is made if it is not there."""
        folder, _, name = path.rpartition("/")
        with self.pin(folder) as pinned:
            return pinned.create(name, data, tag)

    def write(self, path: str, data: bytes) -> None:
        """Write a file whose name nobody else chooses; durable.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(path):
            target = Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            sync(target)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, None where there is none.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(path):
            try:
                with open(path, "rb") as file:  # noqa: PTH123 - a round reads a hundred: a Path costs as much as the file
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def exists(self, path: str) -> bool:
        """Return whether there is a file of that path.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(path):
            return Path(path).is_file()

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; none where there is no such folder."""
        with storage_errors(folder):
            try:
                return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - as above
            except (FileNotFoundError, NotADirectoryError):
                return ()

    def list(self, folder: str) -> tuple[str, ...]:
        """Return the paths of all files under a folder, sorted; none where there is no such folder."""
        root = folder.rstrip("/")
        with storage_errors(folder):
            found = self._fs.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True))
        return tuple(sorted(info.path for info in found if info.is_file))

    def rename_folder(self, old: str, new: str) -> bool:
        """Rename a folder; return False if it is not there, or another one of that name is and is not empty.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(old):
            try:
                Path(old).rename(new)
            except FileNotFoundError:
                return False
            except OSError:
                if self.names(new):
                    return False
                raise
        return True

    def make_folder(self, folder: str) -> None:
        """Make a folder, and those that it is in.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it; one that is not there is no error."""
        with storage_errors(folder), suppress(FileNotFoundError):
            self._fs.delete_dir(folder)

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors(path):
            Path(path).unlink(missing_ok=True)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for random reading."""
        with storage_errors(path):
            return self._fs.open_input_file(path)

    def open_output(self, path: str) -> pa.NativeFile:
        """Open a new file for writing; its folder is made, and a file that is there is refused.

        Raises:
            StorageError: it exists, or the disk refused.
        """
        folder = path.rpartition("/")[0]
        with storage_errors(path):
            if folder not in self._made:
                self._fs.create_dir(folder, recursive=True)
                self._made.add(folder)
            if os.path.lexists(path):
                message = "the file exists already and is not overwritten"
                raise FileExistsError(message)
            return self._fs.open_output_stream(path)
