"""Rounds of a lake table with a partitioning of its own: rows are fanned out to partitions, as a subtask does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import DayTransform, VoidTransform

from lakeward.model.batches import SourceBatch
from lakeward.model.partitioning import PartitionField
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import BUCKET_COLUMN, Change
from lakeward_testing.lake_tables import (
    TieringRound,
    check_each_record_is_accounted_for,
    incarnation,
    key_table,
    log_split,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.catalog import Catalog

    from lakeward.hooks.plugins import PartitioningLakePlugin
    from lakeward.model.results import LakeFile
    from lakeward.ports import Lake

EVENTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us")),
        pa.field("name", pa.string()),
    ]
)
MEMORY = 8 << 20
DAY_US = 86_400_000_000
Row = tuple[int, int | None, str | None]


def layout(*texts: str) -> tuple[PartitionField, ...]:
    """Return `lake_partition` as a table has it."""
    return tuple(map(PartitionField.parse, texts))


def leave_a_void_field(catalog: Catalog) -> None:
    """Give the table the spec that dropping `bucket(4, id)` leaves in format version 1."""
    table = catalog.load_table("shop.orders")
    ids = {field.name: field.field_id for field in table.schema().fields}
    void = SpecField(ids["id"], 1000, VoidTransform(), "id_bucket_4")
    days = SpecField(ids["ts"], 1001, DayTransform(), "ts_day")
    spec = PartitionSpec(void, days, spec_id=1 + max(table.specs()))
    default = SetDefaultSpecUpdate.model_validate({"spec-id": -1})
    catalog.commit_table(table, (), (AddPartitionSpecUpdate(spec=spec), default))


class PartitionedRound(TieringRound):
    """A round whose rows are fanned out to partitions, as a subtask does."""

    def fan_out(self, rows: pa.RecordBatch, before: Mapping[bytes, tuple[LakeFile, ...]] | None = None) -> list[bytes]:
        """Write rows; return the partitions."""
        plugin = cast("PartitioningLakePlugin", self.plugin)
        found = plugin.partitioner(self.task, self.table).partition(rows)
        assert found.codes.dtype == np.int32
        for code, key in enumerate(found.partitions):
            self.write_partition(key, rows.filter(pa.array(found.codes == code)), before)
        return list(found.partitions)

    def write_partition(
        self, key: bytes, rows: pa.RecordBatch, before: Mapping[bytes, tuple[LakeFile, ...]] | None = None
    ) -> tuple[LakeFile, ...]:
        """Write the rows of one partition."""
        old = (before or {}).get(key, ())
        plugin = cast("PartitioningLakePlugin", self.plugin)
        writer = plugin.partition_writer(self.task, self.table, key, "w0", 1, old, MEMORY)
        writer.write(SourceBatch(rows, 1000))
        files = writer.close()
        if not old:
            check_each_record_is_accounted_for(rows.num_rows, files, writer)
        self.files += files
        return files


def records(
    rows: Sequence[Mapping[str, object]],
    *,
    schema: pa.Schema = EVENTS,
    changes: Sequence[int] | None = None,
    bucket: int = 0,
    start: int = 0,
    snapshot: bool = False,
) -> pa.RecordBatch:
    """Rows as a fan-out gets them: with a bucket each."""
    batch = source_batch(schema, rows, changes=changes, start=start, snapshot=snapshot).records
    return batch.append_column(BUCKET_COLUMN, pa.array(np.full(len(rows), bucket, dtype=np.int32)))


class World:
    """A primary-key table with changes of its rows and of its layout, and what its rows must be."""

    def __init__(self, plugin: PartitioningLakePlugin, lake: Lake, **fields: Any) -> None:  # noqa: ANN401 - of any type
        """Start empty; `fields` are those of the table."""
        self.plugin = plugin
        self.lake = lake
        self.fields = fields
        self.rows: dict[int, Row] = {}
        self.number = 0

    def tier(self, changes: list[tuple[int, Row | None]], wanted: tuple[PartitionField, ...]) -> PartitionedRound:
        """Commit one round: each change sets a key's row, or deletes it."""
        tiering = self.write(changes, wanted)
        assert self.lake.commit(tiering.request()) is CommitOutcome.LANDED
        return tiering

    def write(self, changes: list[tuple[int, Row | None]], wanted: tuple[PartitionField, ...]) -> PartitionedRound:
        """Write one round: before images are deletes in their own partition, as the fan-out gives them."""
        self.number += 1
        table = key_table(EVENTS, **({"lake_partition": wanted, "buckets": 1} | self.fields))
        tiering = PartitionedRound(self.plugin, self.lake, table, incarnation(), self.number)
        rows: list[Row] = []
        kinds: list[int] = []
        for key, row in changes:
            old = self.rows.pop(key, None)
            if old is not None:
                rows.append(old)
                kinds.append(Change.DELETE)
            if row is not None:
                self.rows[key] = row
                rows.append(row)
                kinds.append(Change.UPDATE_AFTER)
        named = [dict(zip(EVENTS.names, row, strict=True)) for row in rows]
        if wanted and named:
            tiering.fan_out(records(named, changes=kinds))
        elif named:
            tiering.write(log_split(table), [source_batch(EVENTS, named, changes=kinds)])
        return tiering

    def check(self, *found: pa.Table) -> None:
        """Check what readers found."""
        expected = sorted(self.rows.values(), key=repr)
        for one in found:
            columns = (one["id"].to_pylist(), one["ts"].cast(pa.int64()).to_pylist(), one["name"].to_pylist())
            assert sorted(zip(*columns, strict=True), key=repr) == expected
