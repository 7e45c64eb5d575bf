"""A mirror without some of its source's columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakeward.coordinator.rounds.chosen_columns import choose_columns
from lakeward.coordinator.rounds.layout import resolve_layout
from lakeward.coordinator.rounds.mirroring import as_configured
from lakeward.errors import ConfigError
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath, TableSpec

NAMES = ("id", "name", "card_number", "card_code", "day")
SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=name != "id") for name in NAMES])
TABLE = TableSpec(TablePath("shop", "orders"), 7, 1, SCHEMA, ("id",), (), (), 1, 60.0)
LOG = replace(TABLE, primary_key=())


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ((), NAMES),
        (("*",), NAMES),
        (("id", "name"), ("id", "name")),
        (("name", "id"), ("id", "name")),
        (("!card_*",), ("id", "name", "day")),
        (("!card_number", "!day"), ("id", "name", "card_code")),
        (("id", "card_*", "!card_code"), ("id", "card_number")),
        (("!card_*", "*"), ("id", "name", "day")),
    ],
)
def test_columns_are_those_that_are_named_and_not_left_out(wanted: tuple[str, ...], names: tuple[str, ...]) -> None:
    found = as_configured(TABLE, TableSettings(mode="mirror", columns=wanted))
    assert tuple(found.schema.names) == names
    assert found.left_out == tuple(name for name in NAMES if name not in names)
    resolve_layout(found, TableSettings(mode="mirror", columns=wanted))


def test_a_table_that_is_tiered_has_all_columns() -> None:
    assert as_configured(TABLE, TableSettings(columns=("id",))).schema == SCHEMA


@pytest.mark.parametrize(
    ("table", "wanted", "said"),
    [
        (
            TABLE,
            ("id", "nmae"),
            r"found 'nmae'\. Did you mean 'name'\? Columns of shop\.orders: id, name, card_number, ",
        ),
        (LOG, ("!card_nubmer",), r"expected columns of the table, or patterns such as `card_\*`, found '!card_nubmer'"),
        (TABLE, ("name",), r"Column 'id' is in the primary key or the partition key"),
        (TABLE, ("!i*",), r"Column 'id' is in the primary key or the partition key"),
        (LOG, ("x_*",), r"expected at least one column, found \['x_\*'\]"),
        (replace(LOG, partition_keys=("day",)), ("id",), r"Column 'day' is in the primary key or the partition key"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_by_its_key(table: TableSpec, wanted: tuple[str, ...], said: str) -> None:
    rules = TableSettings(mode="mirror", columns=wanted)
    with pytest.raises(ConfigError, match=said) as refused:
        resolve_layout(as_configured(table, rules), rules)
    assert refused.value.key == 'tables."shop.orders".columns'


def test_a_partitioning_by_a_column_that_is_left_out_is_refused() -> None:
    rules = TableSettings(mode="mirror", columns=("!day",), lake_partition=("day",))
    with pytest.raises(ConfigError, match="expected columns of the table, found 'day'"):
        resolve_layout(as_configured(LOG, rules), rules)


def test_keys_stay_whatever_is_wanted_so_that_a_table_can_be_described() -> None:
    assert choose_columns(TABLE, ("!*",)).schema.names == ["id"]
