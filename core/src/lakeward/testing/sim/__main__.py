"""`python -m lakeward.testing.sim`: run seeds, tell the story of one, print what was hit."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from multiprocessing import Pool

from lakeward.testing.sim.scenario import Outcome, run_seed
from lakeward.testing.sim.table import empty, show

_COLLECT = 20
"""Seeds between two looks for garbage."""


def main() -> int:
    """Run what the command line asks for; return 1 if a seed failed or a cell of the table is empty."""
    parser = argparse.ArgumentParser(prog="python -m lakeward.testing.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--story", action="store_true", help="with --seed: tell what happened")
    parser.add_argument("--seeds", default="0..5000", help="run these: FIRST..LAST, the last one left out")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the tenth failure")
    parser.add_argument("--complete", action="store_true", help="fail if a fault that can occur at a step never did")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed, story=options.story)
    first, _, last = options.seeds.partition("..")
    most = 10**9 if options.keep_going else 10
    return _many(range(int(first), int(last)), options.jobs, most, complete=options.complete)


def _one(seed: int, *, story: bool) -> int:
    outcome = run_seed(seed, story=story)
    for line in outcome.lines:
        _say(line)
    for failure in outcome.failures:
        _say(f"FAILED: {failure}")
    _say(f"seed {seed}: {'failed' if outcome.failures else 'passed'} after {outcome.virtual_s:.0f} s of virtual time")
    return 1 if outcome.failures else 0


def _many(seeds: range, jobs: int, most: int, *, complete: bool) -> int:
    started = time.perf_counter()
    hits: Counter[tuple[str, str]] = Counter()
    done = failed = 0
    with Pool(jobs) as pool:
        for outcome in pool.imap(_run, seeds, chunksize=20):
            done += 1
            hits += outcome.hits
            if outcome.failures:
                failed += 1
                _tell(outcome, story=failed == 1)
            if failed >= most:
                break
    seconds = time.perf_counter() - started
    _say(show(hits))
    _say(f"{done} seeds, {failed} failed, {seconds:.1f} s, {done / seconds / jobs:.0f} a second a process")
    missing = empty(hits) if complete else []
    for cell in missing:
        _say(f"never hit: {cell}")
    return 1 if failed or missing else 0


def _run(seed: int) -> Outcome:
    """Run one seed in a worker; garbage is looked for between seeds, which is much faster."""
    gc.disable()
    outcome = run_seed(seed)
    if seed % _COLLECT == 0:
        gc.collect()
    return outcome


def _tell(outcome: Outcome, *, story: bool) -> None:
    if story:  # of the first failure alone: what happened, in the order it happened
        for line in run_seed(outcome.seed, story=True).lines:
            _say(line)
    _say(f"seed {outcome.seed} FAILED: {outcome.failures[0]}")
    _say(f"    python -m lakeward.testing.sim --seed {outcome.seed} --story")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
