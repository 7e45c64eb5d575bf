"""One bad table never stops another: healthy tables beside it get further commits, whatever is wrong with it.

The bad one is tried again after growing pauses. It is suspended if it keeps failing, or goes on by itself once the
fault is gone; its message names the cause.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.clock import SystemClock
from lakeward.errors import LakeError, SchemaMismatchError, TableGoneError
from lakeward.model.backoff import backoff_s
from lakeward.model.settings import TableSettings
from lakeward.observe.condition import ConditionTracker
from lakeward.subtask.reading import SplitReading
from lakeward.subtask.run import real_ports
from lakeward.subtask.subtask import Subtask
from lakeward_service_kit.full_disk import FULL
from lakeward_service_kit.held_source import Hold
from lakeward_service_kit.jobs import ThreadJobs
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from lakeward.coordinator.service.service import Service
    from lakeward.model.identity import Incarnation
    from lakeward.model.jobs import SubtaskPlace
    from lakeward.model.results import CommitRequest, LakeHead
    from lakeward.model.status import TableCondition
    from lakeward.model.tables import TablePath, TableSpec
    from lakeward_service_kit.service_world import World

pytestmark = pytest.mark.slow


FIRST_S, MOST_S, TRIES = 0.05, 0.2, 4
"""Back-off of the services here, and the failed rounds after which they suspend a table."""
PROMISE_S = 20.0
"""The freshness that is promised here: a healthy round takes less than a second, on a busy machine a few."""
TROUBLE = frozenset({"late", "retrying", "suspended"})
"""What no healthy table may be, whatever is wrong with the one beside it."""


@dataclass
class TroubledLake(FolderLake):
    """A lake whose tables are opened only if `before_open` lets them."""

    before_open: Callable[[TablePath], None] = lambda _: None

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        self.before_open(table.path)
        return super().open_table(table, incarnation)


@dataclass
class Refusal:
    """Refuses to open a table, or all of them, until it is over; notes when it did."""

    error: Exception
    clock: Callable[[], float]
    only: TablePath | None = None
    over: bool = False
    at: list[float] = field(default_factory=list)

    def __call__(self, path: TablePath) -> None:
        if not self.over and path == (self.only or path):
            self.at.append(self.clock())
            raise self.error

    @property
    def pauses(self) -> list[float]:
        """Seconds between one try and the next."""
        return [later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)]


class Neighbours:
    """A bad table among two healthy ones, and the service that tiers them."""

    promise_s = PROMISE_S
    allowed: frozenset[str] = frozenset()
    """Statuses of `TROUBLE` that a fault of all tables may give the healthy ones."""

    def __init__(self, world: World) -> None:
        """Create the tables, each with ten rows."""
        self.world = world
        # Only the promise: the source still hands its tables out every 0.2 s, else each commit would take that long.
        world.rules = lambda _path: TableSettings(freshness_s=self.promise_s)
        self.lake = world.lake = TroubledLake(world.directory / "lake")
        self.bad = world.table("bad", buckets=1)
        self.good = (world.table("good", buckets=1), world.table("fine", buckets=1))
        self.rows = 0
        self.service: Service
        world.load(self.bad, 0, 10)

    @asynccontextmanager
    async def served(self, **options: Any) -> AsyncIterator[None]:  # noqa: ANN401 - as `World.service`
        """Serve them; the healthy ones are tiered once, and are without trouble all the time."""
        keys = {"backoff_first_s": FIRST_S, "backoff_most_s": MOST_S, "suspend_after": TRIES}
        self.service = self.world.service(**{**keys, **options})
        serving = asyncio.create_task(self.service.serve())
        try:
            await self.healthy_tables_commit(1)
            yield
            self.assert_healthy_tables_had_no_trouble()
        finally:
            self.service.stop()
            await serving

    async def healthy_tables_commit(self, times: int = 3) -> None:
        """Load rows into the healthy tables and wait until the lake has them, so many times, all of it in time."""
        for _ in range(times):
            for path in self.good:
                self.world.load(path, self.rows, 10)
            self.rows += 10
            await until(lambda: all(self.tiered(path) == self.rows for path in self.good))
            # Rows may be in the lake before the report says so: the reports have to reach as far as the commits.
            await until(lambda: all(self.reported(path) == self.rows for path in self.good))
        self.assert_healthy_tables_had_no_trouble()

    def assert_healthy_tables_had_no_trouble(self) -> None:
        """No report since the start, each as it was shown at its time, has a healthy table in trouble."""
        names, shown = {str(path) for path in self.good}, ConditionTracker(None)
        conditions = [
            (table.path, table.condition)
            for report in self.world.reports
            for table in shown.describe(report, ()).tables
            if table.path in names and table.condition is not None
        ]
        trouble = TROUBLE - self.allowed
        assert not [f"{name}: {one.status}: {one.message}" for name, one in conditions if one.status in trouble]

    def reported(self, path: TablePath) -> int:
        """Return how many committed rows of a table the newest report has."""
        return sum(table.rows for table in self.world.reports[-1].tables if table.path == str(path))

    def tiered(self, path: TablePath) -> int:
        """Return how many rows of a table the lake has."""
        try:
            return len(self.lake.read(path))
        except TableGoneError:
            return 0

    def status(self, path: TablePath | None = None) -> str:
        """Return a table's status now, the bad one's if none is named."""
        return self.condition(path).status

    def condition(self, path: TablePath | None = None) -> TableCondition:
        """Return a table's condition, as an operator sees it."""
        described = ConditionTracker(None).describe(self.world.reports[-1], ())
        (found,) = [table.condition for table in described.tables if table.path == str(path or self.bad)]
        assert found is not None
        return found

    def refuse(self, error: Exception, *, all_tables: bool = False) -> Refusal:
        """Let the lake refuse the bad table, or all of them."""
        only = None if all_tables else self.bad
        self.lake.before_open = refusal = Refusal(error, self.world.clock.now, only)
        return refusal


