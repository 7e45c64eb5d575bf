"""Plans of expiries: the snapshots that an expiry removes, written to a file before the expiry is sent.

An expiry whose answer was lost, or whose process died, has freed files that no metadata references any more. The plan
is beside the metadata, lists their snapshots, and is deleted when their files are deleted. Version 1 is JSON:
`{"version":1,"head":<main when it was written>,"snapshots":[<as in the table's metadata>,...]}`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec
from pyiceberg.table.snapshots import Snapshot

from lakeward.local_files import storage_errors
from lakeward_lake_iceberg import expire
from lakeward_lake_iceberg.files import metadata_root
from lakeward_lake_iceberg.storage import local_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from lakeward_lake_iceberg.storage import Storage

_PLAN_FILE = re.compile(r"/expiry-[^/]+\.json$")


class Expiry(Enum):
    """What became of an expiry."""

    LANDED = "landed"
    """The snapshots are out, and their files are deleted."""
    LOST = "lost"
    """It did not land and can no longer land: main has moved on."""
    OPEN = "open"
    """It may still land."""


class _Plan(msgspec.Struct, frozen=True):
    version: int
    head: int | None
    snapshots: list[dict[str, Any]]


_PLANS = msgspec.json.Decoder(_Plan)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


class ExpiryPlans:
    """The plans of one table, as it was loaded now."""

    def __init__(self, table: Table, storage: Storage) -> None:
        """Prepare; nothing is read yet."""
        self._table = table
        self._storage = storage

    def write(self, uuid: str, ids: Sequence[int]) -> str:
        """Write the plan of an expiry of these snapshots; return its path, whose name `uuid` makes.

        Raises:
            StorageError: the storage refused.
        """
        metadata = self._table.metadata
        chosen = [one for one in metadata.snapshots if one.snapshot_id in ids]
        documents = [msgspec.json.decode(one.model_dump_json(by_alias=True, exclude_none=True)) for one in chosen]
        path = f"{metadata_root(metadata)}expiry-{uuid}.json"
        with storage_errors(path), self._storage.create(path) as sink:
            sink.write(msgspec.json.encode(_Plan(1, metadata.current_snapshot_id, documents)))
        return path

    def settle(self) -> None:
        """Settle all plans whose expiry has a known outcome.

        Raises:
            StorageError: the storage refused.
        """
        files = self._storage.list(metadata_root(self._table.metadata))
        for path in files:
            if _PLAN_FILE.search(path):
                self.settle_one(path, files)

    def settle_one(self, path: str, files: Sequence[str] | None = None, *, may_land: bool = True) -> Expiry:
        """Delete what an expiry freed, if it landed, and then its plan.

        `files` are those in the metadata directory; None asks for them. `may_land` is False if it is known that no copy
        of the request is in transit.

        Raises:
            StorageError: the storage refused.
        """
        plan = self._read(path)
        if plan is None:
            # An expiry is sent only after its plan is complete.
            self._storage.delete(path)
            return Expiry.LOST
        metadata = self._table.metadata
        gone = [Snapshot.model_validate(one) for one in plan.snapshots]
        if expire.landed(metadata, [one.snapshot_id for one in gone]):
            self._delete(metadata, gone, files)
            self._storage.delete(path)
            return Expiry.LANDED
        if may_land and metadata.current_snapshot_id == plan.head:
            return Expiry.OPEN
        self._storage.delete(path)
        return Expiry.LOST

    def _delete(self, metadata: TableMetadata, gone: list[Snapshot], files: Sequence[str] | None) -> None:
        listed = self._storage.list(metadata_root(metadata)) if files is None else files
        known = {local_path(file) for file in listed}
        # A manifest list is deleted last: if it is gone, so is everything that it referenced.
        left = [one for one in gone if local_path(one.manifest_list) in known]
        to_delete = expire.unreachable(metadata, left, self._table.io, lambda path: local_path(path) not in known)
        for file in to_delete:
            self._storage.delete(file)

    def _read(self, path: str) -> _Plan | None:
        with storage_errors(path), self._storage.open(path) as source:
            data = bytes(source.read())
        try:
            plan = _PLANS.decode(data)
        except msgspec.DecodeError:
            return None
        return plan if plan.version == 1 else None
