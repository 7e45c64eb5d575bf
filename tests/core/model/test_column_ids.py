"""Who has renamed a column: the source, and the lake follows, or somebody in the lake, and rows follow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakeward.errors import CommitConflictError, SchemaMismatchError
from lakeward.model.column_ids import (
    KnownColumn,
    check_names_stayed,
    column_id,
    columns_by_id,
    lake_columns,
    plan_columns,
    read_columns,
    store_columns,
    with_column_id,
    written_columns,
)
from lakeward.model.results import LakeColumn, LakeHead
from lakeward_testing.lake_tables import key_table, log_table

if TYPE_CHECKING:
    from lakeward.model.tables import TableSpec

KNOWN = {0: KnownColumn(1, "id"), 1: KnownColumn(2, "name")}


def table(*, union_read: bool = False, **ids: int) -> TableSpec:
    """Return a table of columns of these names, by the source's ids."""
    schema = pa.schema([with_column_id(pa.field(name, pa.string()), number) for name, number in ids.items()])
    return log_table(schema, union_read=union_read)


def test_columns_of_a_lake_table_that_knows_none_yet_are_known_by_their_names() -> None:
    plan = plan_columns(table(id=0, name=1), {}, {1: "id", 2: "name", 9: "extra"})
    assert (plan.renames, plan.names, plan.known) == ({}, {}, KNOWN)


def test_a_column_that_the_source_has_renamed_is_renamed() -> None:
    plan = plan_columns(table(id=0, label=1), KNOWN, {1: "id", 2: "name"})
    assert (plan.renames, plan.names) == ({2: "label"}, {})
    assert plan.known[1] == KnownColumn(2, "label")


def test_two_columns_that_change_their_names_are_both_renamed() -> None:
    plan = plan_columns(table(name=0, id=1), KNOWN, {1: "id", 2: "name"})
    assert plan.renames == {1: "name", 2: "id"}


def test_the_name_of_a_renamed_column_may_be_that_of_a_new_one() -> None:
    plan = plan_columns(table(id=0, label=1, name=2), KNOWN, {1: "id", 2: "name"})
    assert plan.renames == {2: "label"}
    assert 2 not in plan.known


def test_a_column_that_somebody_has_renamed_in_the_lake_is_written_under_its_new_name() -> None:
    plan = plan_columns(table(id=0, name=1), KNOWN, {1: "id", 2: "label"})
    assert (plan.renames, plan.names, plan.known) == ({}, {"name": "label"}, KNOWN)


def test_the_name_that_somebody_gave_in_the_lake_stays_when_the_source_renames_the_column_too() -> None:
    plan = plan_columns(table(id=0, title=1), KNOWN, {1: "id", 2: "label"})
    assert (plan.renames, plan.names) == ({}, {"title": "label"})
    assert plan.known[1] == KnownColumn(2, "title")


def test_a_name_that_the_sources_clients_would_not_find_is_not_followed() -> None:
    assert plan_columns(table(id=0, name=1, union_read=True), KNOWN, {1: "id", 2: "label"}).names == {}
    added = plan_columns(table(id=0, name=1, union_read=True), KNOWN, {1: "id", 2: "label", 3: "name"})
    assert added.known[1] == KnownColumn(3, "name")


def test_a_column_that_was_dropped_at_the_source_and_comes_back_is_the_same_one() -> None:
    gone = plan_columns(table(id=0), KNOWN, {1: "id", 2: "name"})
    assert gone.known == KNOWN
    back = plan_columns(table(id=0, name=5), gone.known, {1: "id", 2: "name"})
    assert (back.renames, back.names) == ({}, {})
    assert back.known == {0: KnownColumn(1, "id"), 5: KnownColumn(2, "name")}


def test_a_name_that_another_column_of_the_lake_table_has_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        SchemaMismatchError, match=r"renamed column 'id' to 'name', .* Rename that one \(in Spark: ALTER TABLE"
    ):
        plan_columns(table(name=0), KNOWN, {1: "id", 2: "name"})


def test_a_new_column_of_the_name_that_somebody_gave_to_another_one_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        SchemaMismatchError, match=r"has a column 'label', .* renamed 'name' to that.*`label` TO `name`"
    ):
        plan_columns(table(id=0, name=1, label=2), KNOWN, {1: "id", 2: "label"})


def test_a_column_without_an_id_is_found_by_its_name_alone() -> None:
    plain = log_table(pa.schema([pa.field("id", pa.string())]))
    plan = plan_columns(plain, {}, {1: "id"})
    assert (plan.renames, plan.names, plan.known) == ({}, {}, {})


def test_what_a_lake_keeps_is_read_as_it_was() -> None:
    assert read_columns(store_columns(KNOWN), "w") == KNOWN
    assert store_columns(KNOWN) == '{"0":[1,"id"],"1":[2,"name"]}'
    assert read_columns(None, "w") == {}


@pytest.mark.parametrize("text", ["[1]", '{"a":[1,"b"]}', '{"1":2}', "no JSON"])
def test_what_is_damaged_is_refused_and_named(text: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"t: property lakeward\.columns: expected JSON"):
        read_columns(text, "t")


def test_rows_go_to_the_columns_as_the_lake_calls_them() -> None:
    by_id = columns_by_id(KNOWN, {1: "id", 2: "label"})
    assert by_id == {0: LakeColumn("id", "id"), 1: LakeColumn("label", "name")}
    spec = table(id=0, name=1)
    spec = replace(spec, lake_columns=lake_columns(spec.schema, by_id))
    assert spec.lake_columns == {"name": "label"}
    assert spec.as_written.schema.names == ["id", "label"]
    assert column_id(spec.as_written.schema.field("label")) == 1
    assert written_columns(spec) == ("0:id", "1:label")


def test_keys_and_partitions_have_the_lakes_names_too() -> None:
    spec = replace(key_table(), lake_columns={"id": "number"})
    assert (spec.in_lake.primary_key, spec.in_lake.schema.names[0]) == (("number",), "number")
    assert spec.primary_key == ("id",)


def test_a_column_that_is_renamed_after_a_round_has_begun_is_left_to_the_next_one() -> None:
    spec, by_id = table(id=0, name=1), columns_by_id(KNOWN, {1: "id", 2: "name"})
    head = LakeHead(spec.path, spec.table_id, "w", None, None, None, by_id=by_id)
    check_names_stayed(spec, head, dict(by_id))
    with pytest.raises(CommitConflictError, match="columns of the lake table were renamed after the round had begun"):
        check_names_stayed(spec, head, columns_by_id(KNOWN, {1: "id", 2: "label"}))
