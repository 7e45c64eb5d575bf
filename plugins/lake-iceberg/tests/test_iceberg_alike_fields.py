"""Partition fields of one named Avro type: each manifest defines each name once, and other readers read the table."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, FixedType, NestedField, PrimitiveType, UUIDType

from lakeward_iceberg_kit.alike import named_twice, tier_prices
from lakeward_iceberg_kit.duck import read_apart
from lakeward_lake_iceberg.manifests import MERGED_MANIFESTS, ManifestSet
from lakeward_testing.lake_tables import PATH

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


def test_fields_of_one_decimal_type_are_read_by_duckdb_and_pyiceberg(
    lake: Lake, plugin: IcebergLakePlugin, catalog: SqlCatalog
) -> None:
    """Manifests of data and of deletes, and the merged ones of many rounds, also after an expiry."""
    names = tier_prices(plugin, lake, MERGED_MANIFESTS + 2)
    lake.expire(PATH, frozenset())
    table = catalog.load_table("shop.orders")
    kinds = set()
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            merged = manifest.existing_files_count != 0
            kinds.add((manifest.content, merged))
            assert named_twice(manifest, table.io) == set()
    assert {(ManifestContent.DATA, False), (ManifestContent.DATA, True), (ManifestContent.DELETES, False)} <= kinds
    assert sorted(read_apart(table.metadata_location, "id, name")) == sorted(map(list, names.items()))
    found = table.scan().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == names
    assert table.scan(row_filter="price = -5.00 and tax = 0.50").to_arrow()["id"].to_pylist() == [5]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (DecimalType(9, 2), (Decimal("-1.28"), Decimal("9.99"), None)),
        (FixedType(4), (b"abcd", b"\x00\xff\x00\xff", None)),
        (UUIDType(), (UUID(int=1), UUID(int=2**128 - 1), None)),
    ],
    ids=str,
)
def test_a_manifest_defines_each_named_type_once_and_pyiceberg_reads_its_partitions(
    catalog: SqlCatalog, kind: PrimitiveType, values: tuple[object, ...]
) -> None:
    catalog.create_namespace("shop")
    columns = [NestedField(number, f"c{number}", kind, required=False) for number in range(1, 4)]
    fields = [PartitionField(one.field_id, 999 + one.field_id, IdentityTransform(), one.name) for one in columns]
    table = catalog.create_table("shop.orders", Schema(*columns), partition_spec=PartitionSpec(*fields))
    path = f"{table.location()}/metadata/written.avro"
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:///data",
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=1,
        file_size_in_bytes=1,
    )
    file.spec_id = 0
    (manifest,) = ManifestSet(table.metadata, table.io, 1, lambda: path).added([file], ManifestContent.DATA)
    assert named_twice(manifest, table.io) == set()
    (entry,) = manifest.fetch_manifest_entry(table.io)
    assert [entry.data_file.partition[place] for place in range(3)] == list(values)
