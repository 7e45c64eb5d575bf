"""REST catalogs of Iceberg and of Paimon on a socket that throttle, are slow, lose answers or are down."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.clock import SystemClock
from lakeward.model.tables import TablePath
from lakeward_demo.rest_server import RestCatalogServer, _Handler
from lakeward_lake_iceberg.options import IcebergOptions
from lakeward_lake_iceberg.plugin import IcebergLakePlugin
from lakeward_lake_paimon.lake import PaimonLake
from lakeward_lake_paimon.options import PaimonOptions
from lakeward_lake_paimon.plugin import PaimonLakePlugin
from lakeward_paimon_kit.rest import TOKEN, LostAnswer
from lakeward_paimon_kit.rest import RestCatalogServer as PaimonCatalogServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Trouble:
    """What becomes of a commit instead of its answer; `status` 0 closes the connection without a word.

    With `landed` the catalog carries the commit out first.
    """

    status: int
    landed: bool = False
    retry_after_s: int | None = None


class TroubledIcebergCatalog:
    """A catalog of Iceberg.

    `trouble` is asked for each commit with its table's name; it may wait, and None lets the commit pass.
    """

    name = "iceberg"
    broken_off = "Connection aborted"
    """What the lake says of an answer that breaks off."""

    def __init__(self, warehouse: Path) -> None:
        """Serve on a free port."""
        self.trouble: Callable[[str], Trouble | None] = lambda _table: None
        self.commits: list[tuple[str, float, int]] = []
        """Commits in the order of their answers: the table, when it was answered, and the status (0: not at all)."""
        self._warehouse = warehouse
        self._port = 0
        self._connections: set[socket.socket] = set()
        self.come_up()

    @property
    def plugin(self) -> IcebergLakePlugin:
        """The plugin of its tables."""
        return IcebergLakePlugin()

    @property
    def options(self) -> IcebergOptions:
        """Options of a lake on this catalog."""
        return IcebergOptions(
            warehouse=f"file://{self._warehouse}", catalog="rest", uri=f"http://127.0.0.1:{self._port}"
        )

    def come_up(self) -> None:
        """Serve, at the same address as before."""
        self._server = RestCatalogServer(self._warehouse, self._port)
        listening: Any = self._server._server
        self._port = listening.server_address[1]
        bound = listening.RequestHandlerClass
        listening.RequestHandlerClass = type("_Troubled", (_TroubledHandler, bound), {"catalog": self})
        self._thread = threading.Thread(target=self._server.serve, name="troubled-catalog", daemon=True)
        self._thread.start()

    def go_down(self) -> None:
        """Refuse connections, and break those that are open."""
        self._server.close()
        self._thread.join()
        for connection in list(self._connections):
            with suppress(OSError):  # its other end has closed it
                connection.shutdown(socket.SHUT_RDWR)

    def ids(self, name: str) -> list[int]:
        """Return the column `id` of all rows of a table, sorted, as pyiceberg reads them."""
        rows = self._server._catalog.load_table(name).scan().to_arrow()
        return sorted(rows.column("id").to_pylist())

    def answered(self, table: str, status: int) -> list[float]:
        """Return when commits of a table were answered so."""
        return [at for name, at, found in list(self.commits) if (name, found) == (table, status)]


class _TroubledHandler(_Handler):
    """Asks for a trouble before a commit."""

    catalog: TroubledIcebergCatalog

    def setup(self) -> None:
        """Note the connection, so that it can be broken."""
        super().setup()
        self.catalog._connections.add(self.connection)

    def finish(self) -> None:
        """Forget the connection."""
        self.catalog._connections.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        """Answer a commit as its trouble says, everything else as the catalog does."""
        *place, table = self.path.strip("/").split("/")
        trouble = self.catalog.trouble(table) if place[-1:] == ["tables"] else None
        if trouble is None:
            self.do_GET()
            return
        text = self.rfile.read(int(self.headers["Content-Length"]))
        if trouble.landed:
            self.calls.answer("POST", self.path.strip("/").split("/"), json.loads(text))
        self._note(table, trouble.status)
        self.close_connection = True
        if trouble.status:
            self._refuse(trouble)

    def _refuse(self, trouble: Trouble) -> None:
        error = {"message": f"the catalog answers {trouble.status}", "type": "Troubled", "code": trouble.status}
        body = json.dumps({"error": error}).encode()
        self.send_response(trouble.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if trouble.retry_after_s is not None:
            self.send_header("Retry-After", str(trouble.retry_after_s))
        self.end_headers()
        self.wfile.write(body)

    def _note(self, table: str, status: int) -> None:
        self.catalog.commits.append((table, time.monotonic(), status))

    def _send(self, status: int, document: dict[str, Any] | None) -> None:
        *place, table = self.path.strip("/").split("/")
        if self.command == "POST" and place[-1:] == ["tables"]:
            self._note(table, status)
        super()._send(status, document)


class _TroubledPaimonServer(PaimonCatalogServer):
    """Asks for a trouble before a commit."""

    def __init__(self, catalog: TroubledPaimonCatalog, root: str) -> None:
        super().__init__(root)
        self._catalog = catalog

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answer a commit as its trouble says, everything else as the catalog does."""
        *_, table, call = ["", *path.strip("/").split("/")]
        if (method, call) != ("POST", "commit"):
            return super().answer(method, path, body)
        trouble = self._catalog.trouble(table)
        carried_out = trouble is None or trouble.landed
        told = super().answer(method, path, body) if carried_out else (500, {})
        self._catalog.commits.append((table, time.monotonic(), 200 if trouble is None else trouble.status))
        if trouble is None:
            return told
        if not trouble.status:
            raise LostAnswer
        self.retry_after = None if trouble.retry_after_s is None else str(trouble.retry_after_s)
        return trouble.status, {"message": f"the catalog answers {trouble.status}", "code": trouble.status}


