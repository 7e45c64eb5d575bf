"""Names that differ in case alone are found at any depth, with their paths."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakeward.model.alike_names import alike_names

ID, OTHER = pa.field("id", pa.int64()), pa.field("Id", pa.int64())
TWICE = pa.struct([ID, OTHER])


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (TWICE, "a"),
        (pa.list_(TWICE), "a.element"),
        (pa.large_list(TWICE), "a.element"),
        (pa.list_(TWICE, 2), "a.element"),
        (pa.map_(pa.string(), TWICE), "a.value"),
        (pa.map_(TWICE, pa.string()), "a.key"),
        (pa.struct([pa.field("b", TWICE)]), "a.b"),
        (pa.list_(pa.map_(pa.string(), pa.struct([pa.field("b", pa.list_(TWICE))]))), "a.element.value.b.element"),
    ],
)
def test_fields_of_a_nested_row_that_differ_in_case_alone_are_found_with_their_path(
    kind: pa.DataType, path: str
) -> None:
    assert list(alike_names([pa.field("a", kind)])) == [(f"{path}.id", f"{path}.Id")]


def test_columns_that_differ_in_case_alone_are_found_beside_those_in_them() -> None:
    columns = [pa.field("a", TWICE), pa.field("A", TWICE)]
    assert list(alike_names(columns)) == [("a.id", "a.Id"), ("a", "A"), ("A.id", "A.Id")]


def test_the_same_name_in_different_rows_is_no_such_pair() -> None:
    apart = [pa.field("a", pa.struct([ID])), pa.field("b", pa.list_(pa.struct([OTHER]))), ID]
    assert list(alike_names(apart)) == []
