"""The folder in which a service and its commands leave small files for each other, and how one is replaced."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakeward.errors import StorageError


def is_local(root: str) -> bool:
    """True where the state root is a directory of this machine (a path or a `file:` URI)."""
    return "://" not in root or urlsplit(root).scheme == "file"


def service_folder(root: str, service: str) -> Path:
    """Name the folder of a service.

    Args:
        root: the setting `checkpoint.root`.
        service: the service's name.

    Returns:
        `<root>/<service>`; it need not exist.

    Raises:
        StorageError: the root is not on this machine.
    """
    if not is_local(root):
        message = f"{root}: expected a local directory: status and control files are shared by processes of one machine"
        raise StorageError(message)
    plain = unquote(urlsplit(root).path) if "://" in root else root
    return Path(plain) / service


def writable(place: str) -> tuple[bool, str]:
    """Say whether a directory can be written, or made, by its permissions; nothing is written.

    Args:
        place: a directory of this machine, as a path or a `file:` URI.

    Returns:
        Whether it can, and one sentence.
    """
    path = Path(unquote(urlsplit(place).path) if "://" in place else place).absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        return False, f"{path}: expected a directory, but {existing} is a file"
    if not os.access(existing, os.W_OK | os.X_OK):
        return False, f"{path}: expected a writable directory, but {existing} cannot be written"
    return True, f"{path} can be written" if existing == path else f"{path} is not there yet and can be made"


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all; readers see the old one or the new one.

    Args:
        path: the file; its folder is made.
        content: all of it.

    Raises:
        StorageError: the disk refused.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # the first error is the one to be told
            fresh.unlink(missing_ok=True)
        message = f"{path}: cannot be written ({error.strerror or error})"
        raise StorageError(message) from error
