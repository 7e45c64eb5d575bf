"""The real lake behind a faulty store, seed by seed."""

from __future__ import annotations

from collections import Counter

import pytest

from lakeward.clock import SystemClock
from lakeward_paimon_kit.mistakes import made
from lakeward_paimon_kit.simulation import run_seed

PARTS = 2
SEEDS = 6
"""In each part; `tox run -e sim-paimon` runs 1,000."""
FIRST = SystemClock().wall_ms() // 86_400_000 * 1000
"""Other seeds each day; the name of a failed test says which."""
KNOWN = 50
TROUBLES = frozenset(
    {
        "killed",
        "overtaken",
        "paused in a call",
        "stale start fenced",
        "dropped and created",
        "storage: refused",
        "storage: answer lost",
        "link: refused",
        "link: answer lost",
        "link: answer lost, and no look",
        "commit landed at a later try",
        "round failed: OutcomeUnknownError",
        "foreign append of a row",
        "foreign empty commit",
        "foreign compaction",
        "foreign compaction of planned files",
        "foreign expiry",
        "foreign tag",
        "upkeep landed",
        "upkeep void",
        "upkeep failed: FencedError",
        "expired",
        "table: log",
        "table: bucketed log",
        "table: key",
        "partitions: none",
        "partitions: source",
        "partitions: region",
        "mode: tier",
        "mode: mirror",
        "columns: legacy",
        "columns: clean",
        "store: disk",
        "store: s3",
        "store: rest",
    }
)


@pytest.mark.slow
def test_no_row_is_lost_where_each_kind_of_trouble_is_met() -> None:
    outcomes = [run_seed(seed) for seed in range(KNOWN)]
    assert {one.seed: one.failure for one in outcomes if one.failure} == {}
    met = sum((one.faults for one in outcomes), Counter[str]())
    assert TROUBLES - met.keys() == set()
    for way in ("put", "commit", "request"):
        assert len([what for what in met if what.startswith(f"{way}: ")]) > 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + PARTS * SEEDS, SEEDS))
def test_every_row_is_there_once_and_no_file_is_missing_or_left(first: int) -> None:
    failed = {seed: found for seed in range(first, first + SEEDS) if (found := run_seed(seed).failure)}
    assert failed == {}


def test_a_seed_tells_the_same_story_each_time() -> None:
    stories = [run_seed(5).story for _ in range(2)]
    assert stories[0] == stories[1]


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
        assert any(run_seed(seed).failure for seed in range(12))
