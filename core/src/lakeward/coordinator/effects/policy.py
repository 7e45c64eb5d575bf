"""The settings of every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model.settings import LakeSettings, Settings, TableSettings
    from lakeward.model.tables import TablePath


@dataclass(frozen=True, slots=True)
class RoundPolicy:
    """Settings of every round."""

    rules: Callable[[TablePath], TableSettings]
    settings: Settings
    once: bool

    @property
    def lake(self) -> LakeSettings:
        """Those of the lake."""
        return self.settings.lake

    @property
    def names_lake_tables(self) -> bool:
        """Whether the configuration gives any lake table another name than that of its table."""
        return any(rules.lake_name or rules.lake_namespace for rules in self.settings.tables.values())

    @property
    def gangs(self) -> bool:
        """Whether the subtasks of a round can be started all at once."""
        return not self.settings.spark.dynamic_allocation

    @property
    def commit_limit_s(self) -> float:
        """Seconds for all tries of a commit together, and for each call that prepares one."""
        return self.lake.commit_timeout_s * 4
