"""Opens the storage that a warehouse, or a table, lies in by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakeward.errors import ConfigError
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_lake_paimon.s3_storage import S3Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward_lake_paimon.storage import Storage

_S3 = frozenset({"s3", "s3a"})


def open_storage(location: str, properties: Mapping[str, str]) -> Storage:
    """Return the storage that a path of a warehouse lies in.

    Raises:
        ConfigError: it has neither links nor conditional puts, which a commit needs.
    """
    scheme = scheme_of(location)
    if scheme in _S3:
        return S3Storage(location, properties)
    if scheme not in {"", "file"}:
        key = "lake.warehouse"
        expected = (
            "a directory of this machine, or an address of S3: there a snapshot is created by a link or a conditional "
            "put, which fails if another service has created it; nothing else keeps two services from overwriting each "
            "other's commits"
        )
        raise ConfigError(key, expected, location)
    return LocalStorage()


def scheme_of(address: str) -> str:
    """Return the scheme of an address, empty for a path."""
    return urlsplit(address).scheme if "://" in address or address.startswith("file:") else ""


def local_path(address: str) -> str:
    """Return the path of an address of this machine."""
    path = unquote(urlsplit(address).path) if scheme_of(address) else address
    return str(Path(path).absolute())
