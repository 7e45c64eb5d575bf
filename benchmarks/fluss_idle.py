"""Rounds of a table of a real Fluss cluster that has nothing new: from hand-out to finished.

python benchmarks/fluss_idle.py [--rounds 20]

A warm service, a log table and a primary-key table of 4 buckets, all tiered. Printed: milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time

from fluss_stage import Stage, stage

NAMES = ("bench.warm", "bench.warmkeyed")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with stage() as on:
        for name in NAMES:
            spent = sorted(1000 * one for one in rounds_of(on, name, options.rounds))
            print(
                f"{name}: {len(spent)} idle rounds, hand-out to finished: median {statistics.median(spent):.0f} ms, "
                f"{spent[0]:.0f} to {spent[-1]:.0f} ms; goal: below 50",
                flush=True,
            )


def rounds_of(on: Stage, name: str, count: int) -> list[float]:
    """Let the service have a table so often; returns seconds of each time."""
    on.paused.discard(name)
    hands = on.service.hands.of.setdefault(name, [])
    # The first is of a table that was held back in hand; the server hands it out again when its freshness is over.
    first = len(hands) + 1
    while len(hands) < first + count:
        time.sleep(0.1)
    on.paused.add(name)
    return hands[first : first + count]


if __name__ == "__main__":
    main()
