"""A REST catalog of Paimon: it says where each table lies, changes schemas and names, and commits snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.errors import LakeAwayError, LakeError, LakewardError
from lakeward.model.tables import BUCKET_COLUMN
from lakeward.ports import CheckResult
from lakeward_lake_paimon.rest_client import DATABASE, TABLE, RestClient
from lakeward_lake_paimon.rest_heads import Heads
from lakeward_lake_paimon.rest_storage import RestStorage
from lakeward_lake_paimon.table import owner_path, read_owner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.model.tables import TablePath
    from lakeward.ports import ServerLake
    from lakeward_lake_paimon.columns import Alteration
    from lakeward_lake_paimon.rest_client import Answer
    from lakeward_lake_paimon.storage import Storage
    from lakeward_lake_paimon.table import Table
    from lakeward_lake_paimon.table_schema import TableSchema

_WHAT = "REST catalog"
_OF_FILES = "s3."


class RestCatalog:
    """See `lakeward_lake_paimon.catalogs.Catalog`."""

    renames = True
    places = True

    def __init__(self, uri: str, warehouse: str, properties: Mapping[str, str], timeout_s: float) -> None:
        """Ask the catalog for its configuration; arguments and errors are those of `RestClient`."""
        self._client = RestClient(uri, warehouse, properties, timeout_s)
        self._warehouse = warehouse
        self._heads = Heads(self._client)
        # Writers get these and nothing else: neither the token nor a header.
        of_files = {key: value for key, value in self._client.properties.items() if key.startswith(_OF_FILES)}
        self.properties: Mapping[str, str] = of_files
        self.storage: Storage = RestStorage(self._heads, of_files)

    def find(self, path: TablePath) -> str | None:
        """See Protocol."""
        table = self._heads.find(path)
        return None if table is None else table.location

    def create(self, path: TablePath, schema: TableSchema, owner: bytes) -> None:
        """See Protocol. Until the owner is written it is a table that nobody has opened yet."""
        described = schema.to_json()
        wanted = {key: described[key] for key in ("fields", "partitionKeys", "primaryKeys", "options", "comment")}
        body = {"identifier": _identifier(path), "schema": wanted}
        created = self._post(self._client.tables(path.database), body, f"table {path}", missing=DATABASE)
        if created.missing:
            self._post("databases", {"name": path.database, "options": {}}, f"database {path.database}")
            created = self._post(self._client.tables(path.database), body, f"table {path}")
        location = self.find(path)
        if created.is_good and location is not None:
            self.storage.create(owner_path(location), owner, "owner")

    def rename(self, path: TablePath, name: str) -> bool:
        """See Protocol.

        Raises:
            LakeError: the table lies where its option `path` says, and a new one would lie there as well.
        """
        table = self._heads.find(path)
        if table is not None and table.is_external:
            message = (
                f"{path}: the table lies where its option path says, {table.location}, and is not set aside by another "
                "name. Rename it, and give the new table another path"
            )
            raise LakeError(message)
        body = {"source": _identifier(path), "destination": _identifier(replace(path, table=name))}
        return self._post("tables/rename", body, f"the new name {name} for table {path}", missing=TABLE).is_good

    def alter(self, table: Table, changed: TableSchema, change: Alteration) -> None:
        """See Protocol: the catalog numbers new columns as it likes."""
        if self.find(table.path) != table.location or read_owner(self.storage, table.location) != table.owner:
            return
        changes: list[dict[str, object]] = [
            {"action": "setOption", "key": key, "value": value} for key, value in change.options.items()
        ]
        changes += [
            {"action": "updateColumnNullability", "fieldNames": [name], "newNullability": True}
            for name in change.relaxed
        ]
        changes += [
            {
                "action": "updateColumnType",
                "fieldNames": [name],
                "newDataType": kind.to_json(),
                "keepNullability": False,
            }
            for name, kind in change.widened.items()
        ]
        changes += _renames(change.renamed)
        for field in change.added:
            move = {"fieldName": field.name, "referenceFieldName": BUCKET_COLUMN, "type": "BEFORE"}
            changes.append(
                {
                    "action": "addColumn",
                    "fieldNames": [field.name],
                    "dataType": field.kind.to_json(),
                    "comment": field.description,
                    "move": move if changed.is_legacy else None,
                }
            )
        self._post(self._client.table(table.path), {"changes": changes}, f"changes of table {table.path}")

    def check(self, *, write: bool) -> Iterator[CheckResult]:  # noqa: ARG002 - as Protocol
        """See Protocol."""
        try:
            answer = self._client.get("databases")
            self._client.require(answer, "to list the databases")
        except LakeAwayError as away:
            yield CheckResult(_WHAT, ok=False, message=str(away), action="see to it that the catalog runs")
            return
        except LakewardError as refused:
            action = "give the user of [lake] the right to list databases"
            yield CheckResult(_WHAT, ok=False, message=str(refused), action=action)
            return
        found = answer.body.get("databases") or []
        more = " or more" if answer.body.get("nextPageToken") else ""
        count = f"{len(found)}{more} {'database' if len(found) == 1 and not more else 'databases'}"
        message = f"{self._client.uri}: warehouse {self._warehouse} has {count}"
        yield CheckResult(_WHAT, ok=True, message=f"{message}; whether it can be written was not tried")

    def compare(self, server: ServerLake) -> CheckResult:
        """See Protocol."""
        settings = {"metastore": "filesystem", **server.settings}
        for key, ours in (("metastore", "rest"), ("uri", self._client.uri), ("warehouse", self._warehouse)):
            there = settings.get(key, "").rstrip("/")
            if there and there != ours:
                return CheckResult("", ok=False, message=f"expected lake.{key} {there} as at the server, found {ours}")
        return CheckResult("", ok=True, message="the server's catalog is ours")

    def _post(self, call: str, body: object, what: str, missing: str = "") -> Answer:
        """Have the catalog change something; that it is there already is no error, nor that `missing` is not.

        Whoever is told that no answer came looks the table up before anything else.

        Raises:
            LakeAwayError: it does not answer.
            LakeError: it refuses.
        """
        try:
            answer = self._client.post(call, body)
        except OSError as lost:
            message = f"{self._client.uri}: no answer for {what}: {lost}"
            raise LakeAwayError(message) from lost
        if answer.is_lost:
            message = f"{self._client.uri}: no answer for {what}: {answer}"
            raise LakeAwayError(message)
        if not answer.is_conflict and (not missing or answer.missing != missing):
            self._client.require(answer, what)
        return answer


def _renames(renamed: Mapping[str, str]) -> list[dict[str, object]]:
    """Return changes that are made one after the other: names that columns give to each other are free in between."""
    between = (
        {old: f"__{number}_{old}" for number, old in enumerate(renamed)} if set(renamed) & {*renamed.values()} else {}
    )
    steps = [*between.items(), *((between.get(old, old), new) for old, new in renamed.items())]
    return [{"action": "renameColumn", "fieldNames": [old], "newName": new} for old, new in steps]


def _identifier(path: TablePath) -> dict[str, str]:
    return {"database": path.database, "object": path.table}
