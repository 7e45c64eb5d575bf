"""The ways to an S3 store and to a REST catalog, without any socket: they lose, repeat, delay and refuse requests.

The clients are the real ones, with their headers, their JSON and their status codes, and so are the servers' answers:
only the way between them is ours. `Connection` takes the place of Python's own and finds its way by the host.
"""

from __future__ import annotations

import http.client
import itertools
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs

from lakeward_paimon_kit.replaced import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from lakeward_paimon_kit.rest import RestCatalogServer

Answer = tuple[int, bytes]


class Fate(Enum):
    """What becomes of one request."""

    PASSED = "passed"
    REPEATED = "repeated"
    """It is sent twice, and the second answer counts."""
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    LATE = "late"
    """No answer, and it arrives after some later requests."""
    REFUSED = "403"
    CONFLICT = "409"
    """Refused as a conflict without being passed on."""
    THROTTLED = "429"
    UNAVAILABLE = "503"
    MISSING = "404"
    """Of somebody between, who knows nothing of the catalog."""
    LANDED_403 = "landed, then 403"
    LANDED_409 = "landed, then 409"
    LANDED_500 = "landed, then 500"
    LANDED_503 = "landed, then 503"


_STATUS = {
    Fate.REFUSED: 403,
    Fate.CONFLICT: 409,
    Fate.THROTTLED: 429,
    Fate.UNAVAILABLE: 503,
    Fate.MISSING: 404,
    Fate.LANDED_403: 403,
    Fate.LANDED_409: 409,
    Fate.LANDED_500: 500,
    Fate.LANDED_503: 503,
}
_LANDED = {Fate.ANSWER_LOST, Fate.LANDED_403, Fate.LANDED_409, Fate.LANDED_500, Fate.LANDED_503}
OF_QUESTIONS = (Fate.REQUEST_LOST, Fate.THROTTLED, Fate.UNAVAILABLE, Fate.MISSING)
"""What may become of a request that changes nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def changes(self) -> bool:
        """Whether it asks for a change."""
        return self.method != "GET"


@dataclass
class Way:
    """The way to one server. `fate` says what becomes of a request; unset, each one passes."""

    server: Callable[[Request], Answer]
    fate: Callable[[Request], Fate] = lambda _: Fate.PASSED
    before: Callable[[Request], None] = lambda _: None
    """Runs right before a request arrives, and may raise."""
    late: list[Request] = field(default_factory=list, repr=False)

    _numbers: ClassVar[itertools.count[int]] = itertools.count(1)
    known: ClassVar[dict[str, Way]] = {}

    def __post_init__(self) -> None:
        """Take a host's name of its own."""
        self.host = f"way-{next(self._numbers)}"
        self.known[self.host] = self

    def close(self) -> None:
        """Give the name back."""
        del self.known[self.host]

    def deliver(self, count: int | None = None) -> None:
        """Let requests arrive that were late, the oldest first; nobody hears the answers."""
        count = len(self.late) if count is None else count
        arriving, self.late = self.late[:count], self.late[count:]
        for request in arriving:
            self.server(request)

    def answer(self, request: Request) -> Answer:
        """Answer one request.

        Raises:
            OSError: request or answer were lost.
        """
        self.before(request)
        fate = self.fate(request)
        if fate is Fate.LATE:
            self.late.append(request)
        if fate in {Fate.LATE, Fate.REQUEST_LOST}:
            raise OSError(fate.value)
        if fate in _LANDED:
            self.server(request)
        if fate is Fate.ANSWER_LOST:
            raise OSError(fate.value)
        if fate in _STATUS:
            return _STATUS[fate], fate.value.encode()
        if fate is Fate.REPEATED:
            self.server(request)
        return self.server(request)


class Connection:
    """Takes the place of `http.client.HTTPConnection`."""

    def __init__(self, host: str, timeout: float) -> None:
        """Find the way."""
        del timeout
        self._way = Way.known[host]
        self._answer: Answer = (0, b"")

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        """Send a request."""
        self._answer = self._way.answer(Request(method, path, body or b"", headers))

    def getresponse(self) -> Connection:
        """Return the answer."""
        return self

    @property
    def status(self) -> int:
        """The answer's status."""
        return self._answer[0]

    def read(self) -> bytes:
        """Return the answer's body."""
        return self._answer[1]

    def getheader(self, name: str) -> None:
        """No header of an answer says anything."""
        del name

    def close(self) -> None:
        """Nothing is held."""


class DiskStore:
    """An S3 store on a folder: what the lake asks of Arrow's file system, and a PUT that heeds `If-None-Match`."""

    def __init__(self, root: Path) -> None:
        """Have one bucket, `lake`."""
        self.root = root
        (root / "lake").mkdir(parents=True)
        self._fs = pafs.SubTreeFileSystem(str(root), pafs.LocalFileSystem())

    def put(self, request: Request) -> Answer:
        """Create an object, unless there is one."""
        assert request.headers["If-None-Match"] == "*"
        path = self.root / unquote(urlsplit(request.path).path).lstrip("/")
        if path.exists():
            return 412, b"PreconditionFailed"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(request.body)
        return 200, b""

    def open_output_stream(self, path: str) -> pa.NativeFile:
        """Open an object for writing; a store has no folders to make."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        return self._fs.open_output_stream(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open an object for reading."""
        return self._fs.open_input_file(path)

    def get_file_info(self, asked: str | pafs.FileSelector) -> Any:  # noqa: ANN401 - one or many
        """Say what there is."""
        return self._fs.get_file_info(asked)

    def delete_dir(self, path: str) -> None:
        """Delete all below a path."""
        self._fs.delete_dir(path)

    def delete_file(self, path: str) -> None:
        """Delete an object."""
        self._fs.delete_file(path)


def catalog_server(catalog: RestCatalogServer) -> Callable[[Request], Answer]:
    """Return what answers requests to a REST catalog."""

    def answer(request: Request) -> Answer:
        body = json.loads(request.body or b"{}")
        status, said = catalog.answer(request.method, urlsplit(request.path).path, body)
        return status, json.dumps(said).encode()

    return answer


@contextmanager
def connected(store: DiskStore | None) -> Iterator[None]:
    """Lead all requests of this process by the ways that are known, and Arrow's to a store's folder."""
    with (
        replaced(http.client, "HTTPConnection", Connection),
        replaced(pafs, "S3FileSystem", lambda **_: store),
    ):
        yield
