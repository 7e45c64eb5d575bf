"""A driver may die at each step of a job of upkeep: no row is lost, and the next start deletes what was left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.commits.upkeep import UpkeepCommitter
from lakeward.errors import FencedError, LakeError, OutcomeUnknownError
from lakeward.model.identity import UPKEEP, Incarnation, RoundId
from lakeward.model.settings import ServiceSettings, TableSettings
from lakeward.storage.round_journal import JournalStore
from lakeward.storage.small_files import SmallFiles
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake, FolderLakePlugin
from lakeward_testing.lake_tables import PATH, TieringRound, incarnation, log_split, log_table, source_batch

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.upkeep import UpkeepCommit, UpkeepOutcome, UpkeepPlan, UpkeepResult

FENCE_S, LIMIT_S = 45.0, 600.0
FIRST, SECOND, THIRD = incarnation(1000), incarnation(2000), incarnation(3000)
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False)])
PLUGIN = FolderLakePlugin()


def nothing(_id: int) -> frozenset[str]:
    """No checkpoint names a file."""
    return frozenset()


class Start:
    """One start of the service, and what it knows."""

    def __init__(self, world: Lake, who: Incarnation) -> None:
        self.who = who
        settings = ServiceSettings(fence_s=FENCE_S)
        self.cleaner = Cleaner(world.lake, world.journals, world.clock, who, settings=settings, checkpointed=nothing)
        self.committer = UpkeepCommitter(world.lake, world.journals, self.cleaner, lambda _: TableSettings(), LIMIT_S)
        self._number = 0

    def plan(self) -> UpkeepPlan | None:
        self._number += 1
        return self.committer.plan(PATH, RoundId(self.who, 7, UPKEEP, self._number), 4)

    def launch(self) -> UpkeepPlan:
        plan = self.plan()
        assert plan is not None
        self.committer.begin(plan)
        return plan


class Lake:
    """A lake table, and the journals beside it."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.lake = FolderLake(root / "lake", merge_from=3)
        self.journals = JournalStore(SmallFiles(str(root / "state")), FIRST.service)
        self.rows = 0

    def start(self, who: Incarnation) -> Start:
        """Start the service: its stamp is on the table."""
        self.lake.open_table(log_table(COLUMNS), who)
        self.lake.stamp(PATH, who)
        return Start(self, who)

    def tier(self, who: Incarnation, rounds: int = 4) -> None:
        for _ in range(rounds):
            self.rows += 1
            tiering = TieringRound(PLUGIN, self.lake, log_table(COLUMNS), who, number=self.rows)
            batch = source_batch(COLUMNS, [{"id": self.rows}], start=self.rows)
            tiering.write(log_split(tiering.table), [batch])
            self.lake.commit(tiering.request())

    def is_whole(self) -> bool:
        """Every row is there once."""
        return sorted(row["id"] for row in self.lake.read(PATH)) == list(range(1, self.rows + 1))

    @property
    def unnamed(self) -> set[str]:
        on_disk = self.lake.files_on_disk(PATH)
        return on_disk - self.lake.referenced(PATH, on_disk)

    @property
    def files(self) -> int:
        head = self.lake.head(PATH)
        assert head is not None
        return head.files or 0