@pytest.fixture
def tables(world: World) -> Neighbours:
    return Neighbours(world)


def assert_pauses_grow(pauses: list[float]) -> None:
    """Each pause is as long as the back-off says, at least."""
    expected = [backoff_s(number, FIRST_S, MOST_S) for number in range(1, len(pauses) + 1)]
    assert all(pause >= least for pause, least in zip(pauses, expected, strict=True)), (pauses, expected)


def test_a_healthy_table_that_waits_longer_than_promised_would_be_noticed(tables: Neighbours) -> None:
    """What every test below relies on: the commit of a healthy table is held until it is shown as late."""
    tables.promise_s, (slow, _) = 0.1, tables.good
    noticed = threading.Event()

    def hold(request: CommitRequest) -> None:
        if request.path == slow:
            noticed.wait(60)

    tables.lake.before_commit = hold

    def notice() -> bool:
        try:
            tables.assert_healthy_tables_had_no_trouble()
        except AssertionError as error:
            return f"{slow}: late" in str(error)
        return False

    async def run() -> None:
        tables.world.load(slow, 0, 10)
        service = tables.world.service()
        serving = asyncio.create_task(service.serve())
        try:
            await until(notice)
        finally:
            noticed.set()
            service.stop()
            await serving

    asyncio.run(run())


def test_a_lake_table_altered_by_somebody_else_is_suspended_at_once_and_says_what_differs(tables: Neighbours) -> None:
    refusal = tables.refuse(SchemaMismatchError("t.bad: the lake's table has no column 'name'"))

    async def run() -> None:
        async with tables.served():
            await until(lambda: tables.status() == "suspended")
            await tables.healthy_tables_commit()
            condition = tables.condition()
            assert "no column 'name'" in condition.message
            assert "lakeward tables resume t.bad" in condition.action
            assert len(refusal.at) == 1

    asyncio.run(run())


def test_a_schema_that_the_lake_cannot_hold_suspends_its_table_until_a_person_resumes_it(tables: Neighbours) -> None:
    refusal = tables.refuse(SchemaMismatchError("t.bad: column 'price' is a decimal of 76 digits, the lake has 38"))

    async def run() -> None:
        async with tables.served():
            await until(lambda: tables.status() == "suspended")
            assert "76 digits" in tables.condition().message
            await tables.healthy_tables_commit()
            refusal.over = True
            tables.world.resumed = {str(tables.bad): 1}
            await until(lambda: tables.tiered(tables.bad) == 10)

    asyncio.run(run())


