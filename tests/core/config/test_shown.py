from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.config.shown import shown
from lakeward.model.secrets import MASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.config.loaded import Loaded

    Load = Callable[..., Loaded]


def values(loaded: Loaded) -> dict[str, Any]:
    return {line.key: line.value for line in shown(loaded)}


def test_every_key_is_shown_once_with_its_origin(load: Load) -> None:
    lines = shown(load("[service]\nrounds = 3"))
    keys = [line.key for line in lines]
    assert len(keys) == len(set(keys))
    assert {"service.rounds", "source.path", "lake.commit_timeout_s", "observe.log"} <= set(keys)
    assert next(line.origin for line in lines if line.key == "service.rounds") == "file lakeward.toml"


def test_a_secret_key_is_masked(load: Load) -> None:
    assert values(load(flags={"source.password": "hush"}))["source.password"] == MASK


def test_an_unset_secret_is_shown_as_unset(load: Load) -> None:
    assert values(load())["source.password"] == ""


def test_a_name_in_a_free_table_that_sounds_secret_is_masked(load: Load) -> None:
    shown_values = values(
        load(flags={"source.properties.s3.secret-access-key": "hush", "source.properties.region": "x"})
    )
    assert shown_values["source.properties.s3.secret-access-key"] == MASK
    assert shown_values["source.properties.region"] == "x"


def test_a_secret_deep_in_a_free_table_is_masked(load: Load) -> None:
    shown_values = values(load("[source.extra.inner]\ntoken = 'hush'\nplain = 'x'"))
    assert shown_values["source.extra.inner"] == {"token": MASK, "plain": "x"}


def test_a_user_in_a_uri_is_masked(load: Load) -> None:
    assert (
        values(load(flags={"lake.warehouse": "jdbc://me:hush@host/db"}))["lake.warehouse"] == f"jdbc://{MASK}@host/db"
    )


def test_rules_of_tables_are_shown_as_far_as_they_are_given(load: Load) -> None:
    loaded = load('[tables."nyc.*"]\ninclude = false')
    tables = [line for line in shown(loaded) if line.key.startswith("tables")]
    assert [(line.key, line.value) for line in tables] == [('tables."nyc.*".include', False)]
