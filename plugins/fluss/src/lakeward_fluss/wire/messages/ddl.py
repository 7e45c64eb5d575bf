"""Databases, tables and partitions, changed. Lakeward itself changes nothing; tests and the demo do.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.messages.shared import PbPartitionSpec, PbTablePath
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import BOOL, BYTES, INT32, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabaseResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabaseRequest(Request[CreateDatabaseResponse]):
    """Creates a database."""

    api: ClassVar[ApiKey] = ApiKey.CREATE_DATABASE

    database_name: Annotated[str, Field(1, STRING)]
    ignore_if_exists: Annotated[bool, Field(2, BOOL)]
    database_json: Annotated[bytes | None, Field(3, BYTES)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableRequest(Request[CreateTableResponse]):
    """Creates a table."""

    api: ClassVar[ApiKey] = ApiKey.CREATE_TABLE

    table_path: Annotated[PbTablePath, Field(1)]
    table_json: Annotated[bytes, Field(2, BYTES)]
    ignore_if_exists: Annotated[bool, Field(3, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTableResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTableRequest(Request[DropTableResponse]):
    """Drops a table."""

    api: ClassVar[ApiKey] = ApiKey.DROP_TABLE

    table_path: Annotated[PbTablePath, Field(1)]
    ignore_if_not_exists: Annotated[bool, Field(2, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionRequest(Request[CreatePartitionResponse]):
    """Creates a partition."""

    api: ClassVar[ApiKey] = ApiKey.CREATE_PARTITION

    table_path: Annotated[PbTablePath, Field(1)]
    partition_spec: Annotated[PbPartitionSpec, Field(2)]
    ignore_if_not_exists: Annotated[bool, Field(3, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartitionResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartitionRequest(Request[DropPartitionResponse]):
    """Drops a partition."""

    api: ClassVar[ApiKey] = ApiKey.DROP_PARTITION

    table_path: Annotated[PbTablePath, Field(1)]
    partition_spec: Annotated[PbPartitionSpec, Field(2)]
    ignore_if_not_exists: Annotated[bool, Field(3, BOOL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbAlterConfig(Message):
    """One option; `op_type` 0 sets it."""

    config_key: Annotated[str, Field(1, STRING)]
    config_value: Annotated[str | None, Field(2, STRING)] = None
    op_type: Annotated[int, Field(3, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbAddColumn(Message):
    """One column; `column_position_type` 0 is last."""

    column_name: Annotated[str, Field(1, STRING)]
    data_type_json: Annotated[bytes, Field(2, BYTES)]
    comment: Annotated[str | None, Field(3, STRING)] = None
    column_position_type: Annotated[int, Field(4, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableRequest(Request[AlterTableResponse]):
    """Changes options of a table or adds columns."""

    api: ClassVar[ApiKey] = ApiKey.ALTER_TABLE

    table_path: Annotated[PbTablePath, Field(1)]
    ignore_if_not_exists: Annotated[bool, Field(2, BOOL)]
    config_changes: Annotated[tuple[PbAlterConfig, ...], Field(3)] = ()
    add_columns: Annotated[tuple[PbAddColumn, ...], Field(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabaseResponse(Message):
    """Done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabaseRequest(Request[DropDatabaseResponse]):
    """Drops a database."""

    api: ClassVar[ApiKey] = ApiKey.DROP_DATABASE

    database_name: Annotated[str, Field(1, STRING)]
    ignore_if_not_exists: Annotated[bool, Field(2, BOOL)]
    cascade: Annotated[bool, Field(3, BOOL)]
