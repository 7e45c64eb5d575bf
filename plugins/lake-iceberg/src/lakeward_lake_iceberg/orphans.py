"""Finds files in a table's folders that nothing names: commits of other engines that never landed leave them.

If in doubt, a file stays. Paths are compared without scheme and bucket, which writers spell differently. Hidden files
and folders are passed over. A folder outside of the table's own location is not looked into: several tables may share
it. Files are listed before the table is loaded, so that a commit meanwhile is seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakeward.errors import LakeError
from lakeward.model.upkeep import OrphanFile
from lakeward_lake_iceberg.files import data_root, may_delete, metadata_root, named, trims
from lakeward_lake_iceberg.storage import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from lakeward.model.tables import TablePath
    from lakeward_lake_iceberg.storage import Storage

_BUCKET = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_METADATA = (".metadata.json", ".metadata.json.gz", "version-hint.text")


def find_orphans(
    path: TablePath, load: Callable[[], Table], storage: Storage, kept: Collection[str], before_ms: int
) -> tuple[OrphanFile, ...]:
    """See `lakeward.ports.OrphanLake`; `load` loads the table as it is now.

    Raises:
        LakeError: the table forbids the deletion of its files.
        StorageError: the storage refused.
    """
    metadata = load().metadata
    if not may_delete(metadata):
        message = f"{path}: the lake table has gc.enabled = false: its files may be those of another table, too"
        raise LakeError(message)
    old = [
        OrphanFile(uri, info.size, info.mtime_ns // 1_000_000)
        for root in _roots(metadata)
        for uri, info in storage.infos(root)
        if info.mtime_ns is not None
        and info.mtime_ns // 1_000_000 < before_ms
        and not _is_hidden(uri.removeprefix(root))
        and not any(part in uri for part in kept)
    ]
    if not old:
        return ()
    table = load()
    if table.metadata.table_uuid != metadata.table_uuid:
        message = f"{path}: the lake table was made anew while its files were listed; look again"
        raise LakeError(message)
    known = {_place(name) for name in named(table)}
    found = {one.path: one for one in old if _place(one.path) not in known}
    if not trims(table.metadata):
        found = {uri: one for uri, one in found.items() if not uri.endswith(_METADATA)}
    return tuple(found[uri] for uri in sorted(found))


def _roots(metadata: TableMetadata) -> list[str]:
    """Return the folders of the table's files that lie in its location."""
    own = metadata.location.rstrip("/") + "/"
    roots = dict.fromkeys((f"{own}data/", f"{own}metadata/", data_root(metadata), metadata_root(metadata)))
    return [root for root in roots if root.startswith(own) and root != own]


def _is_hidden(below: str) -> bool:
    """Return whether a path below a folder is hidden, as Iceberg's own engines see it."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in below.split("/"))


def _place(uri: str) -> str:
    """Return a path without scheme and bucket."""
    return _BUCKET.sub("", uri) if "://" in uri and not uri.startswith("file:") else local_path(uri)
