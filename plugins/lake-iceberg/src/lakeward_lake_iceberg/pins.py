"""Builds the task of a round's writers: layout, and for primary-key tables the files that the round is pinned to."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import structs
from pyiceberg.manifest import FileFormat, ManifestContent

from lakeward.errors import SchemaMismatchError, TableGoneError
from lakeward_lake_iceberg.compression import compression_of
from lakeward_lake_iceberg.entries import VECTORS_FROM, delete_file, live_entries, manifests_in, named_data_file
from lakeward_lake_iceberg.file_rows import not_parquet
from lakeward_lake_iceberg.layout import layout_fields, manages_layout
from lakeward_lake_iceberg.older import with_ranges
from lakeward_lake_iceberg.partitioner import base_name, partition_key
from lakeward_lake_iceberg.records import stored_value
from lakeward_lake_iceberg.schema import arrow_schema, bounded_types, has_system_columns
from lakeward_lake_iceberg.task import BaseBucket, BaseFile, OlderFile, WriterTask, pack_base

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_lake_iceberg.detail import DeleteFile, Value
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.task import LayoutField

    Partition = tuple[Value, ...]

_TARGET_SIZE = "write.target-file-size-bytes"


def build_task(
    table: Table, spec: TableSpec, head: LakeHead, *, prefix: str, options: IcebergOptions, storage: Mapping[str, str]
) -> WriterTask:
    """Build the task of one round on the lake table, as loaded now.

    `head` is what the round was enumerated from; a primary-key round is pinned to its snapshot. `prefix` is that of the
    round's files; `storage` has properties of the file system.

    Raises:
        TableGoneError: the head's snapshot is no longer retained.
        SchemaMismatchError: the table holds files of another partition layout or format, or has a property that cannot
            be meant.
    """
    pinned = _pinned(table, head) if spec.has_primary_key else None
    layout = layout_fields(table) if spec.lake_partition else ()
    base, older = ({}, b"") if pinned is None else _base(table, spec, pinned, layout)
    return structs.replace(
        plain_task(spec.path, table, prefix=prefix, options=options, storage=storage),
        key_columns=spec.primary_key,
        base_snapshot=None if pinned is None else pinned.snapshot_id,
        base=base,
        layout=layout,
        older=older,
        by_bucket=bool(spec.bucket_key) or has_system_columns(table),
    )


def plain_task(
    path: TablePath, table: Table, *, prefix: str, options: IcebergOptions, storage: Mapping[str, str]
) -> WriterTask:
    """Return what each writer of files of the table is told: schema, codec, size.

    Raises:
        SchemaMismatchError: the table has a property that cannot be meant.
    """
    schema = table.schema()
    compression = compression_of(path, table.metadata.properties, options)
    return WriterTask(
        location=table.location(),
        prefix=prefix,
        schema=arrow_schema(schema).serialize().to_pybytes(),
        types=bounded_types(schema),
        spec_id=table.spec().spec_id,
        target_size_bytes=target_size(table, options),
        compression=compression.codec,
        compression_level=compression.level,
        storage=dict(storage),
        vectors=table.metadata.format_version >= VECTORS_FROM,
    )


def target_size(table: Table, options: IcebergOptions) -> int:
    """Return the size in bytes at which a data file of the table is closed: its own property wins."""
    own = table.metadata.properties.get(_TARGET_SIZE)
    return options.target_file_size_bytes if own is None else int(own)


def _pinned(table: Table, head: LakeHead) -> Snapshot | None:
    if head.snapshot_id is None:
        return None
    snapshot = table.metadata.snapshot_by_id(head.snapshot_id)
    if snapshot is None:
        message = f"{head.path}: snapshot {head.snapshot_id}, from which the round was enumerated, was expired"
        raise TableGoneError(message)
    return snapshot


def _base(
    table: Table, spec: TableSpec, pinned: Snapshot, layout: tuple[LayoutField, ...]
) -> tuple[dict[str, bytes], bytes]:
    """Return the pinned files by partition, and those of older specs."""
    manifests = manifests_in(pinned, table.io)
    key = table.schema().find_field(spec.primary_key[0]).field_id
    deletes, shared = _deletes(
        spec, (entry.data_file for entry in live_entries(manifests, table.io, ManifestContent.DELETES))
    )
    present: dict[Partition, list[BaseFile]] = defaultdict(list)
    older: list[tuple[DataFile, OlderFile]] = []
    for entry in live_entries(manifests, table.io, ManifestContent.DATA):
        file = entry.data_file
        _check_format(spec, file)
        _check_spec(table, spec, file)
        partition, base = _partition(file), _base_file(file, key, deletes.get(file.file_path, ()))
        if file.spec_id == table.spec().spec_id:
            present[partition].append(base)
        else:
            delete_files = tuple(shared[file.spec_id, partition])
            older.append((file, OlderFile(base, file.spec_id, partition, shared_deletes=delete_files)))
    spec_id, name = table.spec().spec_id, _layout_name if layout else base_name
    packed = {
        name(partition): pack_base(BaseBucket(tuple(files), tuple(shared[spec_id, partition])))
        for partition, files in present.items()
    }
    return packed, pack_base(with_ranges(table, layout, older)) if older else b""


def _layout_name(partition: Partition) -> str:
    return partition_key(partition).hex()


def _deletes(
    spec: TableSpec, files: Iterable[DataFile]
) -> tuple[dict[str, tuple[DeleteFile, ...]], dict[tuple[int, Partition], list[str]]]:
    """Sort position deletes into those of one data file, by that file, and others, by spec and partition.

    Equality deletes (Fluss's own service writes them) are not read: what they delete may be deleted once more.
    """
    single: dict[str, tuple[DeleteFile, ...]] = defaultdict(tuple)
    shared: dict[tuple[int, Partition], list[str]] = defaultdict(list)
    for file in files:
        if file.equality_ids:
            continue
        target = named_data_file(file)
        if file.file_format is not FileFormat.PUFFIN or target is None:
            _check_format(spec, file)
        if target is None:
            shared[file.spec_id, _partition(file)].append(file.file_path)
        else:
            single[target] += (delete_file(file),)
    return single, shared


def _base_file(file: DataFile, key: int, deletes: tuple[DeleteFile, ...]) -> BaseFile:
    lower, upper = (file.lower_bounds or {}).get(key, b""), (file.upper_bounds or {}).get(key, b"")
    return BaseFile(file.file_path, file.record_count, bytes(lower), bytes(upper), deletes)


def _partition(file: DataFile) -> Partition:
    return tuple(stored_value(file.partition[position]) for position in range(len(file.partition)))


def _check_format(spec: TableSpec, file: DataFile) -> None:
    """Refuse a file whose keys or positions the round would have to read, and cannot."""
    if file.file_format is not FileFormat.PARQUET:
        message = f"{spec.path}: {not_parquet(file)}"
        raise SchemaMismatchError(message)


def _check_spec(table: Table, spec: TableSpec, file: DataFile) -> None:
    if file.spec_id != table.spec().spec_id and not manages_layout(table):
        message = (
            f"{spec.path}: file {file.file_path} has partition spec {file.spec_id}, expected {table.spec().spec_id}: "
            f"somebody changed the lake table's partitioning; rewrite its data files first"
        )
        raise SchemaMismatchError(message)
