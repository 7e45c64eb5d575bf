"""Lists a table's partitions, and the one with late rows of those that have expired, which servers do not list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import NewerSourceError, ProtocolError
from lakeward_source_fluss.source.naming import naming_right
from lakeward_source_fluss.source.tables import wire_path
from lakeward_source_fluss.wire.codes import ErrorCode
from lakeward_source_fluss.wire.errors import PartitionMissingError
from lakeward_source_fluss.wire.messages import (
    ListPartitionInfosRequest,
    MetadataRequest,
    PbPartitionInfo,
    PbPhysicalTablePath,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.tables import TableSpec
    from lakeward_source_fluss.rpc.client import FlussClient

HISTORICAL = "__historical__"
"""The name of the partition that stands for those that have expired; no other partition can be called so."""
PARTITION_JOINT = "$"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, or the whole of an unpartitioned table (no id, no name)."""

    partition_id: int | None = None
    values: tuple[str, ...] = ()

    @property
    def name(self) -> str | None:
        """The name that the server knows it by."""
        return None if self.partition_id is None else PARTITION_JOINT.join(self.values)

    @property
    def is_historical(self) -> bool:
        """Whether its rows are of partitions that have expired: each row's own columns say of which one."""
        return self.name == HISTORICAL


def listed_partitions(client: FlussClient, table: TableSpec) -> Sequence[Partition]:
    """Return the partitions of a table that have not expired; one without id for an unpartitioned table.

    Raises:
        NewerSourceError: there is one for those that have, and the table's properties do not say so.
        SourceError: the server cannot answer.
    """
    if not table.partition_keys:
        return (Partition(),)
    request = ListPartitionInfosRequest(table_path=wire_path(table.path))
    with naming_right(request.api, table.path):
        listed = client.call_any(request).partitions_info
    found = [Partition(one.partition_id, _values(table, one)) for one in listed]
    if not table.late_rows and any(one.is_historical for one in found):
        where = f"table {table.path}"
        raise NewerSourceError.at(where, "partitions of its own", HISTORICAL)
    return tuple(one for one in found if not one.is_historical)


def historical_partition(client: FlussClient, table: TableSpec) -> Partition:
    """Return the partition that holds late rows, of a table that has one (`TableSpec.late_rows`).

    Servers leave it out of their list, and know it by its name. Source: fluss.md, "Historical partitions".

    Raises:
        PartitionMissingError: the server has none, or not yet.
    """
    path = wire_path(table.path)
    name = PbPhysicalTablePath(database_name=path.database_name, table_name=path.table_name, partition_name=HISTORICAL)
    request = MetadataRequest(table_path=(path,), partitions_path=(name,))
    with naming_right(request.api, table.path):
        found = client.call_any(request).partition_metadata
    for one in found:
        if (one.table_id, one.partition_name) == (table.table_id, HISTORICAL):
            return Partition(one.partition_id, (HISTORICAL,))
    what = f"table {table.path}, partition {HISTORICAL}"
    raise PartitionMissingError(what, ErrorCode.PARTITION_NOT_EXISTS)


def _values(table: TableSpec, partition: PbPartitionInfo) -> tuple[str, ...]:
    """Return a partition's values in the order of the table's partition keys."""
    values = {pair.key: pair.value for pair in partition.partition_spec.partition_key_values}
    try:
        return tuple(values[key] for key in table.partition_keys)
    except KeyError as missing:
        message = f"table {table.path}: expected partition values for {table.partition_keys}, found {sorted(values)}"
        raise ProtocolError(message) from missing
