"""The Paimon lake, with points around a commit and in the writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_faulty.lake import FaultyPlugin
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.upkeep import UpkeepResult, UpkeepTask


class FaultyPaimonPlugin(FaultyPlugin):
    """The lake `paimon-faulty`."""

    inner = PaimonLakePlugin()
    options = PaimonOptions

    def upkeep(self, task: UpkeepTask, attempt: int, check: Callable[[], None]) -> UpkeepResult:
        return self.inner.upkeep(task, attempt, check)