class TroubledPaimonCatalog:
    """A catalog of Paimon; see `TroubledIcebergCatalog`."""

    name = "paimon"
    broken_off = "closed connection without response"

    def __init__(self, warehouse: Path) -> None:
        """Serve on a free port."""
        self.trouble: Callable[[str], Trouble | None] = lambda _table: None
        self.commits: list[tuple[str, float, int]] = []
        self._server = _TroubledPaimonServer(self, str(warehouse))
        self._port = 0
        self._serving = ExitStack()
        self.come_up()

    @property
    def plugin(self) -> PaimonLakePlugin:
        """The plugin of its tables."""
        return PaimonLakePlugin()

    @property
    def options(self) -> PaimonOptions:
        """Options of a lake on this catalog."""
        told = {"token": TOKEN}
        return PaimonOptions(metastore="rest", uri=self._server.uri, warehouse="lake", properties=told)

    def come_up(self) -> None:
        """Serve, at the same address as before."""
        self._serving.enter_context(self._server.serving(self._port))
        self._port = int(self._server.uri.rpartition(":")[2])

    def go_down(self) -> None:
        """Refuse connections; of none more than one request is served."""
        self._serving.close()

    def ids(self, name: str) -> list[int]:
        """Return the column `id` of all rows of a table, sorted, by none of the code that writes them."""
        path = TablePath.parse(name)
        lake = PaimonLake(self.options, SystemClock())
        head = lake.head(path)
        assert head is not None
        batches = lake.read_rows(path, head.snapshot_id or 0)
        return sorted(one for batch in batches for one in batch.column("id").to_pylist())

    def answered(self, table: str, status: int) -> list[float]:
        """Return when commits of a table were answered so."""
        return [at for name, at, found in list(self.commits) if (name, found) == (table, status)]


CATALOGS = TroubledIcebergCatalog, TroubledPaimonCatalog
AnyCatalog = TroubledIcebergCatalog | TroubledPaimonCatalog
