"""Plans a round's job: what its subtasks are told, and how many slots it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.coordinator.calls import call
from lakeward.coordinator.checkpointing import CheckpointPlan
from lakeward.coordinator.job_plan import JobPlan
from lakeward.model.checkpoints import CheckpointRef
from lakeward.model.events import Deploy
from lakeward.model.jobs import JobSpec
from lakeward.model.wire import pack_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.coordinator.opening import Opening
    from lakeward.coordinator.run import RoundRun
    from lakeward.coordinator.service import Service


class JobPlanner:
    """Makes the plan of each round's job."""

    def __init__(self, service: Service) -> None:
        """Keep the service, for its parts, options, address and secret."""
        self._service = service
        self._parts = service.parts
        self._options = service.options

    def plan(self, run: RoundRun, opening: Opening, runs: Sequence[RoundRun]) -> JobPlan:
        """Plan a round's job. Blocking: the lake may have to list the base of a primary-key round.

        Args:
            run: the round.
            opening: what it starts from.
            runs: all rounds in work, this one included.
        """
        parts, options = self._parts, self._options
        table = pack_table(opening.table)
        source_task = parts.source.reader_task(opening.table)
        ref = CheckpointRef(parts.incarnation.service, str(parts.incarnation), run.offer.table_id, run.offer.epoch, 0)
        lake_task = parts.lake.writer_task(opening.table, opening.head, run.round_id)

        def deploy(attempt: int) -> Deploy:
            return Deploy(
                attempt=attempt,
                table=table,
                source=parts.source_name,
                source_task=source_task,
                lake=parts.lake_name,
                lake_task=lake_task,
                fence_s=options.rounds.fence_s,
                progress_s=options.progress_s,
                checkpoint_root=parts.checkpoint_root,
                checkpoint_ref=ref,
            )

        return JobPlan(
            round_name=str(run.round_id),
            enumeration=opening.enumeration,
            deploy=deploy,
            spec=lambda launch, subtasks: self._spec(run, launch, subtasks),
            slots=self._free_slots(run, runs),
            limit=options.job_attempts,
            silence_s=options.subtask_timeout_s,
            checkpoints=CheckpointPlan(
                policy=options.checkpoint_policy,
                store=parts.checkpoints,
                root=parts.checkpoint_root,
                ref=ref,
                latest=self._service.desk.latest(run),
                retained=options.retained,
                work=self._work,
            ),
            restored=run.restored.contents if run.restored is not None else None,
        )

    def _work(self, what: str, work: Callable[[], object], then: Callable[[object], None]) -> None:
        async def run() -> None:
            answer: object
            try:
                answer = await call(work, what=what)
            except Exception as error:  # noqa: BLE001 - handed over whole: the receiver says what it means
                answer = error
            then(answer)

        self._service.spawn(run)

    def _spec(self, run: RoundRun, launch: int, subtasks: int) -> JobSpec:
        path = run.offer.path
        return JobSpec(
            round_name=str(run.round_id),
            job_attempt=launch,
            subtasks=subtasks,
            title=f"lakeward: {path}, epoch {run.offer.epoch}, {subtasks} subtask{'' if subtasks == 1 else 's'}",
            tag=f"lakeward-{path.database}-{path.table}-{run.offer.epoch}",
            pool=str(path),
            host=self._options.host,
            port=self._service.port,
            secret=self._service.secret,
            fence_s=self._options.rounds.fence_s,
        )

    def _free_slots(self, run: RoundRun, runs: Sequence[RoundRun]) -> int:
        """Slots for one round: all that are free, but one is left for each other round that may come."""
        total = self._parts.jobs.slots
        launched = [other.job.launched for other in runs if other is not run and other.job is not None]
        used = sum(spec.subtasks for spec in launched if spec is not None)
        spare = self._options.rounds.slots - 1
        return max(1, min(total - spare, total - used))
