"""Moves a table to the newest version of Iceberg's format that is written here.

The commit has an empty snapshot beside the upgrade: one that was built on the table as it was names the head of before,
is a conflict, and is built anew. The snapshot gives row ids to all files that are there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table.update import AddSnapshotUpdate, UpgradeFormatVersionUpdate

from lakeward.errors import CommitConflictError, LakeError, TableGoneError
from lakeward.ports import FormatUpgrade
from lakeward_lake_iceberg.catalog import Fate, Sent
from lakeward_lake_iceberg.commit import SnapshotBuilder, check_format
from lakeward_lake_iceberg.entries import NEWEST
from lakeward_lake_iceberg.files import dead_upgrades, upgrade_name
from lakeward_lake_iceberg.offsets import UPGRADED
from lakeward_lake_iceberg.sql import LineageSqlCatalog, upgraded

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table

    from lakeward.model.results import CommitIds
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock
    from lakeward_lake_iceberg.catalog import CatalogClient
    from lakeward_lake_iceberg.storage import Storage

_TRIES = 20


def writes_newest(client: CatalogClient) -> bool:
    """Return whether the catalog can hold tables of the newest version.

    pyiceberg 0.12 writes the metadata of hive, glue and dynamodb itself, and none of version 3.
    """
    catalog = client.catalog
    return isinstance(catalog, LineageSqlCatalog) or not isinstance(catalog, MetastoreCatalog)


class Upgrading:
    """Upgrades tables of one catalog."""

    def __init__(
        self,
        client: CatalogClient,
        clock: Clock,
        storage: Callable[[Table], Storage],
        delete: Callable[[str], None],
    ) -> None:
        """Use a catalog; `storage` opens that of a table, `delete` deletes a file."""
        self._client = client
        self._clock = clock
        self._storage = storage
        self._delete = delete

    def upgrade(self, path: TablePath, new_ids: Callable[[], CommitIds]) -> FormatUpgrade:
        """Upgrade a table; see `lakeward.ports.UpgradableLake`."""
        first: int | None = None
        for _ in range(_TRIES):
            table = self._client.load(path)
            if table is None:
                message = f"{path}: the lake has no such table"
                raise TableGoneError(message)
            found = table.metadata.format_version
            first = found if first is None else first
            if found >= NEWEST:
                for left in dead_upgrades(table, self._storage(table)):
                    self._delete(left)
                return FormatUpgrade(first, found)
            check_format(table)
            self._check_catalog(path)
            ids = new_ids()
            self._send(path, table, replace(ids, uuid=upgrade_name(ids.uuid)))
        message = f"{path}: {_TRIES} commits of others came before the upgrade; try again"
        raise CommitConflictError(message)

    def _check_catalog(self, path: TablePath) -> None:
        if not writes_newest(self._client):
            kind = type(self._client.catalog).__name__
            message = (
                f"{path}: expected a catalog in which tables of format version {NEWEST} can be written (sql, rest), "
                f"found {kind}; the table stays as it is"
            )
            raise LakeError(message)

    def _send(self, path: TablePath, table: Table, ids: CommitIds) -> None:
        """Try once; the table shows whether it landed."""
        prepared = SnapshotBuilder(upgraded(table), ids, self._clock.wall_ms()).empty({UPGRADED: str(NEWEST)})
        updates = (UpgradeFormatVersionUpdate.model_validate({"format-version": NEWEST}), *prepared.updates)
        outcome, _ = self._client.send(table, prepared.requirements, updates)
        if outcome is Sent.CONFLICT and self._client.fate(path, table, ids.snapshot_id) is Fate.LOST:
            for update in prepared.updates:
                if isinstance(update, AddSnapshotUpdate):
                    self._delete(update.snapshot.manifest_list)
