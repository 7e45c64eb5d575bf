"""The APIs of Fluss servers: keys, the versions that are spoken here, and what a request is. Pure.

Source: fluss.md, "The protocol". A server says nothing at all to a key that it does not serve: never send one that its
API_VERSIONS answer did not name.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args, get_origin

from lakeward.errors import UsageError
from lakeward_source_fluss.wire.protobuf import Message


class ApiKey(IntEnum):
    """The key of an API in a request's header."""

    API_VERSIONS = 1000
    CREATE_DATABASE = 1001
    DROP_DATABASE = 1002
    LIST_DATABASES = 1003
    DATABASE_EXISTS = 1004
    CREATE_TABLE = 1005
    DROP_TABLE = 1006
    GET_TABLE_INFO = 1007
    LIST_TABLES = 1008
    LIST_PARTITION_INFOS = 1009
    TABLE_EXISTS = 1010
    GET_TABLE_SCHEMA = 1011
    GET_METADATA = 1012
    PRODUCE_LOG = 1014
    FETCH_LOG = 1015
    PUT_KV = 1016
    LIST_OFFSETS = 1021
    GET_LATEST_KV_SNAPSHOTS = 1023
    GET_KV_SNAPSHOT_METADATA = 1024
    GET_FILESYSTEM_SECURITY_TOKEN = 1025
    INIT_WRITER = 1026
    COMMIT_LAKE_TABLE_SNAPSHOT = 1030
    GET_LAKE_SNAPSHOT = 1032
    LIMIT_SCAN = 1033
    GET_DATABASE_INFO = 1035
    CREATE_PARTITION = 1036
    DROP_PARTITION = 1037
    AUTHENTICATE = 1038
    LAKE_TIERING_HEARTBEAT = 1042
    ALTER_TABLE = 1044
    DESCRIBE_CLUSTER_CONFIGS = 1045
    PREPARE_LAKE_TABLE_SNAPSHOT = 1052
    ACQUIRE_KV_SNAPSHOT_LEASE = 1056
    RELEASE_KV_SNAPSHOT_LEASE = 1057
    DROP_KV_SNAPSHOT_LEASE = 1058
    SCAN_KV = 1061
    GET_CLUSTER_HEALTH = 1062
    LIST_KV_SNAPSHOTS = 1064


API_VERSION: Final = 0
"""The one version spoken here, of every API; no server has dropped it."""

LEASE_APIS: Final = frozenset(
    {ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, ApiKey.RELEASE_KV_SNAPSHOT_LEASE, ApiKey.DROP_KV_SNAPSHOT_LEASE}
)
"""What a coordinator must offer for leases (0.9 or later)."""

CHANGES: Final = frozenset(
    {
        ApiKey.CREATE_DATABASE,
        ApiKey.DROP_DATABASE,
        ApiKey.CREATE_TABLE,
        ApiKey.DROP_TABLE,
        ApiKey.ALTER_TABLE,
        ApiKey.CREATE_PARTITION,
        ApiKey.DROP_PARTITION,
        ApiKey.PRODUCE_LOG,
        ApiKey.PUT_KV,
        ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT,
        ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT,
        # It hands a table out, finishes it or fails it.
        ApiKey.LAKE_TIERING_HEARTBEAT,
        # A scan repeated with the same sequence number is refused and closed.
        ApiKey.SCAN_KV,
        *LEASE_APIS,
    }
)
"""APIs that change something, so that a call without an answer has an unknown outcome."""

RIGHTS: Final = {
    ApiKey.GET_TABLE_INFO: "DESCRIBE",
    ApiKey.GET_TABLE_SCHEMA: "DESCRIBE",
    ApiKey.LIST_PARTITION_INFOS: "DESCRIBE",
    ApiKey.GET_LATEST_KV_SNAPSHOTS: "DESCRIBE",
    ApiKey.GET_KV_SNAPSHOT_METADATA: "DESCRIBE",
    ApiKey.GET_LAKE_SNAPSHOT: "DESCRIBE",
    # 1.0 wants it; 0.9 wants none.
    ApiKey.LIST_OFFSETS: "DESCRIBE",
    ApiKey.FETCH_LOG: "READ",
    ApiKey.SCAN_KV: "READ",
    ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: "READ",
    ApiKey.RELEASE_KV_SNAPSHOT_LEASE: "READ",
}
"""The right on the table that a call needs where the cluster has an authorizer. Heartbeats and commits need none."""

CALLED: Final = frozenset(
    {
        *RIGHTS,
        ApiKey.API_VERSIONS,
        ApiKey.AUTHENTICATE,
        ApiKey.GET_METADATA,
        ApiKey.LIST_DATABASES,
        ApiKey.LIST_TABLES,
        ApiKey.DESCRIBE_CLUSTER_CONFIGS,
        ApiKey.LAKE_TIERING_HEARTBEAT,
        ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT,
        ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT,
        ApiKey.DROP_KV_SNAPSHOT_LEASE,
    }
)
"""What a service calls; the others are for those who write tables."""

TABLET_ONLY: Final = frozenset(
    {
        ApiKey.PRODUCE_LOG,
        ApiKey.FETCH_LOG,
        ApiKey.PUT_KV,
        ApiKey.LIST_OFFSETS,
        ApiKey.INIT_WRITER,
        ApiKey.LIMIT_SCAN,
        ApiKey.SCAN_KV,
    }
)
"""APIs that a coordinator does not serve; every other one is served by it."""

Response = TypeVar("Response", bound=Message)


class Request(Message, Generic[Response]):
    """A message that asks for a `Response`; its class knows the api key."""

    __slots__ = ()

    api: ClassVar[ApiKey]


def response_class(request_class: type[Request[Response]]) -> type[Response]:
    """Return the class of what answers a request.

    Raises:
        UsageError: the class names none.
    """
    untyped: Any = request_class  # mypy takes a class's own __hash__ for its instances'
    answer: type[Response] = _answer(untyped)
    return answer


@cache
def _answer(request_class: type) -> Any:  # noqa: ANN401  # what a subscript names
    for base in getattr(request_class, "__orig_bases__", ()):
        if get_origin(base) is Request:
            return get_args(base)[0]
    message = f"{request_class.__name__}: expected a subclass of Request[...], found none"
    raise UsageError(message)
