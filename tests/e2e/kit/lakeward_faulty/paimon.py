"""The Paimon lake, with points around a commit and in the writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward_faulty.lake import FaultyLake, FaultyPlugin, UpkeptLake
from lakeward_faulty.points import reached
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.upkeep import UpkeepResult, UpkeepTask
    from lakeward.ports import Clock


class FaultyPaimonPlugin(FaultyPlugin):
    """The lake `paimon-faulty`."""

    inner = PaimonLakePlugin()
    options = PaimonOptions

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        return self.inner.upkeep(task, attempt, check)


class UpkeptPaimonPlugin(FaultyPaimonPlugin):
    """The lake `paimon-upkept`, whose tables are compacted; one table at a time has points in its tasks."""

    def open(self, options: Any, clock: Clock) -> FaultyLake:  # noqa: ANN401 - the options of the lake
        return UpkeptLake(self.inner.open(options, clock))

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        reached("upkeep-task-begun")
        result = super().upkeep(task, attempt, check)
        reached("upkeep-task-done")
        return result
