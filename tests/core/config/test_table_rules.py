from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.config.tables import table_rules
from lakeward.errors import ConfigError
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.config.loaded import Loaded

    Load = Callable[..., Loaded]

FLIGHTS = TablePath("nyc", "flights")


def test_a_table_that_no_pattern_matches_has_the_defaults(load: Load) -> None:
    rules = table_rules(load('[tables."other.*"]\ninclude = false'), FLIGHTS)
    assert (rules.settings, rules.pattern) == (TableSettings(), None)


@pytest.mark.parametrize("pattern", ["nyc.*", "*.*", "*.flights", "n?c.fl*", "nyc.flights"])
def test_a_pattern_matches_names_of_database_and_table(load: Load, pattern: str) -> None:
    rules = table_rules(load(f'[tables."{pattern}"]\ninclude = false'), FLIGHTS)
    assert (rules.settings.include, rules.pattern) == (False, pattern)


@pytest.mark.parametrize("pattern", ["nyc.flight", "ny.*", "NYC.*", "*.f"])
def test_a_pattern_matches_whole_names_only(load: Load, pattern: str) -> None:
    assert table_rules(load(f'[tables."{pattern}"]\ninclude = false'), FLIGHTS).settings.include


def test_the_most_specific_pattern_wins_key_by_key(load: Load) -> None:
    loaded = load(
        """
        [tables."nyc.flights"]
        max_split_rows = 7
        [tables."nyc.*"]
        freshness_s = 5
        max_split_rows = 6
        [tables."*.*"]
        include = false
        freshness_s = 9
        """
    )
    rules = table_rules(loaded, FLIGHTS)
    assert rules.pattern == "nyc.flights"
    assert rules.settings == TableSettings(include=False, freshness_s=5.0, max_split_rows=7)


def test_a_default_that_is_stated_wins_over_a_wider_pattern(load: Load) -> None:
    loaded = load('[tables."nyc.*"]\ninclude = false\n[tables."nyc.flights"]\ninclude = true')
    assert table_rules(loaded, FLIGHTS).settings.include


def test_a_lake_that_cannot_partition_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"a lake that partitions tables by the configuration, found .*'marsh'"):
        load('[tables."nyc.*"]\nlake_partition = ["at"]')


def test_the_tables_of_a_service_are_names_or_patterns(load: Load) -> None:
    with pytest.raises(ConfigError) as refused:
        load('[service]\ntables = ["nyc.*", "flights"]')
    text = str(refused.value)
    assert "lakeward.toml: service.tables: expected names or patterns of tables, `DATABASE.TABLE`" in text
    assert "found 'flights'" in text


def test_a_service_that_neither_binds_nor_shares_tables_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"service\.shared: expected true where `service\.tables` is empty"):
        load("[service]\nshared = false")
    assert load('[service]\nshared = false\ntables = ["nyc.*"]').settings.service.tables == ("nyc.*",)


def test_the_tables_of_a_service_come_from_the_environment_too(load: Load) -> None:
    loaded = load(environ={"LAKEWARD_SERVICE__TABLES": "nyc.*, web.clicks"})
    assert loaded.settings.service.tables == ("nyc.*", "web.clicks")
