"""The keys of the `[lake]` section for `type = "paimon"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from lakeward.model.options import Meta, Options
from lakeward.model.settings import COMMIT_TIMEOUT_S

_LOCKED = (
    "Tables of a {} catalog are committed to under a lock that only Paimon's own code takes: leave them to Fluss's own "
    "tiering service, or have them in a REST catalog or a warehouse of folders"
)


def _is_directory(given: Mapping[str, object]) -> bool:
    """Return whether the warehouse is a path; a REST catalog has names of its own for its warehouses."""
    return given.get("metastore", "filesystem") == "filesystem"


class PaimonOptions(Options, frozen=True, kw_only=True):
    """Where the tables lie, and how files are written."""

    warehouse: Annotated[
        str,
        Meta(
            description="Directory or URI of the warehouse: tables lie in `WAREHOUSE/DATABASE.db/TABLE`. For REST: the "
            "warehouse's name.",
            extra={"path": _is_directory},
        ),
    ]
    metastore: Annotated[
        Literal["filesystem", "rest"],
        Meta(
            description="Which catalog knows the tables, as Paimon names it: `filesystem`, the warehouse itself, or "
            "`rest`, a REST catalog, which says where a table lies and commits.",
            extra={"refused": {"hive": _LOCKED.format("Hive"), "jdbc": _LOCKED.format("JDBC")}},
        ),
    ] = "filesystem"
    uri: Annotated[str, Meta(description="Address of a REST catalog, such as `https://host/path`.")] = ""
    properties: Annotated[
        Mapping[str, str],
        Meta(
            description="Further properties of the file system, such as `s3.endpoint`, and of a REST catalog: `token`, "
            "and headers as `header.NAME`.",
            extra={"secret": True},
        ),
    ] = msgspec.field(default_factory=dict)
    target_file_size_bytes: Annotated[
        int, Meta(gt=0, description="A data file is closed at this size in bytes, compressed.")
    ] = 128 * 1024 * 1024
    compression: Annotated[
        Literal["zstd", "snappy", "lz4", "gzip", "brotli", "none"],
        Meta(description="Codec of data files. A table's option `file.compression` wins."),
    ] = "zstd"
    compression_level: Annotated[int, Meta(description="Level of the codec, where it has one.")] = 1
    compaction: Annotated[
        Literal["own", "none"],
        Meta(
            description="Who compacts tables with a primary key: this service, in slots that no round needs, or none, "
            "where another engine does it. Tables with the option `write-only = true` are left alone in any case."
        ),
    ] = "own"
    keep_snapshots: Annotated[int, Meta(gt=0, description="So many of the newest snapshots of a table are kept.")] = 20
    commit_timeout_s: Annotated[
        float, Meta(gt=0, description="Seconds that one call to the catalog may take; then its outcome is unknown.")
    ] = COMMIT_TIMEOUT_S
