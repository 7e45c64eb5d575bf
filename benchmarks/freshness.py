"""Promises kept by our scheduling and first in, first out, on the same load in virtual time; no service, no Spark.

tox run -e bench -- freshness.py [--tables 500] [--rounds 4] [--minutes 15]
"""

from __future__ import annotations

import argparse
from functools import partial

from lakeward.model.settings import ServiceSettings
from lakeward_simulator.freshness import FirstInFirstOut, FreshnessRun, SourceQueue, mixed_load

STARTS = {"all due at once, as after an outage": True, "due one after the other": False}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=15.0)
    options = parser.parse_args()
    loads, settings = mixed_load(options.tables), ServiceSettings(rounds=options.rounds)
    few = ServiceSettings(rounds=options.rounds, max_tables=2 * options.rounds)
    policies = {
        "earliest deadline first": partial(FreshnessRun, loads, settings),
        f"the same among {few.max_tables} tables": partial(FreshnessRun, loads, few),
        "first in, first out": partial(FreshnessRun, loads, settings, policy=FirstInFirstOut),
    }
    print(f"{options.tables} tables, {options.rounds} rounds at a time, {options.minutes:g} minutes of virtual time")
    for start, all_due in STARTS.items():
        for name, policy in policies.items():
            run = policy(queue=partial(SourceQueue, all_due=all_due))
            delivered = run.run(options.minutes * 60)
            latest_s = max(0.0, delivered.latest_s([load.table_id for load in loads]))
            print(
                f"{start}: {name}: {delivered.share_kept:.1%} of {delivered.promises} promises kept, "
                f"latest by {latest_s:.0f} s"
            )


if __name__ == "__main__":
    main()
