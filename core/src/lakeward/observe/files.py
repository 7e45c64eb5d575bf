"""The folder with the small files that a service and its commands exchange (status, control): of a disk or a store."""

from __future__ import annotations

import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakeward.errors import StorageError
from lakeward.local_files import is_local, make_private, open_private, read_plain, refusal, replacing
from lakeward.model.secrets import mask_uri
from lakeward.ports import CheckResult
from lakeward.storage.small_files import SmallFiles


def service_folder(root: str, service: str) -> Path:
    """Return the folder of a service, `<root>/<service>`; it need not exist. `root` is the setting `checkpoint.root`.

    Raises:
        StorageError: the root is not on this machine.
    """
    if not is_local(root):
        expected = "a local directory: status and control files are shared by processes of one machine"
        message = f"{mask_uri(root)}: expected {expected}"
        raise StorageError(message)
    plain = unquote(urlsplit(root).path) if "://" in root else root
    return Path(plain) / service


@lru_cache(maxsize=4)
def store_at(root: str) -> SmallFiles:
    """Open the store of a state root that is not on this machine; one client for each root.

    Raises:
        StorageError: no such kind of filesystem.
    """
    return SmallFiles(root)


def file_at(root: str, service: str, name: str) -> str:
    """Return the full path of a service's small file, for messages."""
    return str(service_folder(root, service) / name) if is_local(root) else store_at(root).path(f"{service}/{name}")


def read_small(root: str, service: str, name: str) -> bytes | None:
    """Read a small file in the service's folder, None where there is no such file.

    The state root is a directory, or the address of a store.

    Raises:
        StorageError: it cannot be read.
    """
    if not is_local(root):
        return store_at(root).read(f"{service}/{name}")
    path = service_folder(root, service) / name
    try:
        return read_plain(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"{path}: cannot be read ({refusal(error, path)})"
        raise StorageError(message) from error


def replace_small(root: str, service: str, name: str, content: bytes) -> None:
    """Replace a small file of a service as a whole: a reader sees the old one or the new one.

    Arguments as `read_small`; `content` is all of it.

    Raises:
        StorageError: the disk or the store refused.
    """
    if is_local(root):
        replace_file(service_folder(root, service) / name, content)
    else:
        store_at(root).write(f"{service}/{name}", content)


def writable(place: str) -> tuple[bool, str]:
    """Return whether permissions allow to write a directory, or to make it, and a message; nothing is written.

    `place` is a directory of this machine, as a path or a `file:` URI.
    """
    path = Path(unquote(urlsplit(place).path) if "://" in place else place).absolute()
    existing = next(parent for parent in (path, *path.parents) if os.path.exists(parent))  # noqa: PTH110 - pathlib's raises where it may not look
    if not existing.is_dir():
        return False, f"{path}: expected a directory, but {existing} is a file"
    if not os.access(existing, os.W_OK | os.X_OK):
        return False, f"{path}: expected a writable directory, but {existing} cannot be written"
    return True, f"{path} can be written" if existing == path else f"{path} is not there yet and can be made"


def reached_by_others(root: str, service: str) -> CheckResult | None:
    """Return a result if other users can reach the state of a service, in a directory that an earlier version made.

    It is a failure where they can write, a hint where they can read; None where they can do neither, where there is no
    folder yet, and of a store.
    """
    folder = service_folder(root, service) if is_local(root) else None
    if folder is None or not os.path.isdir(folder):  # noqa: PTH112 - as above
        return None
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & 0o077:
        return None
    writes = bool(mode & 0o022)
    message = (
        f"{folder}: expected mode 0700, found {mode:04o}: other users can {'steer' if writes else 'watch'} the service"
    )
    action = f"stop the service, and `chmod -R go= {folder}`"
    return CheckResult("state permissions", ok=not writes, message=message, action=action)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a reader sees the old one or the new one. Its folder is made.

    Raises:
        StorageError: the disk refused.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        make_private(path.parent)
        with replacing(path, fresh, durable=False), open_private(fresh, "xb") as out:
            out.write(content)
    except OSError as error:
        message = f"{path}: cannot be written ({refusal(error, path)})"
        raise StorageError(message) from error
