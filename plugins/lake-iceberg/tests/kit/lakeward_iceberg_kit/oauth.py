"""A REST catalog that asks for a token: a client gets one for its id and secret, and it can be made to expire."""

from __future__ import annotations

import secrets
import threading
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from lakeward_demo.rest_server import HOST, RestCatalogServer, _Handler

if TYPE_CHECKING:
    from pathlib import Path

CLIENT, SECRET = "tier", "hush"
_TOKENS = "/v1/oauth/tokens"


class OAuthCatalog:
    """The server. `tokens` are those that count now; clearing it is what time does to them."""

    def __init__(self, warehouse: Path) -> None:
        """Listen on a free port."""
        self.tokens: set[str] = set()
        self.asked: list[dict[str, list[str]]] = []
        self._behind = RestCatalogServer(warehouse)
        self.warehouse = self._behind.warehouse
        calls = self._behind._server.RequestHandlerClass.calls  # type: ignore[attr-defined]  # bound by the server
        outer = self

        class Guarded(_Handler):
            def do_GET(self) -> None:  # noqa: N802 - as below
                outer._answer(self)

            do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the library's names

        Guarded.calls = calls
        self._server = ThreadingHTTPServer((HOST, 0), Guarded)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def uri(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    @property
    def token_uri(self) -> str:
        """Where tokens are given."""
        return self.uri + _TOKENS

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._behind._server.server_close()
        self._behind._catalog.engine.dispose()

    def _answer(self, handler: Any) -> None:  # noqa: ANN401 - a request handler
        if handler.path == _TOKENS:
            self._give(handler)
        elif handler.headers.get("Authorization", "").removeprefix("Bearer ") in self.tokens:
            _Handler.do_GET(handler)
        else:
            handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
            error = {"message": "the token counts no more", "type": "NotAuthorizedException", "code": 401}
            handler._send(401, {"error": error})

    def _give(self, handler: Any) -> None:  # noqa: ANN401 - as above
        form = parse_qs(handler.rfile.read(int(handler.headers["Content-Length"])).decode())
        self.asked.append(form)
        if (form.get("client_id"), form.get("client_secret")) != ([CLIENT], [SECRET]):
            handler._send(401, {"error": "invalid_client", "error_description": "unknown client"})
            return
        token = secrets.token_hex(8)
        self.tokens.add(token)
        handler._send(200, {"access_token": token, "token_type": "bearer", "expires_in": 3600})
