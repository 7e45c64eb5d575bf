"""What surrounds a round's job, for tests of the job alone: a launcher that launches nothing, a round that listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.ports import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lakeward.coordinator.checkpoints.contents import CheckpointContents
    from lakeward.coordinator.checkpoints.round_checkpoints import CompletedCheckpoint
    from lakeward.coordinator.jobs.progress import RoundProgress
    from lakeward.model.checkpoints import LeaseCopy, RoundSnapshot
    from lakeward.model.events import Envelope
    from lakeward.model.jobs import JobSpec
    from lakeward.model.leases import FailoverKind
    from lakeward.model.results import LakeFile
    from lakeward.model.splits import Split
    from lakeward.model.tables import KvSnapshot


class IdleJobs:
    """A `lakeward.ports.Jobs` that runs nothing; what it was asked is in `launched` and `cancelled`."""

    slots = slots_there = 2

    def __init__(self) -> None:
        """Start with nothing asked."""
        self.launched: list[JobSpec] = []
        self.cancelled: list[JobSpec] = []

    def launch(self, job: JobSpec, on_done: Callable[[str | None], None]) -> None:
        """See `Jobs`."""
        del on_done
        self.launched.append(job)

    def cancel(self, job: JobSpec) -> None:
        """See `Jobs`."""
        self.cancelled.append(job)

    def gone(self) -> str | None:
        """See `Jobs`."""
        return None


class RecordingConnection(Connection):
    """A connection that leads nowhere; what went out is in `sent`."""

    def __init__(self) -> None:
        """Start open."""
        self.sent: list[Envelope] = []
        self.closed = False

    def send(self, envelope: Envelope) -> None:
        """See `Connection`."""
        self.sent.append(envelope)

    def close(self) -> None:
        """See `Connection`."""
        self.closed = True


class SilentRound:
    """A `lakeward.coordinator.jobs.plan.JobListener` that does nothing; what it was told is in `events`."""

    def __init__(self, part: RoundSnapshot) -> None:
        """Keep what a checkpoint is to hold.

        Args:
            part: the coordinator's part.
        """
        self.events: list[str] = []
        self.started = 0
        """How often it was told that the job has started."""
        self._part = part

    def job_started(self) -> None:
        """See `JobListener`."""
        self.started += 1

    def splits_failing(self, *, failing: bool) -> None:
        """See `JobListener`."""
        self.events.append("splits fail again" if failing else "no split fails any more")

    def job_drained(self, *, finished_early: bool, failing: str, code: str) -> None:
        """See `JobListener`."""
        del code
        left_out = f", left out: {failing}" if failing else ""
        self.events.append(f"drained, finished early {finished_early}{left_out}")

    def job_failed(self, reason: str, *, permanent: bool, code: str = "") -> None:
        """See `JobListener`."""
        del code
        self.events.append(f"failed, permanent {permanent}: {reason}")

    def job_lost_snapshot(self, lost: frozenset[KvSnapshot], reason: str) -> None:
        """See `JobListener`."""
        self.events.append(f"lost {len(lost)} snapshots: {reason}")

    def job_lost_table(self) -> None:
        """See `JobListener`."""
        self.events.append("lost its table")

    def job_lost_checkpoint(self, reason: str) -> None:
        """See `JobListener`."""
        self.events.append(f"lost its checkpoint: {reason}")

    def splits_returned(self, kind: FailoverKind, attempt: int, splits: tuple[Split, ...]) -> None:
        """See `JobListener`."""
        self.events.append(f"{len(splits)} splits back from attempt {attempt} ({kind.value})")

    def files_rejected(self, files: Collection[LakeFile]) -> None:
        """See `JobListener`."""
        self.events.append(f"{len(files)} files rejected")

    def job_ended(self) -> None:
        """See `JobListener`."""
        self.events.append("over")

    def snapshot(self, progress: RoundProgress) -> RoundSnapshot:
        """See `JobListener`."""
        del progress
        return self._part

    def lease_copy(self) -> LeaseCopy | None:
        """See `JobListener`."""
        return None

    def step_due(self) -> bool:
        """See `JobListener`."""
        return False

    def checkpoint_storing(self, state: CheckpointContents) -> None:
        """See `JobListener`."""

    def checkpoint_done(self, done: CompletedCheckpoint) -> None:
        """See `JobListener`."""
        self.events.append(f"checkpoint {done.ref.number} is whole")

    def checkpoint_aborted(self, number: int, reason: str) -> None:
        """See `JobListener`."""
        self.events.append(f"checkpoint {number} aborted: {reason}")
