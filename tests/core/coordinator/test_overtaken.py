"""A start that has been overtaken, and does not know it yet, goes on cleaning up: what it may not touch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from lakeward.coordinator.checkpoints.known import KnownCheckpoints
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.settings import ServiceSettings
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import FIRST, PATH, SECOND, THIRD, reference, write_checkpoint
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.lake_tables import log_table

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.tables import TablePath


class Disk:
    """The files of three starts of one service, each with a round on one table."""

    def __init__(self, root: Path) -> None:
        self.small = SmallFiles(str(root / "state"))
        self.clock = FakeClock()
        self.lake = FolderLake(root / "lake")
        self.journals = JournalStore(self.small, "svc")
        self.checkpoints = CheckpointFiles(self.small, self.clock)
        self.lake.open_table(replace(log_table(), path=PATH, table_id=7), FIRST)

    def file_of(self, start: Incarnation) -> Path:
        """Make a round of a start, with a data file."""
        round_id = RoundId(start, 7, 3, 1)
        prefix = self.lake.file_prefix(PATH, round_id)
        self.journals.write(RoundJournal.begun(round_id, PATH, None, None, prefix))
        file = Path(prefix) / "data"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"rows")
        return file


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_files_of_a_later_start_are_not_swept(disk: Disk) -> None:
    earlier, later = disk.file_of(FIRST), disk.file_of(THIRD)
    cleaner = Cleaner(
        disk.lake,
        disk.journals,
        disk.clock,
        SECOND,
        settings=ServiceSettings(fence_s=0.0),
        checkpointed=lambda _: frozenset(),
    )
    cleaner.before_round(PATH, None)
    cleaner.after_commit(PATH, RoundId(SECOND, 7, 3, 1))
    cleaner.again(lambda _path, _table_id: True)
    cleaner.again()
    assert not earlier.exists()
    assert later.exists()
    assert [journal.round_id.incarnation for journal in disk.journals.list()] == [THIRD]
    assert [journal.swept_ms for journal in disk.journals.list()] == [None]


def test_checkpoints_of_a_later_start_are_not_dropped(disk: Disk) -> None:
    for start in (FIRST, THIRD):
        write_checkpoint(disk.checkpoints, reference(start=start))
    restorer = Restorer(disk.checkpoints, disk.lake, SECOND, KnownCheckpoints())
    restorer.drop_all(7, "its round has committed")
    assert [info.ref for info in disk.checkpoints.list("svc")] == [reference(start=THIRD)]


def test_files_of_a_table_that_is_created_anew_during_a_sweep_stay(disk: Disk) -> None:
    file = disk.file_of(FIRST)

    class Slow(FolderLake):
        """While it looks what the table names, the table is dropped and created anew."""

        def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
            self.open_table(replace(log_table(), path=PATH, table_id=8), FIRST)
            return super().referenced(path, files)

    lake = Slow(disk.lake.root)
    cleaner = Cleaner(
        lake,
        disk.journals,
        disk.clock,
        SECOND,
        settings=ServiceSettings(fence_s=0.0),
        checkpointed=lambda _: frozenset(),
    )
    cleaner.before_round(PATH, None)
    assert file.exists()


def cleaner_of(disk: Disk, start: Incarnation, fence_s: float = 0.0) -> Cleaner:
    return Cleaner(
        disk.lake,
        disk.journals,
        disk.clock,
        start,
        settings=ServiceSettings(fence_s=fence_s),
        checkpointed=lambda _: frozenset(),
    )


def test_opening_a_round_deletes_nothing_of_one_whose_commit_may_still_land(disk: Disk) -> None:
    file = disk.file_of(FIRST)
    (journal,) = disk.journals.list()
    disk.journals.write(structs.replace(journal, commits=(("uuid", 1),)))
    cleaner_of(disk, SECOND).before_round(PATH, None)
    assert file.exists()


@pytest.mark.parametrize(
    ("newest", "left"),
    [
        (None, True),  # nothing has landed
        (10, True),  # nothing since the round began
        (11, False),  # its first try: the second one is fenced by the stamp of the start that looks
        (12, False),  # its second try, so what it does not name is in no commit
        (13, False),  # a later start's, which was killed before it could clean up
    ],
)
def test_files_of_a_commit_of_unknown_outcome_are_deleted_once_a_later_commit_has_landed(
    disk: Disk, newest: int | None, *, left: bool
) -> None:
    file = disk.file_of(FIRST)
    (journal,) = disk.journals.list()
    disk.journals.write(structs.replace(journal, base_commit=10, commits=(("one", 11), ("two", 12))))
    cleaner = cleaner_of(disk, THIRD, fence_s=10.0)
    cleaner.before_round(PATH, newest)
    assert file.exists() == left
    disk.clock.advance(11)
    cleaner.before_round(PATH, newest)
    assert bool(disk.journals.list()) == left


def test_a_round_of_this_start_is_left_to_its_own_commit(disk: Disk) -> None:
    file = disk.file_of(SECOND)
    (journal,) = disk.journals.list()
    disk.journals.write(structs.replace(journal, base_commit=10, commits=(("one", 11),)))
    cleaner_of(disk, SECOND).before_round(PATH, 13)
    assert file.exists()


def test_files_of_a_round_of_ours_whose_tasks_run_are_not_swept(disk: Disk) -> None:
    file, cleaner = disk.file_of(SECOND), cleaner_of(disk, SECOND)
    round_id = disk.journals.list()[0].round_id
    cleaner.begin(round_id)
    cleaner.before_round(PATH, None)
    assert file.exists()
    cleaner.end(round_id, may_write=False)
    cleaner.before_round(PATH, None)
    assert not file.exists()


def test_what_a_task_writes_after_a_sweep_is_swept_once_the_fence_time_is_over(disk: Disk) -> None:
    file, cleaner = disk.file_of(FIRST), cleaner_of(disk, SECOND, fence_s=10.0)
    cleaner.before_round(PATH, None)
    assert not file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"written by a task that lives on")
    disk.clock.advance(11)
    cleaner.again()
    assert not file.exists()
    assert disk.journals.list() == ()
