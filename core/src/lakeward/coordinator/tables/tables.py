"""All tables that this start has had rounds of."""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.coordinator.tables.history import History
from lakeward.coordinator.tables.table import Table
from lakeward.model.status import TableReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.coordinator.rounds.round import Round
    from lakeward.model.identity import RoundId
    from lakeward.model.tables import TablePath

DROPPED_KEPT = 20
"""Dropped tables whose history is still shown."""


class Tables:
    """The tables, by id. Used on the event loop only."""

    def __init__(self, complete_ms: Mapping[int, int] = MappingProxyType({})) -> None:
        """Know no table. `complete_ms`: by table id, up to when earlier starts had completed the lake, if known."""
        self._tables: dict[int, Table] = {}
        self._complete_ms = complete_ms
        self.dropped: deque[Table] = deque(maxlen=DROPPED_KEPT)
        """The newest of those that the source has dropped, without anything but their histories."""

    def __iter__(self) -> Iterator[Table]:
        """Iterate over all tables, in the order in which they came."""
        return iter(tuple(self._tables.values()))

    def get(self, table_id: int) -> Table | None:
        """Return a table, None where it is not known."""
        return self._tables.get(table_id)

    def known(self, table_id: int, path: TablePath) -> Table:
        """Return a table, which is known from now on."""
        found = self._tables.get(table_id)
        if found is None:
            report = TableReport(str(path), table_id, "idle", "", None, None, 0, 0, None)
            history = History(structs.replace(report, complete_ms=self._complete_ms.get(table_id)))
            found = self._tables[table_id] = Table(table_id, path, history)
        found.path = path
        return found

    def drop(self, table_id: int) -> None:
        """Forget a table that the source has dropped; its id is never used again."""
        found = self._tables.pop(table_id, None)
        if found is not None:
            self.dropped.append(Table(table_id, found.path, found.history))

    @property
    def paths(self) -> Mapping[int, TablePath]:
        """The names by id."""
        return {table.table_id: table.path for table in self._tables.values()}

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds in progress."""
        return tuple(table.round for table in self._tables.values() if table.round is not None)

    @property
    def ended(self) -> tuple[Round, ...]:
        """The rounds that have ended, and of which something is left."""
        return tuple(one for table in self._tables.values() for one in table.ended)

    def round(self, table_id: int) -> Round | None:
        """Return the round in progress on a table."""
        table = self._tables.get(table_id)
        return None if table is None else table.round

    @property
    def paths_with_round(self) -> frozenset[TablePath]:
        """The names of the tables that have a round in progress."""
        return frozenset(one.facts.assignment.path for one in self.rounds)

    def has_other_round(self, path: TablePath, round_id: RoundId) -> bool:
        """Return whether another round than this one is in progress on a table of this name."""
        return any(one.facts.assignment.path == path and one.facts.round_id != round_id for one in self.rounds)

    def subtasks(self, besides: Round) -> int:
        """Return how many subtasks all other rounds in progress have launched."""
        return sum(one.subtasks for one in self.rounds if one is not besides)

    @property
    def slots_wanted(self) -> int:
        """How many slots all rounds in progress have, or are about to ask for."""
        return sum(one.slots_wanted for one in self.rounds)

    def find_launch(self, round_name: str, job_attempt: int) -> Round | None:
        """Return the round of a launch, in progress or ended, if that launch is the one under way."""
        for one in (*self.rounds, *self.ended):
            if str(one.facts.round_id) == round_name:
                return one if one.is_launch(job_attempt) else None
        return None
