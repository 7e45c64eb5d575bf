"""A catalog that does not answer is said once, of all tables: log, progress, report; then each table goes on."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

from rich.console import Console
from structlog.testing import capture_logs

from lakeward.coordinator.rounds.facts import RoundFacts
from lakeward.coordinator.service.lake_outage import LakeOutage
from lakeward.errors import LakeAwayError
from lakeward.model.identity import Incarnation, RoundId
from lakeward.model.status import WAITS_FOR_CATALOG, LakeAway
from lakeward.model.tables import TablePath
from lakeward.model.tiering import TableAssignment
from lakeward.observe.condition import ConditionTracker
from lakeward.observe.event_log import EventLog
from lakeward.observe.progress import ProgressDisplay
from lakeward_service_kit.service_world import told
from lakeward_testing.folder_lake import FolderLake
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from lakeward.model.results import LakeHead
    from lakeward.model.status import ServiceReport
    from lakeward.model.tables import TableSpec
    from lakeward_service_kit.service_world import World

TABLES = 5
REASON = "catalog.db: database is locked"


class Locked(FolderLake):
    """Its catalog does not answer until it is told to."""

    away = True

    def open_table(self, table: TableSpec, incarnation: Incarnation) -> LakeHead:
        if self.away:
            raise LakeAwayError(REASON)
        return super().open_table(table, incarnation)


class Watched:
    """A service on such a lake; the catalog answers once each table was reported to wait for it."""

    def __init__(self, world: World) -> None:
        self.out = io.StringIO()
        self.outages: list[LakeAway | None] = []
        self._progress = ProgressDisplay(Console(file=self.out, width=200), world.clock)
        self._lake = world.lake = Locked(world.lake.root)
        self._conditions, self._events = ConditionTracker(None), EventLog()
        paths = [world.table(f"t{number}") for number in range(TABLES)]
        for path in paths:
            world.load(path, 0, 10)
        keys: dict[str, Any] = {"backoff_first_s": 0.2, "backoff_most_s": 0.2}
        self._service = world.service(on_report=self._look, on_round=self._progress.round_ended, **keys)

    def run(self) -> None:
        async def soon() -> None:
            async with asyncio.timeout(LIMIT_S):
                await self._service.serve()

        asyncio.run(soon())

    def _look(self, report: ServiceReport) -> None:
        self.outages.append(report.lake_away)
        self._progress.update(report)
        self._events.update(self._conditions.describe(report, frozenset()))
        if [table.message for table in report.tables] == [WAITS_FOR_CATALOG] * TABLES:
            self._lake.away = False
        if len(report.tables) == TABLES and all(table.rounds for table in report.tables):
            self._service.stop()


def test_a_catalog_that_does_not_answer_is_one_line_of_log_and_progress_and_not_one_for_each_table(
    world: World,
) -> None:
    watched = Watched(world)
    with capture_logs() as lines:
        watched.run()
    assert [line["event"] for line in told(lines, "warning", "error")] == ["catalog does not answer"]
    said = {line["event"] for line in told(lines, "info")}
    assert "catalog answers again" in said
    assert "table is retrying" not in said
    shown = [line.split(": ", 1)[1] for line in watched.out.getvalue().splitlines() if "catalog" in line]
    assert [line.partition(" for ")[0] for line in shown] == ["catalog does not answer", "catalog answers again"]
    assert shown[0].endswith(f"wait: {REASON}") or shown[0].endswith(f"waits: {REASON}")


def test_the_report_says_since_when_the_catalog_does_not_answer_and_how_many_tables_wait(world: World) -> None:
    watched = Watched(world)
    watched.run()
    seen = [outage for outage in watched.outages if outage is not None]
    assert {(outage.since_ms, outage.reason) for outage in seen} == {(seen[0].since_ms, REASON)}
    assert seen[-1].tables == TABLES
    assert watched.outages[-1] is None


def ended_round(number: int, *, opened: bool) -> RoundFacts:
    """A round of one second that began at second `number`; the catalog answered it at once, or not at all."""
    assignment = TableAssignment(TablePath("shop", "orders"), 1, number, 0, freshness_s=10.0)
    facts = RoundFacts(assignment, RoundId(Incarnation("svc", 1, "0" * 16), 1, number, number), number * 1000)
    facts.ended_ms = facts.started_ms + 1000
    if opened:
        facts.note_phase("enumerate", facts.started_ms + 500)
    else:
        facts.code, facts.reason = LakeAwayError.code, REASON
    return facts


def test_a_round_that_found_nothing_new_ends_the_outage_though_it_was_over_before_the_next_report() -> None:
    outage = LakeOutage()
    outage.round_ended(ended_round(1, opened=False), 1)
    outage.round_ended(ended_round(0, opened=True), 1)  # it was opened before that
    assert outage.report(1) == LakeAway(1000, 1, REASON)
    outage.round_ended(ended_round(3, opened=True), 1)
    assert outage.report(1) is None
