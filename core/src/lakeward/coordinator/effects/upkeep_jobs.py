"""Upkeep of tables by jobs of their own: executes the commands of `machines/upkeep`.

The table is held while the lake plans, commits or discards, and not while the job runs: a round of it opens, reads and
commits meanwhile. So no round waits for more than such a call. Nothing is begun once a later start has taken over.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import structlog
from msgspec import structs

from lakeward.coordinator.workers.calls import call
from lakeward.coordinator.workers.log_fields import with_log_fields
from lakeward.coordinator.workers.step_log import step_log
from lakeward.errors import FencedError, LakeError, LakewardError, in_words
from lakeward.machines.driver import MachineDriver
from lakeward.machines.upkeep import (
    VOID,
    CancelUpkeep,
    CommitUpkeep,
    DiscardUpkeep,
    LaunchUpkeep,
    PlanUpkeep,
    SlotsFree,
    TableChanged,
    TableLeft,
    TablesUpkeep,
    TasksEnded,
    TellUpkeepAgain,
    UpkeepCommand,
    UpkeepCommitted,
    UpkeepDiscarded,
    UpkeepEvent,
    UpkeepFailed,
    UpkeepPhase,
    UpkeepPlanned,
    UpkeepStopped,
    UpkeepTimePassed,
)
from lakeward.model.identity import UPKEEP, RoundId
from lakeward.model.jobs import UpkeepJob, UpkeepJobEnd
from lakeward.model.status import UpkeepReport
from lakeward.model.upkeep import UpkeepOrder, UpkeepResult

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from lakeward.coordinator.commits.upkeep import UpkeepCommitter
    from lakeward.coordinator.tables.table import Table
    from lakeward.coordinator.tables.tables import Tables
    from lakeward.coordinator.workers.event_loop import EventLoop
    from lakeward.coordinator.workers.table_locks import TableLocks
    from lakeward.model.identity import Incarnation
    from lakeward.model.settings import Settings
    from lakeward.model.upkeep import UpkeepPlan
    from lakeward.ports import Clock, Jobs

T = TypeVar("T")
_COUNT_S = 5.0
"""Seconds between two counts of Spark's slots, while a table waits for one or a job runs."""
_RESULTS = msgspec.json.Decoder(UpkeepResult)
_log = structlog.get_logger("lakeward.upkeep")


