"""A small REST catalog of Paimon: one warehouse on this disk or in S3, one token, the calls that clients need.

Tables lie in folders that their names do not tell: only the catalog knows where. A snapshot is committed on top of the
head alone, as in the server of Paimon's own tests.
"""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

import pyarrow.fs as pafs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Answer = tuple[int, dict[str, Any]]
_NONE: Answer = (200, {})
PREFIX = "of-tests"
TOKEN = "sesame"  # noqa: S105 - of the tests


class LostAnswer(Exception):  # noqa: N818 - it is thrown into the catalog to drop a connection
    """The connection breaks instead of an answer."""


class _Files:
    """The files of the warehouse; paths are as Arrow's file systems have them."""

    def __init__(self, store: pafs.FileSystem, scheme: str) -> None:
        self._store = store
        self._scheme = scheme

    def address(self, path: str) -> str:
        """Return a path as clients are told it."""
        return f"{self._scheme}{path}"

    def numbered(self, folder: str, kind: str) -> list[int]:
        """Return the numbers of the files `kind-N` of a folder, ascending."""
        selector = pafs.FileSelector(folder, allow_not_found=True)
        names = [found.base_name for found in self._store.get_file_info(selector)]
        return sorted(int(name.partition("-")[2]) for name in names if name.startswith(f"{kind}-"))

    def read(self, path: str) -> dict[str, Any] | None:
        """Return a JSON document, None where there is no such file."""
        if self._store.get_file_info(path).type is pafs.FileType.NotFound:
            return None
        with self._store.open_input_stream(path) as file:
            found: dict[str, Any] = json.loads(file.read())
            return found

    def write(self, path: str, document: object) -> None:
        """Write a JSON document."""
        self._store.create_dir(path.rpartition("/")[0])
        with self._store.open_output_stream(path) as file:
            file.write(json.dumps(document, indent=1).encode())


@dataclass
class _Table:
    id: str
    name: str
    path: str
    is_external: bool
    files: _Files
    committed: dict[str, Any] | None = None

    @property
    def head(self) -> dict[str, Any] | None:
        """The newest snapshot: of a table that is somebody else's, the one of the greatest number."""
        if not self.is_external:
            return self.committed
        numbers = self.files.numbered(f"{self.path}/snapshot", "snapshot")
        return self.snapshot(numbers[-1]) if numbers else None

    def snapshot(self, number: int) -> dict[str, Any] | None:
        """A snapshot's file."""
        return self.files.read(f"{self.path}/snapshot/snapshot-{number}")

    @property
    def schema(self) -> dict[str, Any]:
        """The present schema file."""
        newest = self.files.numbered(f"{self.path}/schema", "schema")[-1]
        found = self.files.read(f"{self.path}/schema/schema-{newest}")
        assert found is not None
        return found

    def described(self) -> dict[str, Any]:
        """Return what a reader is told."""
        schema = self.schema
        told = {"id": self.id, "name": self.name, "path": self.files.address(self.path), "isExternal": self.is_external}
        return {**told, "schemaId": schema["id"], "schema": {key: schema[key] for key in _SCHEMA}, **_AUDIT}


