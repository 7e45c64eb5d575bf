"""`lakeward verify` beside a service that tiers the same table at that moment: exact up to the tiered offsets."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.clock import SystemClock
from lakeward_e2e.lakes import LAKES, lake_id
from lakeward_service_kit.service_world import World as Services
from lakeward_testing.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakeward.model.tables import TablePath
    from lakeward.ports import Lake
    from lakeward_e2e.lakes import AnyTables


CONFIG = """
[service]
name = "svc"
[source]
type = "embedded"
path = "store"
[lake]
type = "LAKE"
warehouse = "warehouse"
[checkpoint]
root = "state"
"""
TIMES = 2
"""Verifications during which at least one commit of the table has to land."""


@pytest.fixture(params=LAKES, ids=lake_id)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AnyTables:
    found: AnyTables = request.param(tmp_path)
    return found


@pytest.fixture
def services(tables: AnyTables, tmp_path: Path) -> Services:
    (tmp_path / "lakeward.toml").write_text(CONFIG.replace("LAKE", tables.name), encoding="utf-8")
    return Services.create(tmp_path)


@pytest.fixture
def lake(tables: AnyTables) -> Iterator[Lake]:
    lake = tables.open(SystemClock())
    yield lake
    lake.close()


class Writer:
    """Changes a table for as long as it is verified: the next change follows once the lake has the one before."""

    def __init__(self, services: Services, lake: Lake, path: TablePath, *, keyed: bool) -> None:
        """Keep what is written to."""
        self.done = False
        self._services = services
        self._lake = lake
        self._path = path
        self._keyed = keyed
        self._number = 0

    async def write(self) -> None:
        """Write until `done`."""
        while not self.done:
            before = self.head()
            self._change()
            await self._commit_after(before)

    async def _commit_after(self, before: int | None) -> None:
        await until(lambda: self.head() != before)

    def head(self) -> int | None:
        """Return the newest snapshot of the lake table."""
        head = self._lake.head(self._path)
        return None if head is None or head.commit is None else head.snapshot_id

    def _change(self) -> None:
        load, number = self._services.load, self._number
        self._number += 1
        if not self._keyed:
            load(self._path, number * 50, 50)
            return
        load(self._path, number * 50, 50, "insert")
        load(self._path, 0, 25, "update")
        load(self._path, number * 50 + 40, 10, "delete")


async def verified(directory: Path, path: TablePath) -> Any:  # noqa: ANN401 - a JSON document
    """Verify a table by the command, in a process of its own."""
    command = [sys.executable, "-m", "lakeward", "verify", str(path), "-o", "json"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=directory, stdout=pipe, stderr=pipe)
    said, complained = await process.communicate()
    assert process.returncode == 0, (said, complained)
    return json.loads(said)


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keyed"])
def test_a_table_that_is_tiered_while_it_is_verified_has_no_difference(
    services: Services, tables: AnyTables, lake: Lake, keyed: bool
) -> None:
    """The newest commits, and rows that are not tiered yet, are not looked at, as the compared offsets show."""
    path = services.table("busy", key=keyed)
    writer = Writer(services, lake, path, keyed=keyed)
    overtaken: list[Any] = []

    async def run() -> None:
        service = services.service(lake=lake, lake_type=tables.name)
        serving, writing = asyncio.create_task(service.serve()), asyncio.create_task(writer.write())
        try:
            await until(lambda: writer.head() is not None)
            while len(overtaken) < TIMES:
                found = await verified(services.directory, path)
                assert found["equal"]
                assert found["source_rows"] == found["lake_rows"]
                if writer.head() != found["snapshot_id"]:
                    overtaken.append(found)
            writer.done = True
            await writing
        finally:
            writing.cancel()
            service.stop()
            await serving

    asyncio.run(run())
    offsets = [sum(found["offsets"].values()) for found in overtaken]
    assert all(offsets)
    assert offsets == sorted(set(offsets))
