"""Tables as the server describes them. What it says of the lake's catalog may hold secrets and goes no further."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.errors import LakewardError, NewerSourceError, ProtocolError, SchemaMismatchError, TableGoneError
from lakeward.model.tables import TablePath, TableSpec
from lakeward_source_fluss.formats.schema import FlussSchema, parse_schema
from lakeward_source_fluss.formats.types import number
from lakeward_source_fluss.source.calls import run_parallel
from lakeward_source_fluss.source.durations import log_ttl_s, seconds
from lakeward_source_fluss.source.naming import naming_release, naming_right
from lakeward_source_fluss.source.table_formats import (
    LAKE_FORMAT,
    before_images,
    check_formats,
    has_late_rows,
    is_lake_enabled,
)
from lakeward_source_fluss.wire.errors import TableMissingError
from lakeward_source_fluss.wire.messages import (
    GetTableInfoRequest,
    GetTableInfoResponse,
    GetTableSchemaRequest,
    ListDatabasesRequest,
    ListTablesRequest,
    PbTablePath,
)

if TYPE_CHECKING:
    from lakeward_source_fluss.rpc.client import FlussClient

FRESHNESS = "table.datalake.freshness"
DEFAULT_FRESHNESS_S = 180.0
_VERSION = 1
_MAX_BUCKETS = (1 << 31) - 1
_LAKE_SETTINGS = "table.datalake.{format}."


@dataclass(frozen=True, slots=True)
class FlussTable:
    """A table: what the core sees of it, and what it does not.

    `lake_settings` is the server's own configuration of the lake's catalog, without its prefix. It may hold secrets.
    """

    spec: TableSpec
    schema: FlussSchema
    lake_enabled: bool
    lake_format: str
    lake_settings: Mapping[str, str] = field(repr=False)


class TableCatalog:
    """Looks tables up; nothing is kept, as schemas and options change."""

    def __init__(self, client: FlussClient) -> None:
        """Use an open client."""
        self._client = client

    def tables(self) -> Sequence[FlussTable]:
        """Return every table of every database that this user may see, by name.

        Raises:
            SourceError: the server cannot answer.
        """
        databases = self._client.call_any(ListDatabasesRequest()).database_name
        listed = run_parallel(lambda name: (name, self._names(name)), databases)
        paths = sorted(TablePath(database, name) for database, names in listed for name in names)
        return [table for table in run_parallel(self._table_or_none, paths) if table is not None]

    def table(self, path: TablePath) -> FlussTable:
        """Return one table.

        Raises:
            TableGoneError: there is no such table.
            NewerSourceError: it is stored, or described, in a way that is not known here.
            SchemaMismatchError: its description is not whole.
            SourceError: the server cannot answer.
        """
        response = self._info(path)
        with naming_release(self._client):
            return describe(path, response)

    def check(self, table: TableSpec) -> None:
        """Check that a table is still the one that it was.

        Raises:
            TableGoneError: dropped, or another table of that name.
        """
        found = self._info(table.path).table_id
        if found != table.table_id:
            message = f"table {table.path}: expected id {table.table_id}, found {found}; it was created anew"
            raise TableGoneError(message)

    def schema(self, path: TablePath, schema_id: int) -> FlussSchema:
        """Return a schema that the table has or had."""
        request = GetTableSchemaRequest(table_path=wire_path(path), schema_id=schema_id)
        with naming_release(self._client):
            return parse_schema(self._client.call_any(request).schema_json)

    def _info(self, path: TablePath) -> GetTableInfoResponse:
        request = GetTableInfoRequest(table_path=wire_path(path))
        with naming_right(request.api, path):
            return self._client.call_any(request)

    def _names(self, database: str) -> Sequence[str]:
        try:
            return self._client.call_any(ListTablesRequest(database_name=database)).table_name
        except TableMissingError:
            return ()  # dropped since it was listed

    def _table_or_none(self, path: TablePath) -> FlussTable | None:
        try:
            response = self._info(path)
        except TableMissingError:
            return None  # dropped since it was listed
        return listed(path, response, self._client.release)


def listed(path: TablePath, response: GetTableInfoResponse, server: str = "") -> FlussTable:
    """Read a table's description; where that fails the table is unreadable, and its listing says why.

    `server` is what is known of the server's release, in words.
    """
    try:
        return describe(path, response)
    except LakewardError as error:
        newer = isinstance(error, NewerSourceError)
        said = str(error.named(server) if isinstance(error, NewerSourceError) else error)
        why = said if str(path) in said else f"table {path}: {said}"
    spec = TableSpec(
        path,
        response.table_id,
        response.schema_id,
        pa.schema([]),
        (),
        (),
        (),
        0,
        DEFAULT_FRESHNESS_S,
        unreadable=why,
        newer=newer,
    )
    try:
        properties = _texts(_document(path, response.table_json).get("properties"))
        enabled = is_lake_enabled(path, properties)
    except (ProtocolError, NewerSourceError):
        return FlussTable(spec, FlussSchema(()), True, "", {})  # shown where the lake-enabled ones are
    return FlussTable(spec, FlussSchema(()), enabled, *_lake(properties))


def describe(path: TablePath, response: GetTableInfoResponse) -> FlussTable:
    """Read a table's description.

    Raises:
        ProtocolError: it is not a description; the message does not quote it.
        NewerSourceError: the table is stored, or described, in a way that is not known here.
        SchemaMismatchError: the description is not whole.
        SourceError: the promised freshness is no duration.
    """
    document = _document(path, response.table_json)
    if (version := document.get("version", _VERSION)) != _VERSION:
        where = f"table {path}"
        raise NewerSourceError.at(where, f"a description of version {_VERSION}", version)
    properties = _texts(document.get("properties"))
    lake_format, settings = _lake(properties)
    prefix = _LAKE_SETTINGS.format(format=lake_format)
    schema = _schema(path, document)
    check_formats(path, properties, has_primary_key=bool(schema.primary_key))
    partition_keys = _columns(path, document, "partition_key", schema)
    spec = TableSpec(
        path=path,
        table_id=response.table_id,
        schema_id=response.schema_id,
        schema=schema.to_arrow(),
        primary_key=schema.primary_key,
        partition_keys=partition_keys,
        late_rows=bool(partition_keys) and has_late_rows(path, properties),
        bucket_key=_columns(path, document, "bucket_key", schema),
        buckets=number(document, "bucket_count", 1, (1, _MAX_BUCKETS)),
        freshness_s=seconds(FRESHNESS, properties[FRESHNESS]) if FRESHNESS in properties else DEFAULT_FRESHNESS_S,
        unread_kept_s=None if is_lake_enabled(path, properties) else log_ttl_s(properties),
        lake_format=lake_format if is_lake_enabled(path, properties) else "",
        before_images=before_images(path, properties),
        properties={key: text for key, text in properties.items() if not key.startswith(prefix)}
        | _texts(document.get("custom_properties")),
    )
    return FlussTable(spec, schema, is_lake_enabled(path, properties), lake_format, settings)


def wire_path(path: TablePath) -> PbTablePath:
    """Return a table's name as the protocol writes it."""
    return PbTablePath(database_name=path.database, table_name=path.table)


def _schema(path: TablePath, document: Mapping[str, Any]) -> FlussSchema:
    try:
        return parse_schema(json.dumps(document.get("schema")))
    except NewerSourceError as newer:
        message = f"table {path}: {newer}"
        raise NewerSourceError(message) from newer


def _lake(properties: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the lake's format, and the server's settings of its catalog."""
    lake_format = properties.get(LAKE_FORMAT, "").lower()
    prefix = _LAKE_SETTINGS.format(format=lake_format)
    settings = {key.removeprefix(prefix): text for key, text in properties.items() if key.startswith(prefix)}
    return lake_format, settings


def _columns(path: TablePath, document: Mapping[str, Any], key: str, schema: FlussSchema) -> tuple[str, ...]:
    names, known = document.get(key) or [], {column.name for column in schema.columns}
    if not isinstance(names, list) or not all(isinstance(name, str) and name in known for name in names):
        message = f"table {path}: expected {key} as names of columns, found {names!r:.200}"
        raise SchemaMismatchError(message)
    return tuple(names)


def _document(path: TablePath, text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        message = f"table {path}: expected its description as a JSON object, found something else"
        raise ProtocolError(message)
    return document


def _texts(value: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}
