"""Plans a round: its journal, what its subtasks are sent, and how many slots it gets. Blocking."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lakeward.coordinator.effects.work import Handlers, Work
from lakeward.coordinator.rounds.checkpoints import CheckpointPlan
from lakeward.coordinator.rounds.effects import CountFreeSlots, Plan
from lakeward.coordinator.rounds.plan import ExchangePlan, JobPlan
from lakeward.coordinator.workers.log_fields import fields_of_round
from lakeward.model import dead_letters
from lakeward.model.backoff import RetryPauses
from lakeward.model.checkpoints import CheckpointRef
from lakeward.model.events import Deploy, DeployBadRows, DeployDeadLetters
from lakeward.model.jobs import JobSpec
from lakeward.model.partitioning import ExchangeMode
from lakeward.model.splits import LogSplit, SnapshotSplit
from lakeward.model.wire import pack_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.coordinator.commits.round_committer import RoundCommitter
    from lakeward.coordinator.effects.policy import RoundPolicy
    from lakeward.coordinator.rounds.round import Round
    from lakeward.coordinator.tables.tables import Tables
    from lakeward.coordinator.workers.subtask_address import SubtaskAddress
    from lakeward.model.results import LakeHead
    from lakeward.model.settings import Settings, TableSettings
    from lakeward.ports import Jobs, Lake, Source
    from lakeward.storage.round_journal import RoundJournal


class Planning:
    """Makes the plan of each round's job."""

    def __init__(
        self,
        *,
        source: Source,
        lake: Lake,
        jobs: Jobs,
        address: SubtaskAddress,
        tables: Tables,
        cleaner: Cleaner,
        committer: RoundCommitter,
        policy: RoundPolicy,
    ) -> None:
        """Keep source, lake and jobs, which say what a subtask reads, writes, and how many there may be."""
        self._source = source
        self._lake = lake
        self._jobs = jobs
        self._address = address
        self._tables = tables
        self._cleaner = cleaner
        self._committer = committer
        self._policy = policy
        self._settings = policy.settings

    @property
    def handlers(self) -> Handlers:
        """How the effects of this module are executed."""
        wait_s, limit_s = self._policy.lake.commit_timeout_s, self._policy.commit_limit_s
        plan = Work(
            self._begin,
            what="plan",
            purpose="the launch",
            wait_s=wait_s,
            limit_s=2 * limit_s,
            complete=self._with_slots,
            also_when_ended=False,
        )
        count = Work(lambda *_: self._count, what="count the slots for", complete=self._free_slots)
        return Handlers({Plan: plan, CountFreeSlots: count})

    def _begin(self, _: Round, effect: Plan) -> Callable[[], tuple[RoundJournal, JobPlan]]:
        table, rules = self._tables.get(effect.assignment.table_id), self._policy.rules(effect.assignment.path)
        latest = 0 if table is None else table.latest_checkpoint(effect.assignment.epoch)
        # Before the journal is on disk: the commit of an earlier round that lands late would delete it otherwise.
        self._cleaner.begin(effect.round_id)
        return partial(self._prepare, effect, rules, latest)

    def _prepare(self, effect: Plan, rules: TableSettings, latest_checkpoint: int) -> tuple[RoundJournal, JobPlan]:
        letters = self._committer.letters.open(effect.context.table) if rules.on_bad_row == "dead_letter" else None
        table, head = effect.context.table, effect.context.head
        journal = self._committer.write_journal(effect.round_id, table, head, letters=letters is not None)
        return journal, self.plan(effect, rules, latest_checkpoint, letters)

    def _with_slots(self, one: Round, planned: tuple[RoundJournal, JobPlan]) -> tuple[RoundJournal, JobPlan]:
        journal, plan = planned
        return journal, replace(plan, slots=self._free_slots(one, plan.slots))

    def _count(self) -> int:
        return self._jobs.slots_there

    def plan(
        self, effect: Plan, rules: TableSettings, latest_checkpoint: int, letters: LakeHead | None = None
    ) -> JobPlan:
        """Plan a round's job, with all slots that there are: the lake may have to list the base of a primary-key round.

        `latest_checkpoint` is the highest checkpoint number that this start has used in this epoch. `letters` is the
        head of the table of dead letters, None where the round writes none.
        """
        settings, context, assignment = self._settings, effect.context, effect.assignment
        table = pack_table(context.table)
        source_task = self._source.reader_task(context.table.as_read)
        us, restored = effect.round_id.incarnation, effect.restored
        ref = CheckpointRef(us.service, str(us), assignment.table_id, assignment.epoch, 0)
        lake_task = self._lake.writer_task(context.table.in_lake, context.head, effect.round_id)
        if restored is not None and restored.ref.incarnation == str(us):
            latest_checkpoint = max(latest_checkpoint, restored.ref.number)
        exchange, by_bucket = context.layout.exchange is ExchangeMode.HASH, context.layout.route_by_bucket
        bad_rows = None if rules.on_bad_row == "suspend" else self._bad_rows(effect, rules.bad_rows_most, letters)

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
                bad_rows=bad_rows,
            )

        return JobPlan(
            round_name=str(effect.round_id),
            enumeration=context.enumeration,
            deploy=deploy,
            spec=partial(_spec, effect, settings, self._address, exchange),
            slots=self._jobs.slots,
            limit=settings.spark.job_attempts,
            silence_s=settings.spark.subtask_timeout_s,
            reconnect_within_s=settings.spark.reconnect_s,
            retries=RetryPauses(settings.service.backoff_first_s, settings.service.backoff_most_s),
            checkpoints=CheckpointPlan(
                settings=settings.checkpoint,
                ref=ref,
                latest=latest_checkpoint,
                exchange=exchange,
                log_fields=fields_of_round(effect.round_id, assignment.path),
            ),
            restored=None if restored is None else restored.state,
            exchange=ExchangePlan(settings.lake, settings.checkpoint, by_bucket) if exchange else None,
            commit_every_s=rules.commit_every,
        )

    def _bad_rows(self, effect: Plan, most: float, letters: LakeHead | None) -> DeployBadRows:
        if letters is None:
            return DeployBadRows(most=most)
        table = dead_letters.table_of(effect.context.table)
        task = self._lake.writer_task(table.in_lake, letters, effect.round_id)
        deploy = DeployDeadLetters(table=pack_table(table), lake_task=task, round_name=str(effect.round_id))
        return DeployBadRows(most=most, letters=deploy)

    def _free_slots(self, one: Round, total: int) -> int:
        """Return a round's slots now: all free ones, except one for each further round that may start."""
        spare, used = self._settings.service.rounds - 1, self._tables.subtasks(besides=one)
        return max(1, min(total - spare, total - used))


