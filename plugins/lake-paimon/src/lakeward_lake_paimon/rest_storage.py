"""The files of tables whose head a REST catalog knows: all but the newest snapshot is as in any other warehouse.

A snapshot is made the head by the catalog's commit call, which is carried out only if the head is the one below. The
catalog writes the snapshot's file; so readers find older snapshots, schemas and manifests in the table's folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Self

from lakeward.errors import StorageError
from lakeward_lake_paimon.known_files import KnownFiles
from lakeward_lake_paimon.s3_storage import S3Storage
from lakeward_lake_paimon.stores import open_storage, scheme_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakeward_lake_paimon.rest_heads import Head, Heads, RestTable
    from lakeward_lake_paimon.storage import Folder, Storage

_SNAPSHOT = re.compile(r"(.*)/snapshot/snapshot-(\d+)")
_NAME = re.compile(r"snapshot-(\d+)")
_FOLDER = "/snapshot"
_HINT = "LATEST"


class RestFolder:
    """The folder of a table's snapshots; see `lakeward_lake_paimon.storage.Folder`.

    What is committed here is committed on the head of the moment in which the folder was opened: before the table was
    read, so that nothing comes between what a commit was checked on and what it is built on.
    """

    def __init__(self, heads: Heads, table: RestTable, files: Folder) -> None:
        """Ask for the head. Raises as `Heads.newest`."""
        self.path = files.path
        self._heads = heads
        self._table = table
        self._files = files
        self._base = heads.newest(table)

    def __enter__(self) -> Self:
        """Return the folder."""
        self._files.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        """Let go of it."""
        self._files.__exit__(*raised)

    @property
    def is_at_its_path(self) -> bool:
        """Whether the catalog still knows the same table by this name."""
        return self._heads.find(self._table.path) == self._table and self._files.is_at_its_path

    def create(self, name: str, data: bytes, tag: str) -> bool:  # noqa: ARG002 - nothing temporary is written
        """See `Folder.create`: the catalog makes this snapshot the head, if the one below is."""
        return self._heads.commit(self._table, self._base, int(name.partition("-")[2]), data)

    def names(self) -> tuple[str, ...]:
        """See `Folder.names`: the newest snapshot is what the catalog says."""
        head = self._heads.newest(self._table)
        return () if head is None else (f"snapshot-{head.id}",)

    def read(self, name: str) -> bytes | None:
        """See `Folder.read`."""
        return self._files.read(name)

    def replace(self, name: str, data: bytes) -> None:
        """See `Folder.replace`. Of the newest snapshot the catalog itself says which it is."""
        if name != _HINT:
            self._files.replace(name, data)

    def delete(self, name: str) -> None:
        """See `Folder.delete`."""
        self._files.delete(name)


class RestStorage:
    """See `lakeward_lake_paimon.storage.Storage`: each table lies where its catalog says."""

    renames = False

    def __init__(self, heads: Heads, properties: Mapping[str, str]) -> None:
        """Open stores when a table lies in them; `properties` are those of their files."""
        self.known = KnownFiles()
        self._heads = heads
        self._properties = properties
        self._stores: dict[str, Storage] = {}
        self._tried: list[Storage] = []
        self._newest: dict[str, Head | None] = {}

    def pin(self, folder: str) -> Folder:
        """See `Storage.pin`."""
        store = self._of(folder)
        table = self._table_of(folder)
        if table is not None:
            return RestFolder(self._heads, table, store.pin(folder))
        if folder.endswith(_FOLDER) and isinstance(store, S3Storage) and store not in self._tried:
            # The catalog commits nothing to such a table: the store has to.
            store.check_conditions(folder.removesuffix(_FOLDER))
            self._tried.append(store)
        return store.pin(folder)

    def names(self, folder: str) -> tuple[str, ...]:
        """See `Storage.names`. Of snapshots, those up to the one that the catalog calls the newest."""
        found = self._of(folder).names(folder)
        table = self._table_of(folder)
        if table is None:
            return found
        head = self._newest[table.location] = self._heads.newest(table)
        newest = 0 if head is None else head.id
        numbers = ((name, _NAME.fullmatch(name)) for name in found)
        known = {name for name, number in numbers if number is None or int(number[1]) <= newest}
        return tuple(sorted(known | ({f"snapshot-{newest}"} if newest else set())))

    def read(self, path: str) -> bytes | None:
        """See `Storage.read`. The newest snapshot is what the catalog says, whatever its file says."""
        named = _SNAPSHOT.fullmatch(path)
        table = None if named is None else self._heads.at(named[1])
        if named is None or table is None:
            return self._of(path).read(path)
        number, head = int(named[2]), self._newest.get(table.location)
        if head is not None and head.id == number:
            return head.data
        data = self._of(path).read(path)
        return self._heads.read(table, number) if data is None else data

    def create(self, path: str, data: bytes, tag: str) -> bool:
        """See `Storage.create`."""
        return self._of(path).create(path, data, tag)

    def write(self, path: str, data: bytes) -> None:
        """See `Storage.write`."""
        self._of(path).write(path, data)

    def exists(self, path: str) -> bool:
        """See `Storage.exists`."""
        return self._of(path).exists(path)

    def list(self, folder: str) -> tuple[str, ...]:
        """See `Storage.list`."""
        return self._of(folder).list(folder)

    def rename_folder(self, old: str, new: str) -> bool:  # noqa: ARG002 - as the protocol
        """See `Storage.rename_folder`; the catalog renames tables."""
        message = f"{old}: a table of a REST catalog is renamed by the catalog"
        raise StorageError(message)

    def make_folder(self, folder: str) -> None:
        """See `Storage.make_folder`."""
        self._of(folder).make_folder(folder)

    def delete_folder(self, folder: str) -> None:
        """See `Storage.delete_folder`."""
        self._of(folder).delete_folder(folder)

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        self._of(path).delete(path)

    def open(self, path: str) -> pa.NativeFile:
        """See `Storage.open`."""
        return self._of(path).open(path)

    def open_output(self, path: str) -> pa.NativeFile:
        """See `Storage.open_output`."""
        return self._of(path).open_output(path)

    def _table_of(self, folder: str) -> RestTable | None:
        """Return the table whose snapshots lie in a folder, None if it is another one, or the catalog commits not."""
        return self._heads.at(folder.removesuffix(_FOLDER)) if folder.endswith(_FOLDER) else None

    def _of(self, path: str) -> Storage:
        scheme = scheme_of(path)
        if scheme not in self._stores:
            self._stores[scheme] = open_storage(path, self._properties)
        return self._stores[scheme]
