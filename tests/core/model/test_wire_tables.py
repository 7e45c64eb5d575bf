"""A table's spec on the wire: what is sent is what is received."""

from __future__ import annotations

from dataclasses import replace

from lakeward.model.partitioning import PartitionField
from lakeward.model.wire import pack_table, unpack_table
from lakeward_testing.lake_tables import key_table


def test_a_spec_arrives_with_its_lake_partitioning_and_with_what_its_changelog_has() -> None:
    fields = (PartitionField.parse("day(at)"), PartitionField.parse("bucket(16, id)"))
    table = replace(key_table(), lake_partition=fields, before_images=False, union_read=True)
    assert unpack_table(pack_table(table)) == table
