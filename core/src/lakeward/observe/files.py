"""The folder with the small files that a service and the commands of its machine exchange (status, control)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakeward.errors import StorageError
from lakeward.local_files import is_local, replacing
from lakeward.model.secrets import mask_uri


def service_folder(root: str, service: str) -> Path:
    """Return the folder of a service.

    Args:
        root: the setting `checkpoint.root`.
        service: the service's name.

    Returns:
        `<root>/<service>`; it need not exist.

    Raises:
        StorageError: the root is not on this machine.
    """
    if not is_local(root):
        expected = "a local directory: status and control files are shared by processes of one machine"
        message = f"{mask_uri(root)}: expected {expected}"
        raise StorageError(message)
    plain = unquote(urlsplit(root).path) if "://" in root else root
    return Path(plain) / service


def writable(place: str) -> tuple[bool, str]:
    """Return whether permissions allow to write a directory, or to make it; nothing is written.

    Args:
        place: a directory of this machine, as a path or a `file:` URI.

    Returns:
        Whether they do, and a message.
    """
    path = Path(unquote(urlsplit(place).path) if "://" in place else place).absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        return False, f"{path}: expected a directory, but {existing} is a file"
    if not os.access(existing, os.W_OK | os.X_OK):
        return False, f"{path}: expected a writable directory, but {existing} cannot be written"
    return True, f"{path} can be written" if existing == path else f"{path} is not there yet and can be made"


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a reader sees the old one or the new one.

    Args:
        path: the file; its folder is made.
        content: all of it.

    Raises:
        StorageError: the disk refused.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, fresh, durable=False):
            fresh.write_bytes(content)
    except OSError as error:
        message = f"{path}: cannot be written ({error.strerror or error})"
        raise StorageError(message) from error
