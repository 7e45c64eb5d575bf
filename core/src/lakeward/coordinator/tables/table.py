"""Everything that is kept of one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.coordinator.tables.history import History

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.round import Round
    from lakeward.model.identity import RoundId
    from lakeward.model.jobs import UpkeepJob
    from lakeward.model.status import UpkeepReport
    from lakeward.model.tables import KvSnapshot, TablePath
    from lakeward.model.upkeep import FileCounts, UpkeepPlan, UpkeepResult


@dataclass(slots=True)
class UpkeepDue:
    """The upkeep after the newest commit of a table."""

    path: TablePath
    round_id: RoundId
    snapshot_id: int | None
    """Of the round's last commit; None if it had nothing to commit."""
    expire: bool
    lake_path: TablePath | None = None
    """As of `TableSpec`."""
    failures: int = 0
    again_at: float | None = None
    """When it is tried again; None while it runs."""


@dataclass(slots=True)
class UpkeepRun:
    """The upkeep of a table that is under way, and the newest one that was launched."""

    asked: bool = False
    """Whether it has become due since this start."""
    commits_seen: int = 0
    """Of the table's commits, so many were there when it became due last."""
    plan: UpkeepPlan | None = None
    job: UpkeepJob | None = None
    """None where none runs."""
    results: tuple[UpkeepResult, ...] = ()
    report: UpkeepReport | None = None
    counts: FileCounts | None = None
    """Of the lake table's files, when it was planned last."""


@dataclass(slots=True)
class Table:
    """One table, from its first round since this start until the source has dropped it."""

    table_id: int
    path: TablePath
    history: History
    round: Round | None = None
    """The one in progress."""
    ended: list[Round] = field(default_factory=list)
    """Rounds that have ended while tasks of them still run, or their files are being deleted."""
    opened: bool = False
    """Whether a round of this start has opened it, and is over."""
    commits: int = 0
    """Of this start."""
    upkeep: UpkeepDue | None = None
    upkeep_run: UpkeepRun = field(default_factory=UpkeepRun)
    newest_round: int = 0
    """Number of its newest round: the checkpoints are that one's."""
    _checkpoint: tuple[int, int] = (0, 0)
    """Its newest epoch, and the highest checkpoint number that was used in that epoch."""

    def latest_checkpoint(self, epoch: int) -> int:
        """Return the highest checkpoint number that this start has used in an epoch."""
        return self._checkpoint[1] if self._checkpoint[0] == epoch else 0

    def end_round(self) -> Round | None:
        """Take the round in progress, which has ended, from its place; it stays known until nothing of it is left."""
        ended, self.round = self.round, None
        if ended is not None:
            self.ended.append(ended)
            self.opened = self.opened or ended.facts.context is not None
            if ended.job is not None:
                self._checkpoint = (ended.facts.assignment.epoch, ended.job.checkpoints.latest)
        return ended

    @property
    def snapshots(self) -> tuple[KvSnapshot, ...]:
        """The snapshots that its round needs."""
        context = None if self.round is None else self.round.facts.context
        return () if context is None else context.enumeration.snapshots
