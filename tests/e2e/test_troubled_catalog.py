"""A REST catalog in trouble, of either lake: it throttles or is slow for one table, or is down; each row is there once.

The catalog, its sockets and the lake are real; subtasks are threads, so no Spark is needed.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lakeward.clock import SystemClock
from lakeward.model.status import WAITS_FOR_CATALOG
from lakeward.model.tables import TablePath
from lakeward_e2e.troubled_catalog import CATALOGS, AnyCatalog, Trouble
from lakeward_service_kit.service_world import World as Services
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


BAD, GOOD, FINE = (TablePath("t", name) for name in ("bad", "good", "fine"))
HEALTHY = (GOOD, FINE)


class Neighbours:
    """Three tables, the catalog that knows them, and a service that tiers them."""

    def __init__(self, directory: Path, kind: type[AnyCatalog], call_timeout_s: float = 20.0) -> None:
        """Create them.

        Args:
            directory: holds everything.
            kind: makes the catalog.
            call_timeout_s: the lake waits so long for an answer of the catalog.
        """
        self.catalog: AnyCatalog = kind(directory / "warehouse")
        options = msgspec.structs.replace(self.catalog.options, commit_timeout_s=call_timeout_s)
        self.lake: Any = self.catalog.plugin.open(options, SystemClock())  # type: ignore[arg-type]  # its own options
        self.services = Services.create(directory)
        self.loaded = dict.fromkeys((BAD, *HEALTHY), 0)
        for path in self.loaded:
            self.services.table(path.table, buckets=1)

    def close(self) -> None:
        """Close the lake and the catalog."""
        self.lake.close()
        self.catalog.go_down()

    def load(self, *paths: TablePath) -> None:
        """Add ten rows to tables."""
        for path in paths:
            self.services.load(path, self.loaded[path], 10)
            self.loaded[path] += 10

    def spoil(self, trouble: Trouble) -> None:
        """Let the commits of the bad table meet this."""
        self.catalog.trouble = lambda table: trouble if table == BAD.table else None

    @asynccontextmanager
    async def served(self, **options: Any) -> AsyncIterator[None]:  # noqa: ANN401 - as `World.service`
        """Serve them; each has been tiered once before, and in the end each has all of its rows, once."""
        keys = {"lake_commit_timeout_s": 20.0, "suspend_after": 100, **options}
        service = self.services.service(lake=self.lake, lake_type=self.catalog.name, **keys)
        serving = asyncio.create_task(service.serve())
        try:
            self.load(*self.loaded)
            await until(lambda: all(self.is_tiered(path) for path in self.loaded))
            yield
            await until(lambda: all(self.is_tiered(path) for path in self.loaded))
        finally:
            service.stop()
            await serving
        for path, count in self.loaded.items():
            assert self.catalog.ids(str(path)) == list(range(count))

    async def healthy_tables_commit(self) -> None:
        """Add rows to the healthy tables and wait until the lake has them, three times; no round of theirs failed."""
        for _ in range(3):
            self.load(*HEALTHY)
            await until(lambda: all(self.is_tiered(path) for path in HEALTHY))
        assert not [path for path in HEALTHY if "failed" in self.services.outcomes(path)]

    def is_tiered(self, path: TablePath) -> bool:
        """Return whether commits of all rows of a table were reported."""
        tables = self.services.reports[-1].tables if self.services.reports else ()
        return sum(table.rows for table in tables if table.path == str(path)) == self.loaded[path]

    def message(self, path: TablePath) -> str:
        """Return why a table waits, as its status says now."""
        return next((line.message for line in self.services.reports[-1].tables if line.path == str(path)), "")


@pytest.fixture(params=CATALOGS, ids=lambda kind: kind.name)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Neighbours]]:
    made: list[Neighbours] = []

    def create(**options: float) -> Neighbours:
        made.append(Neighbours(tmp_path, request.param, **options))
        return made[-1]

    yield create
    for neighbours in made:
        neighbours.close()


@pytest.fixture
def tables(make: Callable[..., Neighbours]) -> Neighbours:
    return make()


def test_a_table_whose_commits_are_throttled_waits_as_the_catalog_says_and_its_neighbours_commit(
    tables: Neighbours,
) -> None:
    """Its rows are neither read again nor written again: it is the same round that commits in the end."""

    async def run() -> None:
        async with tables.served():
            tables.spoil(Trouble(429, retry_after_s=1))
            tables.load(BAD)
            await until(lambda: tables.catalog.answered(BAD.table, 429))
            await tables.healthy_tables_commit()
            await until(lambda: len(tables.catalog.answered(BAD.table, 429)) > 2)
            tables.catalog.trouble = lambda _: None

    asyncio.run(run())
    assert tables.services.outcomes(BAD) == ["committed", "committed"]
    asked = tables.catalog.answered(BAD.table, 429)
    assert min(later - earlier for earlier, later in itertools.pairwise(asked)) >= 1.0


@pytest.mark.parametrize("trouble", [Trouble(503), Trouble(0)], ids=["unavailable", "no answer"])
def test_a_table_whose_commits_fail_is_tried_again_and_goes_on_by_itself_while_its_neighbours_commit(
    tables: Neighbours, trouble: Trouble
) -> None:
    named = "answers 503" if trouble.status else tables.catalog.broken_off

    async def run() -> None:
        async with tables.served():
            tables.spoil(trouble)
            tables.load(BAD)
            await until(lambda: named in tables.message(BAD))
            await tables.healthy_tables_commit()
            await until(lambda: tables.services.outcomes(BAD).count("failed") > 1)
            tables.catalog.trouble = lambda _: None

    asyncio.run(run())
    assert tables.services.outcomes(BAD)[-1] == "committed"


def test_a_catalog_that_refuses_connections_for_a_while_suspends_nobody_and_all_commit_once_it_is_back(
    tables: Neighbours,
) -> None:
    tries = 3

    async def run() -> None:
        async with tables.served(suspend_after=tries):
            tables.catalog.go_down()
            tables.load(*tables.loaded)
            await until(
                lambda: all(tables.services.outcomes(path).count("failed") > tries + 1 for path in tables.loaded)
            )
            assert tables.message(BAD) == WAITS_FOR_CATALOG
            away = tables.services.reports[-1].lake_away
            assert away is not None
            assert away.reason.endswith("connection refused")
            tables.catalog.come_up()
            await until(lambda: all(tables.is_tiered(path) for path in tables.loaded))
            tables.load(*tables.loaded)

    asyncio.run(run())
    statuses = {line.status for report in tables.services.reports for line in report.tables}
    assert "backoff" in statuses
    assert "suspended" not in statuses


def test_a_commit_that_the_catalog_is_slow_with_holds_no_place_and_is_sent_once(tables: Neighbours) -> None:
    """One round at a time is allowed, and the healthy tables have theirs meanwhile."""
    sent, let_go = threading.Event(), threading.Event()

    def slow(table: str) -> None:
        if table == BAD.table:
            sent.set()
            let_go.wait(60)

    async def run() -> None:
        async with tables.served(rounds=1):
            tables.catalog.trouble = slow
            tables.load(BAD)
            try:
                await until(sent.is_set)
                await tables.healthy_tables_commit()
                assert not tables.is_tiered(BAD)
                before = len(tables.catalog.answered(BAD.table, 200))
            finally:
                let_go.set()
            await until(lambda: tables.is_tiered(BAD))
            assert len(tables.catalog.answered(BAD.table, 200)) == before + 1

    asyncio.run(run())
    assert tables.services.outcomes(BAD) == ["committed", "committed"]


def test_a_commit_that_lands_after_the_lake_has_given_up_waiting_is_found_and_its_rows_are_there_once(
    make: Callable[..., Neighbours],
) -> None:
    tables = make(call_timeout_s=3.0)
    given_up = threading.Event()
    asked: list[str] = []

    def late(table: str) -> None:
        if table == BAD.table:
            asked.append(table)
            if len(asked) > 1:
                given_up.set()  # the next try is here, so the first one is no longer waited for
            else:
                given_up.wait(60)

    async def run() -> None:
        async with tables.served():
            tables.load(BAD)
            tables.catalog.trouble = late
            await until(given_up.is_set)
            await tables.healthy_tables_commit()

    asyncio.run(run())
    assert "failed" not in tables.services.outcomes(BAD)


@pytest.mark.parametrize("status", [0, 500, 502, 503, 504, 429])
def test_a_commit_that_landed_and_whose_answer_was_lost_has_not_failed(tables: Neighbours, status: int) -> None:
    lost = [Trouble(status, landed=True)]

    async def run() -> None:
        async with tables.served():
            tables.load(BAD)
            tables.catalog.trouble = lambda table: lost.pop() if table == BAD.table and lost else None
            await until(lambda: tables.is_tiered(BAD))

    asyncio.run(run())
    assert tables.catalog.answered(BAD.table, status)
    assert tables.services.outcomes(BAD) == ["committed", "committed"]
