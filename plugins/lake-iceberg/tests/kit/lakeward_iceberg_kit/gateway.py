"""A REST catalog behind a gateway that repeats, loses, delays and refuses requests, without any socket.

The client is the real one (`TimedRestCatalog` with its JSON and its status codes), and so is the server's answer: only
the way between them is ours. `GatewayCatalog` finds its gateway by the address in its options.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlparse

from pyiceberg.catalog.memory import InMemoryCatalog
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from requests.exceptions import ReadTimeout

from lakeward_demo.rest_server import _Calls, _failure
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.rest import TimedRestCatalog
from lakeward_lake_iceberg.sql import LineageSqlCatalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyiceberg.table import CommitTableResponse, Table

_IMPLEMENTATION = f"{__name__}.GatewayCatalog"


class Fate(Enum):
    """What becomes of one request."""

    PASSED = "passed"
    REPEATED = "repeated"
    """It is sent twice, and the second answer counts."""
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    LATE = "late"
    """No answer, and it arrives after some later requests."""
    CONFLICT = "409"
    """Refused as a conflict without being passed on."""
    LANDED_403 = "landed, then 403"
    LANDED_409 = "landed, then 409"
    LANDED_404 = "landed, then 404"
    LANDED_500 = "landed, then 500"
    LANDED_503 = "landed, then 503"
    UNAVAILABLE = "503"
    MISSING = "404"
    THROTTLED = "429"
    """Refused without being passed on; the client really waits before it asks again."""


_STATUS = {
    Fate.CONFLICT: 409,
    Fate.LANDED_403: 403,
    Fate.LANDED_409: 409,
    Fate.LANDED_404: 404,
    Fate.LANDED_500: 500,
    Fate.LANDED_503: 503,
    Fate.UNAVAILABLE: 503,
    Fate.MISSING: 404,
    Fate.THROTTLED: 429,
}
_LANDED = {
    Fate.LANDED_403,
    Fate.LANDED_409,
    Fate.LANDED_404,
    Fate.LANDED_500,
    Fate.LANDED_503,
    Fate.ANSWER_LOST,
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client; `path` are its parts after the host."""

    method: str
    path: tuple[str, ...]
    body: dict[str, Any]

    @property
    def changes(self) -> bool:
        """Whether it asks for a change."""
        return self.method in {"POST", "DELETE"}

    @property
    def is_commit(self) -> bool:
        """Whether it commits to a table."""
        return self.method == "POST" and "updates" in self.body

    @property
    def is_rename(self) -> bool:
        """Whether it renames a table."""
        return self.method == "POST" and self.path[-1] == "rename"


