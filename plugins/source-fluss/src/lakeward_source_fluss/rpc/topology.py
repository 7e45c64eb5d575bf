"""A cluster as its servers describe it: who is the coordinator, which tablet servers, who leads which bucket. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakeward_source_fluss.rpc.options import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward_source_fluss.wire.messages import MetadataResponse, PbBucketMetadata, PbTablePath

_NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket, as one asks for its leader; `partition_id` is None for a table without partitions."""

    path: PbTablePath
    partition_id: int | None
    bucket_id: int

    def __str__(self) -> str:
        partition = "" if self.partition_id is None else f" partition {self.partition_id}"
        return f"{self.path.database_name}.{self.path.table_name}{partition} bucket {self.bucket_id}"


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a table or partition.

    Attributes:
        leaders: bucket id to server id; a bucket without a leader is left out.
        count: how many there are; None where the server does not say: before 1.0 as many as the table has.
    """

    leaders: Mapping[int, int]
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The servers.

    Attributes:
        coordinator: None while one is being elected.
        tablets: server id to endpoint; empty while all of them are starting.
    """

    coordinator: Endpoint | None = None
    tablets: Mapping[int, Endpoint] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return self.coordinator is None and not self.tablets


def topology(answer: MetadataResponse) -> Topology:
    """Return the servers that a GET_METADATA answer names."""
    node = answer.coordinator_server
    coordinator = Endpoint(node.host, node.port) if node is not None else None
    return Topology(coordinator, {node.node_id: Endpoint(node.host, node.port) for node in answer.tablet_servers})


def described_buckets(answer: MetadataResponse, partition_id: int | None) -> Buckets:
    """Return the buckets of the one table or partition that GET_METADATA was asked for.

    A table without partitions has the partition id None.
    """
    if partition_id is None:
        return Buckets(_leaders(bucket for table in answer.table_metadata for bucket in table.bucket_metadata))
    found = [one for one in answer.partition_metadata if one.partition_id == partition_id]
    counts = [one.bucket_count_actual for one in found]
    return Buckets(_leaders(bucket for one in found for bucket in one.bucket_metadata), counts[0] if counts else None)


def _leaders(buckets: Iterable[PbBucketMetadata]) -> Mapping[int, int]:
    return {
        bucket.bucket_id: bucket.leader_id
        for bucket in buckets
        if bucket.leader_id is not None and bucket.leader_id != _NO_LEADER
    }
