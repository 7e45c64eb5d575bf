"""Small messages that several APIs use, the error body, and the start of a connection.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import BYTES, INT32, INT64, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class PbApiVersion(Message):
    """The versions of one API that a server speaks."""

    api_key: Annotated[int, Field(1, INT32)]
    min_version: Annotated[int, Field(2, INT32)]
    max_version: Annotated[int, Field(3, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse(Message):
    """What a server can do; `server_type` is 1 for a coordinator, 2 for a tablet server, absent in 0.8."""

    api_versions: Annotated[tuple[PbApiVersion, ...], Field(1)] = ()
    server_type: Annotated[int | None, Field(2, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Asks what a server can do; the first call on each connection."""

    api: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    client_software_name: Annotated[str, Field(1, STRING)]
    client_software_version: Annotated[str, Field(2, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateResponse(Message):
    """The next challenge; absent or empty when the exchange is over."""

    challenge: Annotated[bytes | None, Field(1, BYTES)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateRequest(Request[AuthenticateResponse]):
    """One step of a SASL exchange; `protocol` is the name of the mechanism."""

    api: ClassVar[ApiKey] = ApiKey.AUTHENTICATE

    protocol: Annotated[str, Field(1, STRING)]
    token: Annotated[bytes, Field(2, BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse(Message):
    """The body of any failed call; `error_message` is absent where it is the default text of the code."""

    error_code: Annotated[int, Field(1, INT32)]
    error_message: Annotated[str | None, Field(2, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbTablePath(Message):
    """A table by name."""

    database_name: Annotated[str, Field(1, STRING)]
    table_name: Annotated[str, Field(2, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPhysicalTablePath(Message):
    """A table or a partition by name."""

    database_name: Annotated[str, Field(1, STRING)]
    table_name: Annotated[str, Field(2, STRING)]
    partition_name: Annotated[str | None, Field(3, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbTableBucket(Message):
    """A bucket by ids."""

    table_id: Annotated[int, Field(1, INT64)]
    partition_id: Annotated[int | None, Field(2, INT64)] = None
    bucket_id: Annotated[int, Field(3, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbKeyValue(Message):
    """A pair of texts."""

    key: Annotated[str, Field(1, STRING)]
    value: Annotated[str, Field(2, STRING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPartitionSpec(Message):
    """One pair for each partition column."""

    partition_key_values: Annotated[tuple[PbKeyValue, ...], Field(1)] = ()
