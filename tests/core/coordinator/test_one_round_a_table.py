"""A table that is handed out anew while its last commit is still under way: nothing of the two may interleave."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.coordinator.checkpoints.contents import CheckpointContents, RestoredRound
from lakeward.coordinator.commits.fence import CommitFence
from lakeward.coordinator.rounds.context import RoundContext
from lakeward.coordinator.rounds.effects import EffectDone, OpenTable, Tell
from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.rounds.round import Round
from lakeward.coordinator.tables.tables import Tables
from lakeward.machines.rounds import EndRound, Phase
from lakeward.model.identity import RoundId
from lakeward.model.results import LakeHead
from lakeward.model.settings import ServiceSettings
from lakeward.model.tiering import HeartbeatRequest, TableAssignment, TableEpoch
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.checkpoint_values import FIRST, PATH, reference, round_snapshot
from lakeward_testing.clock import FakeClock
from lakeward_testing.lake_tables import log_table
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from lakeward.model.results import CommitRequest
    from lakeward.model.tables import TablePath
    from lakeward_service_kit.service_world import World

ROWS = 20
QUICK: dict[str, Any] = {"renew_s": 0.1, "backoff_first_s": 0.02, "backoff_most_s": 0.05}


class SlowJournals(JournalStore):
    """Stands still in the first write that says that a commit is about to be sent."""

    def __init__(self, files: SmallFiles) -> None:
        super().__init__(files, "svc")
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def write(self, journal: RoundJournal) -> None:
        if journal.commits and not self.begun.is_set():
            self.begun.set()
            self.go_on.wait(LIMIT_S)
        super().write(journal)


def take_back(world: World, path: TablePath) -> None:
    """The source gives the table to somebody else, as after a restart or a heartbeat that it missed."""
    offer = next(status.assignment for status in world.container.rounds().tables if status.assignment.path == path)
    world.store.queue.heartbeat(
        HeartbeatRequest(failed=(TableEpoch(offer.table_id, offer.epoch, offer.coordinator_epoch),))
    )


def waits(world: World, path: TablePath) -> bool:
    """Say whether the table was handed out anew and its round waits for the commit before."""
    return any(
        status.assignment.path == path and status.assignment.epoch > 1 and "has not ended" in status.reason
        for status in world.container.rounds().tables
        if status.phase is Phase.BACKOFF
    )


def test_a_commit_whose_journal_is_slow_names_no_file_that_the_next_round_swept(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, ROWS)
    journals = SlowJournals(SmallFiles(str(world.directory / "state")))
    service = world.service(journals=journals, commit_timeout_s=0.5, **QUICK)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(journals.begun.is_set)
        take_back(world, log)
        await until(lambda: waits(world, log) or not world.lake.files_on_disk(log))
        journals.go_on.set()
        await until(lambda: "committed" in world.outcomes(log))
        service.stop()
        await serving

    asyncio.run(run())
    named = world.lake.referenced(log, world.lake.files_on_disk(log))
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(ROWS))
    assert named == world.lake.files_on_disk(log)
    assert [report.round_name.split("-")[-2] for report in world.rounds if report.outcome == "committed"] == ["2"]


def test_while_the_lake_hangs_in_a_commit_nothing_of_it_is_deleted_and_other_tables_go_on(world: World) -> None:
    log, other = world.table("log"), world.table("other")
    world.load(log, 0, ROWS)
    hung, go_on = threading.Event(), threading.Event()

    def hang(request: CommitRequest) -> None:
        if request.path == log and not hung.is_set():
            hung.set()
            go_on.wait(LIMIT_S)

    world.lake.before_commit = hang
    service = world.service(commit_timeout_s=0.5, **QUICK)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(hung.is_set)
        written = world.lake.files_on_disk(log)
        take_back(world, log)
        await until(lambda: waits(world, log))
        world.load(other, 0, ROWS)
        await until(lambda: "committed" in world.outcomes(other))
        assert world.lake.files_on_disk(log) == written
        assert world.lake.deleted == []
        go_on.set()
        await until(lambda: len(world.lake.read(log)) and "idle" in {t.status for t in world.reports[-1].tables})
        service.stop()
        await serving

    asyncio.run(run())
    assert all(Path(file).exists() for file in world.lake.referenced(log, world.lake.files_on_disk(log)))
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(ROWS))


def test_a_round_whose_commit_was_given_up_waits_for_it_before_it_is_tried_again(world: World) -> None:
    log = world.table("log")
    world.load(log, 0, ROWS)
    tries: list[str] = []
    go_on = threading.Event()

    def hang(request: CommitRequest) -> None:
        tries.append(request.round_id.name)
        if len(tries) == 1:
            go_on.wait(LIMIT_S)

    world.lake.before_commit = hang
    service = world.service(commit_timeout_s=0.5, **QUICK)

    async def run() -> None:
        serving = asyncio.create_task(service.serve())
        await until(lambda: world.outcomes(log).count("failed") > 1)
        assert len(tries) == 1
        await until(lambda: "has not ended" in next(t for t in world.reports[-1].tables if t.path == str(log)).message)
        go_on.set()
        await until(lambda: len(world.lake.read(log)))
        service.stop()
        await serving

    asyncio.run(run())
    assert sorted(row["id"] for row in world.lake.read(log)) == list(range(ROWS))
    assert len(tries) == 1


def test_a_round_that_is_over_says_nothing_more_and_a_restored_one_needs_what_its_checkpoint_has_to_read() -> None:
    tables, ref, clock = Tables(), reference(), FakeClock()
    state = CheckpointContents.of(round_snapshot(ref), [])
    table, head = replace(log_table(), path=PATH, table_id=7), LakeHead(PATH, 7, "", None, None, None, None)
    assignment = TableAssignment(PATH, 7, 3, 0, 1.0)
    earlier, later = (
        Round(RoundFacts(assignment, RoundId(FIRST, 7, 3, number), 0), clock, CommitFence(clock, ServiceSettings()))
        for number in (1, 2)
    )
    context = RoundContext(table, head, {}, (), state.enumeration())
    found = EffectDone(OpenTable(assignment), (context, RestoredRound(ref, state, frozenset(), 1)))
    known = tables.known(7, PATH)
    known.round = earlier
    earlier.process(EndRound(7, "stale"))
    known.end_round()
    known.round = later
    assert [effect for effect in earlier.process(found) if isinstance(effect, Tell)] == []
    assert [effect for effect in later.process(found) if isinstance(effect, Tell)]
    assert state.enumeration().snapshots
    assert known.snapshots == state.enumeration().snapshots
