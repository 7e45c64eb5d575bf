"""Rows that do not fit the lake table are dropped if their table says so, and counted; too many suspend it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lakeward.coordinator.commits.committer import Committer
from lakeward.coordinator.commits.letter_committer import LetterCommitter, pending
from lakeward.coordinator.commits.letter_rewriter import LetterRewriter
from lakeward.errors import CorruptFileError, LakeError, RowError
from lakeward.model.checkpoints import CheckpointState
from lakeward.model.dead_letters import KIND, path_of
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.results import CommitRequest, LakeFile
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TableBucket, TablePath
from lakeward.observe.condition import ConditionTracker
from lakeward.storage.checkpoint_store import CheckpointFiles
from lakeward.storage.round_journal import JournalStore, RoundJournal
from lakeward.storage.small_files import SmallFiles
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.checkpoint_values import FIRST, SECOND, THIRD
from lakeward_service_kit.held_source import HeldSource
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_service_kit.service_world import SCHEMA, let_writes_end
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock
from lakeward_testing.folder_lake import FolderLakePlugin
from lakeward_testing.lake_tables import log_table
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from lakeward.model.results import LakeHead
    from lakeward.model.tables import TableSpec
    from lakeward_service_kit.service_world import World

ROWS = 40
OTHER = Incarnation("other", 1500, "00000000000000dd")
LAYOUTS = pytest.mark.parametrize(
    "layout",
    [{}, *({"lake_partition": ("truncate(10, id)",), "exchange": route} for route in ("none", "hash"))],
    ids=["split writer", "fan-out", "exchange"],
)


def load(world: World, path: TablePath, start: int, bad: Collection[int]) -> None:
    """Load rows; the text of those in `bad` is none."""
    ids = range(start, start + ROWS)
    names = pa.array([b"\xff" if number in bad else b"n%d" % number for number in ids], pa.binary()).view(pa.string())
    world.store.load(path, pa.table([pa.array(ids, pa.int64()), names], schema=SCHEMA))


def rules(world: World, **keys: object) -> None:
    """Give all tables these rules."""
    mode = "mirror" if "lake_partition" in keys else "tier"
    world.rules = lambda _path: TableSettings(mode=mode, **keys)  # type: ignore[arg-type] # by name


def once(world: World) -> None:
    """Run a service until every table is tiered or suspended."""
    world.once(mirrors=True)


def ids(world: World, path: TablePath) -> list[int]:
    return sorted(row["id"] for row in world.lake.read(path))


def status(world: World, path: TablePath) -> tuple[str, str]:
    described = ConditionTracker(None).describe(world.reports[-1], ())
    (found,) = [one.shown for one in described.tables if one.path == str(path)]
    return found.status, found.message


@LAYOUTS
def test_rows_that_do_not_fit_are_dropped_and_counted_and_all_others_are_in_the_lake(
    world: World, layout: dict[str, object]
) -> None:
    rules(world, on_bad_row="drop", **layout)
    path, bad = world.table("bad"), {0, 3, 17, 39}
    load(world, path, 0, bad)
    once(world)
    assert ids(world, path) == [number for number in range(ROWS) if number not in bad]
    assert [(one.outcome, one.rows, one.dropped) for one in world.rounds if one.rows] == [("committed", ROWS, 4)]
    assert world.reports[-1].tables[0].dropped == 4
    assert (world.rounds[-1].exchange is not None) == (layout.get("exchange") == "hash")
    assert world.rounds[-1].lag_rows in {0, None}


@LAYOUTS
def test_one_row_that_does_not_fit_suspends_its_table_where_nothing_else_is_said(
    world: World, layout: dict[str, object]
) -> None:
    rules(world, **layout)
    path = world.table("bad", buckets=1)
    load(world, path, 0, {17})
    once(world)
    assert ids(world, path) == []
    found, message = status(world, path)
    assert found == "suspended"
    assert "offset 17, column 'name': expected a value of type string, found b'\\xff'" in message


@LAYOUTS
@pytest.mark.parametrize(("most", "allowed"), [(4.0, "4 rows"), (0.1, "a share of 0.1")])
def test_more_of_them_than_a_round_may_have_suspend_the_table_and_nothing_is_committed(
    world: World, layout: dict[str, object], most: float, allowed: str
) -> None:
    rules(world, on_bad_row="drop", bad_rows_most=most, **layout)
    path = world.table("bad", buckets=1)
    load(world, path, 0, {2, 4, 6, 8, 10})
    once(world)
    assert ids(world, path) == []
    found, message = status(world, path)
    assert found == "suspended"
    assert f"5 of {ROWS} records do not fit the lake table, and bad_rows_most allows {allowed} of a round" in message
    assert "the first of them: table t.bad, bucket 1/0, offset 2, column 'name': expected" in message


@LAYOUTS
def test_as_many_of_them_as_a_round_may_have_are_dropped_in_each_round(world: World, layout: dict[str, object]) -> None:
    rules(world, on_bad_row="drop", bad_rows_most=2.0, **layout)
    path = world.table("bad", buckets=1)
    for start in (0, ROWS):
        load(world, path, start, {start, start + 1})
        once(world)
    assert ids(world, path) == [number for number in range(2 * ROWS) if number % ROWS > 1]


def letters(world: World, path: TablePath) -> list[dict[str, Any]]:
    """The dead letters of a table, by offset and bucket."""
    return sorted(world.lake.read(path_of(path)), key=lambda row: (row["bucket"], row["offset"]))


@LAYOUTS
def test_rows_that_do_not_fit_are_dead_letters_with_their_cause_and_can_be_read_back(
    world: World, layout: dict[str, object]
) -> None:
    rules(world, on_bad_row="dead_letter", **layout)
    path = world.table("bad", buckets=1)
    load(world, path, 0, {3, 17})
    once(world)
    assert ids(world, path) == [number for number in range(ROWS) if number not in {3, 17}]
    found = letters(world, path)
    assert [(row["offset"], row["bucket"], row["column_name"], row["code"]) for row in found] == [
        (3, 0, "name", RowError.code),
        (17, 0, "name", RowError.code),
    ]
    assert "offset 3, column 'name': expected a value of type string, found b'\\xff'" in found[0]["cause"]
    row = pa.ipc.open_stream(found[0]["row"]).read_all()
    assert row.column("id").to_pylist() == [3]
    assert row.column("name").cast(pa.binary()).to_pylist() == [b"\xff"]
    assert {row["round"] for row in found} == {world.rounds[0].round_name}
    assert world.reports[-1].tables[0].dead_letters == 2


@LAYOUTS
def test_each_round_adds_its_dead_letters_and_its_files_are_all_that_is_left(
    world: World, layout: dict[str, object]
) -> None:
    rules(world, on_bad_row="dead_letter", **layout)
    path = world.table("bad")
    for start in range(0, 3 * ROWS, ROWS):
        load(world, path, start, {start, start + 5})
        once(world)
    assert len(letters(world, path)) == 6
    assert len(ids(world, path)) == 3 * ROWS - 6
    assert journals(world) == ()


def journals(world: World) -> tuple[RoundJournal, ...]:
    return JournalStore(SmallFiles(str(world.directory / "state")), "svc").list()


@dataclass
class Trap:
    """Holds the first commit to a table until it is let go: whoever made it is dead by then, and wakes up."""

    path: TablePath
    sprung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: CommitRequest) -> None:
        if request.path == self.path and not self.sprung.is_set():
            self.sprung.set()
            self.released.wait(LIMIT_S)


def serve_until_killed(world: World, trap: Trap) -> None:
    async def serve() -> None:
        serving = asyncio.create_task(world.service(mirrors=True).serve())
        await until(trap.sprung.is_set)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(serve())


@LAYOUTS
@pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
@pytest.mark.parametrize("of_letters", [False, True], ids=["of the table", "of its letters"])
def test_a_service_killed_at_one_of_the_two_commits_loses_and_doubles_nothing(
    world: World, layout: dict[str, object], moment: str, *, of_letters: bool
) -> None:
    rules(world, on_bad_row="dead_letter", **layout)
    path = world.table("bad", buckets=1)
    load(world, path, 0, {3, 17})
    trap = Trap(path_of(path) if of_letters else path)
    setattr(world.lake, moment, trap)
    serve_until_killed(world, trap)
    for start in (ROWS, 2 * ROWS):
        load(world, path, start, {start + 1})
        once(world)
        trap.released.set()  # the dead one wakes up before the second of these rounds
        let_writes_end()
    bad = {3, 17, ROWS + 1, 2 * ROWS + 1}
    assert ids(world, path) == [number for number in range(3 * ROWS) if number not in bad]
    assert [row["offset"] for row in letters(world, path)] == sorted(bad)
    assert [journal.letters for journal in journals(world)] in ([], [None])


def test_letters_whose_commit_fails_land_before_the_tables_next_round(world: World) -> None:
    """The table's own commit has landed, so no round reads their records again."""
    rules(world, on_bad_row="dead_letter")
    refused: list[CommitRequest] = []
    path = world.table("bad", buckets=1)
    load(world, path, 0, {3, 17})

    def refuse(request: CommitRequest) -> None:
        if request.path != path and not refused:
            refused.append(request)
            message = "the catalog does not answer"
            raise LakeError(message)

    world.lake.before_commit = refuse
    once(world)
    assert len(refused) == 1
    assert [row["offset"] for row in letters(world, path)] == [3, 17]
    assert len(ids(world, path)) == ROWS - 2


