"""The disks that subtasks spill restored rows to: in memory, full, slow, damaged; what a dead process left is swept."""

from __future__ import annotations

import errno
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from lakeward_simulator.subtask import SimTask
    from lakeward_simulator.world import World

DIRECTORIES = ("/disk/a", "/disk/b")
_WRITE = ("slow", "fails", "full")
_READ = ("slow", "fails", "damaged")


class SimDisks:
    """All folders of all processes; one machine has them."""

    def __init__(self, world: World) -> None:
        """Start empty."""
        self.world = world
        self.folders: list[SimSpillFolder] = []
        self._number = 0

    def make(self, owner: SimTask, directory: Path) -> SimSpillFolder:
        """Make a folder, and delete those whose owners died.

        Args:
            owner: whose.
            directory: where.
        """
        self.folders = [one for one in self.folders if one.owner.alive or one.path.parent != directory]
        self._number += 1
        folder = SimSpillFolder(self, owner, directory / f"{self._number}")
        self.folders.append(folder)
        return folder

    def of(self, owner: SimTask) -> list[SimSpillFolder]:
        """Return the folders of a process."""
        return [one for one in self.folders if one.owner is owner]

    def files(self) -> Iterator[tuple[Path, bytearray]]:
        """Yield all files."""
        for folder in self.folders:
            yield from folder.files.items()


class SimSpillFolder:
    """See `lakeward.ports.SpillFolder`."""

    def __init__(self, disks: SimDisks, owner: SimTask, path: Path) -> None:
        """Start empty."""
        self._disks = disks
        self.owner = owner
        self.path = path
        self.files: dict[Path, bytearray] = {}

    def delete(self) -> None:
        """See `SpillFolder`. Who is dead deletes nothing."""
        if self.owner.alive and self in self._disks.folders:
            self._disks.folders.remove(self)


class SimSpillDisk:
    """See `lakeward.ports.SpillDisk`: of one process."""

    def __init__(self, disks: SimDisks, owner: SimTask) -> None:
        """Touch nothing."""
        self._disks = disks
        self._owner = owner
        self._free = 1 << 40
        self.busy = 0
        """Calls that are under way."""

    def free_bytes(self, directory: Path) -> int:
        """See `SpillDisk`; directories get files in turn."""
        del directory
        return self._free

    def make_folder(self, directory: Path) -> SimSpillFolder:
        """See `SpillDisk`."""
        if str(directory) not in DIRECTORIES:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(directory))
        self._call("make folder", directory, _WRITE)
        return self._disks.make(self._owner, directory)

    def create(self, path: Path) -> BinaryIO:
        """See `SpillDisk`."""
        self._call("create", path, _WRITE)
        return cast("BinaryIO", _Written(self, self._file_of(path)))

    def open(self, path: Path) -> BinaryIO:
        """See `SpillDisk`."""
        how = self._call("read", path, _READ)
        data = self._file_of(path)
        if how == "damaged" and data:
            place = self._disks.world.random.randrange(len(data))
            data[place] ^= 0xFF
        return BytesIO(bytes(data))

    def writing(self, data: bytes) -> None:
        """Let a write go wrong, or take long."""
        self._call("write", Path(f"{len(data)} bytes"), _WRITE)

    def _file_of(self, path: Path) -> bytearray:
        for folder in self._disks.of(self._owner):
            if folder.path == path.parent:
                return folder.files.setdefault(path, bytearray())
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path))

    def _call(self, what: str, path: Path, allowed: tuple[str, ...]) -> str | None:
        self.busy += 1
        try:
            how = self._disks.world.call("disk", f"{what} {path}", allowed, self._owner.table_id)
        finally:
            self.busy -= 1
        if how == "fails":
            raise OSError(errno.EIO, "input/output error", str(path))
        if how == "full":
            raise OSError(errno.ENOSPC, "no space left on device", str(path))
        return how


class _Written:
    """A file that is being written; a full disk takes a part before it refuses."""

    def __init__(self, disk: SimSpillDisk, data: bytearray) -> None:
        self._disk = disk
        self._data = data

    def write(self, data: bytes) -> int:
        most = len(data) // 2 or len(data)
        taken = bytes(data[:most])
        self._disk.writing(taken)
        self._data += taken
        return len(taken)

    def close(self) -> None:
        """See `BinaryIO`."""
