"""The disks of the machine, on which a folder is its writer's for as long as the writer lives."""

from __future__ import annotations

import os
import shutil
import tempfile
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX = "lakeward-spill-"


def spark_directories() -> list[str]:
    """Return the directories in which Spark has its own local ones; outside of Spark the one for temporary files.

    Spark deletes its own with the application, and leaves them where it is killed; a folder beside them is found by
    the next recovery on this machine.
    """
    own = [Path(name) for name in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if name]
    found = [str(one.parent if one.name.startswith("blockmgr-") else one) for one in own]
    return [*dict.fromkeys(found)] or [tempfile.gettempdir()]


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
