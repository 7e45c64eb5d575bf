"""The rows that `lakeward verify` reads: of one snapshot, with the columns that readers see now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

from lakeward.errors import LakeError
from lakeward.model.tables import Change
from lakeward.ports import ReadableLake
from lakeward_lake_iceberg.read_rows import snapshot_rows
from lakeward_testing.lake_tables import (
    COLUMNS,
    PATH,
    TieringRound,
    head_of,
    incarnation,
    key_table,
    log_split,
    log_table,
    source_batch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin


@pytest.fixture
def snapshot(plugin: IcebergLakePlugin, lake: Lake) -> int:
    """A snapshot with two rows, whose columns are `id`, `name` and the system columns."""
    tiering = TieringRound(plugin, lake, log_table(), incarnation(), 1)
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, start=0)])
    lake.commit(tiering.request())
    found = head_of(lake).snapshot_id
    assert found is not None
    return found


def altered(catalog: SqlCatalog, *changes: tuple[str, ...]) -> Table:
    """Change the table's schema as a person does: by the name of a method of `UpdateSchema` and its arguments."""
    for method, *arguments in changes:
        more = [StringType()] if method == "add_column" else []
        with catalog.load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update:
            getattr(update, method)(*arguments, *more)
    return catalog.load_table("shop.orders")


def lost_columns(batch: pa.RecordBatch) -> dict[str, str]:
    found: dict[str, str] = json.loads((batch.schema.metadata or {}).get(b"lost_columns", b"{}"))
    return found


def read(rows: Iterator[pa.RecordBatch]) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    """Return the first batch, and all rows."""
    first = next(rows)
    return first, [row for batch in rows for row in batch.to_pylist()]


def test_a_table_that_nobody_altered_has_lost_nothing(catalog: SqlCatalog, snapshot: int) -> None:
    first, rows = read(snapshot_rows(altered(catalog), snapshot))
    assert (len(first), lost_columns(first)) == (0, {})
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, "b")]


def test_a_dropped_column_is_lost(catalog: SqlCatalog, snapshot: int) -> None:
    first, rows = read(snapshot_rows(altered(catalog, ("delete_column", "name")), snapshot))
    assert lost_columns(first) == {"name": "somebody else dropped it"}
    assert [set(row) for row in rows] == [{"id", "__bucket", "__offset", "__timestamp"}] * 2


def test_a_renamed_column_is_lost_and_what_it_is_called_now_is_said(catalog: SqlCatalog, snapshot: int) -> None:
    first, rows = read(snapshot_rows(altered(catalog, ("rename_column", "name", "label")), snapshot))
    assert lost_columns(first) == {"name": "somebody else renamed it to 'label'"}
    assert not {"name", "label"} & set(rows[0])


def test_a_column_that_was_lost_before_the_snapshot_is_lost_all_the_same(catalog: SqlCatalog, snapshot: int) -> None:
    table = altered(catalog, ("delete_column", "name"))
    table.append(table.scan(snapshot_id=snapshot).to_arrow().drop_columns(["name"]))
    now = table.metadata.current_snapshot_id
    assert now is not None
    assert now != snapshot
    assert list(lost_columns(read(snapshot_rows(catalog.load_table("shop.orders"), now))[0])) == ["name"]


def test_a_column_that_was_dropped_and_added_again_is_read_as_readers_read_it(
    catalog: SqlCatalog, snapshot: int
) -> None:
    table = altered(catalog, ("delete_column", "name"), ("add_column", "name"))
    first, rows = read(snapshot_rows(table, snapshot))
    assert lost_columns(first) == {}
    assert [row["name"] for row in rows] == [None, None]


def test_a_column_that_was_added_after_the_snapshot_is_not_read(catalog: SqlCatalog, snapshot: int) -> None:
    first, rows = read(snapshot_rows(altered(catalog, ("add_column", "more")), snapshot))
    assert lost_columns(first) == {}
    assert "more" not in rows[0]


def test_a_snapshot_that_has_expired_is_said_to_be_gone(catalog: SqlCatalog, snapshot: int) -> None:
    with pytest.raises(LakeError, match=rf"^shop\.orders: snapshot {snapshot + 1} is not there: .*; try again$"):
        next(snapshot_rows(altered(catalog), snapshot + 1))


PAIR = pa.struct([("a", pa.int32()), ("at", pa.timestamp("us"))])
ROW = {"a": 1, "at": None}
NESTED: dict[str, tuple[pa.DataType, list[object]]] = {
    "list of rows": (pa.list_(PAIR), [None, [], [None], [ROW, None], [{"a": None, "at": None}]]),
    "map of rows": (pa.map_(pa.string(), PAIR), [None, [], [("k", None)], [("k", ROW)]]),
    "list of maps": (pa.list_(pa.map_(pa.int8(), PAIR)), [None, [], [None], [[]], [[(1, None)]], [[(1, ROW)], None]]),
    "list in a row": (pa.struct([("l", pa.list_(PAIR))]), [None, {"l": None}, {"l": []}, {"l": [ROW, None]}]),
    "map in a row": (pa.struct([("m", pa.map_(pa.string(), PAIR))]), [None, {"m": None}, {"m": []}]),
    "row in a row": (pa.struct([("r", PAIR)]), [None, {"r": None}, {"r": ROW}]),
    "list of lists": (pa.list_(pa.list_(PAIR)), [None, [], [None], [[]], [[ROW], None, [None]]]),
}


@pytest.mark.parametrize("name", NESTED)
def test_null_is_not_empty_at_any_depth(plugin: IcebergLakePlugin, lake: Lake, name: str) -> None:
    kind, values = NESTED[name]
    schema = pa.schema([COLUMNS.field("id"), pa.field("v", kind)])
    table = key_table(schema, bucket_key=())
    for number in (1, 2):
        # The second round deletes the first row of the first file.
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        rows = [{"id": one, "v": value} for one, value in enumerate(values)][: None if number == 1 else 1]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * len(rows))])
        lake.commit(tiering.request())
    assert isinstance(lake, ReadableLake)
    found = {row["id"]: row["v"] for row in read(lake.read_rows(PATH, head_of(lake).snapshot_id or 0))[1]}
    assert found == {one: value.as_py() for one, value in enumerate(pa.array(values, kind))}


def test_a_file_without_a_required_column_is_named(catalog: SqlCatalog, snapshot: int) -> None:
    table = catalog.load_table("shop.orders")
    (file,) = (task.file.file_path.removeprefix("file://") for task in table.scan().plan_files())
    pq.write_table(pq.read_table(file).drop_columns(["id"]), file)
    with pytest.raises(LakeError, match=rf"{file}: expected column 'id' with field id 1, found none"):
        read(snapshot_rows(table, snapshot))


def test_a_partition_column_that_a_file_lacks_has_the_partitions_value(catalog: SqlCatalog, snapshot: int) -> None:
    table = catalog.load_table("shop.orders")
    (file,) = (task.file.file_path.removeprefix("file://") for task in table.scan().plan_files())
    pq.write_table(pq.read_table(file).drop_columns(["__bucket"]), file)
    assert [row["__bucket"] for row in read(snapshot_rows(table, snapshot))[1]] == [0, 0]
