"""A small Iceberg REST catalog for tests and demos: one warehouse, one user, no authentication, SQLite behind it.

A catalog in SQLite cannot be shared with a Fluss coordinator, which holds a lock on the file for as long as it lives;
REST can (fluss.md, "Clusters for tests"). Run alone: `python -m lakeward_demo.rest_server PORT WAREHOUSE`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from pydantic import BaseModel, ValidationError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

HOST = "127.0.0.1"
_SEPARATOR = "\x1f"
_OK, _NO_CONTENT = 200, 204
_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (NoSuchTableError, 404, "NoSuchTableException"),
    (NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (CommitFailedException, 409, "CommitFailedException"),
    (ValidationError, 400, "BadRequestException"),
    (KeyError, 400, "BadRequestException"),
    (ValueError, 400, "BadRequestException"),
)
_Answer = tuple[int, dict[str, Any] | None]


class RestCatalogServer:
    """A catalog that listens on this machine; made by `running`."""

    def __init__(self, warehouse: Path, port: int = 0, catalog: type[SqlCatalog] = SqlCatalog) -> None:
        """Open the warehouse, made if it is not there, and listen; nothing is answered before `serve`.

        Port 0 is any free one. The database is the one that `catalog = "sql"` has there, so that tables can be read
        when nobody serves. pyiceberg's own `catalog` writes no table of format version 3.
        """
        warehouse = warehouse.absolute()
        warehouse.mkdir(parents=True, exist_ok=True)
        self.warehouse = f"file://{warehouse}"
        self._catalog = catalog("lakeward", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=self.warehouse)
        handler = type("_BoundHandler", (_Handler,), {"calls": _Calls(self._catalog)})
        self._server = ThreadingHTTPServer((HOST, port), handler)
        self._server.daemon_threads = True

    @classmethod
    @contextmanager
    def running(
        cls, warehouse: Path, port: int = 0, catalog: type[SqlCatalog] = SqlCatalog
    ) -> Iterator[RestCatalogServer]:
        """Serve from a thread for the length of a `with` block."""
        server = cls(warehouse, port, catalog)
        thread = threading.Thread(target=server.serve, name="iceberg-rest", daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.close()
            thread.join()

    @property
    def uri(self) -> str:
        """The catalog's address."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def serve(self) -> None:
        """Answer until `close`."""
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        """Stop, and close the database."""
        self._server.shutdown()
        self._server.server_close()
        self._catalog.engine.dispose()


