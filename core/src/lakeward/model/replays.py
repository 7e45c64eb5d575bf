"""A replay of dead letters: what it works on, and what became of each letter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.dead_letters import Reason
    from lakeward.model.events import Deploy
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import BucketState, TableBucket, TableSpec


@dataclass(frozen=True, slots=True)
class ReplayWork:
    """The table that rows are put into. Its lake has all records below `tiered`; `buckets` are the source's, as now.

    `deploy` says how the lake is written, and how the source is read: of keyed tables, the keys alone.
    """

    table: TableSpec
    deploy: Deploy
    tiered: Mapping[TableBucket, int]
    buckets: Mapping[TableBucket, BucketState]


@dataclass(slots=True)
class Replayed:
    """What became of letters, by their digests: the rows of the applied ones are in `files`, others stay."""

    files: tuple[LakeFile, ...] = ()
    applied: list[bytes] = field(default_factory=list)
    stay: dict[bytes, Reason] = field(default_factory=dict)


def keys_alone(table: TableSpec) -> TableSpec:
    """Return a table with its keys alone, for a reader that is to say when they were written; all of one without."""
    table, keys = table.as_read, {*table.primary_key, *table.partition_keys}
    if not table.has_primary_key:
        return table
    kept = [one for one in table.schema if one.name in keys]
    others = tuple(name for name in table.schema.names if name not in keys)
    return replace(table, schema=pa.schema(kept, table.schema.metadata), left_out=(*table.left_out, *others))
