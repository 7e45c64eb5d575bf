"""The page's web server: a thread and an event loop of its own, so that it shares nothing with the rounds."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from typing import TYPE_CHECKING

import structlog
import uvicorn

from lakeward.errors import ConfigError
from lakeward_page.connections import PageConnection

if TYPE_CHECKING:
    from starlette.applications import Starlette

CLOSE_S = 5.0
"""Seconds that open requests have at the end; well below those that a resource of the service has to close."""
_LAST_S = 0.05
_BACKLOG = 64
_HOST, _PORT = "observe.status_host", "observe.status_port"
_ADDRESS = "an address of this machine"
_log = structlog.get_logger("lakeward.page")


class PageServer:
    """Serves an application from its start until `close`."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        """Listen, and serve on a thread; port 0 is any free one.

        Raises:
            ConfigError: it cannot be listened at; names the key.
        """
        self._socket = _listen(host, port)
        self._host = host
        self._port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            http=PageConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=int(CLOSE_S / 2),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="status page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The page's address."""
        shown = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{shown}:{self._port}/"

    def close(self) -> None:
        """End open requests and stop listening; a thread that does not end in time is left behind."""
        self._server.should_exit = True
        self._thread.join(CLOSE_S)
        self._server.force_exit = True
        self._socket.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the page, the service goes on
            _log.warning("the status page has ended", reason=f"{type(error).__name__}: {error}", exc_info=error)

    async def _serve(self) -> None:
        await self._server.serve(sockets=[self._socket])
        await asyncio.sleep(_LAST_S)  # a connection that came at the very end is known only now
        for connection in list(self._server.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(_HOST, _ADDRESS, host, f"{error.strerror or error}.") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(_HOST, _ADDRESS, host) from error
        expected, hint = f"a port that can be listened at on {host}", f"{error.strerror or error}."
        raise ConfigError(_PORT, expected, port, f"{hint} 0 takes any free one.") from error
    return listener
