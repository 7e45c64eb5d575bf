"""A row that cannot be written stops its table, and the error says which row it is: of an exchange as of any other."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from lakeward.errors import RowError
from lakeward.model.checkpoints import SplitProgress
from lakeward.model.events import Deploy, Failed
from lakeward.model.tables import BUCKET_COLUMN, OFFSET_COLUMN
from lakeward.subtask.mailbox import Mailbox
from lakeward.subtask.reading import Read
from lakeward.subtask.row_errors import naming_exchanged_rows
from lakeward.subtask.work import SplitWork
from lakeward.subtask.writers import split_writer
from lakeward_service_kit.exchange_world import APPEND, LAYOUT, ExchangeWorld, Executor, Source, splits
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLakePlugin
from lakeward_testing.lake_tables import key_table, log_table

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.batches import SourceBatch
    from lakeward.model.tables import TableSpec

BUCKET, OFFSET = 2, 133
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])
TABLES = pytest.mark.parametrize(
    "table",
    [log_table(COLUMNS, lake_partition=LAYOUT), key_table(COLUMNS, lake_partition=LAYOUT, primary_key=("id", "name"))],
    ids=["append", "keyed"],
)
NOT_TEXT = b"\xff\xfe"


def with_bytes_that_are_no_text(bucket: int, batch: SourceBatch) -> SourceBatch:
    """Put them into `note` of one row of one bucket."""
    offsets = batch.records.column(OFFSET_COLUMN).to_pylist()
    if bucket != BUCKET or OFFSET not in offsets:
        return batch
    values = [NOT_TEXT if offset == OFFSET else b"text" for offset in offsets]
    place = batch.records.schema.get_field_index("note")
    column = pa.array(values, pa.binary()).view(pa.string())
    return replace(batch, records=batch.records.set_column(place, batch.records.schema.field(place), column))


@TABLES
def test_a_value_that_cannot_be_written_is_named_with_its_bucket_offset_and_column(
    tmp_path: Path, table: TableSpec
) -> None:
    world = ExchangeWorld(tmp_path, table, 3)
    world.may_fail = True
    world.source.alter = with_bytes_that_are_no_text
    world.assign(splits())
    world.turn()
    world.checkpoint(close_files=True)
    world.turn()
    (failed,) = [event for member in world.members for event in member.told(Failed)]
    assert (failed.code, failed.permanent) == (RowError.code, True)
    where = f"table {table.path}, bucket {BUCKET}, offset {OFFSET}, column 'note'"
    assert f"{where}: expected a value of type string, found {NOT_TEXT!r}" in failed.message


def test_of_rows_that_a_writer_refuses_without_saying_which_the_span_of_each_bucket_is_named(tmp_path: Path) -> None:
    world = ExchangeWorld(tmp_path, APPEND, 2)
    world.may_fail = True

    def refuse(subtask: int, partition: bytes) -> None:
        if subtask == 1 and partition == b'["p3"]':
            message = "not this one"
            raise pa.ArrowCapacityError(message)

    world.lake.on_write = refuse
    world.assign(splits()[:3])
    world.turn()
    world.checkpoint(close_files=True)
    world.turn()
    (failed,) = [event.message for member in world.members for event in member.told(Failed)]
    spans = r"bucket 0, offsets 3 to 291; bucket 1, offsets 3 to 291"
    assert re.search(rf"{spans}.*: cannot be written: ArrowCapacityError: not this one$", failed)


def test_rows_of_many_buckets_are_named_by_bucket_and_span_and_a_few_of_the_buckets_are_enough() -> None:
    buckets = [9, *range(9), 9]
    records = pa.record_batch({BUCKET_COLUMN: pa.array(buckets, pa.int32()), OFFSET_COLUMN: [5, *range(9), 2]})
    with pytest.raises(RowError) as caught, naming_exchanged_rows(APPEND, records.slice(7)):
        refuse_rows()
    where = "bucket 6, offsets 6 to 6; bucket 7, offsets 7 to 7; bucket 8, offsets 8 to 8; bucket 9, offsets 2 to 2"
    assert str(caught.value) == f"table shop.orders, {where}: cannot be written: OverflowError: no"
    with (
        pytest.raises(RowError, match=r"bucket 7, offsets 7 to 7 and 2 more buckets: cannot be written"),
        naming_exchanged_rows(APPEND, records),
    ):
        refuse_rows()


def test_rows_of_earlier_batches_are_not_named_and_the_table_is() -> None:
    with (
        pytest.raises(RowError, match=r"^table shop\.orders, some of the rows before: cannot be written: Overflow"),
        naming_exchanged_rows(APPEND),
    ):
        refuse_rows()


def refuse_rows() -> None:
    message = "no"
    raise OverflowError(message)


def test_without_an_exchange_a_partitioned_tables_row_is_named_as_any_other(tmp_path: Path) -> None:
    """The partition column is not in the key: the reader writes, to all partitions."""
    table = key_table(COLUMNS, lake_partition=LAYOUT)
    split = splits()[BUCKET].split
    source, mailbox, executor = Source(table), Mailbox(), Executor()
    source.alter = with_bytes_that_are_no_text
    deploy = Deploy(
        attempt=1, table=b"", source="", source_task=b"", lake="", fence_s=1.0, progress_s=1.0, open_files=64,
        lake_task=json.dumps([str(tmp_path), 0]).encode(),
    )  # fmt: skip
    progress = SplitProgress.beginning(split)
    writer = split_writer(FolderLakePlugin(), deploy, table, progress, FakeClock())
    work = SplitWork(table, progress, cast("Any", source), writer, FakeClock(), cast("Any", executor), mailbox)
    where = f"table {table.path}, bucket {BUCKET}, offset {OFFSET}, column 'note'"

    def write_all() -> None:
        while executor.turn():
            if isinstance(read := mailbox.get(0.0), Read) and read.batch is not None:
                work.write(read.batch, 0.0)
                work.read_on()
        work.close()

    with pytest.raises(RowError, match=re.escape(f"{where}: expected a value of type string, found {NOT_TEXT!r}")):
        write_all()
