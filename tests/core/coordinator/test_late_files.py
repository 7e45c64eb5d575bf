"""Files that tasks write after those of their round were deleted: of a job that has ended, some may run a moment."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from msgspec import structs

from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.commits.fence import CommitFence
from lakeward.coordinator.effects.upkeep import Upkeep
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.round import Round
from lakeward.coordinator.tables.tables import Tables
from lakeward.coordinator.workers.event_loop import EventLoop
from lakeward.coordinator.workers.table_locks import TableLocks
from lakeward.errors import LakeError
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.settings import ServiceSettings, Settings
from lakeward.model.tiering import TableAssignment
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import FIRST, PATH, SECOND
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.lake_tables import log_table
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from lakeward.coordinator.checkpoints.restorer import Restorer
    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TablePath

FENCE_S = 45.0
ROUND = RoundId(FIRST, 7, 3, 1)


class Lake(FolderLake):
    """Does not answer while it is away."""

    is_away = False

    def head(self, path: TablePath) -> LakeHead | None:
        if self.is_away:
            message = "the catalog does not answer"
            raise LakeError(message)
        return super().head(path)


class Ended:
    """A round that has ended, whose file can be written again after it was deleted."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.lake = Lake(root / "lake")
        self.journals = JournalStore(SmallFiles(str(root / "state")), FIRST.service)
        self.named: frozenset[str] = frozenset()
        """Files that a checkpoint references."""
        self.lake.open_table(replace(log_table(), path=PATH, table_id=7), FIRST)
        prefix = self.lake.file_prefix(PATH, ROUND)
        self.journal = RoundJournal.begun(ROUND, PATH, None, None, prefix)
        self.journals.write(self.journal)
        self.file = Path(prefix) / "data"
        self.write()
        self.cleaner = self.start(FIRST)

    def start(self, start: Incarnation) -> Cleaner:
        """Return what cleans up in a start of the service."""
        parts = (self.lake, self.journals, self.clock, start)
        return Cleaner(*parts, settings=ServiceSettings(fence_s=FENCE_S), checkpointed=lambda _: self.named)

    def write(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(b"rows")

    def fail(self, *, may_write: bool) -> None:
        """Clean up after the round, which has failed."""
        self.cleaner.end(ROUND, may_write=may_write)
        self.cleaner.watch(ROUND, PATH)
        self.cleaner.end_round(ROUND)

    @property
    def is_clean(self) -> bool:
        return not self.file.exists() and self.journals.list() == ()


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    return Ended(tmp_path)


def test_a_round_whose_tasks_have_said_their_end_leaves_nothing_to_be_swept_again(ended: Ended) -> None:
    ended.fail(may_write=False)
    assert ended.is_clean
    ended.clock.advance(FENCE_S)
    assert ended.cleaner.due() == frozenset()


def test_a_file_that_a_task_writes_after_its_round_has_failed_is_deleted_after_the_fence_time(ended: Ended) -> None:
    ended.fail(may_write=True)
    assert not ended.file.exists()
    ended.write()
    ended.clock.advance(FENCE_S - 1)
    assert ended.cleaner.due() == frozenset()
    ended.clock.advance(1)
    assert ended.cleaner.due() == {PATH}
    ended.cleaner.sweep_due(PATH)
    assert ended.is_clean
    assert ended.cleaner.due() == frozenset()


def test_a_file_that_a_task_writes_after_its_round_has_committed_is_deleted_after_the_fence_time(ended: Ended) -> None:
    ended.cleaner.end(ROUND, may_write=True)
    ended.cleaner.watch(ROUND, PATH)
    ended.cleaner.sweep_prefix(ended.journal, may_have_orphans=True)
    ended.write()
    ended.clock.advance(FENCE_S)
    ended.cleaner.sweep_due(PATH)
    assert ended.is_clean


def test_a_round_that_follows_at_once_leaves_the_journal_until_the_fence_time_is_over(ended: Ended) -> None:
    ended.fail(may_write=True)
    ended.cleaner.before_round(PATH, None)
    ended.cleaner.after_commit(PATH, RoundId(FIRST, 7, 3, 2))
    ended.write()
    ended.clock.advance(FENCE_S)
    ended.cleaner.before_round(PATH, None)
    assert ended.is_clean


def test_a_fenced_round_whose_table_comes_back_keeps_its_journal_until_the_fence_time_is_over(ended: Ended) -> None:
    """The source has assigned it anew, to this service: the next round deletes what a task writes meanwhile."""
    ended.cleaner.end(ROUND, may_write=True)
    ended.cleaner.before_round(PATH, None)
    ended.write()
    ended.clock.advance(FENCE_S)
    ended.cleaner.before_round(PATH, None)
    assert ended.is_clean


@pytest.mark.parametrize("waited_s", [0.0, FENCE_S])
def test_a_file_that_was_written_late_is_deleted_by_the_next_start(ended: Ended, waited_s: float) -> None:
    """At once if the fence time is over by then, else while it runs."""
    ended.fail(may_write=True)
    ended.write()
    ended.clock.advance(waited_s)
    later = ended.start(SECOND)
    later.again()
    assert ended.is_clean == bool(waited_s)
    ended.clock.advance(FENCE_S)
    later.sweep_due(PATH)
    assert ended.is_clean


def test_a_file_that_a_checkpoint_references_stays_and_is_looked_at_after_growing_pauses(ended: Ended) -> None:
    ended.named = frozenset({str(ended.file)})
    ended.fail(may_write=True)
    waits = [FENCE_S]
    for _ in range(8):
        ended.clock.advance(waits[-1])
        assert ended.cleaner.due() == {PATH}
        ended.cleaner.sweep_due(PATH)
        assert ended.file.exists()
        waits.append(min(waits[-1] * 2, 3600.0))
    ended.named = frozenset()
    ended.clock.advance(waits[-1])
    ended.cleaner.sweep_due(PATH)
    assert ended.is_clean


def test_a_commit_of_unknown_outcome_keeps_its_files_whatever_time_has_passed(ended: Ended) -> None:
    ended.journals.write(structs.replace(ended.journal, commits=(("uuid", 1),)))
    ended.fail(may_write=True)
    ended.clock.advance(FENCE_S)
    ended.cleaner.sweep_due(PATH)
    assert ended.file.exists()


def test_what_could_not_be_deleted_at_the_end_of_a_round_is_deleted_without_a_further_round(ended: Ended) -> None:
    ended.lake.is_away = True
    with pytest.raises(LakeError):
        ended.fail(may_write=False)
    ended.lake.is_away = False
    ended.clock.advance(FENCE_S)
    ended.cleaner.sweep_due(PATH)
    assert ended.is_clean


# --- while the service runs -----------------------------------------------------------------------------------------


def upkeep_of(ended: Ended, tables: Tables) -> Upkeep:
    loop = EventLoop()
    loop.begin()
    return Upkeep(
        clock=ended.clock,
        lake=ended.lake,
        loop=loop,
        locks=TableLocks(),
        tables=tables,
        cleaner=ended.cleaner,
        restorer=cast("Restorer", None),  # it is asked for nothing here
        settings=Settings(),
    )


async def ticked(upkeep: Upkeep) -> None:
    upkeep.tick()
    await until(lambda: not upkeep.busy)


def test_a_table_without_a_further_round_is_swept_again_while_the_service_runs(ended: Ended) -> None:
    ended.fail(may_write=True)
    ended.write()

    async def run() -> None:
        upkeep = upkeep_of(ended, Tables())
        await ticked(upkeep)
        assert not ended.is_clean
        ended.clock.advance(FENCE_S)
        await ticked(upkeep)
        assert ended.is_clean

    asyncio.run(run())


def test_a_table_is_not_swept_again_while_a_round_of_it_is_in_progress(ended: Ended) -> None:
    ended.fail(may_write=True)
    ended.clock.advance(FENCE_S)

    async def run() -> None:
        tables = Tables()
        table = tables.known(7, PATH)
        facts = RoundFacts(TableAssignment(PATH, 7, 3, 0, 1.0), replace(ROUND, number=2), 0)
        table.round = Round(facts, ended.clock, CommitFence(ended.clock, ServiceSettings()))
        upkeep = upkeep_of(ended, tables)
        await ticked(upkeep)
        assert not ended.is_clean
        table.round = None
        await ticked(upkeep)
        assert ended.is_clean

    asyncio.run(run())


def test_a_lake_that_does_not_answer_a_second_sweep_is_asked_again_later(ended: Ended) -> None:
    ended.fail(may_write=True)

    async def run() -> None:
        upkeep = upkeep_of(ended, Tables())
        ended.lake.is_away = True
        ended.clock.advance(FENCE_S)
        await ticked(upkeep)
        ended.lake.is_away = False
        await ticked(upkeep)
        assert not ended.is_clean
        ended.clock.advance(2 * FENCE_S)
        await ticked(upkeep)
        assert ended.is_clean

    asyncio.run(run())
