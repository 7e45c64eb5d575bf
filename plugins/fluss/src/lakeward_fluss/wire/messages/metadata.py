"""Which servers there are and who leads which bucket; the health of a cluster.

Source: fluss.md 1.8. Fields and names are the server's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lakeward_fluss.wire.apis import ApiKey, Request
from lakeward_fluss.wire.messages.shared import PbPhysicalTablePath, PbTablePath
from lakeward_fluss.wire.protobuf import Field, Message
from lakeward_fluss.wire.scalars import BYTES, INT32, INT64, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class PbServerNode(Message):
    """A server; host and port are those of the listener that was asked."""

    node_id: Annotated[int, Field(1, INT32)]
    host: Annotated[str, Field(2, STRING)]
    port: Annotated[int, Field(3, INT32)]
    listeners: Annotated[str | None, Field(4, STRING)] = None
    rack: Annotated[str | None, Field(5, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbBucketMetadata(Message):
    """A bucket; `leader_id` absent or -1 means that there is none now."""

    bucket_id: Annotated[int, Field(1, INT32)]
    leader_id: Annotated[int | None, Field(2, INT32)] = None
    replica_id: Annotated[tuple[int, ...], Field(3, INT32, packed=True)] = ()
    leader_epoch: Annotated[int | None, Field(4, INT32)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbTableMetadata(Message):
    """A table and, unless it is partitioned, its buckets."""

    table_path: Annotated[PbTablePath, Field(1)]
    table_id: Annotated[int, Field(2, INT64)]
    schema_id: Annotated[int, Field(3, INT32)]
    table_json: Annotated[bytes, Field(4, BYTES)]
    bucket_metadata: Annotated[tuple[PbBucketMetadata, ...], Field(5)] = ()
    created_time: Annotated[int, Field(6, INT64)]
    modified_time: Annotated[int, Field(7, INT64)]
    remote_data_dir: Annotated[str | None, Field(8, STRING)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PbPartitionMetadata(Message):
    """A partition and its buckets."""

    table_id: Annotated[int, Field(1, INT64)]
    partition_name: Annotated[str, Field(2, STRING)]
    partition_id: Annotated[int, Field(3, INT64)]
    bucket_metadata: Annotated[tuple[PbBucketMetadata, ...], Field(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse(Message):
    """The servers and the buckets asked for; no coordinator while one is being elected."""

    coordinator_server: Annotated[PbServerNode | None, Field(1)] = None
    tablet_servers: Annotated[tuple[PbServerNode, ...], Field(2)] = ()
    table_metadata: Annotated[tuple[PbTableMetadata, ...], Field(3)] = ()
    partition_metadata: Annotated[tuple[PbPartitionMetadata, ...], Field(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(Request[MetadataResponse]):
    """Asks for the servers, and for the buckets of tables and partitions; with partition ids name the table as well."""

    api: ClassVar[ApiKey] = ApiKey.GET_METADATA

    table_path: Annotated[tuple[PbTablePath, ...], Field(1)] = ()
    partitions_path: Annotated[tuple[PbPhysicalTablePath, ...], Field(2)] = ()
    partitions_id: Annotated[tuple[int, ...], Field(3, INT64, packed=True)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetClusterHealthResponse(Message):
    """Counts of replicas; `status` 0 is green (main)."""

    num_replicas: Annotated[int, Field(1, INT32)]
    in_sync_replicas: Annotated[int, Field(2, INT32)]
    num_leader_replicas: Annotated[int, Field(3, INT32)]
    active_leader_replicas: Annotated[int, Field(4, INT32)]
    status: Annotated[int, Field(5, INT32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetClusterHealthRequest(Request[GetClusterHealthResponse]):
    """Asks for counts of replicas (main)."""

    api: ClassVar[ApiKey] = ApiKey.GET_CLUSTER_HEALTH
