"""Say which mutant is killed by what: a table. Fails if one has no test that kills it.

The mutants of the machines have their own tests (`tests/core/machines`), which run by themselves and say so.
"""

from __future__ import annotations

import argparse
import gc
import io
import sys
from contextlib import redirect_stdout
from functools import partial
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest

from lakeward_mutants.catalogue import harmless, killer, mutants
from lakeward_simulator.scenario import run_seed

_QUIET = ("-q", "--no-header", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Some plugin of pytest, such as anyio's, may have been imported by the product: pytest cannot rewrite it then."""
SEEDS = 2000
GOAL = 0.8
"""Share of the mutants of what surrounds the machines that seeds alone have to kill, of those that do harm."""
_BY_TESTS = (
    "Gateway", "CheckpointCoordinator", "Splits", "Rounds", "Leases", "LinkMachine",
    "BarrierAlignment", "OutputQueue", "GangMachine", "Recovery",
)  # fmt: skip
_RARE = "recovery"
"""Few seeds restore rows: mutants of what is around a recovery need a test, and count for no share."""


def main() -> int:
    """Run the simulator against every mutant, or those whose name holds a word; return 1 if one lives."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only those whose name holds one of these")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds a mutant has to survive")
    options = parser.parse_args()
    names = [name for name in mutants() if not options.words or any(word in name for word in options.words)]
    alive = around = found = 0
    seeds = range(options.first, options.first + options.seeds)
    with Pool(options.jobs, maxtasksperchild=1) as pool:
        for name, (test, seed, why) in zip(names, pool.imap(partial(hunt, seeds=seeds), names), strict=True):
            kind = name.partition(":")[0]
            machine = kind in _BY_TESTS
            counts = not machine and kind != _RARE and not harmless(name)
            alive += not machine and not test
            around += counts
            found += counts and seed is not None
            tests = "killed" if test else "own" if machine else "-"  # own: one of `tests/core/machines`, run by itself
            shown = f"seed {seed}" if seed is not None else f"not within {len(seeds)} seeds"
            sys.stdout.write(f"{name:<62} {tests:<7} {shown:<22} {why[:90] or harmless(name)}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(names)} mutants, {alive} without a test; seeds killed {found} of {around} that lose rows\n")
    return 1 if alive or found < GOAL * around else 0


def hunt(name: str, seeds: range) -> tuple[bool, int | None, str]:
    """Return whether its test kills a mutant, the first seed that does, None if none does, and what was seen."""
    gc.disable()
    with pytest.MonkeyPatch.context() as monkeypatch:
        mutants()[name](monkeypatch)
        test = killer(name)
        with redirect_stdout(io.StringIO()):
            killed = test is not None and pytest.main([*_QUIET, test]) == 1
        for seed in seeds:
            failures = run_seed(seed).failures
            if failures:
                return killed, seed, failures[0].strip().splitlines()[-1]
            if seed % 20 == 0:
                gc.collect()
    return killed, None, ""


if __name__ == "__main__":
    sys.exit(main())
