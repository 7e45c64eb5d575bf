"""`python -m lakeward_simulator`: run seeds, tell the story of one, print what was hit."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from multiprocessing import Pool
from typing import TYPE_CHECKING

from lakeward_simulator.cells import CELLS
from lakeward_simulator.scenario import Outcome, run_seed
from lakeward_simulator.table import empty, show

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHUNK = 20
"""Seeds that a worker takes at a time."""
_CHUNKS = 5
"""Chunks after which another process takes a worker's place: what seeds have left goes with it, 50 MB or so."""
_A_DAY = 100_000
"""Seeds from one day's first to the next day's."""
_AIMED = 200
"""Seeds that are tried at the most to hit a cell that chance has left out."""


def main() -> int:
    """Run what the command line asks for; return 1 if a seed failed or a cell of the table is empty."""
    parser = argparse.ArgumentParser(prog="python -m lakeward_simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--story", action="store_true", help="with --seed: tell what happened")
    parser.add_argument("--aim", help="with --seed: the fault that has to be among the seed's, as KIND@STEP")
    parser.add_argument("--seeds", help="run these: FIRST..LAST, the last one left out; else --count from today's on")
    parser.add_argument("--count", type=int, default=5000, help="so many, from a number of the day (UTC) on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the tenth failure")
    parser.add_argument("--complete", action="store_true", help="fail if a fault that can occur at a step never did")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed, _cell(options.aim), story=options.story)
    most = 10**9 if options.keep_going else 10
    return _many(_seeds(options.seeds, options.count), options.jobs, most, complete=options.complete)


def _seeds(named: str | None, count: int) -> range:
    """Return the seeds to run; another start each day, so that nobody tunes the product to the same few."""
    if named is None:
        first = int(time.strftime("%Y%m%d", time.gmtime())) * _A_DAY
        return range(first, first + count)
    first_word, _, last_word = named.partition("..")
    return range(int(first_word), int(last_word))


def _cell(named: str | None) -> tuple[str, str] | None:
    if named is None:
        return None
    kind, _, step = named.partition("@")
    if (kind, step) not in CELLS:
        message = f"--aim: expected KIND@STEP of the table's, found {named!r}"
        raise SystemExit(message)
    return kind, step


def _one(seed: int, aim: tuple[str, str] | None, *, story: bool) -> int:
    outcome = run_seed(seed, story=story, aim=aim)
    for line in outcome.lines:
        _say(line)
    for failure in outcome.failures:
        _say(f"FAILED: {failure}")
    _say(f"seed {seed}: {'failed' if outcome.failures else 'passed'} after {outcome.virtual_s:.0f} s of virtual time")
    return 1 if outcome.failures else 0


def _many(seeds: range, jobs: int, most: int, *, complete: bool) -> int:
    _say(f"seeds {seeds.start}..{seeds.stop}")
    started = time.perf_counter()
    tally = _Tally(most)
    with Pool(jobs, _begin, maxtasksperchild=_CHUNKS) as pool:
        tally.take(pool.imap(_run, ((seed, None) for seed in seeds), chunksize=_CHUNK))
        seconds = time.perf_counter() - started
        done, failed = tally.done, tally.failed
        missing = empty(tally.hits) if complete and failed < most else []
        for cell in missing:  # chance left it out: aim at it
            tries = range(seeds.start, seeds.start + _AIMED, jobs)
            for first in tries:
                tally.take(pool.map(_run, [(first + number, cell) for number in range(jobs)]))
                if tally.hits[cell]:
                    break
    _say(show(tally.hits))
    _say(f"{tally.recovered} checkpoints completed while rows of the one before were restored")
    _say(f"{done} seeds, {failed} failed, {seconds:.1f} s, {done / seconds / jobs:.0f} a second a process")
    if missing:
        _say(f"{tally.done - done} more, aimed at {len(missing)} cells, {tally.failed - failed} failed")
    never = [cell for cell in missing if not tally.hits[cell]]
    for kind, step in never:
        _say(f"never hit: {kind}, at {step}")
    return 1 if tally.failed or never else 0


class _Tally:
    """What came of the seeds that ran."""

    def __init__(self, most: int) -> None:
        """Count nothing yet; `most` failures are enough."""
        self.hits: Counter[tuple[str, str]] = Counter()
        self.done = self.failed = self.recovered = 0
        self._most = most

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Count outcomes, until too many have failed."""
        for outcome in outcomes:
            self.done += 1
            self.hits += outcome.hits
            self.recovered += outcome.recovered
            if outcome.failures:
                self.failed += 1
                _tell(outcome, story=self.failed == 1)
            if self.failed >= self._most:
                return


def _begin() -> None:
    """Begin a worker. It looks for no garbage: that takes longer than to begin the next one."""
    gc.disable()


def _run(what: tuple[int, tuple[str, str] | None]) -> Outcome:
    """Run one seed in a worker."""
    seed, aim = what
    return run_seed(seed, aim=aim)


def _tell(outcome: Outcome, *, story: bool) -> None:
    if story:  # of the first failure alone: what happened, in the order it happened
        for line in run_seed(outcome.seed, story=True, aim=outcome.aim).lines:
            _say(line)
    _say(f"seed {outcome.seed} FAILED: {outcome.failures[0]}")
    aim = "" if outcome.aim is None else f" --aim '{'@'.join(outcome.aim)}'"
    _say(f"    cd tests/simulator && python -m lakeward_simulator --seed {outcome.seed}{aim} --story")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
