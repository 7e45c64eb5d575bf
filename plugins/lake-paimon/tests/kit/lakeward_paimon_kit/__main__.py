"""Runs seeds: `python plugins/lake-paimon/tests/kit/lakeward_paimon_kit --seeds 0..1000 [--story]`.

Without a range: so many as `--count`, from a number of the day on.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from lakeward_paimon_kit.met import never_met
from lakeward_paimon_kit.mistakes import MISTAKES, made
from lakeward_paimon_kit.simulation import first_of_today, run_seed

if TYPE_CHECKING:
    from lakeward_paimon_kit.simulation import Outcome

_CHUNK = 20
"""Seeds that a worker takes at a time."""
_CHUNKS = 5
"""Chunks after which another process takes a worker's place, and what seeds have left goes with it."""


def main() -> int:
    """Run, and say what was found; 1 where a seed failed, or a trouble was never met."""
    parser = argparse.ArgumentParser(description="The real Paimon lake behind a faulty store, in seeded runs.")
    parser.add_argument("--seeds", help="FIRST..LAST, the last one left out; else --count from today's on")
    parser.add_argument("--count", type=int, default=100, help="so many, from a number of the day (UTC) on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--complete", action="store_true", help="fail if a kind of trouble was never met")
    parser.add_argument("--story", action="store_true", help="say what happened in each failed seed")
    parser.add_argument("--mistake", default="", choices=MISTAKES, help="make a mistake that the seeds have to find")
    options = parser.parse_args()
    seeds = _seeds(options.seeds, options.count)
    print(f"seeds {seeds.start}..{seeds.stop}", flush=True)  # noqa: T201
    # What chance has left out in so many seeds is looked for in as many more.
    most = 2 * len(seeds) if options.complete else len(seeds)
    started = time.monotonic()
    faults: Counter[str] = Counter()
    done = failed = 0
    with Pool(options.jobs, _begin, maxtasksperchild=_CHUNKS) as pool:
        asked = ((seeds.start + number, options.mistake) for number in range(most))
        for outcome in pool.imap(_run, asked, chunksize=_CHUNK):
            done += 1
            faults += outcome.faults
            if outcome.failure:
                failed += 1
                print(f"seed {outcome.seed}: {outcome.failure}", flush=True)  # noqa: T201 - a command says what it found
                for line in outcome.story if options.story else ():
                    print(f"    {line}")  # noqa: T201
            if done >= len(seeds) and not never_met(faults):
                break
    seconds = time.monotonic() - started
    print(f"{done} seeds in {seconds:.1f} s, {failed} failed; met: {dict(sorted(faults.items()))}")  # noqa: T201
    missing = never_met(faults) if options.complete else []
    for trouble in missing:
        print(f"never met: {trouble}")  # noqa: T201
    return int(failed > 0 or bool(missing))


def _seeds(named: str | None, count: int) -> range:
    if named is None:
        first = first_of_today()
        return range(first, first + count)
    first_word, _, last_word = named.partition("..")
    return range(int(first_word), int(last_word))


def _begin() -> None:
    """Begin a worker. It looks for no garbage: that takes longer than to begin the next one."""
    gc.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def _run(what: tuple[int, str]) -> Outcome:
    seed, mistake = what
    with made(mistake):
        return run_seed(seed)


if __name__ == "__main__":
    sys.exit(main())
