"""A real S3 server (moto's) whose answers a test can spoil."""

from __future__ import annotations

import logging
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from lakeward.storage.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Environ = dict[str, Any]

_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class S3Server:
    """The server. `spoil` decides by method and path (with query) what becomes of a request.

    None: it is answered. `refuse`: it is throttled, with no effect. `lose`: it takes effect, and is then refused.
    """

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.spoil: Callable[[str, str], str | None] = lambda _method, _path: None
        self.requests: list[tuple[str, str]] = []
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._buckets = 0

    def new_root(self) -> str:
        """Make an empty bucket, and name a folder in it."""
        self._buckets += 1
        bucket, port = f"bucket{self._buckets}", self._server.server_port
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{bucket}", method="PUT")
        with urllib.request.urlopen(request):  # noqa: S310 - as above
            pass
        where = f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        return f"s3://someone:password@{bucket}/state?{where}"

    def close(self) -> None:
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
        start_response("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(_SLOW_DOWN)))])
        return [_SLOW_DOWN]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """Give the server, answering everything; what a test spoils is mended after it."""
    s3_server.requests.clear()
    yield s3_server
    s3_server.spoil = lambda _method, _path: None


@pytest.fixture
def s3_root(s3: S3Server) -> str:
    """Name an empty folder of an empty bucket."""
    root = s3.new_root()
    s3.requests.clear()
    return root


@pytest.fixture
def s3_files(s3_root: str) -> SmallFiles:
    return SmallFiles(s3_root)
