"""A status page without a service: reports are made by hand, and its application is called directly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakeward.model.status import RoundReport, ServiceReport, SubtaskReport, TableCondition, TableReport
from lakeward.observe.live_status import LiveStatus, Part
from lakeward.observe.metrics import ServiceMetrics
from lakeward.observe.recent_problems import RecentProblems
from lakeward.testing.clock import FakeClock

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from lakeward.observe.other_services import OtherServices

SUBTASK = SubtaskReport(0, 1, "worker-1", "reading", "7-0-log-0-100", 2, 1234, 4096, 0.4)
ROUND = RoundReport(
    "demo-1/7-1-1", "running", 1_000, None, 1234, 8, 2, 3, 4096, 617.0, None, slots=1, slots_asked=2,
    subtasks=(SUBTASK,),
)  # fmt: skip
TABLE = TableReport(
    "shop.orders", 7, "running", "", 500, 12.0, 3, 12345, ROUND, freshness_s=60.0, complete_ms=0, committed_ms=0,
    lake_files=17, condition=TableCondition("ok", "The lake has everything.", since_ms=0),
)  # fmt: skip
REPORT = ServiceReport(
    "demo", "demo-1-0123456789abcdef", 42, "serving", 5_000, "http://127.0.0.1:4040", (TABLE,), "lease", 4, 1,
    host="vm", started_ms=1, lease_expires_ms=3_600_000,
)  # fmt: skip


@dataclass
class Page:
    """A page and what it shows."""

    clock: FakeClock
    live: LiveStatus
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    problems: RecentProblems = field(default_factory=lambda: RecentProblems(["hush-hush"]))
    others: OtherServices | None = None

    def show(self, report: ServiceReport) -> None:
        """Take a report of a service that is open."""
        self.live.opened(*Part)
        self.live.update(report)
        self.metrics.update(report)

    def client(self) -> TestClient:
        """Return a client of its application; errors in it are answers."""
        testclient = pytest.importorskip("starlette.testclient", reason="the extra `page` is not installed")
        from lakeward.page.app import PageApp, PageContent  # noqa: PLC0415 - needs the extra

        content = PageContent("demo", self.live, self.metrics, self.problems, self.others)
        client: TestClient = testclient.TestClient(PageApp(content).asgi(), raise_server_exceptions=False)
        return client
