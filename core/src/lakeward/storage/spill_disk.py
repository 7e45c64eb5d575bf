"""The disks of the machine, on which a folder is its writer's for as long as the writer lives."""

from __future__ import annotations

import shutil
from io import FileIO
from typing import TYPE_CHECKING

from lakeward.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PREFIX = "lakeward-spill-"


def free_bytes(directory: Path) -> int:
    """Return how many bytes a disk has left."""
    return shutil.disk_usage(directory).free


class LocalSpillDisk:
    """See `lakeward.ports.SpillDisk`."""

    def __init__(self, free: Callable[[Path], int] = free_bytes) -> None:
        """Touch nothing; `free` says how many bytes a directory's disk has left."""
        self._free = free

    def free_bytes(self, directory: Path) -> int:
        """See `SpillDisk`."""
        return self._free(directory)

    @staticmethod
    def make_folder(directory: Path) -> OwnedFolder:
        """See `SpillDisk`."""
        return OwnedFolder(_PREFIX, directory)

    def create(self, path: Path) -> FileIO:
        """See `SpillDisk`."""
        return FileIO(path, "x")

    @staticmethod
    def open(path: Path) -> FileIO:
        """See `SpillDisk`."""
        return FileIO(path)
