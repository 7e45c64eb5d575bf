"""The rounds in progress, and which tables had one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakeward.coordinator.rounds.attempt import RoundAttempt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model.identity import RoundId
    from lakeward.model.tables import KvSnapshot, TablePath


class RoundAttempts(Mapping[int, RoundAttempt]):
    """The rounds in progress, by table id. Used on the event loop only; only `RoundExecutor` changes it."""

    def __init__(self) -> None:
        """Start without rounds."""
        self._attempts: dict[int, RoundAttempt] = {}
        self.paths: dict[int, TablePath] = {}
        """By id: every table that had a round since this start and is not known to be dropped."""

    def __getitem__(self, table_id: int) -> RoundAttempt:
        """Return the round in progress on a table."""
        return self._attempts[table_id]

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids of the tables with a round."""
        return iter(self._attempts)

    def __len__(self) -> int:
        """Return how many rounds are in progress."""
        return len(self._attempts)

    def add(self, attempt: RoundAttempt) -> None:
        """Add a round that starts."""
        table_id = attempt.assignment.table_id
        self._attempts[table_id] = attempt
        self.paths[table_id] = attempt.assignment.path

    def remove(self, table_id: int) -> RoundAttempt | None:
        """Remove and return a table's round, which has ended."""
        return self._attempts.pop(table_id, None)

    def is_current(self, attempt: RoundAttempt) -> bool:
        """Return whether a round is still the one in progress on its table."""
        return self._attempts.get(attempt.assignment.table_id) is attempt

    def has_other_round(self, path: TablePath, round_id: RoundId) -> bool:
        """Return whether another round than this one is in progress on a table."""
        return any(one.assignment.path == path and one.round_id != round_id for one in self._attempts.values())

    def snapshots(self, table_id: int) -> tuple[KvSnapshot, ...]:
        """Return the snapshots that a table's round needs."""
        attempt = self._attempts.get(table_id)
        return attempt.context.enumeration.snapshots if attempt is not None and attempt.context is not None else ()

    def subtasks(self, besides: RoundAttempt) -> int:
        """Return how many subtasks all other rounds have launched."""
        jobs = (one.job for one in self._attempts.values() if one is not besides)
        return sum(job.launched.subtasks for job in jobs if job is not None and job.launched is not None)
