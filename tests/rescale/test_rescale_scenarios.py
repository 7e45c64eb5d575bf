"""What seeds draw: each choice takes all its values, else runs would show less than they say."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, get_args

import pytest

from lakeward_rescale.scenario import Instant, Killed, Scenario, When

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(200)


def test_each_choice_of_a_seed_takes_all_its_values() -> None:
    drawn = [Scenario.of(seed) for seed in SEEDS]
    failures = [failure for scenario in drawn for failure in scenario.failures]
    assert {one.during_recovery for one in drawn} == {True, False}
    assert {one.snapshots for one in drawn} == {True, False}
    assert {one.commit_every_s > 0 for one in drawn} == {True, False}
    assert {one.aligned_timeout_s > 0 for one in drawn} == {True, False}
    assert {one.killed for one in failures} == {*get_args(Killed)}
    assert {one.when for one in failures} == {*get_args(When)}
    assert {one.instant for one in failures} == {*get_args(Instant)}
    assert {one.linger_s > 0 for one in failures} == {True, False}
    for table in drawn[0].sizes:
        assert {size for one in drawn for size in one.sizes[table]} == set(range(1, 8))


def test_flags_are_drawn_apart_from_each_other() -> None:
    """Also together they take all values, so that no two are one."""
    drawn = [Scenario.of(seed) for seed in SEEDS]
    assert len({(one.during_recovery, one.snapshots, one.aligned_timeout_s > 0) for one in drawn}) == 8


def bug_20_draws_the_same_for_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed goes nowhere."""
    drawing = random.Random
    monkeypatch.setattr("lakeward_rescale.scenario.random.Random", lambda _seed: drawing(1))


def bug_20_draws_one_value_of_each_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag is a comparison that always comes out the same."""

    class Wrong(random.Random):
        def random(self) -> float:
            return super().random() / 4

    monkeypatch.setattr("lakeward_rescale.scenario.random.Random", Wrong)


@pytest.mark.parametrize("bug", [bug_20_draws_the_same_for_every_seed, bug_20_draws_one_value_of_each_flag])
def test_flags_that_are_not_drawn_are_found(
    monkeypatch: pytest.MonkeyPatch, bug: Callable[[pytest.MonkeyPatch], None]
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        test_each_choice_of_a_seed_takes_all_its_values()
