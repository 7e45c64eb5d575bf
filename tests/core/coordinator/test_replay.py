"""Dead letters are put into their table once where they fit by now, and never before a newer version of their key."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.errors import LakeError, NotReplayedError, RowError, SourceError
from lakeward.model.dead_letters import path_of
from lakeward.model.identity import REPLAY
from lakeward.model.results import CommitRequest, RewriteRequest
from lakeward.model.settings import TableSettings
from lakeward.model.tables import TablePath
from lakeward.storage.round_journal import JournalStore
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.replaying import asked, replay
from lakeward_service_kit.service_world import SCHEMA, let_writes_end
from lakeward_source_embedded.reader import EmbeddedReader
from lakeward_testing.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lakeward.model.splits import LogSplit
    from lakeward.model.status import ReplayReport, ServiceReport
    from lakeward.ports import SourceBatch

from lakeward_service_kit.service_world import World

ROWS = 20
LAYOUTS = pytest.mark.parametrize(
    "layout",
    [{}, *({"lake_partition": ("truncate(10, id)",), "exchange": route} for route in ("none", "hash"))],
    ids=["split writer", "fan-out", "exchange"],
)
MENDED = ("!name",)
"""The column whose texts are none is left out: all letters fit."""


def load(world: World, path: TablePath, ids: Collection[int], bad: Collection[int] = ()) -> None:
    """Load rows; the text of those in `bad` is none."""
    names = pa.array([b"\xff" if one in bad else b"n%d" % one for one in ids], pa.binary()).view(pa.string())
    world.store.load(path, pa.table([pa.array(ids, pa.int64()), names], schema=SCHEMA))


def rules(world: World, **keys: object) -> None:
    """Give all tables these rules, and mirror them."""
    keys = {"on_bad_row": "dead_letter", "mode": "mirror", **keys}
    world.rules = lambda _path: TableSettings(**keys)  # type: ignore[arg-type] # by name


def ids(world: World, path: TablePath, key: str | None = None) -> list[int]:
    return sorted(row["id"] for row in world.lake.read(path, key))


def letters(world: World, path: TablePath) -> list[dict[str, Any]]:
    """The dead letters of a table, by offset and bucket."""
    return sorted(world.lake.read(path_of(path)), key=lambda row: (row["bucket"], row["offset"]))


def replays(world: World, path: TablePath) -> list[str]:
    """Return the commits of replays to a table."""
    return [one for one in rounds_of(world, path) if "replay" in one]


def rounds_of(world: World, path: TablePath) -> list[str]:
    with world.lake._state(path) as state:
        return [entry["round"] for entry in state["log"] if "round" in entry]


def left_behind(world: World, path: TablePath) -> set[str]:
    """Return files of the table and of its letters that no commit names, and journals."""
    lake = world.lake
    found = {
        file
        for one in (path, path_of(path))
        for file in lake.files_on_disk(one) - lake.referenced(one, lake.files_on_disk(one))
    }
    journals = JournalStore(SmallFiles(str(world.directory / "state")), "svc").list()
    return found | {str(one.round_id) for one in journals}


@LAYOUTS
def test_rows_that_fit_by_now_are_put_in_once_and_their_letters_are_gone(
    world: World, layout: dict[str, object]
) -> None:
    rules(world, **layout)
    path = world.table("bad")
    load(world, path, range(ROWS), {3, 17})
    world.once(mirrors=True)
    assert len(letters(world, path)) == 2
    rules(world, columns=MENDED, **layout)
    replay(world, path, lambda: not letters(world, path))
    load(world, path, range(ROWS, 2 * ROWS))
    world.once(mirrors=True)
    assert ids(world, path) == list(range(2 * ROWS))
    assert letters(world, path) == []
    assert len(replays(world, path)) == 1
    assert left_behind(world, path) == set()


def test_a_letter_whose_row_still_does_not_fit_stays_with_its_reason(world: World) -> None:
    schema = pa.schema([*SCHEMA, pa.field("note", pa.string())])
    path = TablePath("t", "bad")
    world.store.create_table(path, schema, (), buckets=1, freshness_s=0.2)
    broken = pa.array([b"\xff", b"\xff", b"a"], pa.binary()).view(pa.string())
    notes = pa.array([b"a", b"\xff", b"a"], pa.binary()).view(pa.string())
    world.store.load(path, pa.table([pa.array([0, 1, 2], pa.int64()), broken, notes], schema=schema))
    rules(world)
    world.once(mirrors=True)
    assert [row["column_name"] for row in letters(world, path)] == ["name", "name"]
    rules(world, columns=MENDED)
    said: list[ReplayReport] = []

    def hear(report: ServiceReport) -> None:
        said.extend(table.replay for table in report.tables if table.replay is not None)

    replay(world, path, lambda: bool(said), {"on_report": hear})
    assert (said[0].put_in, said[0].stay, said[0].reason) == (1, 1, "")
    (left,) = letters(world, path)
    assert (left["offset"], left["column_name"], left["code"]) == (1, "note", RowError.code)
    assert "offset 1, column 'note': expected a value of type string" in left["cause"]
    assert ids(world, path) == [0, 2]


def test_letters_of_another_column_stay(world: World) -> None:
    schema = pa.schema([*SCHEMA, pa.field("note", pa.string())])
    path = TablePath("t", "bad")
    world.store.create_table(path, schema, (), buckets=1, freshness_s=0.2)
    names, notes = (pa.array(texts, pa.binary()).view(pa.string()) for texts in ([b"\xff", b"a"], [b"a", b"\xff"]))
    world.store.load(path, pa.table([pa.array([0, 1], pa.int64()), names, notes], schema=schema))
    rules(world)
    world.once(mirrors=True)
    rules(world, columns=("id",))
    replay(world, path, lambda: len(letters(world, path)) == 1, column="note", code=RowError.code)
    assert [row["column_name"] for row in letters(world, path)] == ["name"]
    assert ids(world, path) == [1]


def keyed(world: World) -> TablePath:
    """A keyed table whose keys 3, 5 and 7 have dead letters; 3 is changed later, and 7 is deleted.

    The row from before the change of 3 is a dead letter too, and so is the delete of 7.
    """
    rules(world)
    path = world.table("keyed", key=True)
    load(world, path, range(ROWS))
    load(world, path, [3, 5, 7], {3, 5, 7})
    world.once(mirrors=True)
    load(world, path, [3])
    world.load(path, 7, 1, "-D")
    world.once(mirrors=True)
    assert json_ids(letters(world, path)) == [3, 3, 5, 7, 7]
    assert 7 in ids(world, path, "id")
    return path


def json_ids(found: Collection[Mapping[str, Any]]) -> list[int]:
    """Return the ids in rows of letters."""
    return sorted(pa.ipc.open_stream(one["row"]).read_all().column("id")[0].as_py() for one in found)


def test_a_row_is_put_in_if_its_key_has_no_newer_version_and_stays_with_that_reason_if_it_has(world: World) -> None:
    path = keyed(world)
    rules(world, columns=MENDED)
    replay(world, path, lambda: len(letters(world, path)) < 5)
    left = letters(world, path)
    assert json_ids(left) == [3, 3, 7]
    assert {row["code"] for row in left} == {NotReplayedError.code}
    assert {row["column_name"] for row in left} == {"name"}
    assert all("its key has a newer version, at offset " in row["cause"] for row in left)
    rows = {row["id"]: row.get("name") for row in world.lake.read(path, "id")}
    assert sorted(rows) == [one for one in range(ROWS) if one != 7]
    assert (rows[3], rows[4], rows[5]) == ("n3", "n4", None)


def test_a_second_replay_puts_only_in_what_is_new(world: World) -> None:
    path = keyed(world)
    rules(world, columns=MENDED)
    replay(world, path, lambda: len(letters(world, path)) < 5)
    rules(world)
    load(world, path, [9], {9})
    world.once(mirrors=True)
    assert json_ids(letters(world, path)) == [3, 3, 7, 9]
    rules(world, columns=MENDED)
    replay(world, path, lambda: len(letters(world, path)) < 4)
    assert json_ids(letters(world, path)) == [3, 3, 7]
    assert len(replays(world, path)) == 2
    assert ids(world, path).count(5) == 3, "inserted, changed to a letter, replayed"


def test_a_row_stays_whose_log_the_source_has_deleted_in_part(world: World) -> None:
    path = keyed(world)
    for bucket in (0, 1):
        end = next(one.end for one in world.store.buckets(path) if one.bucket.bucket == bucket)
        world.store.trim_log(path, bucket, end)
    rules(world, columns=MENDED)
    replay(world, path, lambda: {row["code"] for row in letters(world, path)} == {NotReplayedError.code})
    found = letters(world, path)
    assert json_ids(found) == [3, 3, 5, 7], "the delete of 7 is the last record of its bucket"
    assert all("the source has deleted its log below offset" in row["cause"] for row in found)


@pytest.mark.parametrize("key", [3, 4])
def test_a_row_of_a_snapshot_is_put_in_if_the_log_after_that_does_not_change_its_key(world: World, key: int) -> None:
    rules(world)
    path = world.table("keyed", key=True, buckets=1)
    load(world, path, range(ROWS), {3})
    world.store.snapshot(path)
    load(world, path, [key])
    world.once(mirrors=True)
    (one, *_) = letters(world, path)
    assert (one["offset"], one["log_offset"]) == (-1, ROWS)
    rules(world, columns=MENDED)
    put_in = key != 3
    replay(world, path, lambda: not letters(world, path) if put_in else rows_stay(letters(world, path)))
    assert (3, None) in [(row["id"], row.get("name")) for row in world.lake.read(path, "id")] or not put_in
    assert len(replays(world, path)) == put_in


def rows_stay(found: Collection[Mapping[str, Any]]) -> bool:
    """Return whether all letters say that they were not put in."""
    return {row["code"] for row in found} == {NotReplayedError.code}


@dataclass
class Trap:
    """Holds a replay at one of its steps until it is let go: whose it was is dead by then, and wakes up."""

    step: str
    sprung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def set(self, world: World) -> None:
        """Hold at the step."""
        lake = world.lake

        def at(step: str, request: CommitRequest | RewriteRequest) -> None:
            is_replay = isinstance(request, RewriteRequest) or request.round_id.epoch == REPLAY
            if is_replay and step == self.step and not self.sprung.is_set():
                self.sprung.set()
                self.released.wait(LIMIT_S)

        lake.before_commit, lake.after_commit = partial(at, "before the rows"), partial(at, "after the rows")
        lake.before_rewrite, lake.after_rewrite = partial(at, "before the letters"), partial(at, "after the letters")


STEPS = ["before the rows", "after the rows", "before the letters", "after the letters"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("key", [False, True], ids=["append", "keyed"])
def test_a_service_killed_between_two_steps_of_a_replay_loses_and_doubles_nothing(
    world: World, step: str, *, key: bool
) -> None:
    rules(world)
    path = world.table("bad", key=key, buckets=1)
    load(world, path, range(ROWS), {3, 17})
    world.once(mirrors=True)
    rules(world, columns=MENDED)
    trap = Trap(step)
    trap.set(world)

    async def until_killed() -> None:
        serving = asyncio.create_task(world.service(mirrors=True, replay=asked(path)).serve())
        await until(trap.sprung.is_set)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(until_killed())
    rules(world)
    for start in (ROWS, 2 * ROWS):
        load(world, path, range(start, start + ROWS), {start})
        world.once(mirrors=True)
        trap.released.set()  # the dead one wakes up before the second of these rounds
        let_writes_end()
    put_in = step != "before the rows"
    bad = {ROWS, 2 * ROWS} if put_in else {3, 17, ROWS, 2 * ROWS}
    assert ids(world, path) == [one for one in range(3 * ROWS) if one not in bad]
    assert json_ids(letters(world, path)) == sorted(bad)
    rules(world, columns=MENDED)
    replay(world, path, lambda: not letters(world, path))
    assert ids(world, path) == list(range(3 * ROWS))


@pytest.mark.parametrize("moment", ["before_commit", "before_rewrite"])
def test_rows_are_put_in_once_though_the_lake_refuses_one_of_the_two_commits(world: World, moment: str) -> None:
    rules(world)
    path = world.table("bad", buckets=1)
    load(world, path, range(ROWS), {3, 17})
    world.once(mirrors=True)
    rules(world, columns=MENDED)
    load(world, path, range(ROWS, 2 * ROWS))
    refused: list[object] = []

    def refuse(request: CommitRequest | RewriteRequest) -> None:
        if not refused and (isinstance(request, RewriteRequest) or request.round_id.epoch == REPLAY):
            refused.append(request)
            message = "the catalog refuses"
            raise LakeError(message)

    setattr(world.lake, moment, refuse)
    put_in = moment == "before_rewrite"
    replay(world, path, lambda: bool(refused) and 2 * ROWS - 1 in ids(world, path))
    assert ids(world, path) == [one for one in range(2 * ROWS) if put_in or one not in {3, 17}]
    assert json_ids(letters(world, path)) == ([] if put_in else [3, 17])
    load(world, path, [2 * ROWS])
    replay(world, path, lambda: not letters(world, path) and 2 * ROWS in ids(world, path))
    assert ids(world, path) == list(range(2 * ROWS + 1))


def test_a_source_that_cannot_be_read_puts_nothing_in_and_rounds_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keyed(world)
    rules(world, columns=MENDED)
    tried: list[object] = []
    read = EmbeddedReader.read_log

    def refuse(reader: EmbeddedReader, split: LogSplit) -> Iterator[SourceBatch]:
        if split.split_id.startswith("replay"):
            tried.append(split)
            load(world, path, [ROWS])
            message = "the server does not answer"
            raise SourceError(message)
        return read(reader, split)

    monkeypatch.setattr(EmbeddedReader, "read_log", refuse)
    replay(world, path, lambda: bool(tried) and ROWS in ids(world, path, "id"))
    assert json_ids(letters(world, path)) == [3, 3, 5, 7, 7]
    assert replays(world, path) == []