class _Calls:
    """What the catalog answers; one call at a time, as transactions of one SQLite connection must not mix."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()

    def answer(self, method: str, path: list[str], body: dict[str, Any]) -> _Answer:
        """Answer one request; `path` are its parts after the host."""
        with self._lock:
            return self._answer(method, path, body)

    def _answer(self, method: str, path: list[str], body: dict[str, Any]) -> _Answer:
        answer: _Answer = 404, _error(404, "NotFoundException", f"no such address: {'/'.join(path)}")
        match path[1:]:
            case ["config"]:
                answer = _OK, {"defaults": {}, "overrides": {}}
            case ["namespaces"]:
                answer = self._namespaces(method, body)
            case ["namespaces", name]:
                answer = self._namespace(method, _namespace(name))
            case ["namespaces", name, "tables"]:
                answer = self._tables(method, _namespace(name), body)
            case ["namespaces", name, "tables", table]:
                answer = self._table(method, (*_namespace(name), table), body)
            case ["namespaces", _, "tables", _, "metrics"]:
                answer = _NO_CONTENT, None
            case ["tables", "rename"]:
                self._catalog.rename_table(_identifier(body["source"]), _identifier(body["destination"]))
                answer = _NO_CONTENT, None
        return answer

    def _namespaces(self, method: str, body: dict[str, Any]) -> _Answer:
        if method == "POST":
            properties = body.get("properties") or {}
            self._catalog.create_namespace(tuple(body["namespace"]), properties)
            return _OK, {"namespace": body["namespace"], "properties": properties}
        return _OK, {"namespaces": [list(name) for name in self._catalog.list_namespaces()]}

    def _namespace(self, method: str, name: tuple[str, ...]) -> _Answer:
        if method == "DELETE":
            self._catalog.drop_namespace(name)
            return _NO_CONTENT, None
        properties = dict(self._catalog.load_namespace_properties(name))
        return (_NO_CONTENT, None) if method == "HEAD" else (_OK, {"namespace": list(name), "properties": properties})

    def _tables(self, method: str, namespace: tuple[str, ...], body: dict[str, Any]) -> _Answer:
        if method == "POST":
            return _OK, _loaded(self._create(namespace, body))
        names = [name[-1] for name in self._catalog.list_tables(namespace)]
        return _OK, {"identifiers": [{"namespace": list(namespace), "name": name} for name in names]}

    def _create(self, namespace: tuple[str, ...], body: dict[str, Any]) -> Table:
        layout, order = body.get("partition-spec"), body.get("write-order")
        return self._catalog.create_table(
            (*namespace, body["name"]),
            schema=Schema.model_validate(body["schema"]),
            location=body.get("location"),
            partition_spec=PartitionSpec.model_validate(layout) if layout else UNPARTITIONED_PARTITION_SPEC,
            sort_order=SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
            properties=body.get("properties") or {},
        )

    def _table(self, method: str, name: tuple[str, ...], body: dict[str, Any]) -> _Answer:
        if method == "DELETE":
            self._catalog.drop_table(name)
            return _NO_CONTENT, None
        table = self._catalog.load_table(name)
        if method == "HEAD":
            return _NO_CONTENT, None
        if method == "GET":
            return _OK, _loaded(table)
        identifier = {"namespace": list(name[:-1]), "name": name[-1]}
        request = CommitTableRequest.model_validate({"identifier": identifier, **body})
        done = self._catalog.commit_table(table, request.requirements, request.updates)
        return _OK, {"metadata-location": done.metadata_location, "metadata": _json(done.metadata)}


class _Handler(BaseHTTPRequestHandler):
    """HTTP around `_Calls`."""

    protocol_version = "HTTP/1.1"
    # Headers and body are two writes: without this the second one waits 40 ms for the client's acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    calls: ClassVar[_Calls]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name for it
        """Say nothing on the terminal."""

    def do_GET(self) -> None:
        """Answer one request, whatever its method."""
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length)
        path = [unquote(part) for part in self.path.partition("?")[0].strip("/").split("/")]
        try:
            status, document = self.calls.answer(self.command, path, json.loads(text) if text else {})
        except Exception as failed:  # noqa: BLE001 - each becomes an answer of the protocol
            status, document = _failure(failed)
        self._send(status, document)

    do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the library's names

    def _send(self, status: int, document: dict[str, Any] | None) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _failure(failed: Exception) -> _Answer:
    for kind, status, name in _STATUS:
        if isinstance(failed, kind):
            return status, _error(status, name, str(failed))
    return 500, _error(500, "InternalServerError", repr(failed))


def _error(status: int, name: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": name, "code": status}}


def _namespace(text: str) -> tuple[str, ...]:
    return tuple(text.split(_SEPARATOR))


def _identifier(named: dict[str, Any]) -> tuple[str, ...]:
    return (*named["namespace"], named["name"])


def _loaded(table: Table) -> dict[str, Any]:
    return {"metadata-location": table.metadata_location, "metadata": _json(table.metadata), "config": {}}


def _json(model: BaseModel) -> dict[str, Any]:
    # Not its own method: pyiceberg's model of format version 3 refuses to be written by that one.
    document: dict[str, Any] = json.loads(BaseModel.model_dump_json(model, by_alias=True, exclude_none=True))
    return document


def main(words: list[str]) -> None:
    """Serve until interrupted: PORT WAREHOUSE."""
    server = RestCatalogServer(Path(words[1]), int(words[0]))
    try:
        server.serve()
    except KeyboardInterrupt:
        server.close()


if __name__ == "__main__":
    main(sys.argv[1:])
