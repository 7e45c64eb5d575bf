"""Shows commands that a process of a service is there, also before it has written its first report.

Each process of a service shares the lock of a file in the service's folder for as long as it lives. A command that
deletes what a start may be about to use takes the lock for itself alone, so that none starts meanwhile. The end of a
process frees its lock. A store has no locks: there the report alone shows who runs.
"""

from __future__ import annotations

import errno
import fcntl
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.errors import StorageError
from lakeward.local_files import is_local, make_private, open_private, refusal
from lakeward.observe.files import service_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

LOCK_FILE = "service.lock"
_LIMIT_S = 60.0
"""Seconds that a start waits for a command that deletes: it needs a few, the more checkpoints the more."""
_TURN_S = 0.02
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""The folder's filesystem has none."""


def show_presence(root: str, service: str, *, limit_s: float = _LIMIT_S) -> Callable[[], None]:
    """Share the service's lock from now on; return what gives it back. Blocking.

    A command that has the lock for itself is waited for `limit_s` seconds.

    Raises:
        StorageError: the disk refused, or a command had the lock all that time.
    """
    if not is_local(root):
        return _nothing
    path = service_folder(root, service) / LOCK_FILE
    try:
        make_private(path.parent)
        file = open_private(path, "ab")
    except OSError as error:
        message = f"{path}: cannot be opened: {refusal(error, path)}"
        raise StorageError(message) from error
    deadline = time.monotonic() + limit_s
    while not _taken(file, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            file.close()
            message = (
                f"{path}: a command that deletes checkpoints or leases has held its lock for {limit_s:g} s; end it"
            )
            raise StorageError(message)
        time.sleep(_TURN_S)
    return file.close


@contextmanager
def no_start_meanwhile(root: str, service: str) -> Iterator[bool]:
    """Keep a service from starting, if no process of it is there.

    Yields:
        False where a process of the service, or another such command, is there: nothing is kept from starting.

    Raises:
        StorageError: the disk refused.
    """
    if not is_local(root) or not (folder := service_folder(root, service)).is_dir():
        yield True  # a service without a folder has left nothing that a start would use
        return
    try:
        file = open_private(folder / LOCK_FILE, "ab")
    except OSError as error:
        message = f"{folder / LOCK_FILE}: cannot be opened: {refusal(error, folder)}"
        raise StorageError(message) from error
    with file:
        yield _taken(file, fcntl.LOCK_EX)


def _taken(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _nothing() -> None:
    """Give nothing back."""
