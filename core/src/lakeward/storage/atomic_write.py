"""Writes a local file atomically: a crash leaves the complete old or the complete new file."""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from lakeward.local_files import make_private, open_private, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write_local(target: Path, data: bytes, tries: int = 3) -> None:
    """Write under a temporary name, sync, rename, sync the folder; missing folders are made.

    A folder is made again, up to `tries` times, that a concurrent delete has removed.

    Raises:
        OSError: the disk refused.
    """
    fresh = target.with_name(f".{target.name}.new")  # one writer per file: each start writes its own
    try:
        make_private(target.parent)
        with replacing(target, fresh, durable=True), open_private(fresh, "wb") as out:
            out.write(data)
    except FileNotFoundError:
        # A concurrent delete has just removed the folder because it was empty.
        if tries == 1:
            raise
        write_local(target, data, tries - 1)


@contextmanager
def writing_local(target: Path) -> Iterator[IO[bytes]]:
    """Let the caller write a new file piece by piece: under a temporary name, then as `write_local`.

    Yields:
        The open file.

    Raises:
        OSError: the disk refused.
    """
    make_private(target.parent)
    fresh = target.with_name(f".{target.name}.new")
    with replacing(target, fresh, durable=True), open_private(fresh, "wb") as out:
        yield out


def prune(folder: Path, base: Path) -> None:
    """Remove a folder and its parents as long as they are empty and below `base`."""
    while folder not in (base, base.parent):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