class UpkeepJobs:
    """The jobs of upkeep of all tables. Used on the event loop only."""

    def __init__(
        self,
        *,
        incarnation: Incarnation,
        clock: Clock,
        committer: UpkeepCommitter,
        jobs: Jobs,
        loop: EventLoop,
        locks: TableLocks,
        tables: Tables,
        settings: Settings,
    ) -> None:
        self._incarnation = incarnation
        self._clock = clock
        self._jobs = jobs
        self._committer = committer
        self._loop = loop
        self._locks = locks
        self._tables = tables
        self._settings = settings
        self._known: dict[int, Table] = {}
        """Tables with upkeep that the machine knows; one that was dropped is here until its job has ended."""
        self._number = 0
        """Of the newest job: their ids are numbered over all tables."""
        self._slots = 0
        self._counted_at: float | None = None
        self._counting = False
        service = settings.service
        self._machine = TablesUpkeep(service.backoff_first_s, service.backoff_most_s)
        self._driver: MachineDriver[UpkeepEvent, UpkeepCommand] = MachineDriver(
            self._machine, self._execute, on_step=step_log("lakeward.upkeep", "upkeep")
        )

    @property
    def busy(self) -> bool:
        """True while a job runs, or the lake is asked."""
        return bool(self._machine.under_way)

    @property
    def has_work(self) -> bool:
        """True while something is due or under way, but for what has failed and waits for its time."""
        return self.busy or self._machine.waits

    def tick(self) -> None:
        """Let tables become due, and time pass."""
        if not self._committer.offered:
            return
        now = self._clock.now()
        for table in self._tables:
            if self._has_changed(table):
                table.upkeep_run.asked, table.upkeep_run.commits_seen = True, table.commits
                self._known[table.table_id] = table
                self._post(TableChanged(now=now, table_id=table.table_id))
        gone = [key for key, table in self._known.items() if self._tables.get(key) is not table]
        for table_id in gone:
            self._post(TableLeft(now=now, table_id=table_id))
        self._known = {
            key: table for key, table in self._known.items() if self._machine.phase_of(key) is not UpkeepPhase.QUIET
        }
        if not self._known:
            return
        if not self._counting and (self._counted_at is None or now - self._counted_at >= _COUNT_S):
            self._counting = True
            self._loop.spawn(self._count)
        self.look()
        if self._machine.is_retry_due(now):
            self._post(UpkeepTimePassed(now=now))

    def ask(self, names: frozenset[str]) -> None:
        """Let tables become due at the next tick, whatever has changed in them: a person asks for it."""
        for table in self._tables if names else ():
            if str(table.path) in names:
                table.upkeep_run.asked = False

    def look(self) -> None:
        """Look how many slots rounds leave: a job that has one which a round needs is cancelled at once."""
        if self._known and self._counted_at is not None:
            free = self._slots - self._tables.slots_wanted
            if free != self._machine.free:
                self._post(SlotsFree(now=self._clock.now(), free=free))

    def stop(self) -> None:
        """End all jobs; what they have done by then is committed or discarded while `busy`."""
        self._post(UpkeepStopped(now=self._clock.now()))

    def cancel_all(self) -> None:
        """Cancel what runs, and begin nothing; what was written stays for the next plan."""
        self._driver.close()
        for table in self._known.values():
            if table.upkeep_run.job is not None:
                self._jobs.cancel(table.upkeep_run.job)

    def _has_changed(self, table: Table) -> bool:
        """Say whether a table is due: after its first round, and later whenever snapshots are expired.

        After the first one, because an earlier start may have left something.
        """
        run = table.upkeep_run
        if not run.asked:
            return table.opened or table.commits > 0
        return table.commits - run.commits_seen >= self._settings.lake.expire_every

    def _post(self, event: UpkeepEvent) -> None:
        if not self._loop.superseded_by:
            self._driver.post(event)
            self._loop.wake()

    # --- commands ---------------------------------------------------------------------------------------------

    def _execute(self, command: UpkeepCommand, _: UpkeepEvent) -> None:
        table = self._known[command.table_id]
        match command:
            case PlanUpkeep():
                self._spawn(table, partial(self._plan, table, command.most))
            case LaunchUpkeep():
                self._launch(table, command.tasks)
            case CancelUpkeep():
                self._cancel(table, command.reason)
            case CommitUpkeep():
                self._spawn(table, partial(self._commit, table))
            case DiscardUpkeep():
                self._spawn(table, partial(self._discard, table))
            case TellUpkeepAgain():
                _log.warning(
                    "upkeep failed; it is tried again, and no row is lost",
                    table=str(table.path),
                    reason=command.reason,
                    again_in_s=command.pause_s,
                )

    def _spawn(self, table: Table, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._loop.spawn(with_log_fields({"table": str(table.path)}, work))

    async def _count(self) -> None:
        try:
            self._slots = await call(lambda: self._jobs.slots_there, what="count the slots for upkeep")
        finally:
            self._counted_at, self._counting = self._clock.now(), False
        self.look()

    async def _plan(self, table: Table, most: int) -> None:
        self._number += 1
        path, upkeep_id = table.path, RoundId(self._incarnation, table.table_id, UPKEEP, self._number)
        try:
            table.upkeep_run.counts = await self._ask(table, "count", lambda committer: committer.count(path))
            found = await self._ask(table, "plan", lambda committer: committer.plan(path, upkeep_id, most))
        except Exception as error:  # noqa: BLE001 - one table's trouble, whatever it is, stays with that table
            self._failed(table, error)
            return
        table.upkeep_run.plan = found
        tasks = 0 if found is None else len(found.tasks)
        self._post(UpkeepPlanned(now=self._clock.now(), table_id=table.table_id, tasks=tasks))

    def _launch(self, table: Table, count: int) -> None:
        run = table.upkeep_run
        plan = _known(run.plan)
        tasks, limit_s = plan.tasks[:count], self._settings.lake.upkeep_timeout_s
        files, size = sum(one.files for one in tasks), sum(one.size_bytes for one in tasks)
        orders = [UpkeepOrder(self._settings.lake.type, task, limit_s) for task in tasks]
        what = f"{plan.what} of {files:,} files, {size / 1e6:,.1f} MB"
        run.job = job = UpkeepJob(
            table=str(table.path),
            name=plan.upkeep_id.name,
            what=plan.what,
            title=f"lakeward: {what} of {table.path}, {len(tasks)} tasks in free slots; {plan.upkeep_id.name}",
            orders=tuple(map(msgspec.msgpack.encode, orders)),
        )
        run.report = UpkeepReport(plan.what, "running", len(tasks), files, size, self._clock.wall_ms())
        _log.info("upkeep begins", table=str(table.path), what=plan.what, tasks=len(tasks), files=files, size=size)
        late = f"it has not ended within {limit_s:g} s"
        limit = self._loop.running.call_later(limit_s, self._cancel, table, late)

        def ended(end: UpkeepJobEnd) -> None:
            self._loop.call_from_thread(partial(self._ended, table, job, end, limit))

        self._committer.begin(plan)
        self._jobs.launch_upkeep(job, ended)

    def _cancel(self, table: Table, reason: str) -> None:
        run = table.upkeep_run
        if run.job is not None and run.report is not None:
            run.report = structs.replace(run.report, reason=reason)
            _log.info("upkeep is cancelled", table=str(table.path), reason=reason)
            self._jobs.cancel(run.job)

    def _ended(self, table: Table, job: UpkeepJob, end: UpkeepJobEnd, limit: asyncio.TimerHandle) -> None:
        limit.cancel()
        run = table.upkeep_run
        if run.job is not job:
            return  # it was told twice
        run.job, reason = None, end.reason
        try:
            run.results = tuple(map(_RESULTS.decode, end.outcomes))
        except msgspec.DecodeError as damaged:
            reason = f"a task returned what is no result of upkeep: {damaged}"
        if reason is not None:
            cancelled = "" if run.report is None else run.report.reason
            reason = cancelled or reason
            self._report_end(table, "cancelled" if cancelled else "failed", reason)
        self._post(TasksEnded(now=self._clock.now(), table_id=table.table_id, reason=reason))

    async def _commit(self, table: Table) -> None:
        run = table.upkeep_run
        plan, results = _known(run.plan), run.results
        try:
            landed = await self._ask(table, "commit", lambda committer: committer.commit(plan, results))
        except Exception as error:  # noqa: BLE001 - as above
            self._committer.end(plan)
            self._report_end(table, "failed", in_words(error))
            self._failed(table, error)
            return
        if landed and run.report is not None:
            files, size = sum(one.files for one in results), sum(one.size_bytes for one in results)
            run.report = structs.replace(run.report, files_after=files, size_bytes_after=size)
            self._report_end(table, "committed", "")
        else:
            self._report_end(table, "failed", VOID)
        self._post(UpkeepCommitted(now=self._clock.now(), table_id=table.table_id, landed=landed))

    async def _discard(self, table: Table) -> None:
        plan = _known(table.upkeep_run.plan)
        self._committer.end(plan)
        try:
            await self._ask(table, "discard", lambda committer: committer.discard(plan))
        except Exception as error:  # noqa: BLE001 - it is deleted later
            left, unexpected = str(plan.upkeep_id), _unexpected(error)
            _log.warning("left-over files stay for now", upkeep=left, reason=in_words(error), exc_info=unexpected)
        self._post(UpkeepDiscarded(now=self._clock.now(), table_id=table.table_id))

    async def _ask(self, table: Table, what: str, ask: Callable[[UpkeepCommitter], T]) -> T:
        """Make one call, with the table held.

        Raises:
            FencedError: a later start has taken over.
            LakewardError: as of the call.
        """
        limit_s = self._settings.lake.commit_timeout_s
        async with self._locks.hold(table.path, f"the {what} of its upkeep", wait_s=limit_s) as held:
            if self._loop.superseded_by:
                message = f"table {table.path}: a later start has taken over"
                raise FencedError(message)
            return await held.call(
                partial(ask, self._committer), what=f"{what} upkeep of {table.path}", timeout_s=limit_s
            )

    def _failed(self, table: Table, error: Exception) -> None:
        if (unexpected := _unexpected(error)) is not None:
            _log.error("internal error in upkeep", table=str(table.path), exc_info=unexpected)
        self._post(UpkeepFailed(now=self._clock.now(), table_id=table.table_id, reason=in_words(error)))

    def _report_end(self, table: Table, state: str, reason: str) -> None:
        report = table.upkeep_run.report
        if report is None:
            return
        ended = structs.replace(report, state=state, reason=reason, ended_ms=self._clock.wall_ms())
        table.upkeep_run.report = ended
        _log.info(
            "upkeep ended",
            table=str(table.path),
            what=ended.what,
            outcome=state,
            files_before=ended.files,
            files_after=ended.files_after,
            size_before=ended.size_bytes,
            size_after=ended.size_bytes_after,
            reason=reason,
        )


def _known(plan: UpkeepPlan | None) -> UpkeepPlan:
    """Return a plan that was made.

    Raises:
        LakeError: there is none, which is a mistake of ours.
    """
    if plan is None:
        message = "upkeep without a plan"
        raise LakeError(message)
    return plan


def _unexpected(error: Exception) -> Exception | None:
    return None if isinstance(error, LakewardError) else error
