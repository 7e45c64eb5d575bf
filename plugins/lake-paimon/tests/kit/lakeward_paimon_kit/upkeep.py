"""Upkeep of a lake table as a service does it: planned, worked on, committed, and cleaned up after a crash."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

from lakeward.model.identity import UPKEEP, RoundId
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward_testing.lake_tables import PATH, head_of, incarnation

if TYPE_CHECKING:
    from lakeward.model.results import CommitIds
    from lakeward.model.upkeep import UpkeepPlan, UpkeepResult
    from lakeward.ports import Lake, UpkeepLake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

_NUMBERS = itertools.count(1)
_MOST = 20


class Job:
    """One job of upkeep of the suites' table. `ids` are those of its commit."""

    def __init__(self, plugin: PaimonLakePlugin, lake: Lake, most: int = 4, table_id: int = 7) -> None:
        """Plan it."""
        self._plugin = plugin
        self._lake = lake
        self.upkeep_id = RoundId(incarnation(), table_id, UPKEEP, next(_NUMBERS))
        self.plan: UpkeepPlan | None = cast("UpkeepLake", lake).plan_upkeep(PATH, self.upkeep_id, most)
        self.results: tuple[UpkeepResult, ...] = ()
        self.ids: CommitIds | None = None

    def work(self, attempt: int = 0) -> None:
        """Do its tasks."""
        assert self.plan is not None
        self.results = tuple(self._plugin.upkeep(task, attempt, _go_on) for task in self.plan.tasks)

    def commit(self) -> UpkeepOutcome:
        """Commit what its tasks have done, on the head."""
        assert self.plan is not None
        self.ids, base = self._lake.new_ids(PATH), head_of(self._lake).snapshot_id
        commit = UpkeepCommit(PATH, self.upkeep_id, self.ids, base, self.plan.tasks, self.results)
        return cast("UpkeepLake", self._lake).commit_upkeep(commit)

    def clean_up(self, lake: Lake) -> None:
        """Delete what it has left, in a start after it."""
        found = lake.list_prefix(PATH, lake.file_prefix(PATH, self.upkeep_id))
        found += () if self.ids is None else lake.commit_leftovers(PATH, self.ids)
        lake.delete(frozenset(found) - lake.referenced(PATH, found))


def compact(plugin: PaimonLakePlugin, lake: Lake) -> int:
    """Do what is due, until nothing is; return how many commits that took."""
    for number in range(_MOST):
        job = Job(plugin, lake)
        if job.plan is None:
            return number
        job.work()
        assert job.commit() is UpkeepOutcome.LANDED
    message = f"upkeep is due again after {_MOST} commits"
    raise AssertionError(message)


def _go_on() -> None:
    """Let a task go on."""
