"""Databases, tables, schemas and partitions, asked for.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.messages.shared import PbPartitionSpec, PbTablePath
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import BOOL, BYTES, INT32, INT64, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class PbDatabaseSummary(Message):
    """A database in short."""

    database_name: Annotated[str, Field(1, STRING)]
    created_time: Annotated[int, Field(2, INT64)]
    table_count: Annotated[int, Field(3, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDatabasesResponse(Message):
    """Names, or summaries where they were asked for."""

    database_name: Annotated[tuple[str, ...], Field(1, STRING)] = ()
    database_summary: Annotated[tuple[PbDatabaseSummary, ...], Field(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDatabasesRequest(Request[ListDatabasesResponse]):
    """Asks for the databases."""

    api: ClassVar[ApiKey] = ApiKey.LIST_DATABASES

    include_summary: Annotated[bool | None, Field(1, BOOL)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTablesResponse(Message):
    """Names of tables that the user may see."""

    table_name: Annotated[tuple[str, ...], Field(1, STRING)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTablesRequest(Request[ListTablesResponse]):
    """Asks for the tables of a database."""

    api: ClassVar[ApiKey] = ApiKey.LIST_TABLES

    database_name: Annotated[str, Field(1, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseExistsResponse(Message):
    """Whether there is one."""

    exists: Annotated[bool, Field(1, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseExistsRequest(Request[DatabaseExistsResponse]):
    """Asks whether there is a database."""

    api: ClassVar[ApiKey] = ApiKey.DATABASE_EXISTS

    database_name: Annotated[str, Field(1, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExistsResponse(Message):
    """Whether there is one."""

    exists: Annotated[bool, Field(1, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExistsRequest(Request[TableExistsResponse]):
    """Asks whether there is a table."""

    api: ClassVar[ApiKey] = ApiKey.TABLE_EXISTS

    table_path: Annotated[PbTablePath, Field(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDatabaseInfoResponse(Message):
    """A database; the numbers really start at 3."""

    database_json: Annotated[bytes, Field(3, BYTES)]
    created_time: Annotated[int, Field(4, INT64)]
    modified_time: Annotated[int, Field(5, INT64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDatabaseInfoRequest(Request[GetDatabaseInfoResponse]):
    """Asks for a database."""

    api: ClassVar[ApiKey] = ApiKey.GET_DATABASE_INFO

    database_name: Annotated[str, Field(1, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTableInfoResponse(Message):
    """A table; `table_json` may hold secrets of the lake catalog, never log it."""

    table_id: Annotated[int, Field(1, INT64)]
    schema_id: Annotated[int, Field(2, INT32)]
    table_json: Annotated[bytes, Field(3, BYTES)]
    created_time: Annotated[int, Field(4, INT64)]
    modified_time: Annotated[int, Field(5, INT64)]
    remote_data_dir: Annotated[str | None, Field(6, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTableInfoRequest(Request[GetTableInfoResponse]):
    """Asks for a table."""

    api: ClassVar[ApiKey] = ApiKey.GET_TABLE_INFO

    table_path: Annotated[PbTablePath, Field(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTableSchemaResponse(Message):
    """A schema as JSON."""

    schema_id: Annotated[int, Field(1, INT32)]
    schema_json: Annotated[bytes, Field(2, BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTableSchemaRequest(Request[GetTableSchemaResponse]):
    """Asks for a schema; without an id for the latest."""

    api: ClassVar[ApiKey] = ApiKey.GET_TABLE_SCHEMA

    table_path: Annotated[PbTablePath, Field(1)]
    schema_id: Annotated[int | None, Field(2, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPartitionInfo(Message):
    """A partition and its values."""

    partition_id: Annotated[int, Field(1, INT64)]
    partition_spec: Annotated[PbPartitionSpec, Field(2)]
    remote_data_dir: Annotated[str | None, Field(3, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionInfosResponse(Message):
    """The partitions."""

    partitions_info: Annotated[tuple[PbPartitionInfo, ...], Field(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionInfosRequest(Request[ListPartitionInfosResponse]):
    """Asks for the partitions of a table."""

    api: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_INFOS

    table_path: Annotated[PbTablePath, Field(1)]
    partial_partition_spec: Annotated[PbPartitionSpec | None, Field(2)] = None