def test_steps_of_a_round_commit_their_dead_letters_with_them_and_a_resumed_round_does_not_repeat_them(
    world: World, tmp_path: Path
) -> None:
    rules(world, on_bad_row="dead_letter", commit_every=0.01)
    path = world.table("bad", buckets=1)
    for start in range(0, 3 * ROWS, ROWS):
        load(world, path, start, {start})
    gate = tmp_path / "gate"
    gate.touch()
    source = HeldSource(EmbeddedStore.open(world.store.root), gate, 2)
    held: dict[str, Any] = {"source": source, "source_type": "held", "interval_s": 0.05, "pause_s": 0.0}

    async def serve() -> None:
        serving = asyncio.create_task(world.service(**held).serve())
        await until(lambda: world.lake.head(path_of(path)) is not None and len(letters(world, path)) == 1)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(serve())
    gate.unlink()
    let_writes_end()
    world.once(**held)
    assert [row["offset"] for row in letters(world, path)] == [0, ROWS, 2 * ROWS]
    assert ids(world, path) == [number for number in range(3 * ROWS) if number % ROWS]


def test_a_table_that_is_made_anew_begins_with_no_dead_letters(world: World) -> None:
    rules(world, on_bad_row="dead_letter")
    path = world.table("bad", buckets=1)
    load(world, path, 0, {3})
    once(world)
    world.store.drop_table(path)
    world.table("bad", buckets=1)
    load(world, path, 0, {5, 6})
    once(world)
    assert [row["offset"] for row in letters(world, path)] == [5, 6]


