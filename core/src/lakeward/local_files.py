"""Files of this machine: which places are on it, and replacing a file so that a crash leaves the old or the new one."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def is_local(root: str) -> bool:
    """Return whether the state root is a directory of this machine (a path or a `file:` URI)."""
    return "://" not in root or urlsplit(root).scheme == "file"


@contextmanager
def replacing(target: Path, temporary: Path, *, durable: bool) -> Iterator[Path]:
    """Let the caller write a file under a temporary name, then give it its own name.

    On any failure the temporary file is deleted and the target is as it was.

    Args:
        target: the file's own name.
        temporary: a name in the same folder that no other writer uses at the same time.
        durable: whether the file and its folder are synced, so that the new file outlives a crash of the machine.

    Yields:
        The temporary name.

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
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
