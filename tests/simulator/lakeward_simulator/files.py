"""The store of small files in memory: checkpoints, journals and state lie there; it is slow, throttled and torn."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

from lakeward.errors import StorageError
from lakeward.storage.small_files import FileEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward_simulator.world import World

_ATOMIC = ("slow", "fails", "unknown")
_TORN = (*_ATOMIC, "torn")
_READ = ("slow", "fails")


class SimFiles:
    """As `lakeward.storage.small_files.SmallFiles`. What a crash leaves is what was written."""

    root = "sim:/state"

    def __init__(self, world: World) -> None:
        """Start empty."""
        self._world = world
        self._files: dict[str, tuple[bytes, int]] = {}
        self.damaged: set[str] = set()
        """What was changed, or is gone, by a fault: no checkpoint that names it holds what it should."""
        self.ever: dict[str, None] = {}
        """What was written as a whole at some time, in the order in which it was first."""

    def path(self, name: str) -> str:
        """See `SmallFiles`."""
        return f"{self.root}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """See `SmallFiles`; only files of a checkpoint are ever torn: the others are replaced as a whole."""
        how = self._call(name, "write", _TORN if "/chk-" in name else _ATOMIC)
        if how == "torn":
            self.tear(name, data)
        else:
            self._files[name] = (data, self._world.clock.wall_ms())
            self.ever[name] = None
        self._world.point("store")
        if how in {"torn", "unknown"}:
            message = f"{name}: throttled"
            raise StorageError(message)

    def tear(self, name: str, data: bytes) -> None:
        """Write half of a file."""
        self._files[name] = (data[: len(data) // 2], self._world.clock.wall_ms())

    def damage(self, name: str) -> None:
        """Change a byte of a file, unseen."""
        data, written = self._files[name]
        place = self._world.random.randrange(len(data))
        self._files[name] = (data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :], written)
        self.damaged.add(name)

    def lose(self, name: str) -> None:
        """Lose a file, unseen."""
        del self._files[name]

    def read(self, name: str) -> bytes | None:
        """See `SmallFiles`."""
        self._call(name, "read", _READ)
        found = self._files.get(name)
        return None if found is None else found[0]

    @contextmanager
    def writing(self, name: str) -> Iterator[BytesIO]:
        """See `SmallFiles`."""
        how = self._call(name, "write", _ATOMIC)
        out = BytesIO()
        yield out
        self._files[name] = (out.getvalue(), self._world.clock.wall_ms())
        self.ever[name] = None
        self._world.point("store")
        if how == "unknown":
            message = f"{name}: throttled"
            raise StorageError(message)

    @contextmanager
    def reading(self, name: str) -> Iterator[BytesIO | None]:
        """See `SmallFiles`."""
        data = self.read(name)
        yield None if data is None else BytesIO(data)

    def names(self, under: str, last: str) -> tuple[str, ...]:
        """See `SmallFiles`."""
        self._call(under, "list", _READ)
        start, end = f"{under}/", f"/{last}"
        return tuple(sorted([name for name in self._files if name.startswith(start) and name.endswith(end)]))

    def entries(self, under: str) -> tuple[FileEntry, ...]:
        """See `SmallFiles`."""
        self._call(under, "list", _READ)
        start = f"{under}/"
        found = [(name, file) for name, file in self._files.items() if name.startswith(start)]
        return tuple([FileEntry(name, len(data), written) for name, (data, written) in sorted(found)])

    def folders(self, under: str) -> tuple[str, ...]:
        """See `SmallFiles`."""
        start = f"{under}/"
        below = (name[len(start) :] for name in self._files if name.startswith(start))
        return tuple(sorted({name.partition("/")[0] for name in below if "/" in name}))

    def delete(self, name: str) -> None:
        """See `SmallFiles`."""
        how = self._call(name, "delete", _ATOMIC)
        self._world.checks.removing(name)
        self._files.pop(name, None)
        if how == "unknown":
            message = f"{name}: no answer"
            raise StorageError(message)

    def delete_folder(self, name: str) -> None:
        """See `SmallFiles`."""
        how = self._call(name, "delete folder", _ATOMIC)
        to_delete = [one for one in self._files if one.startswith(f"{name}/")]
        if to_delete:
            self._world.checks.removing(name)
        for one in to_delete[: 1 if how == "unknown" else None]:
            del self._files[one]
        if how == "unknown":
            message = f"{name}: half deleted, no answer"
            raise StorageError(message)

    def content(self, name: str) -> bytes | None:
        """Return a file, for checks."""
        found = self._files.get(name)
        return None if found is None else found[0]

    def __contains__(self, name: str) -> bool:
        """Say whether a file is there."""
        return name in self._files

    @property
    def all(self) -> tuple[str, ...]:
        """Every name."""
        return tuple(sorted(self._files))

    def _call(self, name: str, what: str, allowed: tuple[str, ...]) -> str | None:
        how = self._world.call("store", f"{what} {name}", allowed, _table_of(name))
        if how == "fails":
            message = f"{name}: cannot {what}"
            raise StorageError(message)
        return how


@lru_cache(maxsize=1024)
def _table_of(name: str) -> int | None:
    """Return the table that a file is about, from the folder `<table id>-...`."""
    parts = name.split("/", 3)
    number = parts[2].partition("-")[0] if len(parts) > 2 else ""
    return int(number) if number.isdigit() else None
