"""The real lake behind a faulty store, seed by seed."""

from __future__ import annotations

import pytest

from lakeward_paimon_kit.met import TROUBLES, never_met
from lakeward_paimon_kit.mistakes import made
from lakeward_paimon_kit.simulation import first_of_today, run_seed

PARTS = 2
SEEDS = 6
"""In each part; the gate runs 5,000 by `tox run -e sim-paimon`."""
FIRST = first_of_today()
"""Other seeds each day; the name of a failed test says which."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + PARTS * SEEDS, SEEDS))
def test_every_row_is_there_once_and_no_file_is_missing_or_left(first: int) -> None:
    failed = {seed: found for seed in range(first, first + SEEDS) if (found := run_seed(seed).failure)}
    assert failed == {}


def test_a_seed_tells_the_same_story_each_time() -> None:
    stories = [run_seed(5).story for _ in range(2)]
    assert stories[0] == stories[1]


def test_a_trouble_that_seeds_have_not_met_is_named() -> None:
    assert never_met(TROUBLES - {"killed"} | {"committed"}) == ["killed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake",
    [
        "nobody looks whose stamp is on the head",
        "an expiry deletes what tags need",
        "sequence numbers begin anew",
        "a sweep deletes without asking",
    ],
)
def test_seeds_find_a_mistake_that_is_made_on_purpose(mistake: str) -> None:
    with made(mistake):
        assert any(run_seed(seed).failure for seed in range(120))
