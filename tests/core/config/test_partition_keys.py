from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakeward.config.tables import modes_of, table_rules
from lakeward.errors import ConfigError
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.config.loaded import Loaded

    Load = Callable[..., Loaded]

FLIGHTS = TablePath("nyc", "flights")
PARTITIONED = 'lake_partition = ["day(at)", "bucket(4, id)"]'


@pytest.fixture
def load(load: Load) -> Load:
    """As the other tests' `load`, with a lake that can partition."""
    return partial(load, flags={"lake.type": "river"})


def rules(loaded: Loaded) -> TableSettings:
    return table_rules(loaded, FLIGHTS).settings


def test_a_table_without_a_partitioning_is_tiered_as_before(load: Load) -> None:
    assert rules(load()) == TableSettings(mode="tier", lake_partition=(), exchange="auto")


def test_a_partitioned_table_is_mirrored(load: Load) -> None:
    loaded = load(f'[tables."nyc.flights"]\n{PARTITIONED}')
    assert (rules(loaded).mode, rules(loaded).lake_partition) == ("mirror", ("day(at)", "bucket(4, id)"))
    assert modes_of(loaded.settings) == {"tier", "mirror"}


def test_a_narrower_pattern_can_take_the_partitioning_away(load: Load) -> None:
    loaded = load(f'[tables."nyc.*"]\n{PARTITIONED}\n[tables."nyc.flights"]\nlake_partition = []')
    assert (rules(loaded).mode, rules(loaded).lake_partition) == ("tier", ())


@pytest.mark.parametrize(
    "field",
    [
        *("", "day()", "weekly(at)", "bucket(id)", "bucket(0, id)", "bucket(2147483648, id)", "day(at))"),
        # Python reads numbers of at most 4,300 digits, and digits of every script.
        f"bucket({'9' * 5000}, id)",
        f"truncate({'0' * 5000}, id)",
        "bucket(\u0664, id)",
        "bucket(\u00b2, id)",
    ],
)
def test_a_field_of_another_form_is_refused_by_its_key(load: Load, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f'[tables."nyc.*"]\nlake_partition = ["id", "{field}"]')

    error = caught.value
    assert error.key == 'lakeward.toml: tables."nyc.*".lake_partition'
    assert error.found == field
    assert "`day(ts)`" in error.expected


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f'[tables."nyc.*"]\nmode = "tier"\n{PARTITIONED}', 'tables."nyc.*".mode'),
        (f'[tables."nyc.*"]\nmode = "tier"\n[tables."nyc.flights"]\n{PARTITIONED}', 'tables."nyc.flights".mode'),
        (f'[tables."nyc.*"]\n{PARTITIONED}\n[tables."nyc.flights"]\nmode = "tier"', 'tables."nyc.flights".mode'),
    ],
)
def test_a_partitioned_table_cannot_be_tiered(load: Load, text: str, key: str) -> None:
    with pytest.raises(ConfigError, match="expected `mirror`, because the table has a `lake_partition`") as caught:
        load(text)
    assert caught.value.key == f"lakeward.toml: {key}"


def test_a_misspelt_transform_is_answered_with_the_nearest(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"found 'dya' \(did you mean 'day'\?\)"):
        load('[tables."nyc.flights"]\nlake_partition = ["dya(at)"]')


def test_a_directory_for_spilled_rows_does_not_depend_on_where_an_executor_was_started(load: Load) -> None:
    with pytest.raises(ConfigError, match="absolute paths") as caught:
        load('[checkpoint]\nspill_dirs = ["/data/spill", "spill"]')
    assert (caught.value.key, caught.value.found) == ("lakeward.toml: checkpoint.spill_dirs", "spill")


@pytest.mark.parametrize(
    ("keys", "places"),
    [
        ("", ("Spark's local directories",)),
        ('spill_dirs = ["/data"]', ("/data",)),
        ("during_recovery = false", ()),
        ("unaligned = false", ()),
    ],
)
def test_checkpoints_are_taken_in_a_recovery_unless_that_is_switched_off(
    load: Load, keys: str, places: tuple[str, ...]
) -> None:
    assert load(f"[checkpoint]\n{keys}").settings.checkpoint.spill_places == places


def test_checkpoints_in_a_recovery_are_promised_only_with_unaligned_ones(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"expected checkpoint\.unaligned = true too") as caught:
        load("[checkpoint]\nunaligned = false", flags={"checkpoint.during_recovery": "true"})
    assert caught.value.key == "lakeward.toml: checkpoint.during_recovery"


