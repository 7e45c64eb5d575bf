"""The disks of the machine: a folder is its owner's for as long as its handle is locked."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from io import FileIO
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    def make_folder(directory: Path) -> LocalSpillFolder:
        """See `SpillDisk`."""
        with _locked(directory):
            for left in directory.glob(f"{_PREFIX}*"):
                _sweep(left)
            path = Path(mkdtemp(prefix=_PREFIX, dir=directory))
            handle = os.open(path, os.O_RDONLY)
            flock(handle, LOCK_EX)
            return LocalSpillFolder(path, handle)

    def create(self, path: Path) -> FileIO:
        """See `SpillDisk`."""
        return FileIO(path, "x")

    @staticmethod
    def open(path: Path) -> FileIO:
        """See `SpillDisk`."""
        return FileIO(path)


class LocalSpillFolder(NamedTuple):
    """See `lakeward.ports.SpillFolder`. While its handle is locked, its owner lives."""

    path: Path
    handle: int

    def delete(self) -> None:
        """See `SpillFolder`."""
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:  # somebody cleaned up
            pass
        finally:
            os.close(self.handle)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    handle = os.open(directory, os.O_RDONLY)
    try:
        flock(handle, LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # deleted meanwhile, or not ours to read
        return
    try:
        flock(handle, LOCK_EX | LOCK_NB)
        shutil.rmtree(folder)
    except OSError:  # its owner lives; or it is another user's, and stays
        pass
    finally:
        os.close(handle)
