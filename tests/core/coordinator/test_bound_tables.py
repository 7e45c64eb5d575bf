"""Several services of one source: bound tables go to one of them, the others to any."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from lakeward.coordinator.service.bound_tables import LOOK, REFRESH_S, BoundTables
from lakeward.errors import ConfigError, CorruptFileError
from lakeward.model.bindings import ServiceBinding
from lakeward.model.settings import ServiceSettings, TableSettings
from lakeward.model.tables import TablePath
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.small_files import SmallFiles
from lakeward_service_kit.exchange_world import Executor
from lakeward_service_kit.service_world import SCHEMA
from lakeward_source_embedded.source import EmbeddedSource
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.clock import FakeClock
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lakeward.coordinator.service.service import Service
    from lakeward.model.status import RoundReport
    from lakeward_service_kit.service_world import World

ORDERS, CLICKS = TablePath("sales", "orders"), TablePath("web", "clicks")


def bound(
    root: Path,
    name: str,
    *tables: str,
    clock: FakeClock | None = None,
    executor: Executor | None = None,
    shared: bool = True,
) -> BoundTables:
    settings = ServiceSettings(name=name, tables=tables, shared=shared)
    files = BindingFiles(SmallFiles(str(root)))
    return BoundTables(files, settings, clock or FakeClock(), executor or Executor(), "lakeward.toml: service.tables")


def looked(service: BoundTables, executor: Executor) -> None:
    """Let a service look again, if it wants to."""
    service.refresh()
    executor.turn()


def serves(service: BoundTables, path: TablePath) -> bool:
    return service.rules(path, TableSettings()).include


# --- one service beside another's file ------------------------------------------------------------------------


def test_a_service_learns_what_others_bind_when_it_starts(tmp_path: Path) -> None:
    bound(tmp_path, "big", "sales.*").bind()
    small = bound(tmp_path, "small")
    small.bind()
    assert (serves(small, ORDERS), serves(small, CLICKS)) == (False, True)


def test_a_running_service_learns_of_a_later_one(tmp_path: Path) -> None:
    clock, executor = FakeClock(), Executor()
    small = bound(tmp_path, "small", clock=clock, executor=executor)
    small.bind()
    looked(small, executor)
    bound(tmp_path, "big", "sales.*").bind()
    looked(small, executor)
    assert serves(small, ORDERS)  # it does not look again so soon
    clock.advance(REFRESH_S)
    looked(small, executor)
    assert not serves(small, ORDERS)


def test_a_store_that_hangs_keeps_no_heartbeat_waiting_and_is_asked_once(tmp_path: Path) -> None:
    clock, executor = FakeClock(), Executor(held={LOOK})
    small = bound(tmp_path, "small", clock=clock, executor=executor)
    small.bind()
    bound(tmp_path, "big", "sales.*").bind()
    for _ in range(3):
        small.refresh()  # called at each heartbeat
        clock.advance(REFRESH_S)
    assert serves(small, ORDERS)
    assert [name for name, _ in executor.queue] == [LOOK]
    executor.held.clear()  # it answers
    executor.turn()
    assert not serves(small, ORDERS)
    small.refresh()
    assert [name for name, _ in executor.queue] == [LOOK]


def test_two_services_with_equal_patterns_are_told(tmp_path: Path) -> None:
    bound(tmp_path, "big", "sales.*").bind()
    with pytest.raises(ConfigError) as refused:
        bound(tmp_path, "other", "web.*", "sales.*").bind()
    text = str(refused.value)
    assert text.startswith(
        f"lakeward.toml: service.tables: expected patterns that no other service of {tmp_path} binds"
    )
    assert "found 'sales.*, which service 'big' has bound since 2" in text.replace('"', "'")
    assert "`lakeward tables unbind big`" in text
    assert not (tmp_path / "other").exists()


class Racing(BindingFiles):
    """Another service binds the same pattern between our look and our write."""

    def write(self, binding: ServiceBinding) -> None:
        if binding.service == "late":
            super().write(ServiceBinding("early", {"sales.*": 1}))
        super().write(binding)


def test_of_two_services_that_start_at_one_moment_the_later_one_takes_its_binding_back(tmp_path: Path) -> None:
    files = Racing(SmallFiles(str(tmp_path)))
    late = BoundTables(
        files, ServiceSettings(name="late", tables=("sales.*",)), FakeClock(), Executor(), "service.tables"
    )
    with pytest.raises(ConfigError, match="early"):
        late.bind()
    assert [one.service for one in files.read().services] == ["early"]


def test_a_restart_keeps_its_patterns_and_when_they_were_bound(tmp_path: Path) -> None:
    bound(tmp_path, "big", "sales.*").bind()
    before = (tmp_path / "big" / "bindings.json").read_bytes()
    clock = FakeClock()
    clock.advance(1000)
    bound(tmp_path, "big", "sales.*", clock=clock).bind()
    assert (tmp_path / "big" / "bindings.json").read_bytes() == before


def test_a_service_without_the_key_frees_its_tables(tmp_path: Path) -> None:
    bound(tmp_path, "big", "sales.*").bind()
    bound(tmp_path, "big").bind()
    small = bound(tmp_path, "small")
    small.bind()
    assert serves(small, ORDERS)
    assert not (tmp_path / "big").exists()


def test_bindings_of_a_newer_version_stop_the_start_and_stay(tmp_path: Path) -> None:
    file = tmp_path / "big" / "bindings.json"
    file.parent.mkdir()
    file.write_bytes(msgspec.json.encode({"version": 2, "groups": ["a"]}))
    with pytest.raises(CorruptFileError, match=r"big/bindings\.json: expected version 1, found 2"):
        bound(tmp_path, "small", "sales.*").bind()
    assert [path.name for path in tmp_path.rglob("*.json")] == ["bindings.json"]


def test_bindings_that_become_unreadable_leave_those_that_were_read_last(tmp_path: Path) -> None:
    clock, executor = FakeClock(), Executor()
    bound(tmp_path, "big", "sales.*").bind()
    small = bound(tmp_path, "small", clock=clock, executor=executor)
    small.bind()
    (tmp_path / "big" / "bindings.json").write_text("{", encoding="utf-8")
    clock.advance(REFRESH_S)
    looked(small, executor)
    assert not serves(small, ORDERS)


# --- whole services -------------------------------------------------------------------------------------------


class Pair:
    """Services that share the source, the lake and the state root of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._rounds: list[tuple[str, str]] = []
        self._seen = 0

    def service(self, name: str, *tables: str, shared: bool = True) -> Service:
        """Make a service as the container does, and bind its tables."""
        settings = ServiceSettings(name=name, tables=tables, shared=shared)
        files = BindingFiles(SmallFiles(str(self.world.directory / "state")))
        executor = Executor()
        ours = BoundTables(files, settings, self.world.clock, executor, "service.tables")
        ours.bind()

        def rules(path: TablePath) -> TableSettings:
            return ours.rules(path, TableSettings())

        store = EmbeddedStore.open(self.world.store.root)
        refresh = partial(looked, ours, executor)
        options = {"rules": rules, "refresh": refresh, "on_round": self._note(name)}
        return self.world.service(name, source=EmbeddedSource(store), **options)

    def rounds(self, path: TablePath) -> int:
        """Return how many rounds of a table committed since they were forgotten."""
        return sum(table == str(path) for table, _ in self._rounds[self._seen :])

    def forget_rounds(self) -> None:
        """Count rounds anew."""
        self._seen = len(self._rounds)

    def servers(self, path: TablePath) -> set[str]:
        """Return the services that have committed rounds of a table, ever."""
        return {name for table, name in self._rounds if table == str(path)}

    def _note(self, name: str) -> Callable[[RoundReport], None]:
        def note(report: RoundReport) -> None:
            if report.outcome == "committed":
                self._rounds.append((report.table, name))

        return note

    def table(self, database: str, name: str) -> TablePath:
        path = TablePath(database, name)
        self.world.store.create_table(path, SCHEMA, (), buckets=1, freshness_s=0.1)
        self.world.load(path, 0, 10)
        return path


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(service.serve()) for service in services]
    try:
        yield
    finally:
        for service in services:
            service.stop()
        await asyncio.gather(*tasks)


