"""The keys of the `[lake]` section for `type = "iceberg"`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def _is_directory(given: Mapping[str, object]) -> bool:
    """Say whether the warehouse is a place of ours; a REST catalog has names of its own for its warehouses."""
    return given.get("catalog", "sql") == "sql"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergOptions:
    """Where the tables lie, which catalog knows them, and what files are made like."""

    warehouse: str = field(
        metadata={
            "description": "Directory or URI under which tables are created (for REST: the warehouse's name).",
            "path": _is_directory,
        }
    )
    catalog: str = field(
        default="sql", metadata={"description": "Type of the pyiceberg catalog: sql, rest, hive, glue, dynamodb."}
    )
    catalog_name: str = field(default="lakeward", metadata={"description": "Name of the catalog."})
    uri: str = field(
        default="", metadata={"description": "URI of the catalog; for sql, empty means WAREHOUSE/catalog.db (SQLite)."}
    )
    properties: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"description": "Further properties of the pyiceberg catalog and its file system.", "secret": True},
    )
    target_file_size_bytes: int = field(
        default=128 * 1024 * 1024,
        metadata={"description": "A data file is closed at this size in bytes, compressed."},
    )
    compression: str = field(
        default="zstd", metadata={"description": "Codec of data files: zstd, snappy, lz4, gzip, brotli or none."}
    )
    compression_level: int = field(
        default=3, metadata={"description": "Level of the codec, where it has one; 1 is faster, 3 is smaller."}
    )
    keep_snapshots: int = field(
        default=20, metadata={"description": "So many of the newest snapshots of a table are kept, > 0."}
    )
    commit_timeout_s: float = field(
        default=60.0,
        metadata={"description": "Seconds that one call to the catalog may take, > 0; then its outcome is unknown."},
    )
