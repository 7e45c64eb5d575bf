"""Columns whose names look like the path of a nested field: bounds, encodings and keys are each column's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import SchemaMismatchError
from lakeward.model.results import CommitOutcome
from lakeward.model.tables import Change
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, key_table, log_split, log_table, source_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog

    from lakeward_lake_iceberg.lake import IcebergLake
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
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog, name: str, kind: pa.DataType, *, first: bool
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
    plugin: IcebergLakePlugin, lake: IcebergLake, read_table: Callable[..., pa.Table], name: str
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


INNER = pa.struct([("a", pa.int32())])
CLASHES = {
    "'r.a'": [pa.field("r.a", pa.int64()), pa.field("r", INNER)],
    "'r.r.a'": [pa.field("r", pa.struct([("r.a", pa.int32()), ("r", INNER)]))],
    "'l.element'": [pa.field("l", pa.list_(pa.int8())), pa.field("l.element", pa.int64())],
    "'l.element.a'": [pa.field("l.element.a", pa.int64()), pa.field("l", pa.list_(INNER))],
    "'m.key'": [pa.field("m.key", pa.int64()), pa.field("m", pa.map_(pa.int8(), pa.int8()))],
    "'m.value'": [pa.field("m.value", pa.int64()), pa.field("m", pa.map_(pa.int8(), pa.int8()))],
    "'d.a'": [pa.field("d", pa.struct([("a", pa.int32()), ("a", pa.int64())]))],
    "'twice'": [pa.field("twice", pa.int32()), pa.field("twice", pa.int64())],
}


@pytest.mark.parametrize("path", CLASHES)
def test_two_fields_of_one_path_are_refused_with_words(lake: IcebergLake, path: str) -> None:
    table = log_table(pa.schema(CLASHES[path]))
    for refuse in (lambda: lake.check_schema(table), lambda: lake.open_table(table, incarnation())):
        with pytest.raises(SchemaMismatchError, match=rf"shop\.orders: column {path}: expected") as refused:
            refuse()
        assert refused.value.permanent


def test_a_row_without_fields_is_refused_with_words(lake: IcebergLake) -> None:
    table = log_table(pa.schema([pa.field("nothing", pa.list_(pa.struct([])))]))
    with pytest.raises(SchemaMismatchError, match=r"column 'nothing': type struct<> has no form in Iceberg"):
        lake.check_schema(table)


def test_names_that_differ_in_case_alone_are_columns_of_their_own(
    plugin: IcebergLakePlugin, lake: IcebergLake, catalog: SqlCatalog
) -> None:
    schema = pa.schema([("Id", pa.int64()), ("id", pa.int64()), ("r", pa.struct([("A", pa.int8()), ("a", pa.int8())]))])
    tiering = TieringRound(plugin, lake, log_table(schema), incarnation())
    row = {"Id": 1, "id": 2, "r": {"A": 3, "a": 4}}
    tiering.write(log_split(tiering.table), [source_batch(schema, [row])])
    assert lake.commit(tiering.request()) is CommitOutcome.LANDED
    (found,) = catalog.load_table("shop.orders").scan().to_arrow().select(schema.names).to_pylist()
    assert found == row


def test_a_column_with_a_dot_in_its_name_is_added_to_a_table(lake: IcebergLake, catalog: SqlCatalog) -> None:
    schema = pa.schema([pa.field("id", pa.int32())])
    lake.open_table(log_table(schema), incarnation())
    wider = pa.schema([pa.field("id", pa.int64()), pa.field("x.y", pa.string())])
    lake.open_table(log_table(wider), incarnation())
    found = [(field.name, str(field.field_type)) for field in catalog.load_table("shop.orders").schema().fields]
    assert found[:2] == [("id", "long"), ("x.y", "string")]