def test_dead_letters_are_refused_where_the_source_has_a_table_of_their_name(world: World) -> None:
    rules(world, on_bad_row="dead_letter")
    path, other = world.table("bad", buckets=1), world.table("bad__dead_letters", buckets=1)
    world.load(other, 0, 5)
    load(world, path, 0, {3})
    once(world)
    assert "t.bad__dead_letters, and the source has a table of that name" in status(world, path)[1]
    assert ids(world, other) == list(range(5))


def letter_committer(world: World, store: JournalStore, us: Incarnation) -> LetterCommitter:
    source, lake = EmbeddedSource(world.store), world.lake
    committer = Committer(source, lake, FakeClock())
    return LetterCommitter(us, source, lake, store, committer, LetterRewriter(lake, FolderLakePlugin))


def landed_without_letters(world: World, store: JournalStore) -> tuple[TableSpec, RoundJournal]:
    """Commit a round of the first start whose journal names letters; return its table and the journal."""
    lake, table, round_id = world.lake, log_table(path=TablePath("t", "bad"), table_id=7), RoundId(FIRST, 7, 3, 1)
    lake.open_table(table, FIRST)
    lake.stamp(table.path, FIRST)
    of_letters = LakeFile("letters.arrow", KIND, 2, 100)
    journal = RoundJournal.begun(round_id, table.path, None, None, "prefix")
    journal = replace(journal, letters=pending(1, {TableBucket(7, None, 0): 9}, [of_letters]))
    store.write(journal)
    commit_empty(world, table, round_id, None)
    return table, journal


def commit_empty(world: World, table: TableSpec, round_id: RoundId, head: LakeHead | None) -> None:
    base = None if head is None or head.commit is None else head.commit.snapshot_id
    ids = world.lake.new_ids(table.path)
    world.lake.commit(CommitRequest(table.path, 7, round_id.incarnation, round_id, 1, ids, base, (), {}, None))


@pytest.mark.parametrize("by", [SECOND, OTHER], ids=["a later start", "another service"])
@pytest.mark.parametrize("later_commit", [False, True])
def test_letters_that_a_later_start_has_committed_are_not_again_where_a_slow_start_writes_its_journal_after_that(
    world: World, later_commit: bool, by: Incarnation
) -> None:
    store, lake = JournalStore(SmallFiles(str(world.directory / "state")), "svc"), world.lake
    table, journal = landed_without_letters(world, store)
    letter_committer(world, store, by).finish(table, lake.stamp(table.path, by))
    assert lake.find(path_of(table.path), RoundId(by, 7, 3, 1), 0) is not None
    if later_commit:
        commit_empty(world, table, RoundId(by, 7, 3, 1), lake.stamp(table.path, by))
    store.write(journal)  # that of the first start, which says nothing of the other one
    sent: list[CommitRequest] = []
    lake.before_commit = sent.append
    letter_committer(world, store, THIRD).finish(table, lake.stamp(table.path, THIRD))
    assert sent == []


