"""A status page without a service: reports are made by hand, and its application is called directly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakeward.model.settings import CheckpointSettings, ObserveSettings, ServiceSettings, Settings
from lakeward.observe.live_status import LiveStatus, Part
from lakeward.observe.metrics import ServiceMetrics
from lakeward.observe.observers import ObservedService, OpenObserver
from lakeward_page.app import PageApp, PageContent
from lakeward_page.recent_problems import RecentProblems
from lakeward_page.start import open_page
from lakeward_service_kit.other_services import AtOnce
from lakeward_testing.clock import FakeClock

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from lakeward.model.status import RoundReport, ServiceReport
    from lakeward_page.other_services import OtherServices


@dataclass
class Page:
    """A page and what it shows. `root` is the state root, which other services may share."""

    clock: FakeClock
    live: LiveStatus
    root: str
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    problems: RecentProblems = field(default_factory=lambda: RecentProblems(["hush-hush"]))
    others: OtherServices | None = None

    def show(self, report: ServiceReport) -> None:
        """Take a report of a service that is open."""
        self.live.opened(*Part)
        self.live.update(report)
        self.metrics.update(report)

    def remember(self, *ended: RoundReport) -> None:
        """Have rounds that have ended, the oldest first."""
        self.live.remembers(lambda table_id: tuple(one for one in ended if one.table_id == table_id))

    def client(self) -> TestClient:
        """Return a client of its application; errors in it are answers."""
        # It warns of its own client while it is imported, which this lets pass.
        testclient = pytest.importorskip("starlette.testclient")
        content = PageContent("demo", self.live, self.metrics.registry, self.problems, self.others)
        client: TestClient = testclient.TestClient(PageApp(content).asgi(), raise_server_exceptions=False)
        return client

    def serve(self, port: int = 0, host: str = "127.0.0.1") -> OpenObserver:
        """Serve it as a service does."""
        settings = Settings(
            service=ServiceSettings(name="demo"),
            checkpoint=CheckpointSettings(root=self.root),
            observe=ObserveSettings(status_port=port, status_host=host),
        )
        service = ObservedService(
            settings, self.live, self.metrics.registry, self.clock, AtOnce(), frozenset({"hush-hush"})
        )
        return open_page(service)
