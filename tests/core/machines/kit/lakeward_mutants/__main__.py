"""Say which mutant is killed by what: a table. Fails if one lives.

The mutants of the machines have their own tests (`tests/core/machines`), which run by themselves and say so.
"""

from __future__ import annotations

import argparse
import gc
import io
import sys
from contextlib import redirect_stdout
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest

from lakeward.testing.sim.scenario import run_seed
from lakeward_mutants.catalogue import killer, mutants

SEEDS = 300
_BY_TESTS = ("Gateway", "Checkpoints", "Splits", "Rounds", "Leases")


def main() -> int:
    """Run the simulator against every mutant, or those whose name holds a word; return 1 if one lives."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="only those whose name holds this")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    names = [name for name in mutants() if options.word in name]
    alive = 0
    with Pool(options.jobs, maxtasksperchild=1) as pool:
        for name, (test, seed, why) in zip(names, pool.imap(hunt, names), strict=True):
            killed = name.partition(":")[0] in _BY_TESTS or test
            alive += not killed and seed is None
            tests = "killed" if test else "own" if killed else "-"  # own: one of `tests/core/machines`, run by itself
            found = f"seed {seed}" if seed is not None else f"not within {SEEDS} seeds"
            sys.stdout.write(f"{name:<62} {tests:<7} {found:<22} {why[:90]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(names)} mutants, {alive} alive\n")
    return 1 if alive else 0


def hunt(name: str) -> tuple[bool, int | None, str]:
    """Return whether its test kills a mutant, the first seed that does, None if none does, and what was seen."""
    gc.disable()
    with pytest.MonkeyPatch.context() as monkeypatch:
        mutants()[name](monkeypatch)
        test = killer(name)
        with redirect_stdout(io.StringIO()):
            killed = test is not None and pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", test]) == 1
        for seed in range(SEEDS):
            failures = run_seed(seed).failures
            if failures:
                return killed, seed, failures[0].strip().splitlines()[-1]
            if seed % 20 == 0:
                gc.collect()
    return killed, None, ""


if __name__ == "__main__":
    sys.exit(main())