def test_the_journal_is_read_once_after_another_starts_commit_and_after_each_of_ours_with_letters(
    world: World,
) -> None:
    class Counted(JournalStore):
        reads = 0

        def read_named(self, incarnation: Incarnation, round_name: str) -> RoundJournal | None:
            self.reads += 1
            return super().read_named(incarnation, round_name)

    store, lake = Counted(SmallFiles(str(world.directory / "state")), "svc"), world.lake
    table, _ = landed_without_letters(world, store)
    ours = letter_committer(world, store, SECOND)

    def opens() -> int:
        before = store.reads
        for _ in range(3):
            ours.finish(table, lake.stamp(table.path, SECOND))
        return store.reads - before

    assert opens() == 1
    commit_empty(world, table, RoundId(SECOND, 7, 3, 1), lake.stamp(table.path, SECOND))
    assert opens() == 0
    ours.expect(table.path)
    assert opens() == 1


def test_letters_of_a_commit_that_lands_once_a_later_round_was_opened_are_committed_by_the_next_one(
    world: World,
) -> None:
    store, lake = JournalStore(SmallFiles(str(world.directory / "state")), "svc"), world.lake
    table, _ = landed_without_letters(world, store)
    ours = letter_committer(world, store, SECOND)
    ours.finish(table, lake.stamp(table.path, SECOND))
    ours.expect(table.path)
    round_id = RoundId(SECOND, 7, 3, 1)
    late = RoundJournal.begun(round_id, table.path, None, None, "prefix")
    of_letters = LakeFile("later.arrow", KIND, 1, 50)
    store.write(replace(late, letters=pending(1, {TableBucket(7, None, 0): 12}, [of_letters])))
    head = lake.stamp(table.path, SECOND)
    ours.finish(table, head)
    commit_empty(world, table, round_id, head)
    ours.finish(table, lake.stamp(table.path, SECOND))
    assert lake.find(path_of(table.path), round_id, 1) is not None


@LAYOUTS
@pytest.mark.parametrize("slots", [1, 3])
def test_a_round_that_goes_on_from_a_checkpoint_with_dead_letters_loses_and_doubles_none(
    world: World, layout: dict[str, object], slots: int
) -> None:
    rules(world, on_bad_row="dead_letter", **layout)
    path, bad = world.table("bad"), set(range(1, 3 * ROWS, 7))
    load(world, path, 0, bad)
    load(world, path, ROWS, bad)
    load(world, path, 2 * ROWS, bad)
    gate = world.directory / "gate"
    gate.touch()
    source = HeldSource(EmbeddedStore.open(world.store.root), gate, 2)
    often = {"interval_s": 0.05, "pause_s": 0.0, "open_rows": 0}
    held: dict[str, Any] = {"source": source, "source_type": "held", "mirrors": True, **often}
    store = CheckpointFiles(SmallFiles(str(world.directory / "state")), world.clock)

    def has_letters() -> bool:
        for info in store.list("svc"):
            if info.state is CheckpointState.COMPLETE:
                with suppress(CorruptFileError):  # a service that runs deletes older ones
                    progress = [one for part in store.load(info.ref).subtasks for one in part.progress]
                    files = [file for one in progress for file in one.files if file.kind == KIND]
                    if files and all(one.bad_rows.total for one in progress):
                        return True
        return False

    async def until_killed() -> None:
        serving = asyncio.create_task(world.service(jobs=ThreadJobs(run_subtask, slots=2), **held).serve())
        await until(has_letters)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(until_killed())
    let_writes_end()
    gate.unlink()
    assert world.once(jobs=ThreadJobs(run_subtask, slots=slots), **held).failed == ()
    (one,) = [one for one in world.rounds if one.outcome == "committed"]
    assert one.resumed_from
    assert (one.rows, one.dead_letters) == (3 * ROWS, len(bad))
    assert ids(world, path) == [number for number in range(3 * ROWS) if number not in bad]
    found = [pa.ipc.open_stream(row["row"]).read_all().column("id")[0].as_py() for row in letters(world, path)]
    assert sorted(found) == sorted(bad)
