"""Plans a round's job: what its subtasks are sent, and how many slots it gets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakeward.coordinator.checkpoints.round_checkpoints import CheckpointPlan
from lakeward.coordinator.jobs.gang import ExchangePlan
from lakeward.coordinator.jobs.plan import JobPlan
from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.log_fields import fields_of_round, with_log_fields
from lakeward.model.backoff import RetryPauses
from lakeward.model.checkpoints import CheckpointRef
from lakeward.model.events import Deploy
from lakeward.model.jobs import JobSpec
from lakeward.model.partitioning import ExchangeMode
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.wire import pack_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.coordinator.checkpoints.restorer import RestoredRound
    from lakeward.coordinator.jobs.address import SubtaskAddress
    from lakeward.coordinator.rounds.context import RoundContext
    from lakeward.coordinator.workers.background import Background
    from lakeward.model.identity import Incarnation, RoundId
    from lakeward.model.settings import Settings
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import CheckpointStore, Jobs, Lake, Source


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """The inputs of a plan: set on the event loop, read by a worker."""

    assignment: TableAssignment
    round_id: RoundId
    context: RoundContext
    restored: RestoredRound | None
    latest_checkpoint: int
    """The highest checkpoint number used so far in this epoch."""
    slots_used: Callable[[], int]
    """Returns how many subtasks all other rounds have; called on the event loop only."""

    @property
    def exchange(self) -> bool:
        """Whether the round's subtasks exchange rows."""
        return self.context.layout.exchange is ExchangeMode.HASH

    @property
    def log_fields(self) -> Mapping[str, str]:
        """What each log line has that belongs to the round."""
        return fields_of_round(self.round_id, self.assignment.path)


class JobPlanner:
    """Makes the plan of each round's job."""

    def __init__(
        self,
        *,
        incarnation: Incarnation,
        source: Source,
        lake: Lake,
        jobs: Jobs,
        checkpoints: CheckpointStore,
        address: SubtaskAddress,
        background: Background,
        settings: Settings,
    ) -> None:
        """Keep the collaborators.

        Args:
            incarnation: of this start of the service.
            source: makes the task that reads its records.
            lake: makes the task that writes them.
            jobs: where jobs run; it knows how many subtasks may run at once, over all rounds.
            checkpoints: where checkpoints are stored.
            address: where subtasks connect.
            background: where the store's calls run.
            settings: what subtasks load, and settings of every job.
        """
        self._incarnation = incarnation
        self._source = source
        self._lake = lake
        self._checkpoints = checkpoints
        self._address = address
        self._background = background
        self._jobs = jobs
        self.settings = settings

    def _free_slots(self, total: int, used: int) -> int:
        """Return a round's slots: all free ones, except one for each further round that may start."""
        spare = self.settings.service.rounds - 1
        return max(1, min(total - spare, total - used))

    def _count_slots(self) -> int:
        return self._jobs.slots_there

    def plan(self, planned: PlannedRound, used: int) -> JobPlan:
        """Plan a round's job. Blocking: the lake may have to list the base of a primary-key round.

        Args:
            planned: the round.
            used: slots that other rounds use now.
        """
        slots = self._jobs.slots
        settings, context, assignment = self.settings, planned.context, planned.assignment
        table = pack_table(context.table)
        source_task = self._source.reader_task(context.table)
        us = self._incarnation
        ref = CheckpointRef(us.service, str(us), assignment.table_id, assignment.epoch, 0)
        lake_task = self._lake.writer_task(context.table, context.head, planned.round_id)

        def deploy(attempt: int) -> Deploy:
            return Deploy(
                attempt=attempt,
                table=table,
                source=settings.source.type,
                source_task=source_task,
                lake=settings.lake.type,
                lake_task=lake_task,
                fence_s=settings.service.fence_s,
                progress_s=settings.observe.progress_s,
                read_timeout_s=settings.source.read_timeout_s,
                checkpoint_root=settings.checkpoint.address,
                checkpoint_ref=ref,
                open_files=settings.lake.open_files,
                open_rows_bytes=settings.checkpoint.open_rows,
                write_memory_bytes=settings.lake.write_memory,
            )

        return JobPlan(
            round_name=str(planned.round_id),
            enumeration=context.enumeration,
            deploy=deploy,
            spec=lambda launch, subtasks: self._spec(planned, launch, subtasks),
            slots=self._free_slots(slots, used),
            limit=settings.spark.job_attempts,
            silence_s=settings.spark.subtask_timeout_s,
            reconnect_within_s=settings.spark.reconnect_s,
            retries=RetryPauses(settings.service.backoff_first_s, settings.service.backoff_most_s),
            checkpoints=CheckpointPlan(
                settings=settings.checkpoint,
                store=self._checkpoints,
                ref=ref,
                latest=planned.latest_checkpoint,
                work=partial(self._work, planned.log_fields),
                log_fields=planned.log_fields,
                exchange=planned.exchange,
            ),
            restored=planned.restored.state if planned.restored is not None else None,
            exchange=self._exchange(planned, slots) if planned.exchange else None,
        )

    def _exchange(self, planned: PlannedRound, slots: int) -> ExchangePlan:
        def free_slots(total: int) -> int:
            return self._free_slots(total, planned.slots_used())

        return ExchangePlan(slots, self._count_slots, free_slots, self.settings.lake, self.settings.checkpoint)

    def _work(
        self, fields: Mapping[str, str], what: str, work: Callable[[], object], then: Callable[[object], None]
    ) -> None:
        async def run() -> None:
            answer: object
            try:
                answer = await call(work, what=what)
            except Exception as error:  # noqa: BLE001 - handed over whole: the receiver says what it means
                answer = error
            then(answer)

        self._background.spawn(with_log_fields(fields, run))

    def _spec(self, planned: PlannedRound, launch: int, subtasks: int) -> JobSpec:
        path, epoch, address = planned.assignment.path, planned.assignment.epoch, self._address
        return JobSpec(
            round_name=str(planned.round_id),
            job_attempt=launch,
            subtasks=subtasks,
            title=_title(planned, launch, subtasks),
            tag=f"lakeward-{path.database}-{path.table}-{epoch}",
            pool=str(path),
            host=address.host,
            port=address.port,
            secret=address.secret,
            fence_s=self.settings.service.fence_s,
            trusted=address.trusted,
            exchange=planned.exchange,
            exchange_host=self.settings.spark.exchange_host,
            log=self.settings.observe.log,
            log_level=self.settings.observe.level,
            traced=self.settings.observe.telemetry,
        )


def _title(planned: PlannedRound, launch: int, subtasks: int) -> str:
    """Return the description of a job on Spark's page: the table, what is read, the round."""
    splits = planned.context.enumeration.splits
    rows = sum(split.stop - split.start for split in splits if isinstance(split, LogSplit))
    snapshots = sum(isinstance(split, SnapshotSplit) for split in splits)
    reading = [
        *([_many(snapshots, "KV snapshot")] if snapshots else []),
        *([f"{rows:,} log records in {_many(len(splits) - snapshots, 'split')}"] if snapshots < len(splits) else []),
    ]
    how = " with an exchange" if planned.exchange else ""
    again = "" if launch == 1 else f", launch {launch}"
    who = f"round {planned.round_id}, epoch {planned.assignment.epoch}{again}"
    return (
        f"lakeward: tier {planned.assignment.path}, {' and '.join(reading)}, {_many(subtasks, 'subtask')}{how}; {who}"
    )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
