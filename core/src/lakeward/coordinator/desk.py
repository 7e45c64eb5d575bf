"""The rounds in work: opens, launches, cuts, commits and ends them as the service is commanded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.checkpoint.journal import RoundJournal
from lakeward.coordinator.calls import call
from lakeward.coordinator.cleaner import Cleaner
from lakeward.coordinator.committer import Committed as LakeCommitted
from lakeward.coordinator.committer import Committer, CommitWork
from lakeward.coordinator.job import RoundJob
from lakeward.coordinator.opening import Opening, open_round
from lakeward.coordinator.owner import RunOwner
from lakeward.coordinator.planner import JobPlanner
from lakeward.coordinator.run import RoundRun
from lakeward.errors import FencedError, LakewardError, TableError, TableGoneError, UsageError
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

    from lakeward.coordinator.service import Service
    from lakeward.machines.rounds import RoundsEvent
    from lakeward.model.results import CommitIds, LakeFile
    from lakeward.model.tables import KvSnapshot, TableBucket
    from lakeward.model.tiering import Offer

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
        self._commits: dict[int, int] = {}
        self._leaving: list[RoundRun] = []
        self._planner = JobPlanner(service)
        self._committer = Committer(self._parts.source, self._parts.lake, self._parts.clock)
        self._cleaner = Cleaner(
            self._parts.lake,
            self._parts.journals,
            self._parts.clock,
            self._parts.incarnation,
            self._options.rounds.fence_s,
        )

    # --- commands -------------------------------------------------------------------------------------------

    def open(self, offer: Offer) -> None:
        """Open a round; an excluded table's round has nothing to do."""
        self._number += 1
        run = RoundRun(
            offer,
            RoundId(self._parts.incarnation, offer.table_id, offer.epoch, self._number),
            self._parts.clock.wall_ms(),
        )
        self._runs[offer.table_id] = run
        if not self._options.included(offer.path):
            self._post(Opened(now=self._now(), table_id=offer.table_id, splits=0, leases=False))
            return
        self._service.spawn(lambda: self._open(run))

    def snapshots(self, table_id: int) -> tuple[KvSnapshot, ...]:
        """Return the snapshots that a round needs."""
        opening = self._runs[table_id].opening
        return opening.enumeration.snapshots if opening is not None else ()

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
        run = self._runs.pop(table_id, None)
        if run is None:
            return
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
        """True while jobs of ended rounds are still winding down."""
        return bool(self._leaving)

    def find_job(self, round_name: str, job_attempt: int) -> RoundJob | None:
        """Find the job of a subtask that registers."""
        for run in [*self._runs.values(), *self._leaving]:
            job = run.job
            if job is not None and str(run.round_id) == round_name:
                return job if job.launched is not None and job.launched.job_attempt == job_attempt else None
        return None

    def check_silence(self) -> None:
        """Look for hung subtasks."""
        for run in self._runs.values():
            if run.job is not None:
                run.job.check_silence()

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

    async def sweep_again(self) -> None:
        """Delete for the second time what earlier starts left; trouble with it is logged and keeps nobody."""
        try:
            await call(self._cleaner.again, what="second sweep")
        except LakewardError as error:
            _log.warning("left-over files stay for the next start", reason=str(error))

    async def discard(self, run: RoundRun, files: Collection[str]) -> None:
        """Delete files of a round that an attempt closed after it no longer counted."""
        try:
            await call(lambda: self._parts.lake.delete(files), what="delete rejected files")
        except LakewardError as error:
            _log.warning("rejected files stay until the round is cleaned", round=str(run.round_id), reason=str(error))

    # --- the steps of a round -------------------------------------------------------------------------------

    async def _open(self, run: RoundRun) -> None:
        rules = self._options.rules(run.offer.path)
        parts = self._parts

        def work() -> Opening:
            opening = open_round(parts.source, parts.lake, run.offer, parts.incarnation, rules.cut_rows)
            self._cleaner.before_round(run.offer.path)
            return opening

        try:
            opening = await call(work, what=f"open {run.offer.path}")
        except Exception as error:  # noqa: BLE001 - one table's trouble, whatever it is, stays with that table
            self._fail(run, error)
            return
        if not self.current(run):
            return
        run.opening = opening
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
            await call(lambda: self._write_journal(run, opening, ()), what=f"journal of {run.offer.path}")
            others = [*self._runs.values()]
            plan = await call(lambda: self._planner.plan(run, opening, others), what=f"plan {run.offer.path}")
        except Exception as error:  # noqa: BLE001 - as in _open
            self._fail(run, error)
            return
        if not self.current(run):
            self._service.spawn(lambda: self._clean(run))
            return
        run.job = RoundJob(plan, self._parts.jobs, self._parts.clock, RunOwner(self, self._service, run))
        run.job.launch(self._from_thread)

    async def _commit(self, run: RoundRun) -> None:
        opening, offsets, files = run.opening, run.offsets(), run.files()
        if opening is None:
            return
        if run.job is not None:
            self._note(run, "job")
        moved = dict(offsets) != dict(opening.tiered)
        try:
            if moved:
                done = await call(
                    lambda: self._commit_blocking(run, opening, offsets, files),
                    what=f"commit {run.offer.path}",
                    timeout_s=self._options.commit_timeout_s * 4,
                )
                run.snapshot_id = done.snapshot_id
                for phase, seconds in done.timings_s.items():
                    run.timings_s[phase] = seconds
        except Exception as error:  # noqa: BLE001 - as in _open
            self._fail(run, error)
            return
        run.committed = offsets
        if not self.current(run):
            _log.info("a round that was given up has committed after all", round=str(run.round_id))
            return
        self._settle_target(run, offsets)
        cut = opening.enumeration.behind or run.lag_rows() != 0
        self._post(Committed(now=self._now(), table_id=run.offer.table_id, caught_up=not cut))

    def _commit_blocking(
        self,
        run: RoundRun,
        opening: Opening,
        offsets: Mapping[TableBucket, int],
        files: tuple[LakeFile, ...],
    ) -> LakeCommitted:
        table_id = run.offer.table_id
        done = self._committer.commit(
            CommitWork(
                round_id=run.round_id,
                incarnation=self._parts.incarnation,
                opening=opening,
                files=files,
                offsets=offsets,
                journal=lambda ids: self._add_commit(run, ids),
                may_commit=lambda: self._may_commit(run),
            )
        )
        self._cleaner.after_commit(run.offer.path, run.round_id)
        self._commits[table_id] = self._commits.get(table_id, 0) + 1
        if self._commits[table_id] % self._options.expire_every == 0:
            self._parts.lake.expire(run.offer.path, frozenset({done.snapshot_id}))
        since = self._parts.source.pending_since_ms(opening.table, offsets)
        run.lag_s = 0.0 if since is None else max(0.0, (self._parts.clock.wall_ms() - since) / 1000)
        return done

    async def _clean(self, run: RoundRun) -> None:
        """Delete what an ended round left; a fenced one deletes nothing: its table is another's now."""
        self._cleaner.end(run.round_id)
        journal = run.journal
        if run.outcome == "fenced" or journal is None:
            return
        irregular = run.job is not None and run.job.irregular
        try:
            if run.snapshot_id is not None:
                if irregular:
                    await call(
                        lambda: self._cleaner.sweep_prefix(run.offer.path, run.round_id), what="clean after a round"
                    )
            else:
                await call(lambda: self._cleaner.end_round(journal), what="clean after a failed round")
        except LakewardError as error:
            _log.warning("left-over files stay for the next start", round=str(run.round_id), reason=str(error))

    # --- helpers --------------------------------------------------------------------------------------------

    def _fail(self, run: RoundRun, error: Exception) -> None:
        if not self.current(run):
            _log.info("a round that is over failed late", round=str(run.round_id), reason=str(error))
            return
        table_id, now = run.offer.table_id, self._now()
        reason = str(error) if isinstance(error, LakewardError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, LakewardError):
            _log.error("unexpected error", round=str(run.round_id), exc_info=error)
        if isinstance(error, TableGoneError):
            self._post(TableGone(now=now, table_id=table_id))
        elif isinstance(error, FencedError):
            self._fenced(run, error)
        else:
            permanent = isinstance(error, TableError) and error.permanent
            self._post(RoundFailed(now=now, table_id=table_id, reason=reason, permanent=permanent))

    def _fenced(self, run: RoundRun, error: FencedError) -> None:
        by = _parse(error.by)
        if by is not None and by.succeeds(self._parts.incarnation):
            self._service.superseded(error.by)
            return
        lost = by is not None and by != self._parts.incarnation
        self._post(RoundFenced(now=self._now(), table_id=run.offer.table_id, reason=str(error), lost=lost))

    def _may_commit(self, run: RoundRun) -> None:
        renewed = next((s.renewed_at for s in self._service.rounds.in_hand if s.offer == run.offer), None)
        if renewed is None or not self.current(run):
            message = f"table {run.offer.path} is no longer in hand"
            raise FencedError(message)
        if self._now() - renewed >= self._options.rounds.fence_s:
            message = f"table {run.offer.path}: last renewal {self._now() - renewed:.0f} s ago, fence time is over"
            raise FencedError(message)

    def _write_journal(self, run: RoundRun, opening: Opening, commits: tuple[tuple[str, int], ...]) -> None:
        path = opening.table.path
        prefix = self._parts.lake.file_prefix(path, run.round_id)
        run.journal = RoundJournal(run.round_id, path, opening.head.snapshot_id, opening.base_commit, prefix, commits)
        self._parts.journals.write(run.journal)

    def _add_commit(self, run: RoundRun, ids: CommitIds) -> None:
        commits = run.journal.commits if run.journal is not None else ()
        if run.opening is not None:
            self._write_journal(run, run.opening, (*commits, (ids.uuid, ids.snapshot_id)))

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
