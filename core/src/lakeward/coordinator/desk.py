"""The rounds in work: opens, launches, cuts, commits and ends them as the service is commanded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakeward.coordinator.calls import call
from lakeward.coordinator.cleaner import Cleaner
from lakeward.coordinator.job import RoundJob
from lakeward.coordinator.landing import Lander
from lakeward.coordinator.opening import Opening, open_round
from lakeward.coordinator.owner import RunOwner
from lakeward.coordinator.planner import JobPlanner
from lakeward.coordinator.restoring import Restorer, is_gone
from lakeward.coordinator.run import RoundRun
from lakeward.coordinator.table_locks import TableLocks
from lakeward.coordinator.upkeep import Upkeep
from lakeward.errors import FencedError, LakewardError, RowCountError, TableError, TableGoneError, UsageError
from lakeward.machines.rounds import (
    Committed,
    Opened,
    RoundFailed,
    RoundFenced,
    TableGone,
    TargetReached,
)
from lakeward.model.identity import Incarnation, RoundId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractAsyncContextManager

    from lakeward.coordinator.checkpointing import CheckpointDone
    from lakeward.coordinator.committer import Committed as LakeCommitted
    from lakeward.coordinator.contents import Contents
    from lakeward.coordinator.service import Service
    from lakeward.coordinator.table_locks import TableHold
    from lakeward.machines.rounds import RoundsEvent
    from lakeward.model.tables import KvSnapshot, TableBucket
    from lakeward.model.tiering import Offer

_FORGET_EVERY_S = 3600.0
_SUPERSEDED = frozenset({"committed", "dropped", "stale"})
"""How a round ends from whose last checkpoint nobody goes on: its rows are in the lake, or cannot be had any more."""
_log = structlog.get_logger("lakeward.rounds")


class RoundDesk:
    """All rounds in work, by table id. Used on the event loop only."""

    def __init__(self, service: Service) -> None:
        """Start without rounds.

        Args:
            service: whose rounds these are; it is told what happens.
        """
        self._service = service
        self._parts = service.parts
        self._options = service.options
        self._runs: dict[int, RoundRun] = {}
        self._number = 0
        self.forget_every_s = _FORGET_EVERY_S
        self._forget_at = float("inf")
        self._numbers: dict[int, tuple[int, int]] = {}
        """By table: its newest epoch here, and the highest number that a checkpoint of it had."""
        """The highest number of a checkpoint, by table id and epoch."""
        self._leaving: list[RoundRun] = []
        self._cleaning = 0
        self._storing: dict[int, RoundRun] = {}
        """By table: a round that ended while a checkpoint of it was being stored."""
        self._locks = TableLocks()
        self._planner = JobPlanner(service)
        self.restorer = Restorer(self._parts.checkpoints, self._parts.lake, self._parts.incarnation)
        self._cleaner = Cleaner(
            self._parts.lake,
            self._parts.journals,
            self._parts.clock,
            self._parts.incarnation,
            fence_s=self._options.rounds.fence_s,
            checkpointed=self.restorer.named,
        )
        self._lander = Lander(service)
        self._upkeep = Upkeep(service, self._locks, self._cleaner, self.restorer)

    # --- commands -------------------------------------------------------------------------------------------

    def open(self, offer: Offer, attempt: int = 1) -> None:
        """Open a round. `attempt`: which try since the table's last success."""
        self._number += 1
        round_id = RoundId(self._parts.incarnation, offer.table_id, offer.epoch, self._number)
        run = RoundRun(offer, round_id, self._parts.clock.wall_ms(), attempt)
        self._runs[offer.table_id] = run
        self._upkeep.begin_round(round_id)
        self._service.spawn(lambda: self._open(run))

    def snapshots(self, table_id: int) -> tuple[KvSnapshot, ...]:
        """Return the snapshots that a round needs."""
        run = self._runs.get(table_id)
        return run.opening.enumeration.snapshots if run is not None and run.opening is not None else ()

    def launch(self, table_id: int) -> None:
        """Write the journal and launch the job."""
        run = self._runs[table_id]
        self._service.spawn(lambda: self._launch(run))

    def cut(self, table_id: int) -> None:
        """End a round early."""
        run = self._runs.get(table_id)
        if run is not None and run.job is not None:
            run.job.cut()

    def commit(self, table_id: int) -> None:
        """Commit a round."""
        run = self._runs[table_id]
        self._service.spawn(lambda: self._commit(run))

    def end(self, table_id: int, outcome: str, reason: str) -> None:
        """End a round: stop its job, report it, clean up what may be cleaned."""
        if outcome == "dropped":
            self.restorer.distrust(table_id, "its table was dropped")
        run = self._runs.pop(table_id, None)
        if run is None:
            return
        self._close_checkpoints(run, superseded=outcome in _SUPERSEDED)
        nothing = outcome == "committed" and run.snapshot_id is None
        run.outcome, run.reason = "idle" if nothing else outcome, reason
        run.ended_ms = self._parts.clock.wall_ms()
        if run.job is not None and run.job.running:
            self._leaving.append(run)
            if outcome != "committed":
                run.job.cancel()
        else:
            self._service.spawn(lambda: self._clean(run))
        self._service.reporter.round_over(run)

    def cancel_all(self) -> None:
        """Cancel every job; the service ends."""
        for run in [*self._runs.values(), *self._leaving]:
            if run.job is not None and run.job.running:
                run.job.cancel()

    # --- for the service and the server ---------------------------------------------------------------------

    @property
    def runs(self) -> Mapping[int, RoundRun]:
        """Rounds in work, by table id."""
        return self._runs

    @property
    def busy(self) -> bool:
        """True while jobs of ended rounds are still winding down, or being cleaned up after."""
        return bool(self._leaving) or self._cleaning > 0

    @property
    def in_upkeep(self) -> bool:
        """True while upkeep after a commit is under way that is within its time limit."""
        return self._upkeep.busy

    def find_job(self, round_name: str, job_attempt: int) -> RoundJob | None:
        """Find the job of a subtask that registers."""
        for run in [*self._runs.values(), *self._leaving]:
            job = run.job
            if job is not None and str(run.round_id) == round_name:
                return job if job.launched is not None and job.launched.job_attempt == job_attempt else None
        return None

    def tick(self) -> None:
        """Let checkpoints start and expire; look for hung subtasks; try upkeep again that failed."""
        for run in [*self._runs.values()]:
            if run.job is not None:
                run.job.tick()
        self._upkeep.tick()
        if self._now() >= self._forget_at:
            self._forget_at = float("inf")
            self._service.spawn(self._forget_dropped)

    def leased(self, table_id: int) -> None:
        """Note that a round's snapshots are protected."""
        run = self._runs.get(table_id)
        if run is not None:
            self._note(run, "lease")

    def ended(self, run: RoundRun) -> None:
        """The last launch of a round is over: nothing of it runs any more."""
        if run in self._leaving:
            self._leaving.remove(run)
            self._service.wake()
            self._service.spawn(lambda: self._clean(run))

    def current(self, run: RoundRun) -> bool:
        """Say whether a round is still the one in work on its table."""
        return self._runs.get(run.offer.table_id) is run

    def checkpoint_storing(self, run: RoundRun, contents: Contents) -> None:
        """Hold what a checkpoint needs before it is written: the round may end before it is known to be whole."""
        self.restorer.expect(run.offer.table_id, contents)
        self._service.hold_checkpoints()

    def checkpoint_done(self, run: RoundRun, done: CheckpointDone) -> None:
        """Build on a checkpoint that is whole: release leases, and commit a step of the round if it is time."""
        run.newest = done
        table_id = run.offer.table_id
        self.restorer.note(table_id, done.contents)
        self._service.hold_checkpoints()  # before the round lets anything go
        whole = done.contents.finished
        self._service.release(table_id, {result.bucket for result in whole.values()})
        every = self._options.rules(run.offer.path).commit_every
        if every and run.stepped_at is not None and self._now() - run.stepped_at >= every:
            run.stepped_at = self._now()
            self._service.spawn(lambda: self._commit_step(run, done))

    def latest(self, run: RoundRun) -> int:
        """Return the highest number that a checkpoint of this epoch ever had."""
        epoch, number = self._numbers.get(run.offer.table_id, (run.offer.epoch, 0))
        own = number if epoch == run.offer.epoch else 0
        ref = run.restored.ref if run.restored is not None else None
        return own if ref is None or ref.incarnation != str(self._parts.incarnation) else max(own, ref.number)

    async def sweep_again(self) -> None:
        """Delete for the second time what earlier starts left; trouble with it is logged and keeps nobody."""
        try:
            await call(lambda: self.restorer.start(self._parts.source), what="look for checkpoints")
            await call(lambda: self._cleaner.again(partial(is_gone, self._parts.source)), what="second sweep")
        except LakewardError as error:
            _log.warning("left-over files stay for the next start", reason=str(error))
        await self._forget_dropped()

    async def forget_table(self, table_id: int) -> None:
        """Keep nothing of a table that the source has dropped; its id never comes back."""
        self._numbers.pop(table_id, None)
        self._storing.pop(table_id, None)
        self._upkeep.forget(table_id)
        self._parts.state.forget(table_id)
        try:
            await call(lambda: self._parts.committed.delete(table_id), what="forget a table that was dropped")
        except LakewardError as error:
            _log.warning("the record of a dropped table stays for now", reason=str(error))

    async def _forget_dropped(self) -> None:
        """Keep nothing of tables that were dropped while no round was on them: nobody tells us of those."""
        self._forget_at = self._now() + self.forget_every_s
        try:
            for table_id in await call(self._find_dropped, what="look for tables that were dropped"):
                await self.forget_table(table_id)
        except LakewardError as error:
            _log.warning("what is kept of dropped tables stays for now", reason=str(error))

    def _find_dropped(self) -> tuple[int, ...]:
        records, source = self._parts.committed.list(), self._parts.source
        return tuple(record.table_id for record in records if is_gone(source, record.path, record.table_id))

    async def review_checkpoints(self) -> None:
        """See whether checkpoints of tables without a round are still valid; trouble is logged, then all is held on."""
        idle = self.restorer.holding - self._runs.keys()
        look = self.restorer.start if not self.restorer.known else partial(self.restorer.look_again, table_ids=idle)
        try:
            await call(lambda: look(self._parts.source), what="look at checkpoints again")
        except LakewardError as error:
            _log.warning("checkpoints could not be looked at; what they need is held on", reason=str(error))

    async def discard(self, run: RoundRun, files: Collection[str]) -> None:
        """Delete files of a round that an attempt closed after it no longer counted, but for those in the lake.

        A checkpoint may have held the finish that comes late, and a step been committed from it.
        """
        try:
            async with self._hold(run, "the deletion of rejected files") as held:
                discard = partial(self._cleaner.discard, run.offer.path, run.offer.table_id, files)
                await held.call(discard, what="delete rejected files")
        except LakewardError as error:
            _log.warning("rejected files stay until the round is cleaned", round=str(run.round_id), reason=str(error))

    # --- the steps of a round -------------------------------------------------------------------------------

    async def _open(self, run: RoundRun) -> None:
        rules = self._options.rules(run.offer.path)
        parts = self._parts

        def work() -> Opening:
            may_go_on = self.restorer.has(run.offer.table_id)
            before = parts.lake.head(run.offer.path) if may_go_on else None
            opening = open_round(
                parts.source, parts.lake, run.offer, parts.incarnation, parts.committed, rules.cut_rows
            )
            # The stamp as it was before ours; the newest commit as it is since then: one may have landed in between.
            head = None if before is None else replace(before, commit=opening.head.commit)
            run.restored = self.restorer.find(opening.table, head) if may_go_on else None
            self._cleaner.before_round(run.offer.path)
            return opening if run.restored is None else run.restored.opening(opening)

        await self._settled(run)
        try:
            async with self._hold(run, "the opening", wait_s=self._options.commit_timeout_s) as held:
                if not self.current(run):
                    return
                opening = await held.call(work, what=f"open {run.offer.path}")
        except Exception as error:  # noqa: BLE001 - one table's trouble, whatever it is, stays with that table
            self._fail(run, error)
            return
        if not self.current(run):
            return
        run.open_at(opening)
        if run.restored is not None:
            _log.info("the round goes on from a checkpoint", round=str(run.round_id), checkpoint=str(run.restored.ref))
        self._note(run, "enumerate")
        enumeration = opening.enumeration
        if not enumeration.splits:
            self._settle_target(run, opening.tiered)
            run.lag_s = 0.0
        self._post(
            Opened(
                now=self._now(),
                table_id=run.offer.table_id,
                splits=len(enumeration.splits),
                leases=bool(enumeration.snapshots),
            )
        )

    async def _launch(self, run: RoundRun) -> None:
        opening = run.opening
        if opening is None:
            return
        # Before its journal is on disk: a commit of an earlier round that ends late would sweep it away.
        self._cleaner.begin(run.round_id)
        try:
            async with self._hold(run, "the launch", wait_s=self._options.commit_timeout_s) as held:
                await held.call(lambda: self._lander.write_journal(run, opening), what=f"journal of {run.offer.path}")
                others = [*self._runs.values()]
                plan = await held.call(lambda: self._planner.plan(run, opening, others), what=f"plan {run.offer.path}")
        except Exception as error:  # noqa: BLE001 - as in _open
            self._fail(run, error)
            return
        if not self.current(run):
            self._service.spawn(lambda: self._clean(run))
            return
        run.stepped_at = self._now()
        run.job = RoundJob(plan, self._parts.jobs, self._parts.clock, RunOwner(self, self._service, run))
        run.job.launch(self._from_thread)

    async def _commit(self, run: RoundRun) -> None:
        if run.job is not None:
            self._note(run, "job")
        try:
            async with self._hold(run, "the commit", wait_s=self._commit_limit_s) as held:
                opening, offsets, files = run.opening, run.offsets(), run.files()
                if opening is None or not self.current(run):
                    return
                moved = dict(offsets) != dict(run.committed if run.committed is not None else opening.tiered)
                if moved:
                    account = run.account()
                    await self._send(held, run, lambda: self._lander.land(run, opening, offsets, files, account))
        except Exception as error:  # noqa: BLE001 - as in _open
            self._fail(run, error)
            return
        run.committed = offsets
        self._upkeep.after(run, opening, offsets, landed=moved)
        if not self.current(run):
            _log.info("a round that was given up has committed after all", round=str(run.round_id))
            return
        self._settle_target(run, offsets)
        cut = opening.enumeration.behind or run.lag_rows() != 0
        self._post(Committed(now=self._now(), table_id=run.offer.table_id, caught_up=not cut))

    async def _commit_step(self, run: RoundRun, done: CheckpointDone) -> None:
        """Commit what a checkpoint holds, while the round goes on."""
        try:
            async with self._hold(run, "the commit of a step", wait_s=self._commit_limit_s) as held:
                opening, offsets = run.opening, done.contents.offsets()
                files = tuple(file for file in done.contents.files() if file.path not in run.in_lake)
                before = run.committed if run.committed is not None else opening.tiered if opening is not None else {}
                if opening is None or not self.current(run) or dict(offsets) == dict(before):
                    return
                account = run.account(done.contents.shares())
                await self._send(held, run, lambda: self._lander.land(run, opening, offsets, files, account))
                run.committed = offsets
                run.step += 1
                run.base_commit = run.snapshot_id
                run.in_lake |= {file.path for file in files}
        except Exception as error:  # noqa: BLE001 - as in _open
            self._fail(run, error)
            return
        _log.info("committed a step of a round", round=str(run.round_id), files=len(files))

    async def _send(self, held: TableHold, run: RoundRun, work: Callable[[], LakeCommitted]) -> None:
        done = await held.call(work, what=f"commit {run.offer.path}", timeout_s=self._commit_limit_s)
        run.snapshot_id = done.snapshot_id
        for phase, seconds in done.timings_s.items():
            run.timings_s[phase] = run.timings_s.get(phase, 0.0) + seconds

    async def _settled(self, run: RoundRun) -> None:
        """Wait for the last checkpoint of the table's last round: it may be what this round goes on from."""
        earlier = self._storing.pop(run.offer.table_id, None)
        if earlier is None or earlier.job is None:
            return
        try:
            async with asyncio.timeout(self._options.commit_timeout_s):
                await earlier.job.checkpoints.settled()
        except TimeoutError:
            _log.warning(
                "it is unknown whether a checkpoint is whole; the round does not wait for it any longer",
                round=str(run.round_id),
                checkpoint_of=str(earlier.round_id),
            )

    async def _clean(self, run: RoundRun) -> None:
        """Delete what an ended round left; a fenced one deletes nothing: its table is another's now."""
        self._cleaning += 1
        try:
            if run.job is not None:
                await run.job.checkpoints.settled()  # the sweep spares the files that it names
                await self._delete_parts(run.job)
            await self._clean_files(run)
        finally:
            self._cleaning -= 1

    async def _delete_parts(self, job: RoundJob) -> None:
        """Delete what subtasks stored of the last checkpoint after it had been aborted: only now none of them runs."""
        ref = job.checkpoints.cut_short
        if ref is None:
            return
        try:
            await call(partial(self._parts.checkpoints.delete, ref), what=f"delete what is left of {ref}")
        except LakewardError as error:
            _log.warning("left for the sweep", what=f"parts of {ref}", reason=str(error))

    async def _clean_files(self, run: RoundRun) -> None:
        self._cleaner.end(run.round_id)
        if run.outcome == "fenced" or run.journal is None:
            return
        irregular = run.job is not None and (run.job.irregular or run.job.books.leaves_files_out)
        try:
            async with self._hold(run, "the clean-up") as held:
                journal = run.journal  # a commit that was given up may have written into it until now
                if run.outcome == "committed":
                    sweep = partial(self._cleaner.sweep_prefix, journal, irregular=irregular)
                    await held.call(sweep, what="clean after a round")
                elif run.snapshot_id is None:  # else some steps have landed: the next commit sweeps the rest
                    await held.call(partial(self._cleaner.end_round, journal), what="clean after a failed round")
        except LakewardError as error:
            _log.warning("left-over files stay for the next start", round=str(run.round_id), reason=str(error))

    # --- helpers --------------------------------------------------------------------------------------------

    def _hold(self, run: RoundRun, what: str, *, wait_s: float | None = None) -> AbstractAsyncContextManager[TableHold]:
        return self._locks.hold(run.offer.path, f"{what} of round {run.round_id}", wait_s=wait_s)

    @property
    def _commit_limit_s(self) -> float:
        """Seconds for all tries of a commit together."""
        return self._options.commit_timeout_s * 4

    def _close_checkpoints(self, run: RoundRun, *, superseded: bool) -> None:
        if run.job is not None:
            run.job.checkpoints.end(superseded=superseded)
            if run.job.checkpoints.owed:
                self._storing[run.offer.table_id] = run
            self._numbers[run.offer.table_id] = (run.offer.epoch, run.job.checkpoints.latest)

    def _fail(self, run: RoundRun, error: Exception) -> None:
        if not self.current(run):
            _log.info("a round that is over failed late", round=str(run.round_id), reason=str(error))
            return
        table_id, now = run.offer.table_id, self._now()
        reason = str(error) if isinstance(error, LakewardError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, LakewardError):
            _log.error("unexpected error", round=str(run.round_id), exc_info=error)
        if isinstance(error, TableGoneError):
            self.lose_table(run, reason)
        elif isinstance(error, FencedError):
            self.restorer.distrust(table_id, str(error))
            self._fenced(run, error)
        else:
            if isinstance(error, RowCountError):  # what was lost may have been lost from a checkpoint
                self.restorer.distrust(table_id, str(error))
            permanent = isinstance(error, TableError) and error.permanent and run.attempt >= error.tries
            self._post(RoundFailed(now=now, table_id=table_id, reason=reason, permanent=permanent))

    def lose_table(self, run: RoundRun, reason: str) -> None:
        """End a round whose table is gone, in the source or in the lake: only the former leaves the hand.

        Args:
            run: the round.
            reason: what said so.
        """
        self._service.spawn(partial(self._lose_table, run, reason))

    async def _lose_table(self, run: RoundRun, reason: str) -> None:
        path, table_id = run.offer.path, run.offer.table_id
        try:
            gone = await call(partial(is_gone, self._parts.source, path, table_id), what=f"look whether {path} is gone")
        except LakewardError as error:
            gone, reason = False, f"{reason}; {error}"
        if not self.current(run):
            return
        if gone:
            self._post(TableGone(now=self._now(), table_id=table_id))
        else:
            self._post(RoundFailed(now=self._now(), table_id=table_id, reason=reason, permanent=False))

    def _fenced(self, run: RoundRun, error: FencedError) -> None:
        by = _parse(error.by)
        if by is not None and by.succeeds(self._parts.incarnation):
            self._service.superseded(error.by)
            return
        lost = by is not None and by != self._parts.incarnation
        self._post(RoundFenced(now=self._now(), table_id=run.offer.table_id, reason=str(error), lost=lost))

    def _settle_target(self, run: RoundRun, offsets: Mapping[TableBucket, int]) -> None:
        if self._options.once and self._service.targets.reached(run.offer.path, offsets):
            self._post(TargetReached(now=self._now(), path=run.offer.path))

    def _note(self, run: RoundRun, phase: str) -> None:
        """Book the time since the last note under a phase."""
        spent = (self._parts.clock.wall_ms() - run.started_ms) / 1000
        run.timings_s[phase] = max(0.0, spent - sum(run.timings_s.values()))

    def _from_thread(self, work: Callable[[], None]) -> None:
        try:
            self._service.loop.call_soon_threadsafe(work)
        except RuntimeError:
            # The loop is closed: the service has ended, nobody waits for this job.
            return

    def _post(self, event: RoundsEvent) -> None:
        self._service.post(event)

    def _now(self) -> float:
        return self._service.now()


def _parse(text: str) -> Incarnation | None:
    try:
        return Incarnation.parse(text)
    except UsageError:
        return None
