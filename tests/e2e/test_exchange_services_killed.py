"""Services killed at steps of an exchange's life, by their driver or by its JVM; the lake is compared by DuckDB.

The gate kills drivers at some points; JVMs on a cluster. With `LAKEWARD_KILLS=all`, as `tox run -e kills-all` has it,
each point of each of the two tables has a kill, and each kill a service of its own.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from lakeward_e2e.exchange import (
    PHASES,
    assert_nothing_lost,
    configured,
    exchanging_tables,
    kill_in_order,
    kills_at,
)
from lakeward_e2e.kills import ALL, chosen

if TYPE_CHECKING:
    from lakeward_e2e.world import World

EXIT_CODES = {"driver": -signal.SIGKILL, "jvm": 1}
CASES = [[name, phase] for name in ("events", "orders") for phase in PHASES] if ALL else [["events", "orders"]]
"""The tables of each case, or the table and the phase at each of whose points there is a kill."""
SOME = ("received",), ("completed-unaligned", "read-back")
"""Points for two tables. Rows are read back only in a round that was killed after a checkpoint."""
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("case", CASES, ids="-".join)
@pytest.mark.parametrize("victim", chosen(EXIT_CODES, ["driver"]))
def test_a_service_that_is_killed_at_any_step_costs_no_row(world: World, victim: str, case: list[str]) -> None:
    """Services follow each other on the same state and lake; the last one lives."""
    tables = [table for table in exchanging_tables(world) if table.path.table in case]
    config = configured(world, *tables)
    if ALL:
        kills = kills_at(tables[0], PHASES[case[1]], victim)
    else:
        kills = {**kills_at(tables[0], SOME[0], victim), **kills_at(tables[1], SOME[1], victim)}
    killed = kill_in_order(world, config, kills, *tables)
    assert len(killed) == len(kills)
    assert {service.ended() for service in killed} == {EXIT_CODES[victim]}
    assert_nothing_lost(world, config, *tables)
    assert world.processes[-1].alive
    assert len(world.processes) == len(killed) + 1
