"""The byte form in which a table's spec travels to the subtasks."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from lakeward.model.partitioning import PartitionField
from lakeward.model.tables import TablePath, TableSpec


class _WireTable(msgspec.Struct, frozen=True):
    path: TablePath
    table_id: int
    schema_id: int
    schema: bytes
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    bucket_key: tuple[str, ...]
    buckets: int
    freshness_s: float
    properties: dict[str, str]
    lake_partition: tuple[PartitionField, ...] = ()
    before_images: bool = True
    union_read: bool = False


_TABLES = msgspec.msgpack.Decoder(_WireTable)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_table(table: TableSpec) -> bytes:
    """Encode a spec as msgpack; the schema goes as Arrow IPC."""
    return msgspec.msgpack.encode(
        _WireTable(
            table.path,
            table.table_id,
            table.schema_id,
            table.schema.serialize().to_pybytes(),
            table.primary_key,
            table.partition_keys,
            table.bucket_key,
            table.buckets,
            table.freshness_s,
            dict(table.properties),
            table.lake_partition,
            table.before_images,
            table.union_read,
        )
    )


def unpack_table(data: bytes) -> TableSpec:
    """Decode what `pack_table` gave."""
    wire = _TABLES.decode(data)
    return TableSpec(
        path=wire.path,
        table_id=wire.table_id,
        schema_id=wire.schema_id,
        schema=pa.ipc.read_schema(pa.py_buffer(wire.schema)),
        primary_key=wire.primary_key,
        partition_keys=wire.partition_keys,
        bucket_key=wire.bucket_key,
        buckets=wire.buckets,
        freshness_s=wire.freshness_s,
        properties=wire.properties,
        lake_partition=wire.lake_partition,
        before_images=wire.before_images,
        union_read=wire.union_read,
    )
