"""Rounds of a table of a real Fluss cluster that has nothing new: from hand-out to finished.

python benchmarks/fluss_idle.py [--rounds 20]

A warm service, a log table and a primary-key table of 4 buckets, all tiered. Printed: milliseconds.
"""

from __future__ import annotations

import argparse
import statistics

from fluss_stage import stage

NAMES = ("bench.warm", "bench.warmkeyed")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with stage() as on:
        for name in NAMES:
            on.paused.discard(name)
            spent = sorted(on.service.idle(name, options.rounds))
            on.paused.add(name)
            print(
                f"{name}: {len(spent)} idle rounds, hand-out to finished: median {statistics.median(spent):.0f} ms, "
                f"{spent[0]} to {spent[-1]} ms; goal: below 50",
                flush=True,
            )


if __name__ == "__main__":
    main()
