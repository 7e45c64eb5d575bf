"""Start the status page if the configuration asks for it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import structlog

from lakeward.errors import ConfigError
from lakeward.observe.recent_problems import RecentProblems
from lakeward.sockets.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.model.settings import Settings
    from lakeward.observe.live_status import LiveStatus
    from lakeward.observe.metrics import ServiceMetrics
    from lakeward.observe.other_services import OtherServices

_PORT = "observe.status_port"
_NEEDED = ("jinja2", "starlette", "uvicorn")
_log = structlog.get_logger("lakeward.page")


class _Server(Protocol):
    @property
    def url(self) -> str: ...

    def close(self) -> None: ...


class StatusPage:
    """A page that is served."""

    def __init__(self, server: _Server, problems: RecentProblems) -> None:
        """Keep what has to be closed."""
        self.url = server.url
        self._server = server
        self._problems = problems

    def close(self) -> None:
        """End it."""
        self._problems.close()
        self._server.close()


def start_page(
    settings: Settings,
    live: LiveStatus,
    metrics: ServiceMetrics,
    secrets: Iterable[str],
    others: OtherServices | None = None,
) -> StatusPage | None:
    """Serve the status page; return None where `observe.status_port` is unset.

    `live` is what the process knows of the service. `secrets` are never shown. `others` knows the other services of the
    state root, None where nobody does.

    Raises:
        ConfigError: the extra is not installed, or host or port cannot be used.
    """
    port = settings.observe.status_port
    if port is None:
        return None
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        expected = "the status page to be installed (pip install 'lakeward[page]')"
        raise ConfigError(_PORT, expected, f"no {', no '.join(missing)}")
    # Only now: without the extra these modules cannot be imported, and without a port they are not needed.
    from lakeward.page.app import PageApp, PageContent  # noqa: PLC0415 - see above
    from lakeward.page.server import PageServer  # noqa: PLC0415 - see above

    problems = RecentProblems(secrets)
    app = PageApp(PageContent(settings.service.name, live, metrics, problems, others))
    host = settings.observe.status_host
    server = PageServer(app.asgi(local=is_loopback(host)), host, port)
    problems.listen()
    if others is not None:
        others.newest()  # so that the first page has them
    _log.info("status page opened", url=server.url)  # nothing else says which port it is where there is no progress
    return StatusPage(server, problems)
