"""The port of the local disks that rows to be restored are spilled to: folders of one owner, and files in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class SpillFolder(Protocol):
    """A folder of one writer. It is its owner's until it is deleted, or its owner has died."""

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    def delete(self) -> None:
        """Delete it with all that is in it; harmless where it is gone.

        Raises:
            OSError: the disk refused.
        """
        ...


class SpillDisk(Protocol):
    """The disks of a machine. Any thread may call it."""

    def free_bytes(self, directory: Path) -> int:
        """Return how many bytes the disk of a directory has left."""
        ...

    def make_folder(self, directory: Path) -> SpillFolder:
        """Make a folder in a directory that is there, and delete those whose owners died.

        Raises:
            OSError: the disk refused, or there is no such directory.
        """
        ...

    def create(self, path: Path) -> BinaryIO:
        """Make a file, and return it to be written; a write may take a part only.

        Raises:
            OSError: the disk refused, or the file is there already.
        """
        ...

    def open(self, path: Path) -> BinaryIO:
        """Return a file to be read.

        Raises:
            OSError: the disk refused, or there is no such file.
        """
        ...
