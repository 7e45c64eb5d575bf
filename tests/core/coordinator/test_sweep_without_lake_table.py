"""What is left of rounds whose lake table cannot be asked: kept until it can be, deleted where nobody ever will."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.errors import StorageError, TableGoneError
from lakeward.model.identity import RoundId
from lakeward.model.settings import ServiceSettings
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import FIRST, PATH, SECOND
from lakeward_service_kit.service_world import LaterClock
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.lake_tables import log_table

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TablePath
    from lakeward_service_kit.service_world import World

DAY_S = 86_400.0
TABLE = replace(log_table(), path=PATH, table_id=7)


class Left:
    """A lake table, and what a round of an earlier start left of it: one file, and a journal that was swept once."""

    def __init__(self, root: Path) -> None:
        self.away = root / "away"
        self.clock = FakeClock()
        self.lake = FolderLake(root / "lake")
        self.lake.open_table(TABLE, FIRST)
        self.journals = JournalStore(SmallFiles(str(root / "state")), "svc")
        self.named: frozenset[str] = frozenset()
        self.journal, self.file = leave(self.lake, self.journals, RoundId(FIRST, 7, 3, 1), swept_ms=1)

    def cleaner(self, lake: FolderLake | None = None) -> Cleaner:
        parts = (lake or self.lake, self.journals, self.clock, SECOND)
        return Cleaner(*parts, settings=ServiceSettings(fence_s=0.0), checkpointed=lambda _: self.named)

    def start(self, *, gone: bool = False) -> None:
        self.cleaner().again(lambda _path, _table_id: gone)

    def drop_lake_table(self) -> None:
        (self.lake.root / f"{PATH}.json").unlink()

    @property
    def left(self) -> tuple[bool, bool]:
        """Whether the file and the journal are there."""
        return self.file.exists(), self.journals.list() != ()


def leave(
    lake: FolderLake, journals: JournalStore, round_id: RoundId, swept_ms: int | None, path: TablePath = PATH
) -> tuple[RoundJournal, Path]:
    prefix = lake.file_prefix(path, round_id)
    journal = structs.replace(RoundJournal.begun(round_id, path, None, None, prefix), swept_ms=swept_ms)
    journals.write(journal)
    file = Path(prefix) / "data.arrow"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"rows")
    return journal, file


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_a_start_while_the_warehouse_is_away_keeps_the_journal_and_one_after_it_deletes_the_files(left: Left) -> None:
    shutil.move(left.lake.root, left.away)
    left.start()
    shutil.move(left.away, left.lake.root)
    assert left.left == (True, True)
    left.start()
    assert left.left == (False, False)


def test_a_service_that_started_while_the_warehouse_was_away_leaves_no_orphan_and_no_journal(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    world.once()
    before = world.lake.files_on_disk(log)
    journals = JournalStore(SmallFiles(str(world.directory / "state")), "svc")
    round_id = RoundId(replace(FIRST, service="svc"), world.store.table(log).table_id, 1, 9)
    leave(world.lake, journals, round_id, 1, log)
    shutil.move(world.lake.root, world.directory / "away")
    world.load(log, 10, 10)
    assert world.once(fence_s=5.0).failed
    assert world.once(clock=LaterClock()).failed
    shutil.move(world.directory / "away", world.lake.root)
    assert world.once().failed == ()
    world.once(clock=LaterClock())
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(20))
    assert world.lake.files_on_disk(log) == world.lake.referenced(log, world.lake.files_on_disk(log))
    assert before < world.lake.files_on_disk(log)
    assert journals.list() == ()


def test_one_answer_that_there_is_no_table_ends_no_journal_in_the_middle_of_a_sweep(left: Left) -> None:
    class Flapping(FolderLake):
        def referenced(self, path: TablePath, files: Collection[str]) -> frozenset[str]:
            found = super().referenced(path, files)
            left.drop_lake_table()
            return found

    cleaner = left.cleaner(Flapping(left.lake.root))
    cleaner.again()
    assert left.left == (True, True)


def test_a_round_that_ends_while_the_lake_cannot_be_asked_keeps_its_journal(left: Left) -> None:
    left.drop_lake_table()
    left.cleaner().end_round(left.journal.round_id)
    with pytest.raises(TableGoneError, match="the lake says that it has no such table"):
        left.cleaner().sweep_prefix(left.journal, may_have_orphans=True)
    assert left.left == (True, True)
    left.lake.open_table(TABLE, FIRST)
    left.start()
    assert left.left == (False, False)


def test_a_lake_table_of_another_id_ends_the_journal_and_keeps_the_files(left: Left) -> None:
    left.lake.open_table(replace(TABLE, table_id=8), FIRST)
    left.start()
    assert left.left == (True, False)


def test_files_of_a_table_that_neither_side_has_for_a_day_are_deleted(left: Left) -> None:
    left.drop_lake_table()
    left.start(gone=True)
    left.clock.advance(DAY_S / 2)
    left.start(gone=True)
    assert left.left == (True, True)
    left.clock.advance(DAY_S / 2)
    left.start(gone=True)
    assert left.left == (False, False)


def test_a_lake_table_that_comes_back_within_the_day_starts_the_day_anew(left: Left) -> None:
    left.named = frozenset({str(left.file)})
    shutil.move(left.lake.root, left.away)
    left.start(gone=True)
    shutil.move(left.away, left.lake.root)
    left.start(gone=True)
    left.clock.advance(2 * DAY_S)
    left.drop_lake_table()
    left.named = frozenset()
    left.start(gone=True)
    assert left.left == (True, True)


def test_files_that_a_checkpoint_names_stay_with_their_journal(left: Left) -> None:
    left.named = frozenset({str(left.file)})
    left.drop_lake_table()
    for _ in range(3):
        left.start(gone=True)
        left.clock.advance(DAY_S)
    assert left.left == (True, True)


def test_a_lake_that_cannot_say_what_one_table_has_keeps_no_other_journal(left: Left) -> None:
    other = replace(TABLE.path, table="another")
    leave(left.lake, left.journals, RoundId(FIRST, 6, 3, 1), 1, other)

    class Refusing(FolderLake):
        def head(self, path: TablePath) -> LakeHead | None:
            if path == other:
                message = "the catalog says no"
                raise StorageError(message)
            return super().head(path)

    left.cleaner(Refusing(left.lake.root)).again()
    assert not left.file.exists()
    assert [journal.path for journal in left.journals.list()] == [other]
