from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.config.tables import table_rules
from lakeward.errors import ConfigError
from lakeward.model.settings import CheckpointSettings
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward.config.loaded import Loaded

    Load = Callable[..., Loaded]

FLIGHTS = TablePath("nyc", "flights")


def commit_every(loaded: Loaded) -> float:
    return table_rules(loaded, FLIGHTS).settings.commit_every


def test_checkpoints_are_on_unless_somebody_says_otherwise(load: Load, tmp_path: Path) -> None:
    settings = load().settings.checkpoint
    assert settings == CheckpointSettings(root=str(tmp_path / "lakeward-state"))
    assert (settings.interval_s, settings.retained) == (30.0, 2)


def test_an_interval_of_0_is_off(load: Load) -> None:
    assert load("", flags={"checkpoint.interval_s": "0"}).settings.checkpoint.interval_s == 0.0


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("600", 600.0), ("0.5", 0.5), ('"90"', 90.0), ('"90s"', 90.0), ('"10m"', 600.0), ('"1.5 h"', 5400.0)],
)
def test_a_duration_is_seconds_or_a_text_with_a_unit(load: Load, written: str, seconds: float) -> None:
    assert commit_every(load(f'[tables."nyc.*"]\ncommit_every = {written}')) == seconds


@pytest.mark.parametrize("written", ["90", '"90 s"', '"1.5min"'])
def test_every_key_of_seconds_takes_a_text_with_a_unit(load: Load, written: str) -> None:
    settings = load(
        f"""
        [service]
        max_round_s = {written}
        [lease]
        duration_s = {written}
        [tables."nyc.*"]
        freshness_s = {written}
        """
    ).settings
    assert settings.service.max_round_s == settings.lease.duration_s == settings.tables["nyc.*"].freshness_s == 90.0


def test_a_plugins_key_of_seconds_takes_a_text_with_a_unit(load: Load) -> None:
    assert load("", {"LAKEWARD_LAKE__COMMIT_TIMEOUT_S": "0.5 min"}).lake_options.commit_timeout_s == 30.0


@pytest.mark.parametrize("written", ['"5 parsecs"', '"0s"', "0", "true"])
def test_seconds_that_do_not_fit_are_refused_with_key_bounds_and_units(load: Load, written: str) -> None:
    expected = r'toml: service\.poll_s: expected a number of seconds above 0, or a text such as "90s", .* found '
    with pytest.raises(ConfigError, match=expected):
        load(f"[service]\npoll_s = {written}")


def test_rounds_commit_at_their_end_unless_somebody_says_otherwise(load: Load) -> None:
    assert commit_every(load()) == 0.0


@pytest.mark.parametrize("written", ['"10 moons"', '""', '"-5m"', "true", "-1", '"1e3"', "inf"])
def test_what_is_no_duration_is_refused(load: Load, written: str) -> None:
    with pytest.raises(ConfigError, match=r"commit_every: expected a number of seconds at least 0, or a text"):
        load(f'[tables."nyc.*"]\ncommit_every = {written}')


def test_steps_without_checkpoints_are_refused(load: Load) -> None:
    text = '[checkpoint]\ninterval_s = 0\n[tables."nyc.*"]\ncommit_every = "1h"'
    with pytest.raises(ConfigError, match=r'tables\."nyc\.\*"\.commit_every: expected 0 where checkpoint\.interval_s'):
        load(text)


@pytest.mark.parametrize(
    "line", ["interval_s = -1", "timeout_s = 0", "pause_s = -0.1", "tolerated = -1", "retained = 0", "retained = 1.5"]
)
def test_a_wrong_value_is_refused_by_name(load: Load, line: str) -> None:
    with pytest.raises(ConfigError, match=rf"checkpoint\.{line.split(' ', maxsplit=1)[0]}: expected "):
        load(f"[checkpoint]\n{line}")
