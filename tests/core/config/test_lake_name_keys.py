"""Names of lake tables in the configuration: which are refused before anything is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.config.tables import lake_path
from lakeward.errors import ConfigError
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.config.loaded import Loaded

    Load = Callable[..., Loaded]

MIRRORED = '[tables."*.*"]\nmode = "mirror"\n'


def named(load: Load, text: str) -> Loaded:
    return load(f"{MIRRORED}{text}")


def test_a_lake_table_has_the_name_and_the_namespace_that_are_configured(load: Load) -> None:
    loaded = named(load, '[tables."shop.*"]\nlake_namespace = "sales"\n[tables."shop.orders"]\nlake_name = "all"')
    found = {name: str(lake_path(loaded, TablePath.parse(name))) for name in ("shop.orders", "shop.items", "nyc.trips")}
    assert found == {"shop.orders": "sales.all", "shop.items": "sales.items", "nyc.trips": "nyc.trips"}


def test_dead_letters_lie_beside_the_lake_table_that_has_another_name(load: Load) -> None:
    loaded = named(load, '[tables."shop.orders"]\nlake_name = "all"\nlake_namespace = "sales"')
    assert str(lake_path(loaded, TablePath("shop", "orders__dead_letters"))) == "sales.all__dead_letters"


def test_a_name_for_all_tables_of_a_pattern_is_refused_and_a_namespace_is_not(load: Load) -> None:
    with pytest.raises(
        ConfigError, match=r'tables\."shop\.\*"\.lake_name: expected no such key in the section of a pat'
    ):
        named(load, '[tables."shop.*"]\nlake_name = "all"')
    named(load, '[tables."shop.*"]\nlake_namespace = "sales"')


@pytest.mark.parametrize("key", ["lake_name", "lake_namespace"])
def test_a_tiered_table_has_the_name_of_the_source(load: Load, key: str) -> None:
    with pytest.raises(ConfigError, match=rf'{key}: expected no such key without `mode = "mirror"`') as refused:
        load(f'[tables."shop.orders"]\n{key} = "all"')
    assert "The source's server names and makes the lake table" in str(refused.value)


@pytest.mark.parametrize("name", ["a.b", "a/b", " a", "a "])
@pytest.mark.parametrize("key", ["lake_name", "lake_namespace"])
def test_what_is_no_name_is_refused(load: Load, key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: expected a name without"):
        named(load, f'[tables."shop.orders"]\n{key} = "{name}"')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('lake_name = "all"', 'lake_name = "all"'),
        ('lake_name = "all"', 'lake_name = "ALL"'),
        ('lake_name = "items"', ""),
        ('lake_name = "Items"', ""),
        ('on_bad_row = "dead_letter"', 'lake_name = "orders__dead_letters"'),
        ('lake_name = "all"\non_bad_row = "dead_letter"', 'lake_name = "all__Dead_Letters"'),
    ],
)
def test_two_tables_for_one_lake_table_are_refused_and_both_are_named(
    load: Load, monkeypatch: pytest.MonkeyPatch, one: str, other: str
) -> None:
    monkeypatch.setattr("lakeward.config.loader._lake_offers", lambda *_: True)
    sections = f'[tables."shop.orders"]\n{one}\n[tables."shop.items"]\n{other}'
    with pytest.raises(ConfigError, match=r"lake_name: expected a lake table of its own for .*shop\.") as refused:
        named(load, sections)
    assert "shop.orders" in str(refused.value)
    assert "shop.items" in str(refused.value)


def test_a_table_that_is_left_out_takes_no_lake_table(load: Load) -> None:
    loaded = named(load, '[tables."shop.orders"]\nlake_name = "items"\n[tables."shop.items"]\ninclude = false')
    assert str(lake_path(loaded, TablePath("shop", "orders"))) == "shop.items"


def test_names_of_the_source_that_differ_in_case_alone_are_left_to_the_lake(load: Load) -> None:
    loaded = named(load, '[tables."shop.orders"]\nfreshness_s = 5\n[tables."shop.Orders"]\nfreshness_s = 5')
    assert {str(lake_path(loaded, TablePath("shop", name))) for name in ("orders", "Orders")} == {
        "shop.orders",
        "shop.Orders",
    }
