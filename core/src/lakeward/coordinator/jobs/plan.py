"""The plan of a round's job, and the listener that is told what happens to the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakeward.coordinator.checkpoints.round_checkpoints import CheckpointListener
from lakeward.model.backoff import NO_PAUSES, RetryPauses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.checkpoints.round_checkpoints import CheckpointPlan
    from lakeward.coordinator.jobs.gang import ExchangePlan
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
    """Is told what happens to a job and its checkpoints; its round implements it."""

    def job_started(self) -> None:
        """The first subtask is deployed; said once, whatever happens to it."""
        ...

    def splits_failing(self, *, failing: bool) -> None:
        """A split has failed again, or each of those was read since; said when that changes."""
        ...

    def job_drained(self, *, finished_early: bool, failing: str, code: str) -> None:
        """Every split is finished or left out; `failing` is why splits failed that were left out, if any had.

        `code` is that of the error, empty where none of ours is why.
        """
        ...

    def job_failed(self, reason: str, *, permanent: bool, code: str = "") -> None:
        """The job cannot go on; `code` is that of the error, empty where none of ours is why."""
        ...

    def job_lost_snapshot(self, lost: frozenset[KvSnapshot], reason: str) -> None:
        """A snapshot vanished under a reader; `lost` are those that it was reading."""
        ...

    def job_lost_table(self) -> None:
        """The table is gone."""
        ...

    def job_lost_checkpoint(self, reason: str) -> None:
        """What the checkpoint holds that the launch goes on from cannot be read."""
        ...

    def splits_returned(self, kind: FailoverKind, attempt: int, splits: tuple[Split, ...]) -> None:
        """Splits came back after a failure and will be read again."""
        ...

    def files_rejected(self, files: Collection[LakeFile]) -> None:
        """An attempt that no longer counts wrote these files, and nothing references them."""
        ...

    def job_ended(self) -> None:
        """The last launch has ended: none of its tasks runs any more."""
        ...

    def snapshot(self, progress: RoundProgress) -> RoundSnapshot:
        """Return the coordinator's part of a checkpoint. Makes no call to source, lake or store."""
        ...


@dataclass(slots=True)
class JobPlan:
    """What a job needs. `deploy` makes the Deploy event of an attempt number; `limit` is the most launches."""

    round_name: str
    enumeration: Enumeration
    deploy: Callable[[int], Deploy]
    spec: Callable[[int, int], JobSpec]
    """Makes the spec of a launch from its number and its count of subtasks."""
    slots: int
    limit: int
    silence_s: float
    reconnect_within_s: float
    """Seconds in which a subtask whose connection closed may come back; then its splits are read by others."""
    checkpoints: CheckpointPlan
    restored: CheckpointContents | None = None
    retries: RetryPauses = NO_PAUSES
    """Before the next launch, by the number of launches so far; within a launch before the next try of a split."""
    exchange: ExchangePlan | None = None
    """What the exchange of its rows needs; None: each subtask writes what it reads."""
