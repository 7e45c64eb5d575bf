"""The real lake behind a faulty gateway, seed by seed."""

from __future__ import annotations

import pytest

from lakeward.clock import SystemClock
from lakeward_iceberg_kit.simulation import run_seed

PARTS = 4
SEEDS = 3
"""In each part; `tox run -e sim-iceberg` runs 1,000."""
FIRST = SystemClock().wall_ms() // 86_400_000 * 1000
"""Other seeds each day; the name of a failed test says which."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + PARTS * SEEDS, SEEDS))
def test_every_row_is_there_once_and_no_file_is_missing_or_left(first: int) -> None:
    failed = {seed: found for seed in range(first, first + SEEDS) if (found := run_seed(seed).failure)}
    assert failed == {}


def test_a_seed_tells_the_same_story_each_time() -> None:
    stories = [run_seed(5).story for _ in range(2)]
    assert stories[0] == stories[1]