@pytest.fixture
def pair(world: World) -> Pair:
    return Pair(world)


def test_bound_tables_go_to_their_service_and_shared_ones_to_either(pair: Pair) -> None:
    sales = [pair.table("sales", f"s{number}") for number in range(3)]
    web = [pair.table("web", f"w{number}") for number in range(3)]

    tables = [*sales, *web]

    async def serve() -> None:
        async with running(pair.service("big", "sales.*"), pair.service("small")):
            for start in (10, 20, 30):
                await until(lambda: all(map(pair.rounds, tables)))
                pair.forget_rounds()
                for path in tables:
                    pair.world.load(path, start, 10)
            await until(lambda: all(map(pair.rounds, tables)))

    asyncio.run(serve())
    assert all(sorted(row["id"] for row in pair.world.lake.read(path)) == list(range(40)) for path in tables)
    assert {name for path in sales for name in pair.servers(path)} == {"big"}
    assert {name for path in web for name in pair.servers(path)} <= {"big", "small"}


def test_a_service_that_does_not_share_leaves_the_rest_to_others(pair: Pair) -> None:
    sales, web = pair.table("sales", "s"), pair.table("web", "w")

    async def serve() -> None:
        async with running(pair.service("big", "sales.*", shared=False), pair.service("small")):
            await until(lambda: bool(pair.rounds(sales) and pair.rounds(web)))

    asyncio.run(serve())
    assert (pair.servers(sales), pair.servers(web)) == ({"big"}, {"small"})


def test_tables_wait_for_a_service_that_is_gone_and_others_do_not(pair: Pair) -> None:
    sales, web = pair.table("sales", "s"), pair.table("web", "w")
    pair.service("big", "sales.*")  # it has bound its tables, and died before it served

    async def serve() -> None:
        async with running(pair.service("small")):
            for start in (10, 20, 30):
                await until(lambda: pair.rounds(web) > 0)
                pair.forget_rounds()
                pair.world.load(web, start, 10)
        assert pair.servers(sales) == set()
        async with running(pair.service("big", "sales.*")):
            await until(lambda: pair.rounds(sales) > 0)

    asyncio.run(serve())
    assert pair.servers(sales) == {"big"}
