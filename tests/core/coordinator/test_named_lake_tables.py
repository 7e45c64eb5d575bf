"""Mirrors whose lake table has another name than the source's table, and what becomes of the one that had it before."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from lakeward.coordinator.checkpoints.known import KnownCheckpoints
from lakeward.coordinator.checkpoints.restorer import Restorer
from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.rounds.lake_tables import LakeTables
from lakeward.errors import ConfigError
from lakeward.model.dead_letters import path_of
from lakeward.model.identity import RoundId
from lakeward.model.results import CommitOutcome, CommitRequest, LakeFile, LakeHead
from lakeward.model.settings import ServiceSettings, TableSettings
from lakeward.model.tables import TablePath
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.commit_records import CommitRecord, CommitRecords
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import FIRST, PATH, SECOND, reference, write_checkpoint
from lakeward_service_kit.service_world import let_writes_end
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.lake_tables import log_table
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.coordinator.service.service import ServiceEnd
    from lakeward_service_kit.service_world import World

LAKE = TablePath("lake", "sales")
OTHER = TablePath("lake", "sold")


def called(path: TablePath | None, **rules: Any) -> TableSettings:  # noqa: ANN401 - values of any type
    if path is None:
        return TableSettings(mode="mirror", **rules)
    return TableSettings(mode="mirror", lake_name=path.table, lake_namespace=path.database, **rules)


def once(world: World, names: Mapping[TablePath, TablePath | None], **options: Any) -> ServiceEnd:  # noqa: ANN401 - as above
    """Run a service on tables with these lake tables, until every target is settled."""
    world.rules = lambda path: called(names.get(path))
    return world.once(source=EmbeddedSource(world.store), mirrors=True, **options)


def ids(world: World, path: TablePath) -> list[int]:
    return sorted(row["id"] for row in world.lake.read(path))


def accept(world: World, path: TablePath) -> None:
    """Note what `lakeward tables accept` notes of a lake table that is gone."""
    table_id = world.store.table(path).table_id
    records = CommitRecords(SmallFiles(str(world.directory / "state")), "svc")
    records.write(CommitRecord(path, table_id, None, (), 0))


def journals(world: World) -> tuple[RoundJournal, ...]:
    return JournalStore(SmallFiles(str(world.directory / "state")), "svc").list()


def test_rows_go_to_the_lake_table_of_the_configured_name_and_a_second_run_goes_on_there(world: World) -> None:
    log, keyed = world.table("log"), world.table("keyed", key=True)
    for start in (0, 100):
        world.load(log, start, 100)
        world.load(keyed, start, 100)
        assert once(world, {log: LAKE, keyed: OTHER}).failed == ()
    assert (ids(world, LAKE), ids(world, OTHER)) == ([*range(200)], [*range(200)])
    assert (world.lake.head(log), world.lake.head(keyed)) == (None, None)


def test_old_snapshots_of_the_lake_table_of_another_name_are_expired(world: World) -> None:
    class Noting(FolderLake):
        def expire(self, path: TablePath, keep: frozenset[int]) -> int:
            expired.append(path)
            return super().expire(path, keep)

    expired: list[TablePath] = []
    log = world.table("log")
    world.load(log, 0, 1)
    assert once(world, {log: LAKE}, lake=Noting(world.lake.root), expire_every=1).failed == ()
    assert expired == [LAKE]


def test_a_change_of_the_name_is_refused_until_a_person_accepts_it(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 100)
    once(world, {log: LAKE})
    world.load(log, 100, 10)
    ((path, reason),) = once(world, {log: OTHER}).failed
    assert path == log
    assert "the lake has no table lake.sold, as lake_name and lake_namespace call it" in reason
    assert "lakeward tables accept t.log" in reason
    assert world.lake.head(OTHER) is None
    assert once(world, {log: LAKE}).failed == ()
    assert ids(world, LAKE) == [*range(110)]


def test_the_new_lake_table_begins_with_the_first_row_and_the_old_one_keeps_every_row(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, 100)
    once(world, {log: LAKE})
    accept(world, log)
    for start in (100, 110):
        world.load(log, start, 10)
        assert once(world, {log: OTHER}).failed == ()
    assert (ids(world, OTHER), ids(world, LAKE)) == ([*range(120)], [*range(100)])
    assert journals(world) == ()


def test_a_commit_to_the_lake_table_of_the_old_name_may_land_after_the_new_one_has_its_first(world: World) -> None:
    """Nobody can say whether it still lands: its files stay, and its journal says whose they are."""
    log = world.table("log", buckets=1)
    world.load(log, 0, 100)
    world.rules = lambda _: called(LAKE)
    begun, go_on, gone = threading.Event(), threading.Event(), threading.Event()

    def hold(request: CommitRequest) -> None:
        if request.path == LAKE:
            begun.set()
            go_on.wait(LIMIT_S)
            world.lake.after_commit = lambda _: gone.set()

    world.lake.before_commit = hold

    async def die() -> None:
        serving = asyncio.create_task(world.service(source=EmbeddedSource(world.store), mirrors=True).serve())
        await until(begun.is_set)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(die())
    world.load(log, 100, 10)
    for _ in range(2):
        assert once(world, {log: OTHER}).failed == ()
    go_on.set()
    assert gone.wait(LIMIT_S)
    let_writes_end()
    assert (ids(world, OTHER), ids(world, LAKE)) == ([*range(110)], [*range(100)])
    assert [journal.in_lake for journal in journals(world)] == [LAKE]


def test_dead_letters_lie_beside_the_lake_table_of_the_other_name(world: World) -> None:
    path = world.table("bad", buckets=1)
    world.rules = lambda _: called(LAKE, on_bad_row="dead_letter")
    world.load(path, 0, 5)
    assert world.once(source=EmbeddedSource(world.store), mirrors=True, lake=world.lake).failed == ()
    assert world.lake.head(path_of(LAKE)) is not None
    assert world.lake.head(path_of(path)) is None


class TestCleaner:
    """A lake table that has got another name is asked by its old one."""

    @pytest.fixture(autouse=True)
    def disk(self, tmp_path: Path) -> None:
        self.lake = FolderLake(tmp_path / "lake")
        self.journals = JournalStore(SmallFiles(str(tmp_path / "state")), "svc")
        for path in (LAKE, OTHER):
            self.lake.open_table(replace(log_table(), path=path, table_id=7), FIRST)
        round_id = RoundId(FIRST, 7, 3, 1)
        self.file = Path(self.lake.file_prefix(LAKE, round_id)) / "data"
        self.file.parent.mkdir(parents=True)
        self.file.write_bytes(b"rows")
        journal = RoundJournal.begun(round_id, PATH, None, None, str(self.file.parent))
        self.journal = structs.replace(journal, lake_path=LAKE)
        self.journals.write(self.journal)

    def cleaner(self) -> Cleaner:
        settings = ServiceSettings(fence_s=0.0)
        return Cleaner(
            self.lake, self.journals, FakeClock(), SECOND, settings=settings, checkpointed=lambda _: frozenset()
        )

    def name_the_file(self) -> None:
        """Let the old lake table name it."""
        self.lake.stamp(LAKE, FIRST)
        ids, files = self.lake.new_ids(LAKE), (LakeFile(str(self.file), "data", 1, 4),)
        request = CommitRequest(LAKE, 7, FIRST, self.journal.round_id, 1, ids, None, files, {}, None)
        assert self.lake.commit(request) is CommitOutcome.LANDED

    def test_files_that_the_old_lake_table_names_stay(self) -> None:
        self.name_the_file()
        cleaner = self.cleaner()
        cleaner.before_round(PATH, None, OTHER)
        cleaner.after_commit(PATH, RoundId(SECOND, 7, 3, 1), OTHER)
        cleaner.again()
        assert self.file.exists()

    def test_files_of_a_round_that_tried_no_commit_are_deleted_in_the_old_lake_table(self) -> None:
        self.cleaner().before_round(PATH, None, OTHER)
        assert not self.file.exists()

    @pytest.mark.parametrize(("lake_path", "left"), [(LAKE, False), (OTHER, True), (None, True)])
    def test_a_commit_to_another_lake_table_decides_nothing(self, lake_path: TablePath | None, *, left: bool) -> None:
        self.journals.write(structs.replace(self.journal, commits=(("uuid", 1),)))
        cleaner = self.cleaner()
        cleaner.before_round(PATH, 13, lake_path)
        cleaner.after_commit(PATH, RoundId(SECOND, 7, 3, 1), lake_path)
        assert self.file.exists() is left


def test_a_checkpoint_of_the_old_lake_table_is_not_gone_on_from(tmp_path: Path) -> None:
    store = CheckpointFiles(SmallFiles(str(tmp_path / "state")), FakeClock())
    write_checkpoint(store, reference())
    restorer = Restorer(store, FolderLake(tmp_path), FIRST, KnownCheckpoints())
    table = log_table(path=PATH, table_id=7, lake_path=OTHER)
    with capture_logs() as lines:
        found = restorer.find(table, LakeHead(OTHER, 7, "w", None, FIRST, None, None))
    assert found is None
    assert [line["reason"] for line in lines] == ["its lake table was shop.orders, now it is lake.sold"]


def test_a_younger_table_never_gets_the_lake_table_of_an_older_one(world: World) -> None:
    older = world.table("older")
    names = {older: LAKE}
    tables = LakeTables(EmbeddedSource(world.store), lambda path: called(names.get(path)))
    tables.check(older)
    younger = world.table("younger")
    names[younger] = LAKE
    with pytest.raises(ConfigError, match=r'"t.younger".lake_name: .* for t.younger, .* of t.older, too'):
        tables.check(younger)
    tables.check(older)
    world.store.drop_table(older)
    tables.check(younger)


def test_a_table_that_would_take_the_lake_table_of_another_one_is_suspended_alone(world: World) -> None:
    older, younger = world.table("older"), world.table("younger")
    world.load(older, 0, 10)
    world.load(younger, 0, 5)
    names = {younger: older}
    settings = structs.replace(world.settings, tables={str(younger): called(older)})
    ((path, reason),) = once(world, names, settings=settings).failed
    assert path == younger
    assert "t.older" in reason
    assert ids(world, older) == [*range(10)]
