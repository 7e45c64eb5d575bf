"""Runs seeds: `python plugins/lake-paimon/tests/kit/lakeward_paimon_kit --seeds 0..1000 [--story]`.

Without a range: some of the day's own.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from lakeward.clock import SystemClock
from lakeward_paimon_kit.mistakes import MISTAKES, made
from lakeward_paimon_kit.simulation import run_seed


def main() -> int:
    """Run, and say what was found; 1 where a seed failed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    parser = argparse.ArgumentParser(description="The real Paimon lake behind a faulty store, in seeded runs.")
    today = SystemClock().wall_ms() // 86_400_000 * 1000
    parser.add_argument("--seeds", default=f"{today}..{today + 100}", help="from..to, without the last one")
    parser.add_argument("--story", action="store_true", help="say what happened in each failed seed")
    parser.add_argument("--mistake", default="", choices=MISTAKES, help="make a mistake that the seeds have to find")
    options = parser.parse_args()
    first, last = (int(part) for part in options.seeds.split(".."))
    print(f"seeds {first}..{last}", flush=True)  # noqa: T201
    started = time.monotonic()
    faults: Counter[str] = Counter()
    failed = 0
    for seed in range(first, last):
        with made(options.mistake):
            outcome = run_seed(seed)
        faults += outcome.faults
        if outcome.failure:
            failed += 1
            print(f"seed {seed}: {outcome.failure}", flush=True)  # noqa: T201 - a command says what it found
            for line in outcome.story if options.story else ():
                print(f"    {line}")  # noqa: T201
    seconds = time.monotonic() - started
    print(f"{last - first} seeds in {seconds:.1f} s, {failed} failed; faults: {dict(sorted(faults.items()))}")  # noqa: T201
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
