"""The newest snapshots of a REST catalog's tables: what they are, and the one call that commits the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from lakeward.errors import CorruptFileError, FencedError, LakeError, OutcomeUnknownError, TableGoneError
from lakeward_lake_paimon.rest_client import DATABASE, SNAPSHOT, TABLE
from lakeward_lake_paimon.snapshots import decode_snapshot
from lakeward_lake_paimon.stores import local_path, scheme_of

if TYPE_CHECKING:
    from lakeward.model.tables import TablePath
    from lakeward_lake_paimon.rest_client import RestClient


@dataclass(frozen=True, slots=True)
class RestTable:
    """A table as its catalog knows it. `is_external`: the catalog commits nothing to it, as its files are another's."""

    path: TablePath
    id: str
    location: str
    is_external: bool


@dataclass(frozen=True, slots=True)
class Head:
    """A snapshot as the catalog has it. `data` are the bytes of its file; catalogs before Paimon 2.0 have no `uuid`."""

    id: int
    uuid: str | None
    data: bytes


class Heads:
    """Which tables a catalog has, and the newest snapshot of each."""

    def __init__(self, client: RestClient) -> None:
        """Know no table yet."""
        self._client = client
        self._by_location: dict[str, RestTable] = {}

    def find(self, path: TablePath) -> RestTable | None:
        """Return a table, None if the catalog has none of that name.

        Raises:
            LakeError: the catalog does not answer, or refuses.
        """
        answer = self._client.get(self._client.table(path))
        if answer.missing in {DATABASE, TABLE}:
            return None
        self._client.require(answer, f"to say where {path} lies")
        number, location = answer.body.get("id"), answer.body.get("path")
        if not (isinstance(number, str) and isinstance(location, str) and location):
            message = f"{self._client.uri}: the catalog says no id or no path of {path}: {answer}"
            raise LakeError(message)
        table = RestTable(path, number, _plain(location), bool(answer.body.get("isExternal")))
        if not table.is_external:
            self._by_location[table.location] = table
        return table

    def at(self, location: str) -> RestTable | None:
        """Return the table in whose folder the catalog commits, None if it commits there to none that is known."""
        return self._by_location.get(location)

    def newest(self, table: RestTable) -> Head | None:
        """Return the head, None if the table has no snapshot.

        Raises:
            LakeError: the catalog does not answer, or refuses.
            TableGoneError: it has no such table.
        """
        answer = self._client.get(self._client.table(table.path, "snapshot"))
        if answer.missing == SNAPSHOT:
            return None
        if answer.missing:
            message = f"{table.path}: the catalog has no such table any more"
            raise TableGoneError(message)
        self._client.require(answer, f"to say the newest snapshot of {table.path}")
        counted = answer.body.get("snapshot")
        return self._head(table, counted.get("snapshot") if isinstance(counted, dict) else None)

    def read(self, table: RestTable, number: int) -> bytes | None:
        """Return the file of a snapshot, None if the catalog has none of that number, or is none that can be asked."""
        answer = self._client.get(self._client.table(table.path, "snapshots", str(number)))
        if answer.missing or answer.is_unknown_call:
            return None
        self._client.require(answer, f"to say snapshot {number} of {table.path}")
        return self._head(table, answer.body.get("snapshot")).data

    def commit(self, table: RestTable, base: Head | None, number: int, data: bytes) -> bool:
        """Make a snapshot the head, if `base` is; return False, and change nothing, if another one is.

        Raises:
            FencedError: the catalog knows another table by that name.
            LakeError: it refused, and nothing was committed.
            OutcomeUnknownError: no answer came, and it may be committed yet.
        """
        if number != (0 if base is None else base.id) + 1:
            return False
        body: dict[str, object] = {"tableId": table.id, "snapshot": msgspec.Raw(data), "statistics": []}
        if base is not None and base.uuid is not None:
            # Catalogs of Paimon 2.0 compare it; those before compare the number alone.
            body["baseSnapshotUuid"] = base.uuid
        try:
            answer = self._client.post(self._client.table(table.path, "commit"), body)
        except OSError as lost:
            return self._looked_up(table, number, data, str(lost))
        if answer.missing:
            message = f"{table.path}: the catalog knows no such table of id {table.id} any more: {answer}"
            raise FencedError(message)
        if not answer.is_lost:
            self._client.require(answer, f"snapshot {number} of {table.path}")
            if answer.body.get("success") is True:
                return True
        # Of a request that was sent on twice, the refusal may be the second one's answer.
        return self._looked_up(table, number, data, str(answer), refused=answer.body.get("success") is False)

    def _looked_up(self, table: RestTable, number: int, data: bytes, why: str, *, refused: bool = False) -> bool:
        """Return whether this very snapshot was committed, False only if it cannot be committed any more."""
        message = f"{table.path}: no answer whether snapshot {number} was committed: {why}"
        try:
            head = self.newest(table)
            there = self._snapshot_of(table, head, number)
            # Asked after the snapshots: they are those of the table that has the name.
            same = self.find(table.path) == table
        except (LakeError, TableGoneError, CorruptFileError) as away:
            raise OutcomeUnknownError(message) from away
        if same and there is not None:
            # The names of its lists are its own.
            written, found = decode_snapshot(data, "what was sent"), decode_snapshot(there, "what was answered")
            return found.delta_manifest_list == written.delta_manifest_list
        if same and refused and (head is None or head.id < number):
            return False
        raise OutcomeUnknownError(message)

    def _snapshot_of(self, table: RestTable, head: Head | None, number: int) -> bytes | None:
        if head is None or head.id < number:
            return None
        return head.data if head.id == number else self.read(table, number)

    def _head(self, table: RestTable, found: Any) -> Head:  # noqa: ANN401 - JSON
        data = msgspec.json.encode(found)
        snapshot = decode_snapshot(data, f"{self._client.uri}: a snapshot of {table.path}")
        return Head(snapshot.id, snapshot.uuid, data)


def _plain(address: str) -> str:
    """Return a table's folder as the storage takes it: a path of this machine, or a URI."""
    return local_path(address).rstrip("/") if scheme_of(address) in {"", "file"} else address.rstrip("/")
