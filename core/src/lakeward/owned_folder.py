"""Folders for temporary files: each is its process's own, and a later process deletes those whose owners are gone.

A folder has mode 0700 and a name that nobody can foresee, so that no other user puts anything into it or waits for it;
its owner holds a lock on the folder itself, which the system takes back whenever the process ends.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

_MODE = 0o700
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK


class OwnedFolder:
    """A new folder; it is deleted by `delete` or `cleanup`, or when the process ends."""

    def __init__(self, prefix: str, directory: Path | None = None) -> None:
        """Make it in `directory` (None: where temporary files lie); delete those of its prefix whose owners are gone.

        Raises:
            OSError: the disk refused, or there is no such directory.
        """
        parent = directory or Path(tempfile.gettempdir())
        for left in parent.glob(f"{prefix}*"):
            _delete_ownerless(left)
        self.path, self._handle = _make(prefix, parent)
        self._at_exit = weakref.finalize(self, _delete_quietly, self.path, self._handle)

    @property
    def name(self) -> str:
        """Where it is, as text."""
        return str(self.path)

    def delete(self) -> None:
        """Delete it with all that is in it; harmless where it is gone.

        Raises:
            OSError: the disk refused.
        """
        if self._at_exit.detach() is None:
            return
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:  # somebody cleaned up
            pass
        finally:
            os.close(self._handle)

    def cleanup(self) -> None:
        """Delete it; what cannot be deleted stays for a later process."""
        with suppress(OSError):
            self.delete()

    def __enter__(self) -> str:
        """Return where it is."""
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _make(prefix: str, parent: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        handle = _locked(path)
        if handle is not None:
            return path, handle


def _locked(path: Path) -> int | None:
    """Open a folder and lock it; None where another process of this user deletes it, as it had no owner yet."""
    try:
        handle = os.open(path, _FOLDER)
    except FileNotFoundError:
        return None
    with suppress(BlockingIOError):
        flock(handle, LOCK_EX | LOCK_NB)
        if path.exists():
            return handle
    os.close(handle)
    return None


def _delete_ownerless(folder: Path) -> None:
    """Delete a folder of this user that nobody holds; whatever else has such a name stays."""
    try:
        handle = os.open(folder, _FOLDER)
    except OSError:  # deleted meanwhile, no folder, or not ours to read
        return
    try:
        status = os.fstat(handle)
        if (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), _MODE):
            flock(handle, LOCK_EX | LOCK_NB)
            shutil.rmtree(folder)
    except OSError:  # its owner lives, or the disk refuses: another start tries again
        pass
    finally:
        os.close(handle)


def _delete_quietly(path: Path, handle: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.close(handle)
