"""Files of this machine: which places are on it, files of this user alone, and replacing them whole.

Whoever may write the state of a service steers it, and whoever puts a link or a pipe in a file's place could redirect
it or hold it up: so files and folders of state are for one user whatever the umask, and opened as plain files only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakeward.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

_TURN_S = 0.02
_MIB = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ARROWS = "Detail: [errno"


def is_local(root: str) -> bool:
    """Return whether the state root is a directory of this machine (a path or a `file:` URI)."""
    return "://" not in root or urlsplit(root).scheme == "file"


def make_private(folder: Path) -> None:
    """Make a folder and its parents, as far as they are missing: for this user alone (0700); each is durable.

    Raises:
        OSError: the disk refused.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync(folder.parent)


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file of state; one that is not there is made for this user alone (0600).

    `mode`: as of `open`, for bytes.

    Raises:
        OSError: the disk refused, or it is a link, a pipe or anything else but a plain file.
    """
    return open(path, mode, opener=_open_plain)


def read_plain(path: Path) -> bytes:
    """Return the bytes of a file of state.

    Raises:
        OSError: as `open_private`.
    """
    with open_private(path, "rb") as file:
        return file.read()


def _open_plain(path: str, flags: int) -> int:
    # Without O_NONBLOCK a pipe would wait for its other end before anybody can look what it is.
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        _check_plain(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    return handle


def require_plain(path: str) -> None:
    """Check that a path is a plain file, for those who open it themselves.

    Raises:
        OSError: it is a link, a pipe or anything else, or it is not there.
    """
    _check_plain(os.lstat(path), path)


def _check_plain(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "expected a plain file, found another kind of file", path)


def refusal(error: OSError, place: str | Path) -> str:
    """Say why a disk refused, and what is left of it where it is full.

    `place` is the path or `file:` URI of what was written or read; for another store nothing is added.
    """
    if error.errno is None:
        return str(error)
    said = error.strerror or str(error)
    if _ARROWS in said:  # `Error writing bytes to file. Detail: [errno 28] No space left on device`
        said = os.strerror(error.errno)
    return f"{said}: {left}" if error.errno in _FULL and (left := _left(str(place))) else said


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turn an error of the operating system into one that names the path.

    Raises:
        StorageError: the disk or the store refused.
    """
    try:
        yield
    except OSError as refused:
        message = f"{path}: the storage refused: {refusal(refused, path)}"
        raise StorageError(message) from refused


def _left(place: str) -> str:
    if not is_local(place):
        return ""
    path = Path(unquote(urlsplit(place).path) if "://" in place else place).absolute()
    try:
        folder = next(parent for parent in (path, *path.parents) if parent.is_dir())
        disk = os.statvfs(folder)
    except OSError:
        return ""  # the first error is the one to tell
    free, size = (blocks * disk.f_frsize / _MIB for blocks in (disk.f_bavail, disk.f_blocks))
    return f"{free:,.1f} of {size:,.1f} MiB and {disk.f_favail:,} of {disk.f_files:,} files are free in {folder}"


@contextmanager
def locked(path: Path, limit_s: float, waiting: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is not there; the end of the process frees it.

    `limit_s`: seconds to wait for whoever holds it. `waiting` waits so many seconds.

    Raises:
        OSError: the disk refused, as `open_private`, or the lock was held all that time.
    """
    with open_private(path, "ab") as file:
        deadline = time.monotonic() + limit_s
        while not _taken(file):
            if time.monotonic() > deadline:
                raise OSError(errno.EWOULDBLOCK, f"another process has held its lock for {limit_s:g} s", str(path))
            waiting(_TURN_S)
        yield


def _taken(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def replacing(target: Path, temporary: Path, *, durable: bool) -> Iterator[Path]:
    """Yield a temporary name for the caller to write a file under, then give the file its own name.

    On any failure the temporary file is deleted and the target is as it was. `temporary` is a name in the same folder
    that no other writer uses at the same time. `durable`: the file and its folder are synced, so that the new file
    outlives a crash of the machine.

    Raises:
        OSError: the disk refused.
    """
    try:
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(target)
        if durable:
            sync(target.parent)
    except BaseException as error:
        try:
            temporary.unlink(missing_ok=True)
        except OSError as second:  # the first error is the one to raise
            error.add_note(f"{temporary}: cannot be deleted: {second}")
        raise


def sync(path: Path) -> None:
    """Make a file or folder durable.

    Raises:
        OSError: the disk refused.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def free_bytes(root: str) -> int | None:
    """Return the free bytes of the disk that a folder is on; None where it is a store, or the disk does not say."""
    if not is_local(root):
        return None
    try:
        return shutil.disk_usage(root).free
    except OSError:
        return None