def test_a_table_that_the_lake_throttles_is_tried_after_growing_pauses_and_goes_on_by_itself(
    tables: Neighbours,
) -> None:
    refusal = tables.refuse(LakeError("the catalog answers 429 Too Many Requests"))

    async def run() -> None:
        async with tables.served(suspend_after=100):
            await until(lambda: len(refusal.at) > TRIES)
            await tables.healthy_tables_commit()
            await until(lambda: tables.status() == "retrying")
            assert "429 Too Many Requests" in tables.condition().message
            refusal.over = True
            await until(lambda: tables.tiered(tables.bad) == 10)
            await until(lambda: tables.status() == "ok")

    asyncio.run(run())
    assert_pauses_grow(refusal.pauses[:TRIES])


def test_a_table_that_keeps_failing_while_others_are_served_is_suspended(tables: Neighbours) -> None:
    refusal = tables.refuse(LakeError("the catalog answers 503 for t.bad"))

    async def run() -> None:
        async with tables.served():
            while tables.status() != "suspended":
                await tables.healthy_tables_commit(1)
            message = tables.condition().message
            assert "503 for t.bad" in message
            assert f"{TRIES} rounds in a row failed" in message
            tried = len(refusal.at)
            await tables.healthy_tables_commit()
            assert len(refusal.at) == tried
            refusal.over = True
            tables.world.resumed = {str(tables.bad): 1}
            await until(lambda: tables.tiered(tables.bad) == 10)

    asyncio.run(run())


def test_a_catalog_that_is_down_for_a_while_suspends_nobody_and_all_go_on_once_it_is_back(tables: Neighbours) -> None:
    """It would be a person's work to resume each table; what fails for all of them is not their fault."""
    tables.allowed = frozenset({"retrying"})

    async def run() -> None:
        async with tables.served():
            refusal = tables.refuse(LakeError("the catalog does not answer"), all_tables=True)
            for path in tables.good:
                tables.world.load(path, tables.rows, 10)
            tables.rows += 10
            await until(lambda: len(refusal.at) > 3 * (TRIES + 2))
            await until(lambda: {tables.status(path) for path in tables.good} == {"retrying"})
            refusal.over = True
            await until(lambda: all(tables.tiered(path) == tables.rows for path in tables.good))
            await tables.healthy_tables_commit()

    asyncio.run(run())
    statuses = {table.status for report in tables.world.reports for table in report.tables}
    assert "suspended" not in statuses


def test_a_commit_that_takes_a_minute_holds_no_place_and_lands_in_the_end(tables: Neighbours) -> None:
    """One round at a time is allowed, and the healthy tables have theirs while it commits."""
    sent, let_go = threading.Event(), threading.Event()

    def slow(request: CommitRequest) -> None:
        if request.path == tables.bad:
            sent.set()
            let_go.wait(60)

    tables.lake.before_commit = slow

    async def run() -> None:
        async with tables.served(rounds=1, commit_timeout_s=60.0):
            try:
                await until(sent.is_set)
                await tables.healthy_tables_commit()
                assert tables.tiered(tables.bad) == 0
            finally:
                let_go.set()
            await until(lambda: tables.tiered(tables.bad) == 10)

    asyncio.run(run())


def test_a_disk_that_is_full_for_one_table_is_named_and_its_table_goes_on_once_there_is_room(
    tables: Neighbours,
) -> None:
    full = tables.lake.root / str(tables.bad) / FULL
    full.parent.mkdir(parents=True)
    full.touch()

    async def run() -> None:
        async with tables.served(lake_type="full", suspend_after=100):
            await until(lambda: tables.status() == "retrying")
            await tables.healthy_tables_commit()
            assert "No space left on device" in tables.condition().message
            full.unlink()
            await until(lambda: tables.tiered(tables.bad) == 10)

    asyncio.run(run())


def test_a_round_whose_splits_fail_is_shown_so_at_once_and_gives_its_place_to_healthy_tables(
    tables: Neighbours,
) -> None:
    """Its splits would rest, and its job be launched again, for longer than the test has."""
    tables.promise_s, tables.allowed = 0.3, frozenset({"late"})
    full = tables.lake.root / str(tables.bad) / FULL
    full.parent.mkdir(parents=True)
    full.touch()
    keys = {"rounds": 1, "yield_s": 0.2, "backoff_first_s": 1000.0, "backoff_most_s": 1000.0, "job_attempts": 99}

    async def run() -> None:
        async with tables.served(lake_type="full", **keys):
            await until(lambda: tables.status() == "retrying")
            await tables.healthy_tables_commit()
            assert "No space left on device" in tables.condition().message

    asyncio.run(run())
    assert set(tables.world.outcomes(tables.bad)) == {"failed"}
    (record,) = [one for one in tables.world.rounds if one.table == str(tables.bad)]
    assert "No space left on device" in record.reason


