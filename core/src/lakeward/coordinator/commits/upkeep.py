"""Plans and commits upkeep of lake tables, with a journal for each job, so that a driver may die at any step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog
from msgspec import structs

from lakeward.errors import FencedError, LakeError, LakewardError
from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome
from lakeward.ports import CountedLake, UpkeepLake
from lakeward.storage.round_journal import RoundJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.coordinator.commits.cleaner import Cleaner
    from lakeward.model.identity import RoundId
    from lakeward.model.results import LakeHead
    from lakeward.model.settings import TableSettings
    from lakeward.model.tables import TablePath
    from lakeward.model.upkeep import FileCounts, UpkeepPlan, UpkeepResult
    from lakeward.ports import Lake
    from lakeward.storage.round_journal import JournalStore

_TRIES = 10
"""How often a commit is built anew because another snapshot came first."""
_log = structlog.get_logger("lakeward.upkeep")


class UpkeepCommitter:
    """Plans and commits upkeep. Blocking; one call per table at a time."""

    def __init__(
        self,
        lake: Lake,
        journals: JournalStore,
        cleaner: Cleaner,
        rules: Callable[[TablePath], TableSettings],
        limit_s: float,
    ) -> None:
        """Keep the parts; tasks get `limit_s` seconds, and `rules` say how a table is called in the lake."""
        self._lake = lake
        self._upkeep: UpkeepLake | None = lake if isinstance(lake, UpkeepLake) else None
        self._journals = journals
        self._cleaner = cleaner
        self._rules = rules
        self._limit_s = limit_s

    @property
    def offered(self) -> bool:
        """Whether the lake offers upkeep."""
        return self._upkeep is not None

    def begin(self, plan: UpkeepPlan) -> None:
        """Keep the files of a plan: its job is launched. Does not block."""
        self._cleaner.begin(plan.upkeep_id)

    def end(self, plan: UpkeepPlan) -> None:
        """Note that the job of a plan has ended, and that nothing of it will be committed any more. Does not block."""
        self._cleaner.end_upkeep(plan.upkeep_id, plan.path)

    def plan(self, path: TablePath, upkeep_id: RoundId, most: int) -> UpkeepPlan | None:
        """Delete what earlier jobs of the table have left, plan what is due, and write its journal.

        `path` is the source's, as is that of the plan. None where nothing is due, or the table is not this start's: no
        stamp of it is there, or another table is.

        Raises:
            LakewardError: the lake or the store refused.
        """
        in_lake = self._rules(path).lake_path(path)
        head = self._lake.head(in_lake)
        if self._upkeep is None or head is None or not _is_ours(head, upkeep_id):
            return None
        self._cleaner.before_upkeep(path)
        plan = self._upkeep.plan_upkeep(in_lake, upkeep_id, most)
        if plan is None or not plan.tasks:
            return None
        # A try of a task stops by itself after its limit, however long its driver has been gone. No time of a clock is
        # kept: one that is set back would keep the journal.
        for_ms = int(1000 * self._limit_s)
        journal = RoundJournal.begun(upkeep_id, path, None, None, self._lake.file_prefix(in_lake, upkeep_id))
        lake_path = None if in_lake == path else in_lake
        self._journals.write(structs.replace(journal, writes_for_ms=for_ms, lake_path=lake_path))
        return replace(plan, path=path)

    def count(self, path: TablePath) -> FileCounts | None:
        """Count the files of a table; None where the lake does not count, or has no such table.

        Raises:
            LakeError: the lake could not be read.
        """
        lake, in_lake = self._lake, self._rules(path).lake_path(path)
        return lake.count_files(in_lake) if isinstance(lake, CountedLake) and lake.head(in_lake) is not None else None

    def commit(self, plan: UpkeepPlan, results: Sequence[UpkeepResult]) -> bool:
        """Commit what tasks have done, on the head as it is; False where that cannot be, and nothing may land.

        Raises:
            FencedError: a later start has taken over the table, or it is another one.
            OutcomeUnknownError: it may have landed, or may yet.
            LakewardError: the lake or the store refused.
        """
        upkeep_id, upkeep = plan.upkeep_id, self._upkeep
        journal = self._journals.read(upkeep_id)
        if journal is None or upkeep is None:
            message = f"{plan.path}: the journal of upkeep {upkeep_id} is gone"
            raise LakeError(message)
        path = journal.in_lake
        planned = {task.number: task for task in plan.tasks}
        tasks = tuple(planned[one.number] for one in results)
        outcome = UpkeepOutcome.CONFLICT
        for _ in range(_TRIES):
            base, ids = self._head(path, upkeep_id).snapshot_id, self._lake.new_ids(path)
            tried = (*journal.commits, (ids.uuid, ids.snapshot_id))
            journal = structs.replace(journal, base_snapshot=base, commits=tried)
            self._journals.write(journal)
            outcome = upkeep.commit_upkeep(UpkeepCommit(path, upkeep_id, ids, base, tasks, tuple(results)))
            if outcome is not UpkeepOutcome.CONFLICT:
                break
        journal = structs.replace(journal, base_snapshot=None)
        self._journals.write(journal)
        if outcome is UpkeepOutcome.LANDED:
            self._clean_up(journal, tried_again=any(one.attempt for one in results))
        return outcome is UpkeepOutcome.LANDED

    def discard(self, plan: UpkeepPlan) -> None:
        """Delete what the tasks of a plan have written that is in no snapshot.

        Raises:
            LakewardError: the lake or the store refused; it is done later.
        """
        self._cleaner.discard_upkeep(plan.upkeep_id)

    def _clean_up(self, journal: RoundJournal, *, tried_again: bool) -> None:
        """Delete what tries of tasks and commits have left that do not count.

        `tried_again`: an earlier try of a task may still write.
        """
        if tried_again:
            self._cleaner.end_upkeep(journal.round_id, journal.path)
        else:
            self._cleaner.end(journal.round_id, may_write=False)
        try:
            self._cleaner.sweep_prefix(journal, may_have_orphans=True)
        except LakewardError as error:  # the commit has landed; the rest is deleted later
            _log.warning("left-over files stay for now", upkeep=str(journal.round_id), reason=str(error))

    def _head(self, path: TablePath, upkeep_id: RoundId) -> LakeHead:
        head = self._lake.head(path)
        if head is None or not _is_ours(head, upkeep_id):
            stamp = None if head is None else head.stamp
            message = f"{path}: expected the stamp {upkeep_id.incarnation} on the head, found {stamp}"
            raise FencedError(message, "" if stamp is None else str(stamp))
        return head


def _is_ours(head: LakeHead, upkeep_id: RoundId) -> bool:
    return (head.table_id, head.stamp) == (upkeep_id.table_id, upkeep_id.incarnation)