@dataclass
class Gateway:
    """A catalog with a way to it. `fate` says what becomes of a request; unset, each one passes."""

    warehouse: Path
    fate: Callable[[Request], Fate] = lambda _: Fate.PASSED
    before: Callable[[Request], None] = lambda _: None
    """Runs right before a request arrives at the catalog."""
    retry_after: str | None = None
    """The header `Retry-After` of answers that are no success."""
    late: list[Request] = field(default_factory=list, repr=False)
    log: list[tuple[Request, Fate, int]] = field(default_factory=list, repr=False)
    """Requests that ask for a change, with their fate and the status that the client saw (0: none)."""

    _numbers: ClassVar[itertools.count[int]] = itertools.count(1)
    known: ClassVar[dict[str, Gateway]] = {}

    def __post_init__(self) -> None:
        """Open the catalog."""
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self.catalog = _CountingCatalog("lakeward", warehouse=f"file://{self.warehouse}")
        self._answers: dict[tuple[str, ...], tuple[int, tuple[int, dict[str, Any] | None]]] = {}
        self._calls = _Calls(self.catalog)
        self.host = f"gateway-{next(self._numbers)}"
        self.known[self.host] = self

    @property
    def options(self) -> IcebergOptions:
        """Options of a lake behind this gateway."""
        properties = {"py-catalog-impl": _IMPLEMENTATION}
        return IcebergOptions(
            warehouse=f"file://{self.warehouse}", catalog="rest", uri=f"http://{self.host}", properties=properties
        )

    def close(self) -> None:
        """Close the catalog."""
        del self.known[self.host]
        self.catalog.engine.dispose()

    def deliver(self, count: int | None = None) -> None:
        """Let requests arrive that were late, the oldest first; nobody hears the answers."""
        count = len(self.late) if count is None else count
        arriving, self.late = self.late[:count], self.late[count:]
        for request in arriving:
            self._arrive(request)

    def answer(self, request: Request) -> tuple[int, dict[str, Any] | None]:
        """Answer one request of a client.

        Raises:
            ReadTimeout: request or answer were lost.
        """
        if request.path[-1] == "config":
            return self._calls.answer(request.method, list(request.path), request.body)
        fate = self.fate(request)
        try:
            status, document = self._answer(request, fate)
        except ReadTimeout:
            self._note(request, fate, 0)
            raise
        self._note(request, fate, status)
        return status, document

    def _answer(self, request: Request, fate: Fate) -> tuple[int, dict[str, Any] | None]:
        if fate is Fate.LATE:
            self.late.append(request)
            raise ReadTimeout
        if fate is Fate.REQUEST_LOST:
            raise ReadTimeout
        if fate in _LANDED:
            self._arrive(request)
        if fate is Fate.ANSWER_LOST:
            raise ReadTimeout
        if fate in _STATUS:
            status = _STATUS[fate]
            return status, {"error": {"message": fate.value, "type": "GatewayException", "code": status}}
        if fate is Fate.REPEATED:
            self._arrive(request)
        return self._arrive(request)

    def _note(self, request: Request, fate: Fate, status: int) -> None:
        if request.changes:
            self.log.append((request, fate, status))

    def _arrive(self, request: Request) -> tuple[int, dict[str, Any] | None]:
        self.before(request)
        known = self._answers.get(request.path) if request.method == "GET" else None
        if known is not None and known[0] == self.catalog.changes:
            return known[1]
        answer = self._ask(request)
        if request.method == "GET":
            self._answers[request.path] = self.catalog.changes, answer
        return answer

    def _ask(self, request: Request) -> tuple[int, dict[str, Any] | None]:
        try:
            return self._calls.answer(request.method, list(request.path), request.body)
        except Exception as failed:  # noqa: BLE001 - each becomes an answer of the protocol
            return _failure(failed)


class _CountingCatalog(LineageSqlCatalog, InMemoryCatalog):
    """Counts what may have changed it, so that an answer can be given again while nothing did."""

    changes = 0

    def _execute(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the catalog answers
        self.changes += 1
        try:
            return work()
        finally:
            self.changes += 1

    def create_table(self, *arguments: Any, **named: Any) -> Table:  # noqa: ANN401 - the library's own
        """See `Catalog`."""
        made: Table = self._execute(lambda: super(_CountingCatalog, self).create_table(*arguments, **named))
        return made

    def commit_table(self, *arguments: Any) -> CommitTableResponse:  # noqa: ANN401 - the library's own
        """See `Catalog`."""
        done: CommitTableResponse = self._execute(lambda: super(_CountingCatalog, self).commit_table(*arguments))
        return done

    def rename_table(self, *arguments: Any) -> Table:  # noqa: ANN401 - the library's own
        """See `Catalog`."""
        renamed: Table = self._execute(lambda: super(_CountingCatalog, self).rename_table(*arguments))
        return renamed

    def create_namespace(self, *arguments: Any) -> None:  # noqa: ANN401 - the library's own
        """See `Catalog`."""
        self._execute(lambda: super(_CountingCatalog, self).create_namespace(*arguments))


class GatewayCatalog(TimedRestCatalog):
    """The client, with every call led through the gateway of its address."""

    def _create_session(self) -> Any:  # noqa: ANN401 - a session of requests
        session = super()._create_session()
        session.mount("http://", _Adapter())
        return session


class _Adapter(BaseAdapter):
    """Hands a prepared request to its gateway."""

    def send(self, request: PreparedRequest, *arguments: object, **options: object) -> Response:
        address = urlparse(request.url or "")
        text = request.body if isinstance(request.body, str | bytes) else b""
        path = tuple(unquote(part) for part in str(address.path).strip("/").split("/"))
        gateway = Gateway.known[str(address.hostname)]
        status, document = gateway.answer(Request(request.method or "GET", path, json.loads(text) if text else {}))
        response = Response()
        response.status_code = status
        response.request = request
        response.url = request.url or ""
        response.encoding = "utf-8"
        if status >= HTTPStatus.BAD_REQUEST and gateway.retry_after is not None:
            response.headers["Retry-After"] = gateway.retry_after
        response._content = b"" if document is None else json.dumps(document).encode()
        return response

    def close(self) -> None:
        """Nothing is held."""