def _spec(  # noqa: PLR0917 - the launch comes last
    effect: Plan, settings: Settings, address: SubtaskAddress, exchange: bool, launch: int, subtasks: int
) -> JobSpec:
    path, epoch = effect.assignment.path, effect.assignment.epoch
    return JobSpec(
        round_name=str(effect.round_id),
        job_attempt=launch,
        subtasks=subtasks,
        title=_title(effect, launch, subtasks, exchange=exchange),
        tag=f"lakeward-{path.database}-{path.table}-{epoch}",
        pool=str(path),
        host=address.host,
        port=address.port,
        secret=address.secret,
        fence_s=settings.service.fence_s,
        trusted=address.trusted,
        exchange=exchange,
        exchange_host=settings.spark.exchange_host,
        log=settings.observe.log,
        log_level=settings.observe.level,
        traced=settings.observe.telemetry,
    )


def _title(effect: Plan, launch: int, subtasks: int, *, exchange: bool) -> str:
    """Return the description of a job on Spark's page: the table, what is read, the round."""
    splits = effect.context.enumeration.splits
    rows = sum(split.stop - split.start for split in splits if isinstance(split, LogSplit))
    snapshots = sum(isinstance(split, SnapshotSplit) for split in splits)
    reading = [
        *([_many(snapshots, "KV snapshot")] if snapshots else []),
        *([f"{rows:,} log records in {_many(len(splits) - snapshots, 'split')}"] if snapshots < len(splits) else []),
    ]
    how = " with an exchange" if exchange else ""
    again = "" if launch == 1 else f", launch {launch}"
    who = f"round {effect.round_id}, epoch {effect.assignment.epoch}{again}"
    return f"lakeward: tier {effect.assignment.path}, {' and '.join(reading)}, {_many(subtasks, 'subtask')}{how}; {who}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
