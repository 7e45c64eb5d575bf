"""Upkeep after a commit: the rows are in the lake, so no trouble with it is the round's."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from msgspec import structs

from lakeward.coordinator.commits.cleaner import Cleaner
from lakeward.coordinator.service import stop
from lakeward.errors import LakeError, SourceError
from lakeward.model.identity import RoundId
from lakeward.model.settings import ServiceSettings
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.later_loop import LaterLoop
from lakeward_service_kit.service_world import World
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.lake_tables import PATH, incarnation, log_table
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.coordinator.service.service import Service
    from lakeward.model.tables import TableBucket, TablePath, TableSpec


@dataclass
class StubbornLake(FolderLake):
    """Does something else first whenever it is to expire snapshots."""

    before_expiry: Callable[[], None] = lambda: None

    def expire(self, path: TablePath, keep: frozenset[int]) -> int:
        self.before_expiry()
        return super().expire(path, keep)


@pytest.fixture
def lake(world: World) -> StubbornLake:
    lake = StubbornLake(world.directory / "lake")
    world.lake = lake
    return lake


async def serve_until(service: Service, true: Callable[[], object]) -> None:
    serving = asyncio.create_task(service.serve())
    await until(true)
    service.stop()
    await serving


def test_an_expiry_that_is_refused_fails_no_round_and_is_tried_again(world: World, lake: StubbornLake) -> None:
    log = world.table("log")
    world.load(log, 0, 10)
    refused = iter(range(2))

    def refuse() -> None:
        if next(refused, None) is not None:
            message = "the catalog says no"
            raise LakeError(message)

    lake.before_expiry = refuse
    asyncio.run(serve_until(world.service(expire_every=1), lambda: lake.expired))
    assert world.outcomes(log) == ["committed"]


def test_an_expiry_that_hangs_fails_no_round_and_keeps_no_other_table(
    world: World, lake: StubbornLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "_LEAVE_S", 0.1)  # the end waits for the clean-up, which waits for the expiry
    log, other = world.table("log"), world.table("other")
    world.load(log, 0, 10)
    hung, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        if not hung.is_set():
            loop.call_soon_threadsafe(loop.advance, 10.0)
            hung.set()
            go_on.wait(LIMIT_S)

    lake.before_expiry = hang
    service = world.service(expire_every=1, commit_timeout_s=10.0, stop_timeout_s=0.5)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(hung.is_set)
        world.load(other, 0, 10)
        await until(lambda: "committed" in world.outcomes(other))
        service.stop()
        await serving

    with asyncio.Runner(loop_factory=LaterLoop) as runner:
        loop = cast("LaterLoop", runner.get_loop())
        runner.run(run())
    go_on.set()
    assert world.outcomes(log)[0] == "committed"


def test_a_source_that_cannot_say_how_far_behind_a_table_is_fails_no_round(world: World) -> None:
    class Silent(EmbeddedSource):
        def pending_since_ms(self, table: TableSpec, offsets: Mapping[TableBucket, int]) -> int | None:
            message = "not now"
            raise SourceError(message)

    log = world.table("log")
    world.load(log, 0, 10)
    assert world.once(source=Silent(EmbeddedStore.open(world.store.root))).failed == ()
    assert world.outcomes(log) == ["committed"]


def test_the_sweep_after_a_commit_spares_a_round_that_was_begun_after_it(tmp_path: Path) -> None:
    """Its commit may still land: it was tried, and nobody knows what became of it."""
    lake, clock, ours = FolderLake(tmp_path / "lake"), FakeClock(), incarnation()
    lake.open_table(log_table(), ours)
    journals = JournalStore(SmallFiles(str(tmp_path / "state")), ours.service)
    files = []
    for number in (1, 3):
        round_id = RoundId(ours, 7, 1, number)
        prefix = lake.file_prefix(PATH, round_id)
        journal = RoundJournal.begun(round_id, PATH, None, None, prefix)
        journals.write(structs.replace(journal, commits=(("uuid", number),)))
        files.append(Path(prefix) / "data")
        files[-1].parent.mkdir(parents=True)
        files[-1].write_bytes(b"rows")
    cleaner = Cleaner(
        lake, journals, clock, ours, settings=ServiceSettings(fence_s=0.0), checkpointed=lambda _: frozenset()
    )
    cleaner.after_commit(PATH, RoundId(ours, 7, 1, 2))
    assert [file.exists() for file in files] == [False, True]
