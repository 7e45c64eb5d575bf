"""Which tables a warehouse has, and where they lie: a catalog of Paimon's, and the one of folders."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lakeward_lake_paimon.check import check_warehouse, compare_warehouses
from lakeward_lake_paimon.storage import TEMPORARY
from lakeward_lake_paimon.table import owner_path, read_owner
from lakeward_lake_paimon.table_schema import schema_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.model.tables import TablePath
    from lakeward.ports import CheckResult, ServerLake
    from lakeward_lake_paimon.columns import Alteration
    from lakeward_lake_paimon.storage import Storage
    from lakeward_lake_paimon.table import Table
    from lakeward_lake_paimon.table_schema import TableSchema


class Catalog(Protocol):
    """Knows tables by their names.

    All methods raise `LakeError` where the catalog refuses or does not answer, `StorageError` where the storage does.
    """

    storage: Storage
    properties: Mapping[str, str]
    """What writers need to reach the storage."""
    renames: bool
    """Whether a table can get another name."""
    places: bool
    """Whether a table may lie where its option `path` says."""

    def find(self, path: TablePath) -> str | None:
        """Return the folder of a table, None where the catalog knows that there is none."""
        ...

    def create(self, path: TablePath, schema: TableSchema, owner: bytes) -> None:
        """Create a table with the file that says whose it is; a race that was lost is no error."""
        ...

    def rename(self, path: TablePath, name: str) -> bool:
        """Give a table another name in its database; return False if it is not there, or the name is taken."""
        ...

    def alter(self, table: Table, changed: TableSchema, change: Alteration) -> None:
        """Make `changed` the table's schema, which differs from the present one by `change`.

        A race that was lost is no error.
        """
        ...

    def check(self, *, write: bool) -> Iterator[CheckResult]:
        """See `lakeward.ports.CheckedLake`."""
        ...

    def compare(self, server: ServerLake) -> CheckResult:
        """See `lakeward.ports.ComparedLake`."""
        ...


class FolderCatalog:
    """Paimon's filesystem catalog: the tables are the folders `WAREHOUSE/DATABASE.db/TABLE`."""

    places = False

    def __init__(self, storage: Storage, root: str, properties: Mapping[str, str]) -> None:
        """Make the warehouse, if it is not there; `properties` are those of the storage.

        Raises:
            StorageError: it cannot be written.
        """
        self.storage = storage
        self.properties = properties
        self.renames = storage.renames
        self._root = root
        storage.make_folder(root)

    def find(self, path: TablePath) -> str:
        """See Protocol."""
        return f"{self._root}/{path.database}.db/{path.table}"

    def create(self, path: TablePath, schema: TableSchema, owner: bytes) -> None:
        """See Protocol: the table is made whole under another name, and gets its own."""
        location = self.find(path)
        if not self.storage.renames:
            # Between the two it is a table that nobody has opened yet; whoever opens it first writes the owner.
            if self.storage.create(schema_path(location, 0), schema.to_bytes(), "schema"):
                self.storage.create(owner_path(location), owner, "owner")
            return
        # Not among the tables of a database, where Paimon would list it after a crash.
        temporary = f"{self._root}/{TEMPORARY}{secrets.token_hex(8)}"
        try:
            self.storage.write(schema_path(temporary, 0), schema.to_bytes())
            self.storage.write(owner_path(temporary), owner)
            self.storage.make_folder(f"{temporary}/snapshot")
            self.storage.make_folder(location.rpartition("/")[0])
            self.storage.rename_folder(temporary, location)
        finally:
            with suppress(OSError):
                self.storage.delete_folder(temporary)

    def rename(self, path: TablePath, name: str) -> bool:
        """See Protocol."""
        return self.storage.rename_folder(self.find(path), self.find(replace(path, table=name)))

    def alter(
        self,
        table: Table,
        changed: TableSchema,
        change: Alteration,  # noqa: ARG002 - as Protocol
    ) -> None:
        """See Protocol: the next schema file is written."""
        with self.storage.pin(f"{table.location}/schema") as folder:
            if folder.is_at_its_path and read_owner(self.storage, table.location) == table.owner:
                folder.create(f"schema-{changed.id}", changed.to_bytes(), "schema")

    def check(self, *, write: bool) -> Iterator[CheckResult]:
        """See Protocol."""
        return check_warehouse(self.storage, self._root, write=write)

    def compare(self, server: ServerLake) -> CheckResult:
        """See Protocol."""
        return compare_warehouses(self._root, server)