def test_why_a_split_fails_is_shown_while_its_round_still_runs(tables: Neighbours) -> None:
    """Nobody waits for its place, and its split rests: it is no lack of slots."""
    full = tables.lake.root / str(tables.bad) / FULL
    full.parent.mkdir(parents=True)
    full.touch()

    def shown() -> bool:
        table = next(one for one in tables.world.reports[-1].tables if one.path == str(tables.bad))
        running = table.round
        return table.status == "running" and running is not None and "No space left" in running.reason

    async def run() -> None:
        async with tables.served(lake_type="full", rounds=3, backoff_first_s=1000.0, backoff_most_s=1000.0):
            await until(lambda: tables.status() == "retrying" and shown())
            condition = tables.condition()
            assert "No space left on device" in condition.message
            assert condition.since_ms is not None

    asyncio.run(run())


class OneHangs(EmbeddedSource):
    """The reader of one table hangs for as long as a file exists."""

    def __init__(self, store: EmbeddedStore, gate: Path, hanging: TablePath) -> None:
        """Keep which one."""
        super().__init__(store)
        self._hanging = hanging
        self._hold, self._free = Hold(gate, 0), Hold(gate.with_name("never"), 0)

    def reader_task(self, table: TableSpec) -> bytes:
        """See Protocol."""
        hold = self._hold if table.path == self._hanging else self._free
        return hold.task(super().reader_task(table))


class FastClock(SystemClock):
    """Its seconds are a hundredth as long: a time-out passes soon where it is to pass, and nowhere else."""

    def now(self) -> float:
        """See `Clock`."""
        return super().now() * 100


def subtasks_for_whom_time_flies(bad: TablePath) -> Callable[[SubtaskPlace], str]:
    """Return what runs a subtask: one of the bad table's with the fast clock."""

    def run(place: SubtaskPlace) -> str:
        parts = real_ports(place)
        return Subtask(place, replace(parts, clock=FastClock()) if str(bad) in place.job.title else parts).run()

    return run


@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
def test_a_reader_that_hangs_gives_its_place_back_and_is_tried_again_later(
    tables: Neighbours, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: bool
) -> None:
    """Its subtask lives and shows it; that the source gives it nothing is what ends the round."""
    monkeypatch.setattr(SplitReading, "stop_s", 0.05)
    if snapshot:
        tables.bad = tables.world.table("keyed", key=True, buckets=1)
        tables.world.load(tables.bad, 0, 10)
        tables.world.store.snapshot(tables.bad)
    gate = tmp_path / "gate"
    gate.touch()
    source = OneHangs(EmbeddedStore.open(tables.world.store.root), gate, tables.bad)

    async def run() -> None:
        keys = {"source_type": "held", "rounds": 1, "read_timeout_s": 30.0, "fence_s": 1e6, "suspend_after": 100}
        jobs = ThreadJobs(subtasks_for_whom_time_flies(tables.bad))
        async with tables.served(source=source, jobs=jobs, **keys):
            await until(lambda: len(tables.world.outcomes(tables.bad)) > 1)
            await tables.healthy_tables_commit()
            assert set(tables.world.outcomes(tables.bad)) == {"failed"}
            await until(lambda: tables.status() == "retrying")
            assert "the source has given no record for 30 s" in tables.condition().message
            gate.unlink()
            await until(lambda: tables.tiered(tables.bad) == 10)

    try:
        asyncio.run(run())
    finally:
        gate.unlink(missing_ok=True)


def test_a_dropped_table_leaves_and_is_not_tried_again(tables: Neighbours) -> None:
    async def run() -> None:
        async with tables.served():
            await until(lambda: tables.tiered(tables.bad) == 10)
            tables.world.load(tables.bad, 10, 10)
            tables.world.store.drop_table(tables.bad)
            await tables.healthy_tables_commit()
            assigned = {one.assignment.path for one in tables.world.container.rounds().tables}
            assert tables.bad not in assigned

    asyncio.run(run())
    assert "failed" not in tables.world.outcomes(tables.bad)
