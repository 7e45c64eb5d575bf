"""Columns whose names look like the path of a nested field: bounds, encodings and keys are each column's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward.testing.lake_tables import PATH, TieringRound, incarnation, key_table, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward.ports import Lake
    from lakeward_lake_iceberg.plugin import IcebergLakePlugin

NESTED: dict[str, tuple[str, Callable[[pa.DataType], pa.DataType], Callable[[object], object]]] = {
    "l.list.element": ("l", pa.list_, lambda value: [value]),
    "m.key_value.key": ("m", lambda kind: pa.map_(kind, pa.int8()), lambda value: [(value, 0)]),
    "m.key_value.value": ("m", lambda kind: pa.map_(pa.int8(), kind), lambda value: [(0, value)]),
}


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("name", NESTED)
def test_a_column_named_as_a_nested_path_has_its_own_bounds(
    plugin: IcebergLakePlugin, lake: Lake, catalog: SqlCatalog, name: str, kind: pa.DataType, *, first: bool
) -> None:
    nested, type_of, value_of = NESTED[name]
    fields = [pa.field(name, pa.int64()), pa.field(nested, type_of(kind))]
    table = log_table(pa.schema(fields if first else fields[::-1]))
    tiering = TieringRound(plugin, lake, table, incarnation())
    inner: tuple[object, ...] = (100, 200) if pa.types.is_int64(kind) else ("x", "y")
    rows = [{name: number, nested: value_of(one)} for number, one in zip((-5, 7), inner, strict=True)]
    tiering.write(log_split(table), [source_batch(table.schema, rows)])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    found = catalog.load_table("shop.orders")
    (file,) = (task.file for task in found.scan().plan_files())
    field = next(field for field in found.schema().fields if field.name == name)
    bounds = (file.lower_bounds[field.field_id], file.upper_bounds[field.field_id])
    assert tuple(int.from_bytes(bound, "little", signed=True) for bound in bounds) == (-5, 7)
    assert found.scan().to_arrow()[name].to_pylist() == [-5, 7]


@pytest.mark.parametrize("name", NESTED)
def test_a_key_column_named_as_a_nested_path_is_updated_once(
    plugin: IcebergLakePlugin, lake: Lake, read_table: Callable[..., pa.Table], name: str
) -> None:
    nested, type_of, value_of = NESTED[name]
    schema = pa.schema([pa.field(nested, type_of(pa.string())), pa.field(name, pa.int64(), nullable=False)])
    table = key_table(schema, primary_key=(name,), bucket_key=())
    for number in (1, 2):
        tiering = TieringRound(plugin, lake, table, incarnation(), number)
        rows = [{name: key, nested: value_of(f"round {number}")} for key in (number, 7)]
        tiering.write(log_split(table), [source_batch(schema, rows, changes=[Change.UPDATE_AFTER] * 2)])
        assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    assert sorted(read_table(PATH)[name].to_pylist()) == [1, 2, 7]
