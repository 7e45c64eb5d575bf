"""A world without chance faults, for cases that are told in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.model.tables import TablePath
from lakeward_simulator.scenario import come_to_rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_simulator.coordinator import Coordinator
    from lakeward_simulator.world import World

TABLE = TablePath("t", "t0")


@dataclass
class Case:
    """A world with one table, and what a case asks of it."""

    world: World

    def table(self, *, keyed: bool = False, buckets: int = 2, rows: int = 20) -> None:
        """Create the table."""
        self.world.source.create(TABLE, buckets=buckets, keyed=keyed)
        self.world.append(TABLE, rows)
        if keyed:
            self.world.take_snapshots(TABLE)

    def until(self, seen: Callable[[], bool]) -> None:
        """Let time go on until something is seen."""
        self.world.run(200.0, seen)
        self._sound()
        if not seen():
            self._fail("it did not happen within 200 s")

    def step(self, coordinator: Coordinator) -> str:
        """Return the step that the table is at."""
        return coordinator.step(self.world.source.tables_by_path[TABLE].spec.table_id)

    def commits(self) -> list[str]:
        """Return the starts that committed, in order."""
        log = self.world.lake.tables[TABLE].log
        return [str(one.request.incarnation) for one in log if one.request is not None]

    def rest(self) -> None:
        """Everything must be in the lake exactly once, and nothing be left."""
        come_to_rest(self.world)
        self._sound()

    @property
    def metadata(self) -> list[str]:
        """The checkpoints that have a `_metadata`."""
        return [name for name in self.world.files.all if name.endswith("/_metadata")]

    def _sound(self) -> None:
        if self.world.checks.failures:
            self._fail(*self.world.checks.failures)

    def _fail(self, *why: str) -> None:
        raise AssertionError("\n".join([*self.world.story.lines, *why]))
