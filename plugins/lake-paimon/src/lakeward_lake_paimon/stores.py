"""Opens the storage of a warehouse by its address."""

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


def open_warehouse(warehouse: str, properties: Mapping[str, str]) -> tuple[Storage, str]:
    """Return the storage of a warehouse, and its path there. It is tried whether it can fence a commit.

    Raises:
        ConfigError: it cannot, or its address or keys do not fit.
        StorageError: it cannot be written.
    """
    if _scheme(warehouse) in _S3:
        store = S3Storage(warehouse, properties)
        root = warehouse.rstrip("/")
        store.check_conditions(root)
        return store, root
    return open_storage(warehouse, properties), _local_path(warehouse)


def open_storage(location: str, properties: Mapping[str, str]) -> Storage:
    """Return the storage that a path of a warehouse lies in.

    Raises:
        ConfigError: it has neither links nor conditional puts, which a commit needs.
    """
    scheme = _scheme(location)
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


def _scheme(address: str) -> str:
    return urlsplit(address).scheme if "://" in address or address.startswith("file:") else ""


def _local_path(address: str) -> str:
    path = unquote(urlsplit(address).path) if _scheme(address) else address
    return str(Path(path).absolute())