@dataclass
class RestCatalogServer:
    """What the catalog knows.

    `before_commit` and `after_commit` are called with each commit's snapshot; the latter may return another answer.
    `between` may answer in the catalog's place, as a proxy does; `retry_after` is a header of answers that put a
    request off. `tells_old` is whether snapshots below the head are told, `defaults` what clients are told besides.
    """

    root: str
    uri: str = ""
    before_commit: Callable[[dict[str, Any]], None] | None = None
    after_commit: Callable[[dict[str, Any]], Answer | None] | None = None
    between: Callable[[str, str], Answer | None] | None = None
    retry_after: str | None = None
    tells_old: bool = True
    defaults: dict[str, str] = field(default_factory=dict)
    files: _Files = field(default_factory=lambda: _Files(pafs.LocalFileSystem(), ""))
    seen: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    _tables: dict[str, dict[str, _Table]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    @contextmanager
    def running(cls, root: Path | str, store: pafs.FileSystem | None = None) -> Iterator[RestCatalogServer]:
        """Serve for the length of a `with` block; `store` is S3 where `root` is a bucket and a prefix in it."""
        made = cls(str(root))
        if store is not None:
            made.files = _Files(store, "s3://")
        with made.serving():
            yield made

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[None]:
        """Serve for the length of a `with` block, at a port or at any that is free."""
        handler = type("BoundHandler", (_Handler,), {"catalog": self})
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def folder(self, database: str, table: str) -> Path:
        """Return where a table lies."""
        return Path(self._tables[database][table].path)

    def roll_back(self, database: str, table: str, number: int) -> None:
        """Make an older snapshot the head again, and delete those after it."""
        found = self._tables[database][table]
        for file in self.folder(database, table).glob("snapshot/snapshot-*"):
            if int(file.name.partition("-")[2]) > number:
                file.unlink()
        found.committed = found.snapshot(number)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        """Answer one request."""
        parts = [unquote_plus(part) for part in path.strip("/").split("/")]
        self.seen.append((method, "/".join(parts), body))
        instead = None if self.between is None else self.between(method, "/".join(parts))
        if instead is not None:
            return instead
        if parts == ["v1", "config"]:
            return 200, {"defaults": {"data-token.enabled": "false", **self.defaults}, "overrides": {"prefix": PREFIX}}
        if parts[:2] != ["v1", PREFIX]:
            return _missing("", path)
        hook = self.before_commit if parts[-1] == "commit" else None
        if hook is not None:
            hook(body["snapshot"])
        with self._lock:
            answer = self._answer(method, parts[2:], body)
        if parts[-1] == "commit" and self.after_commit is not None:
            return self.after_commit(body["snapshot"]) or answer
        return answer

    def commit_as_another(self, database: str, table: str, snapshot: dict[str, Any]) -> None:
        """Commit a snapshot on top of the head; nobody is told of it before or after."""
        found = self._tables[database][table]
        base = (found.head or {}).get("uuid")
        told = {"tableId": found.id, "baseSnapshotUuid": base, "snapshot": {**snapshot, "uuid": str(uuid.uuid4())}}
        with self._lock:
            status, body = self._commit(found, told)
        assert (status, body) == (200, {"success": True}), body

    def put_in_the_place_of_the_head(self, database: str, table: str) -> dict[str, Any]:
        """Make another snapshot of the same number the head, as a rollback and a commit do; its file stays."""
        found = self._tables[database][table]
        assert found.committed is not None
        found.committed = {**found.committed, "uuid": str(uuid.uuid4()), "commitUser": "another", "properties": {}}
        return found.committed

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables."""
        return list(self._tables.get(database, {}))

    def _answer(self, method: str, parts: list[str], body: dict[str, Any]) -> Answer:
        match (method, *parts):
            case (_, "databases", name, "tables", table, *rest):
                found = self._tables.get(name, {}).get(table)
                return (
                    _missing("TABLE", f"{name}.{table}") if found is None else self._of_table(method, found, rest, body)
                )
            case ("GET", "databases", *rest):
                return self._listed(rest)
            case ("POST", "databases"):
                there = body["name"] in self._tables
                self._tables.setdefault(body["name"], {})
                return (409, {"message": "the database is there", "code": 409}) if there else _NONE
            case ("POST", "databases", name, "tables"):
                return self._create(name, body)
            case ("POST", "tables", "rename"):
                return self._rename(body["source"], body["destination"])
        return _missing("", "/".join(parts))

    def _listed(self, parts: list[str]) -> Answer:
        if not parts:
            return 200, {"databases": list(self._tables)}
        if parts[0] not in self._tables:
            return _missing("DATABASE", parts[0])
        if len(parts) > 1:
            return 200, {"tables": self.tables(parts[0])}
        return 200, {
            "id": parts[0],
            "name": parts[0],
            "location": self.files.address(self.root),
            "options": {},
            **_AUDIT,
        }

    def _of_table(self, method: str, found: _Table, rest: list[str], body: dict[str, Any]) -> Answer:
        answer: Answer = 501, {"message": "/".join(rest), "code": 501}
        match (method, *rest):
            case ("GET",):
                answer = 200, found.described()
            case ("POST",):
                answer = self._alter(found, body["changes"])
            case ("GET", "snapshot"):
                answer = _missing("SNAPSHOT", "") if found.head is None else (200, {"snapshot": _counted(found.head)})
            case ("GET", "snapshots", number) if self.tells_old:
                there = found.snapshot(int(number))
                answer = _missing("SNAPSHOT", number) if there is None else (200, {"snapshot": there})
            case ("POST", "commit"):
                answer = self._commit(found, body)
        return answer

    def _create(self, database: str, body: dict[str, Any]) -> Answer:
        name, schema = body["identifier"]["object"], body["schema"]
        if database not in self._tables:
            return _missing("DATABASE", database)
        if name in self._tables[database]:
            return 409, {"message": "the table is there", "code": 409}
        elsewhere = schema["options"].get("path")
        path = elsewhere.removeprefix("s3://") if elsewhere else f"{self.root}/{database}/tbl-{uuid.uuid4()}"
        table = _Table(str(uuid.uuid4()), name, path, bool(elsewhere), self.files)
        fields = schema["fields"]
        self.files.write(f"{path}/schema/schema-0", _numbered(schema, 0, max(one["id"] for one in fields)))
        self._tables[database][name] = table
        return _NONE

    def _alter(self, found: _Table, changes: list[dict[str, Any]]) -> Answer:
        schema = found.schema
        fields, highest = list(schema["fields"]), schema["highestFieldId"]
        options = dict(schema["options"])
        for change in changes:
            if change["action"] == "setOption":
                options[change["key"]] = change["value"]
                continue
            (name,) = change["fieldNames"]
            if change["action"] == "renameColumn":
                if any(one["name"] == change["newName"] for one in fields):
                    return 409, {"message": f"column {change['newName']} is there", "code": 409}
                fields = [one | {"name": change["newName"]} if one["name"] == name else one for one in fields]
                continue
            if change["action"] == "updateColumnNullability":
                plain = {one["name"]: str(one["type"]).removesuffix(" NOT NULL") for one in fields}
                fields = [one | {"type": plain[name]} if one["name"] == name else one for one in fields]
                continue
            if change["action"] == "updateColumnType":
                fields = [one | {"type": change["newDataType"]} if one["name"] == name else one for one in fields]
                continue
            assert change["action"] == "addColumn", change
            if any(one["name"] == name for one in fields):
                return 409, {"message": f"column {name} is there", "code": 409}
            highest += 1
            added = {"id": highest, "name": name, "type": change["dataType"]}
            move = change.get("move")
            places = [one["name"] for one in fields]
            place = len(fields) if move is None else places.index(move["referenceFieldName"])
            fields.insert(place, added)
        self.files.write(
            f"{found.path}/schema/schema-{schema['id'] + 1}",
            _numbered({**schema, "fields": fields, "options": options}, schema["id"] + 1, highest),
        )
        return _NONE

    def _rename(self, source: dict[str, str], destination: dict[str, str]) -> Answer:
        tables = self._tables[source["database"]]
        if source["object"] not in tables:
            return _missing("TABLE", source["object"])
        if destination["object"] in tables:
            return 409, {"message": "a table has that name", "code": 409}
        tables[destination["object"]] = tables.pop(source["object"])
        return _NONE

    def _commit(self, found: _Table, body: dict[str, Any]) -> Answer:
        snapshot, head = body["snapshot"], found.head
        if found.is_external:
            return 501, {"message": "an external table commits by itself", "code": 501}
        if body["tableId"] != found.id:
            return _missing("TABLE", body["tableId"])
        below = head or {"id": 0}
        # Clients before Paimon 2.0 name the snapshot below by its number alone.
        if body.get("baseSnapshotUuid", below.get("uuid")) != below.get("uuid") or snapshot["id"] != below["id"] + 1:
            return 200, {"success": False}
        self.files.write(f"{found.path}/snapshot/snapshot-{snapshot['id']}", snapshot)
        self.files.write(f"{found.path}/snapshot/LATEST", snapshot["id"])
        found.committed = snapshot
        return 200, {"success": True}


_SCHEMA = ("fields", "partitionKeys", "primaryKeys", "options", "comment")
_AUDIT = {"owner": "tests", "createdAt": 1, "createdBy": "tests", "updatedAt": 1, "updatedBy": "tests"}


def _numbered(schema: dict[str, Any], number: int, highest: int) -> dict[str, Any]:
    kept = {key: schema.get(key) for key in _SCHEMA}
    return {"version": 3, "id": number, "highestFieldId": highest, "timeMillis": 1, **kept}


def _counted(snapshot: dict[str, Any]) -> dict[str, Any]:
    counts = {"recordCount": 0, "fileSizeInBytes": 0, "fileCount": 0, "lastFileCreationTime": 0}
    return {"snapshot": snapshot, **counts}


def _missing(kind: str, name: str) -> Answer:
    return 404, {"message": f"there is no {name}", "resourceType": kind, "resourceName": name, "code": 404}


class _Handler(BaseHTTPRequestHandler):
    catalog: RestCatalogServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def log_message(self, *_: object) -> None:
        """Be silent."""

    def _answer(self, method: str) -> None:
        place = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {"message": "who are you?", "code": 401})
            return
        try:
            status, body = self.catalog.answer(method, place.path, json.loads(data or b"{}"))
        except LostAnswer:
            self.close_connection = True
            return
        except Exception as broken:  # noqa: BLE001 - as a server says it
            status, body = 500, {"message": repr(broken), "code": 500}
        self._send(status, body)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status in {429, 503} and self.catalog.retry_after is not None:
            self.send_header("Retry-After", self.catalog.retry_after)
        self.end_headers()
        self.wfile.write(data)