def test_what_a_recovery_may_use_is_configured_as_sizes(load: Load) -> None:
    checkpoint = load('[checkpoint]\nspill_quota = "2 GiB"\nmemory = "1 MiB"').settings.checkpoint
    assert (checkpoint.spill_quota, checkpoint.memory) == (2 << 30, 1 << 20)


def test_rows_are_not_exchanged_where_spark_allocates_executors_as_it_likes(load: Load) -> None:
    spark = '[spark.conf]\n"spark.dynamicAllocation.enabled" = "True "\n'
    table = f'[tables."nyc.flights"]\n{PARTITIONED}\n'
    wanted = f'{table}exchange = "hash"\n'
    with pytest.raises(ConfigError, match=r"expected false, because the rows of .* are exchanged, found") as caught:
        load(wanted + spark)
    assert caught.value.key == "lakeward.toml: spark.conf.spark.dynamicAllocation.enabled"
    load(f'{table}exchange = "none"\n{spark}')
    assert load(table + spark).settings.spark.dynamic_allocation, "only the table says whether `auto` needs a gang"
    assert not load(wanted).settings.spark.dynamic_allocation


@pytest.mark.parametrize(
    ("written", "size"), [("1024", 1024), ('"64 MiB"', 64 << 20), ('"2GB"', 2 * 10**9), ('"0"', 0)]
)
def test_a_size_is_bytes_or_a_text_with_a_unit(load: Load, written: str, size: int) -> None:
    assert load(f"[checkpoint]\nopen_rows = {written}").settings.checkpoint.open_rows == size


@pytest.mark.parametrize("written", ['"64 moons"', '""', '"-5 MiB"', "true", "-1", "1.5"])
def test_what_is_no_size_is_refused(load: Load, written: str) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint\.open_rows: expected a number of bytes at least 0, or a text"):
        load(f"[checkpoint]\nopen_rows = {written}")


def test_a_mirror_may_go_without_system_columns(load: Load) -> None:
    assert rules(load()).system_columns is None
    loaded = load('[tables."nyc.*"]\nmode = "mirror"\nsystem_columns = false')
    assert rules(loaded).system_columns is False
    loaded = load(f'[tables."nyc.flights"]\n{PARTITIONED}\nsystem_columns = true')
    assert rules(loaded).system_columns is True


@pytest.mark.parametrize(
    ("name", "value"), [("system_columns", "true"), ("system_columns", "false"), ("columns", '["!card_*"]')]
)
def test_which_columns_a_table_has_that_is_no_mirror_is_the_servers(load: Load, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match='expected no such key without `mode = "mirror"`') as caught:
        load(f'[tables."nyc.*"]\n{name} = {value}')
    assert caught.value.key == f'lakeward.toml: tables."nyc.*".{name}'


def test_a_contract_says_what_becomes_of_new_columns_and_wider_types(load: Load) -> None:
    loaded = load('[tables."nyc.*"]\nschema = {columns = "freeze", types = "evolve"}')
    assert rules(loaded).schema == {"columns": "freeze", "types": "evolve"}
    loaded = load('[tables."nyc.flights"]\nmode = "mirror"\nschema = {columns = "discard_value"}')
    assert rules(loaded).schema == {"columns": "discard_value"}
    both = 'schema = {columns = "discard_row", types = "discard_row"}'
    loaded = load(f'[tables."nyc.flights"]\nmode = "mirror"\non_bad_row = "drop"\n{both}')
    assert rules(loaded).schema == {"columns": "discard_row", "types": "discard_row"}
    with pytest.raises(ConfigError, match="expected 'dead_letter' or 'drop', found 'suspend'"):
        load(f'[tables."nyc.flights"]\nmode = "mirror"\n{both}')


@pytest.mark.parametrize(
    ("contract", "expected"),
    [
        (
            '{columns = "frozen"}',
            "a table of 'columns', 'types', each one of 'discard_row', 'discard_value', 'evolve', ",
        ),
        ('{rows = "freeze"}', "a table of 'columns', 'types', each one of"),
        ('{types = "discard_value"}', "expected 'evolve', 'freeze' or 'discard_row', found 'discard_value'"),
        ('{types = "discard_row"}\non_bad_row = "drop"', 'expected no such key without `mode = "mirror"`'),
        ('{columns = "discard_value"}', 'expected no such key without `mode = "mirror"`'),
    ],
)
def test_a_contract_that_cannot_be_is_refused(load: Load, contract: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        load(f'[tables."nyc.*"]\nschema = {contract}')


def test_a_mirror_may_go_without_some_columns(load: Load) -> None:
    loaded = load('[tables."nyc.*"]\nmode = "mirror"\ncolumns = ["!card_*"]')
    assert rules(loaded).columns == ("!card_*",)
