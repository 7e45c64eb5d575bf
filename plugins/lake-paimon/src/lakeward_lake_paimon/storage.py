"""The files of a warehouse, on a disk or in a store. Everything that fences rests on `Folder.create`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward_lake_paimon.known_files import KnownFiles

TEMPORARY = ".lakeward-"
"""Names of files that are being written begin with it. Paimon's readers look for other names."""


class Folder(Protocol):
    """A folder that is changed; it stays the same one while its path may come to be another's."""

    path: str

    def __enter__(self) -> Self:
        """Return the folder."""
        ...

    def __exit__(self, *_: object) -> None:
        """Let go of it."""
        ...

    @property
    def is_at_its_path(self) -> bool:
        """Whether the path still leads here."""
        ...

    def create(self, name: str, data: bytes, tag: str) -> bool:
        """Create a file with all its bytes; return False, and change nothing, if there is one of that name.

        `tag` is part of the name of a temporary file, by which what a crash leaves is found (`is_leftover`).

        Raises:
            StorageError: refused, and nothing was created.
            OutcomeUnknownError: it cannot be told whether the file was created.
        """
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names in it.

        Raises:
            StorageError: refused.
        """
        ...

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None where there is none.

        Raises:
            StorageError: refused.
        """
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Write a file whole, in the place of another one.

        Raises:
            StorageError: refused; the other one is as it was.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error.

        Raises:
            StorageError: refused.
        """
        ...


class Storage(Protocol):
    """The files of one warehouse. All methods raise `StorageError` where the disk or the store refuses."""

    renames: bool
    """Whether a folder can be renamed."""
    known: KnownFiles

    def pin(self, folder: str) -> Folder:
        """Open a folder to change it; it is made if it is not there."""
        ...

    def create(self, path: str, data: bytes, tag: str) -> bool:
        """Create a file as `Folder.create`; its folder is made if it is not there."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write a file whose name nobody else chooses; durable."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, None where there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file of that path."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; none where there is no such folder."""
        ...

    def list(self, folder: str) -> tuple[str, ...]:
        """Return the paths of all files under a folder, sorted; none where there is no such folder."""
        ...

    def rename_folder(self, old: str, new: str) -> bool:
        """Rename a folder; return False if it is not there, or another one of that name is and is not empty."""
        ...

    def make_folder(self, folder: str) -> None:
        """Make a folder, and those that it is in."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it; one that is not there is no error."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""
        ...

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for random reading."""
        ...

    def open_output(self, path: str) -> pa.NativeFile:
        """Open a new file for writing; its folder is made."""
        ...


def is_leftover(name: str, tag: str) -> bool:
    """Return whether a name is that of a temporary file which `create` made with this tag."""
    return name.startswith(f"{TEMPORARY}{tag}-")
