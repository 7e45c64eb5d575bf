"""A service on a cluster of two machines is killed, rescaled and killed in its recovery; DuckDB compares the lake.

`tox run -e kills-all-cluster` does a run of each table; `tox run -e rescale-cluster` does 30, and says how many lost or
doubled rows, or hung.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakeward_cluster.rescales import RUN_S, Run, Scenario
from lakeward_e2e.kills import NOT_IN_GATE

if TYPE_CHECKING:
    from lakeward_cluster.world import ClusterWorld

pytestmark = [pytest.mark.spark_cluster, pytest.mark.timeout(2 * RUN_S + 300)]
SCENARIOS = (
    Scenario(1, keyed=False, snapshots=False, buckets=2, sizes=(4, 2, 3), victims=("driver", "driver")),
    Scenario(2, keyed=True, snapshots=True, buckets=3, sizes=(2, 4, 1), victims=("jvm", "driver")),
)


@NOT_IN_GATE
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: "-".join(map(str, one.sizes)))
def test_a_service_that_is_rescaled_and_killed_again_in_its_recovery_costs_no_row(
    shared_world: ClusterWorld, scenario: Scenario
) -> None:
    """What it was killed at is a checkpoint that has rows of a spill."""
    result = Run(shared_world, scenario).run()
    # A recovery may be over before a checkpoint of it is complete: how quick either is depends on the machine.
    if result.problems and result.problems[0].startswith("never reached: completed-spilled"):
        result = Run(shared_world, replace(scenario, seed=scenario.seed + 100)).run()
    assert result.problems == []
    assert (result.lost, result.doubled, result.hung) == (0, 0, False)
    assert result.recovering > 0
    assert result.spill_bytes > 0
