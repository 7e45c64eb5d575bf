"""How a run with upkeep comes to rest."""

from __future__ import annotations

from lakeward.model.tables import TablePath
from lakeward_simulator.faults import Faults
from lakeward_simulator.scenario import tidy
from lakeward_simulator.world import World


def test_a_start_that_tidies_up_ends_once_it_has_no_upkeep_left_to_do() -> None:
    """Else tasks of the job that it cancels write after its own sweep, and the same happens to each start after it."""
    world = World(1, Faults([]), story=True, upkept=True)
    world.slots = 1  # one job after the other
    with world.alive():
        for number in range(3):
            path = TablePath("t", f"t{number}")
            world.source.create(path, buckets=2, keyed=False)
            world.append(path, 40)
        world.keep_alive = False
        first = world.start()
        world.run(200.0, world.checks.caught_up)
        first.crash()
        tidy(world, 0)
        last = world.coordinators[-1]
        assert world.checks.failures == []
        assert last.end is not None
        assert [len(table.live()) for table in world.lake.tables.values()] == [1, 1, 1]
        assert not any("upkeep is cancelled" in line for line in world.story.lines)
        for one in world.coordinators:
            one.loop.dispose()
