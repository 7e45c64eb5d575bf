"""Serve the status page of a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.observe.extend import OpenObserver, is_loopback
from lakeward_page.app import PageApp, PageContent
from lakeward_page.other_services import OtherServices
from lakeward_page.recent_problems import RecentProblems
from lakeward_page.server import PageServer

if TYPE_CHECKING:
    from lakeward.observe.extend import ObservedService

_log = structlog.get_logger("lakeward.page")


def open_page(service: ObservedService) -> OpenObserver:
    """Serve the status page at the address that `observe.status_host` and `observe.status_port` name.

    Raises:
        ConfigError: host or port cannot be used.
    """
    settings = service.settings
    name, host, port = settings.service.name, settings.observe.status_host, settings.observe.status_port
    problems = RecentProblems(service.secrets)
    others = OtherServices(settings.checkpoint.address, name, service.live, service.clock, service.executor)
    app = PageApp(PageContent(name, service.live, service.registry, problems, others))
    server = PageServer(app.asgi(local=is_loopback(host)), host, port or 0)
    problems.listen()
    others.newest()  # so that the first page has them
    _log.info("status page opened", url=server.url)  # nothing else says which port it is where there is no progress

    def close() -> None:
        problems.close()
        server.close()

    return OpenObserver(close, server.url)
