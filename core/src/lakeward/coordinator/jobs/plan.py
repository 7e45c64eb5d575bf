"""What a round's job is made of, and who is told how it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakeward.coordinator.checkpoints.round_checkpoints import CheckpointListener

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.checkpoints.round_checkpoints import CheckpointPlan
    from lakeward.coordinator.jobs.progress import RoundProgress
    from lakeward.machines.splits import Enumeration
    from lakeward.model.checkpoints import RoundSnapshot
    from lakeward.model.events import Deploy
    from lakeward.model.jobs import JobSpec
    from lakeward.model.leases import FailoverKind
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import KvSnapshot


class JobListener(CheckpointListener, Protocol):
    """Who is told how a job and its checkpoints go: its round."""

    def job_drained(self, *, finished_early: bool) -> None:
        """Every split is finished or left out."""
        ...

    def job_failed(self, reason: str, *, permanent: bool) -> None:
        """The job cannot go on."""
        ...

    def job_lost_snapshot(self, lost: frozenset[KvSnapshot], reason: str) -> None:
        """A snapshot vanished under a reader; `lost` are those that it was reading."""
        ...

    def job_lost_table(self) -> None:
        """The table is gone."""
        ...

    def splits_returned(self, kind: FailoverKind, attempt: int, splits: tuple[Split, ...]) -> None:
        """Splits came back after a failure and will be read again."""
        ...

    def files_rejected(self, files: Collection[LakeFile]) -> None:
        """These were closed by an attempt that no longer counts, and nothing needs them."""
        ...

    def job_ended(self) -> None:
        """The last launch is over: no task of it runs any more."""
        ...

    def snapshot(self, progress: RoundProgress) -> RoundSnapshot:
        """Return the coordinator's part of a checkpoint, calling nothing outside."""
        ...


@dataclass(slots=True)
class JobPlan:
    """What a job is made of. `deploy` makes the Deploy event for an attempt number; `limit` is launches at most."""

    round_name: str
    enumeration: Enumeration
    deploy: Callable[[int], Deploy]
    spec: Callable[[int, int], JobSpec]
    """Launch number and subtasks to the launch."""
    slots: int
    limit: int
    silence_s: float
    checkpoints: CheckpointPlan
    restored: CheckpointContents | None = None
