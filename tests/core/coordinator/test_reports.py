"""What a service leaves in its status file when it has ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import SchemaMismatchError
from lakeward.testing.folder_lake import FolderLake

if TYPE_CHECKING:
    from lakeward.model.identity import Incarnation
    from lakeward.model.results import LakeHead
    from lakeward.model.status import ServiceReport
    from lakeward.model.tables import TableSpec
    from lakeward_service_kit.service_world import World


def test_a_stopped_service_advertises_no_spark_page(world: World) -> None:
    world.once(spark_ui="http://spark:4040")
    assert {report.spark_ui for report in world.reports if report.state != "stopped"} <= {"http://spark:4040"}
    assert (world.reports[-1].state, world.reports[-1].spark_ui) == ("stopped", None)


def test_a_suspended_table_keeps_its_message_after_the_service_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.table("log")
    world.load(path, 0, 10)

    def refuse(*_: object) -> None:
        message = "column 'id': expected bigint, found string"
        raise SchemaMismatchError(message)

    monkeypatch.setattr(world.lake, "open_table", refuse)

    def stop_once_suspended(report: ServiceReport) -> None:
        world.reports.append(report)
        if any(table.status == "suspended" for table in report.tables):
            service.stop()

    service = world.service(on_report=stop_once_suspended)
    asyncio.run(service.serve())
    (table,) = world.reports[-1].tables
    assert world.reports[-1].state == "stopped"
    assert (table.status, table.message) == ("suspended", "column 'id': expected bigint, found string")


def test_a_suspended_table_that_a_person_resumes_is_tried_again(world: World) -> None:
    @dataclass
    class RefusesOnce(FolderLake):
        refused: bool = False

        def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
            if not self.refused:
                self.refused = True
                message = "column 'id': expected bigint, found string"
                raise SchemaMismatchError(message)
            return super().open_table(table, incarnation)

    path = world.table("log")
    world.load(path, 0, 10)
    world.lake = RefusesOnce(world.directory / "lake")
    world.resumed = {str(path): 3}

    def resume_once_suspended(report: ServiceReport) -> None:
        if any(table.status == "suspended" for table in report.tables):
            world.resumed = {str(path): 4}
        if "committed" in world.outcomes(path):
            service.stop()

    async def soon() -> None:
        async with asyncio.timeout(20):
            await service.serve()

    service = world.service(on_report=resume_once_suspended)
    asyncio.run(soon())
    assert world.outcomes(path)[:2] == ["failed", "committed"]
