"""The plugin with tables of other shapes than the source's defaults give: for suites that know nothing of shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakeward_lake_paimon.lake import PaimonLake
from lakeward_lake_paimon.plugin import PaimonLakePlugin

if TYPE_CHECKING:
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TableSpec
    from lakeward.ports import Clock, Lake
    from lakeward_lake_paimon.options import PaimonOptions


class ShapedPlugin(PaimonLakePlugin):
    """Each table gets some changes of its spec before the lake sees it."""

    def __init__(self, **changes: Any) -> None:  # noqa: ANN401 - fields of `TableSpec`
        """Keep the changes, fields of `TableSpec`; properties are added to those that there are."""
        self._changes = changes

    def open(self, options: PaimonOptions, clock: Clock) -> Lake:
        """Open a lake that changes specs."""
        return _ShapedLake(options, clock, self._changes)


class _ShapedLake(PaimonLake):
    def __init__(self, options: PaimonOptions, clock: Clock, changes: dict[str, Any]) -> None:
        super().__init__(options, clock)
        self._shape = changes

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        return super().open_table(replace(table, **self._shape), incarnation)

    def writer_task(self, table: TableSpec, head: LakeHead, round_id: RoundId) -> bytes:
        return super().writer_task(replace(table, **self._shape), head, round_id)
