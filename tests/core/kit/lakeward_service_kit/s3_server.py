"""A real S3 server (moto's) whose answers a test can spoil."""

from __future__ import annotations

import logging
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Environ = dict[str, Any]

_SLOW_DOWN = "503 Slow Down", b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_UNKNOWN_KEY = "403 Forbidden", b"<Error><Code>InvalidAccessKeyId</Code><Message>No such key.</Message></Error>"
ACCESS_KEY, SECRET_KEY = "someone", "password"


class S3Server:
    """The server. `spoil` decides by method and path (with query) what becomes of a request.

    None: it is answered. `refuse`: it is throttled, with no effect. `lose`: it takes effect, and is then refused.
    `forbid`: its access key is unknown.
    """

    def __init__(self) -> None:
        """Start it on a free port of this machine."""
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.spoil: Callable[[str, str], str | None] = lambda _method, _path: None
        self.requests: list[tuple[str, str]] = []
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._buckets = 0

    @property
    def endpoint(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def options(self) -> dict[str, str]:
        """Return how it is reached, as `[checkpoint.storage]` says it."""
        return {
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "endpoint_override": self.endpoint,
            "scheme": "http",
            "region": "us-east-1",
        }

    def new_bucket(self) -> str:
        """Make an empty bucket."""
        self._buckets += 1
        bucket = f"bucket{self._buckets}"
        request = urllib.request.Request(f"http://{self.endpoint}/{bucket}", method="PUT")
        with urllib.request.urlopen(request):  # noqa: S310 - as above
            pass
        return bucket

    def new_root(self) -> str:
        """Make an empty bucket, and name a folder in it."""
        where = f"scheme=http&endpoint_override={self.endpoint}&region=us-east-1"
        return f"s3://{ACCESS_KEY}:{SECRET_KEY}@{self.new_bucket()}/state?{where}"

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: Environ, start_response: Any) -> Iterable[bytes]:  # noqa: ANN401 - WSGI's
        path = environ["PATH_INFO"] + (f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else "")
        self.requests.append((environ["REQUEST_METHOD"], path))
        verdict = self.spoil(environ["REQUEST_METHOD"], path)
        if verdict is None:
            return self._app(environ, start_response)  # type: ignore[no-any-return]  # moto's own
        if verdict == "lose":
            list(self._app(environ, lambda *_: None))
        else:  # a request that is not read to its end is a broken connection to the client
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, body = _UNKNOWN_KEY if verdict == "forbid" else _SLOW_DOWN
        start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]
