"""A table with several partition fields of one decimal type, and the named types in its manifests."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import ManifestEntry

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_iceberg_kit.partitioned import PartitionedRound, layout, records
from lakeward_testing.lake_tables import incarnation, key_table

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile

    from lakeward.hooks.plugins import PartitioningLakePlugin
    from lakeward.ports import Lake

PRICES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("tax", pa.decimal128(9, 2)),
        pa.field("name", pa.string()),
    ]
)
ALIKE = layout("price", "tax", "truncate(1000, price)", "bucket(3, tax)", "truncate(7, tax)")


def tier_prices(plugin: PartitioningLakePlugin, lake: Lake, rounds: int) -> dict[int, str]:
    """Commit rounds to a primary-key table, each with a new row and an update of the one before; return the names."""
    names: dict[int, str] = {}
    for number in range(1, rounds + 1):
        tiering = PartitionedRound(plugin, lake, key_table(PRICES, lake_partition=ALIKE), incarnation(), number)
        written = dict.fromkeys([*[*names][-1:], number], f"of round {number}")
        names |= written
        rows = [
            {"id": one, "price": Decimal(-one), "tax": Decimal(one).scaleb(-1), "name": name}
            for one, name in written.items()
        ]
        changes = [Change.UPDATE_AFTER] * len(rows)
        tiering.fan_out(records(rows, schema=PRICES, changes=changes, start=number * 100))
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    return names


def named_twice(manifest: ManifestFile, io: FileIO) -> set[str]:
    """Return the names that a manifest's Avro schema defines more than once."""
    with AvroFile[ManifestEntry](io.new_input(manifest.manifest_path)) as file:
        names = Counter(_names(json.loads(file.header.meta["avro.schema"])))
    return {name for name, times in names.items() if times > 1}


def spoil(manifest: ManifestFile) -> None:
    """Overwrite the header of a manifest, so that nobody can read it."""
    path = Path(manifest.manifest_path.removeprefix("file://"))
    path.write_bytes(b"spoilt" * (path.stat().st_size // 6))


def _names(schema: Any) -> list[str]:  # noqa: ANN401 - any part of an Avro schema
    if isinstance(schema, list):
        return [name for one in schema for name in _names(one)]
    if not isinstance(schema, dict):
        return []
    kind = schema.get("type")
    own = [schema["name"]] if isinstance(kind, str) and kind in {"fixed", "record", "enum"} else []
    return own + [name for key in ("type", "fields", "items", "values") for name in _names(schema.get(key))]