@pytest.fixture
def world(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def work(plan: UpkeepPlan, attempt: int = 0) -> list[UpkeepResult]:
    """What the tasks of a plan do."""
    return [replace(PLUGIN.upkeep(task, attempt, lambda: None), attempt=attempt) for task in plan.tasks]


def test_what_is_committed_keeps_each_row_and_leaves_neither_a_file_nor_in_the_end_a_journal(world: Lake) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    plan = start.launch()
    work(plan, attempt=0)
    assert start.committer.commit(plan, work(plan, attempt=1))
    assert world.is_whole()
    assert world.files == 1
    assert world.unnamed == set()
    work(plan, attempt=0)  # the first try lives on
    assert world.unnamed != set()
    world.clock.advance(2 * LIMIT_S)
    start.cleaner.sweep_due(PATH)
    assert world.unnamed == set()
    assert world.journals.list() == ()


def test_a_job_whose_tasks_were_tried_once_leaves_no_journal(world: Lake) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    plan = start.launch()
    assert start.committer.commit(plan, work(plan))
    assert world.journals.list() == ()


class KilledError(BaseException):
    """The driver dies."""


def killed(_step: str = "") -> None:
    raise KilledError


@pytest.mark.parametrize("step", ["planned", "done", "sent", "landed"])
def test_a_driver_that_is_killed_loses_no_row_and_the_next_start_deletes_what_it_left(world: Lake, step: str) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    plan = start.launch()
    results = [] if step == "planned" else work(plan)
    if step in {"sent", "landed"}:
        world.lake.at_upkeep = lambda at: killed() if at == {"sent": "commit", "landed": "committed"}[step] else None
        with pytest.raises(KilledError):
            start.committer.commit(plan, results)
        world.lake.at_upkeep = lambda _: None
    late = world.start(SECOND)
    assert world.is_whole()
    found = late.plan()
    assert world.unnamed == set()
    assert (found is None) == (step == "landed")
    work(plan, attempt=1)  # a task of it lives on
    world.clock.advance(2 * LIMIT_S)
    late.cleaner.sweep_due(PATH)
    assert world.unnamed == set()
    assert [one.round_id.incarnation for one in world.journals.list()] == ([] if found is None else [SECOND])
    assert world.is_whole()


def test_files_of_a_commit_without_an_answer_stay_until_it_can_land_no_more(world: Lake) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    landing: list[UpkeepCommit] = []
    plan = start.launch()
    at_once = world.lake.commit_upkeep

    def lose(commit: UpkeepCommit) -> UpkeepOutcome:
        landing.append(commit)
        raise OutcomeUnknownError

    world.lake.commit_upkeep = lose  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError):
        start.committer.commit(plan, work(plan))
    world.lake.commit_upkeep = at_once  # type: ignore[method-assign]
    start.committer.end(plan)
    world.clock.advance(2 * LIMIT_S)
    start.cleaner.sweep_due(PATH)
    again = start.plan()
    assert again is not None
    assert at_once(landing[0]).value == "landed"  # late, and nothing of it was deleted
    assert world.is_whole()
    world.clock.advance(2 * LIMIT_S)
    start.cleaner.before_upkeep(PATH)
    assert world.unnamed == set()
    assert world.is_whole()
    assert world.files == 1


def test_what_can_land_no_more_is_deleted_by_the_next_plan(world: Lake) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    plan = start.launch()
    world.lake.at_upkeep = lambda at: _refuse() if at == "commit" else None
    with pytest.raises(LakeError):
        start.committer.commit(plan, work(plan))
    start.committer.end(plan)
    world.lake.at_upkeep = lambda _: None
    world.tier(FIRST, rounds=1)
    start.plan()
    assert world.unnamed == set()
    assert world.is_whole()


def _refuse() -> None:
    message = "the storage refused"
    raise LakeError(message)


def test_a_start_that_was_overtaken_neither_plans_nor_commits_nor_deletes(world: Lake) -> None:
    stale = world.start(FIRST)
    world.tier(FIRST)
    plan = stale.launch()
    results = work(plan)
    world.start(SECOND)
    with pytest.raises(FencedError):
        stale.committer.commit(plan, results)
    assert stale.plan() is None
    assert world.files == 4
    assert world.is_whole()


def test_a_commit_that_others_came_before_is_built_on_their_snapshot(world: Lake) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    plan, came = start.launch(), list[str]()

    def come(at: str) -> None:
        if at == "commit" and not came:
            came.append(at)
            world.lake.stamp(PATH, FIRST)
            world.tier(FIRST, rounds=1)

    world.lake.at_upkeep = come
    assert start.committer.commit(plan, work(plan))
    assert world.is_whole()
    assert world.files == 2
    assert world.unnamed == set()


def test_a_compaction_by_others_makes_a_plan_void_and_what_it_has_written_is_deleted(world: Lake) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    plan = start.launch()
    results = work(plan)
    world.lake.compact_elsewhere(PATH)
    assert not start.committer.commit(plan, results)
    start.committer.end(plan)
    start.committer.discard(plan)
    assert world.unnamed == set()
    assert world.is_whole()


def test_what_a_task_writes_of_a_job_whose_table_was_dropped_is_deleted_by_later_starts(world: Lake) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    plan = start.launch()
    work(plan)
    assert world.unnamed != set()
    gone = lambda path, table_id: (path, table_id) == (PATH, 7)  # noqa: E731 - the source's answer
    Start(world, SECOND).cleaner.again(gone)  # its time begins
    world.clock.advance(2 * LIMIT_S)
    Start(world, THIRD).cleaner.again(gone)
    assert world.unnamed == set()
    assert world.journals.list() == ()


def test_another_table_of_the_same_name_is_left_alone(world: Lake) -> None:
    start = world.start(FIRST)
    world.tier(FIRST)
    plan = start.launch()
    results = work(plan)
    world.lake.open_table(log_table(COLUMNS, table_id=8), FIRST)
    world.lake.stamp(PATH, FIRST)
    with pytest.raises(FencedError):
        start.committer.commit(plan, results)
    assert start.plan() is None
    assert world.lake.read(PATH) == []
