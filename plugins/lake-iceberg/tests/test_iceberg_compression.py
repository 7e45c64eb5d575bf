"""How data files are compressed: the table's properties win over the lake's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
import pytest

from lakeward.errors import SchemaMismatchError
from lakeward_lake_iceberg.storage import local_path
from lakeward_lake_iceberg.task import unpack_task
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import COLUMNS, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from lakeward_lake_iceberg.options import IcebergOptions
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

CODEC = "iceberg.write.parquet.compression-codec"
LEVEL = "iceberg.write.parquet.compression-level"
"""As a source's table names them; the lake's table has them without the prefix."""


def written(plugin: IcebergLakePlugin, options: IcebergOptions, **properties: str) -> tuple[str, int | None]:
    """Tier a row; returns the codec in the file's footer, and the level that the writer was told."""
    table = log_table(properties=properties)
    lake = plugin.open(options, FakeClock())
    try:
        tiering = TieringRound(plugin, lake, table, incarnation())
        (file,) = tiering.write(log_split(table), [source_batch(COLUMNS, [{"id": 1, "name": "a"}])])
        footer = pq.read_metadata(local_path(file.path))
        return footer.row_group(0).column(0).compression, unpack_task(tiering.task).compression_level
    finally:
        lake.close()


def test_files_are_zstd_1_where_nobody_says_otherwise(plugin: IcebergLakePlugin, options: IcebergOptions) -> None:
    assert written(plugin, options) == ("ZSTD", 1)


@pytest.mark.parametrize(
    ("codec", "found"),
    [("SNAPPY", "SNAPPY"), ("gzip", "GZIP"), ("uncompressed", "UNCOMPRESSED"), ("lz4", "LZ4"), ("zstd", "ZSTD")],
)
def test_the_tables_codec_wins(plugin: IcebergLakePlugin, options: IcebergOptions, codec: str, found: str) -> None:
    options = msgspec.structs.replace(options, compression="brotli")
    assert written(plugin, options, **{CODEC: codec})[0] == found


def test_the_tables_level_wins(plugin: IcebergLakePlugin, options: IcebergOptions) -> None:
    assert written(plugin, options, **{LEVEL: "7"}) == ("ZSTD", 7)


def test_the_lakes_level_is_not_given_to_another_codec(plugin: IcebergLakePlugin, options: IcebergOptions) -> None:
    assert written(plugin, options, **{CODEC: "gzip"}) == ("GZIP", None)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({CODEC: "lzo"}, r"shop\.orders: property write\.parquet\.compression-codec .*one of zstd, .*found 'lzo'"),
        ({LEVEL: "23"}, "compression-level .*: expected a level of zstd from 1 to 22, found '23'"),
        ({CODEC: "gzip", LEVEL: "fast"}, "expected a level of gzip from 1 to 9, found 'fast'"),
    ],
)
def test_a_property_that_says_what_there_is_not_is_named(
    plugin: IcebergLakePlugin, options: IcebergOptions, properties: dict[str, str], message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        written(plugin, options, **properties)
