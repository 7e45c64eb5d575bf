"""The simulator itself: seeds pass, a seed replays exactly, and its story can be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakeward_simulator.scenario import run_seed

pytestmark = pytest.mark.slow

HERE = str(Path(__file__).parent)


@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in (0, 20)], ids=str)
def test_everything_is_in_the_lake_once_and_nothing_is_left(seeds: range) -> None:
    failed = {seed: found for seed in seeds if (found := run_seed(seed).failures)}
    assert failed == {}


def test_a_seed_replays_exactly() -> None:
    assert run_seed(7, story=True).lines == run_seed(7, story=True).lines


@pytest.mark.parametrize("seed", ["96"])
def test_a_seed_replays_exactly_in_another_process_with_other_hashes(seed: str) -> None:
    told = []
    for hashes in ("1", "2"):
        command = [sys.executable, "-m", "lakeward_simulator", "--seed", seed, "--story"]
        env = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": HERE}
        run = subprocess.run(command, env=env, capture_output=True, text=True, encoding="utf-8", check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        told.append(run.stdout)
    assert told[0] == told[1]
    assert "everything" in told[0] or "faults are over" in told[0]


@pytest.mark.parametrize("kind", ["job crash", "graceful stop", "store fails"])
def test_a_fault_that_is_aimed_at_a_round_that_settles_finds_one(kind: str) -> None:
    aim = (kind, "settle")
    assert any(run_seed(seed, aim=aim).hits[aim] for seed in range(20))
