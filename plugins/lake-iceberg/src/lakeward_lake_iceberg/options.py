"""The keys of the `[lake]` section for `type = "iceberg"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from lakeward.model.options import Meta, Options
from lakeward.model.settings import COMMIT_TIMEOUT_S


def _is_directory(given: Mapping[str, object]) -> bool:
    """Return whether the warehouse is a path; a REST catalog has names of its own for its warehouses."""
    return given.get("catalog", "sql") == "sql"


class IcebergOptions(Options, frozen=True, kw_only=True):
    """Where the tables lie, which catalog knows them, and how files are written."""

    warehouse: Annotated[
        str,
        Meta(
            description="Directory or URI under which tables are created (for REST: the warehouse's name).",
            extra={"path": _is_directory},
        ),
    ]
    catalog: Annotated[str, Meta(description="Type of the pyiceberg catalog: sql, rest, hive, glue, dynamodb.")] = "sql"
    catalog_name: Annotated[str, Meta(description="Name of the catalog.")] = "lakeward"
    uri: Annotated[str, Meta(description="URI of the catalog; for sql, empty means WAREHOUSE/catalog.db (SQLite).")] = (
        ""
    )
    properties: Annotated[
        Mapping[str, str],
        Meta(description="Further properties of the pyiceberg catalog and its file system.", extra={"secret": True}),
    ] = msgspec.field(default_factory=dict)
    target_file_size_bytes: Annotated[
        int, Meta(gt=0, description="A data file is closed at this size in bytes, compressed.")
    ] = 128 * 1024 * 1024
    compression: Annotated[
        Literal["zstd", "snappy", "lz4", "gzip", "brotli", "none"],
        Meta(description="Codec of data files. A lake table's property `write.parquet.compression-codec` wins."),
    ] = "zstd"
    compression_level: Annotated[
        int,
        Meta(
            description="Level of the codec, where it has one; 1 is faster, 3 is smaller. A lake table's property "
            "`write.parquet.compression-level` wins."
        ),
    ] = 1
    compaction: Annotated[
        Literal["own", "none"],
        Meta(
            description="Who merges small data files, and data files with many deleted rows: this service, in slots "
            "that no round needs, or none, where another engine does it."
        ),
    ] = "own"
    compaction_files: Annotated[
        int, Meta(ge=2, description="From so many small files of a partition (and bucket) on, they are merged.")
    ] = 5
    compaction_most_files: Annotated[
        int, Meta(ge=2, description="As `compaction_files`, of a partition that is still written to.")
    ] = 20
    compaction_quiet_s: Annotated[
        float, Meta(ge=0, description="Seconds after which a partition without new files is no longer written to.")
    ] = 600.0
    compaction_age_s: Annotated[
        float,
        Meta(ge=0, description="Seconds without new files after which two small files of a partition are enough."),
    ] = 86_400.0
    compaction_deletes: Annotated[
        float,
        Meta(gt=0, le=1, description="A data file is written anew once so large a share of its rows is deleted."),
    ] = 0.3
    compaction_delete_files: Annotated[
        int,
        Meta(
            ge=2,
            description="From so many files of position deletes of a data file (or shared by a partition) on, they "
            "become one; from two on where the partition is no longer written to.",
        ),
    ] = 5
    keep_snapshots: Annotated[
        int,
        Meta(
            gt=0,
            description="So many of the newest snapshots of a table are kept at least. A lake table's property "
            "`history.expire.min-snapshots-to-keep`, or what its branch says, wins.",
        ),
    ] = 20
    keep_snapshots_s: Annotated[
        float,
        Meta(
            ge=0,
            description="Older snapshots are kept for so many seconds, for readers that take long: each commit writes "
            "them all into the metadata. A lake table's property `history.expire.max-snapshot-age-ms`, or what its "
            "branch says, wins.",
        ),
    ] = 0.0
    commit_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds that one call to the catalog may take; then its outcome is unknown.")
    ] = COMMIT_TIMEOUT_S
