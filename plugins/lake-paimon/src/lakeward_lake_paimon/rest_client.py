"""Calls to a REST catalog of Paimon (its OpenAPI document, `rest-catalog-open-api.yaml`).

Each request is sent once, and again only where the catalog has put it off: it says so before it does anything. Should
the first copy have landed all the same, the second one finds another head, and what has landed is looked up.
"""

from __future__ import annotations

import http.client
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from lakeward.errors import ConfigError, LakeAwayError, LakeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.tables import TablePath

DATABASE, TABLE, SNAPSHOT = "DATABASE", "TABLE", "SNAPSHOT"
_PAUSE_S = 1.0
"""Where the catalog does not say for how many seconds, or says 0."""
_PAUSES_SHARE = 0.25
"""Part of the time limit that a call may spend in pauses: a commit is sent several times, and has four limits' time."""
_OK, _MULTIPLE_CHOICES = 200, 300
_NOT_FOUND, _TIMED_OUT, _CONFLICT, _THROTTLED = 404, 408, 409, 429
_SERVER_ERROR, _NOT_IMPLEMENTED, _UNAVAILABLE = 500, 501, 503
_HEADER = "header."
_TOKEN, _PROVIDER, _BEARER = "token", "token.provider", "bear"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a catalog answered. `retry_after` is its header of that name."""

    status: int
    body: Mapping[str, Any]
    retry_after: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether the request was carried out."""
        return _OK <= self.status < _MULTIPLE_CHOICES

    @property
    def is_conflict(self) -> bool:
        """Whether what the request makes is there already."""
        return self.status == _CONFLICT

    @property
    def is_unknown_call(self) -> bool:
        """Whether the catalog has no such call."""
        return self.status == _NOT_IMPLEMENTED

    @property
    def is_lost(self) -> bool:
        """Whether it cannot be told if the request was carried out: who answers so may not be the catalog itself."""
        lost = self.status in {_TIMED_OUT, _THROTTLED}
        return lost or (self.status >= _SERVER_ERROR and self.status != _NOT_IMPLEMENTED)

    @property
    def pause_s(self) -> float | None:
        """For how long the catalog wants to be left alone, None if it has answered."""
        named = self.retry_after
        if self.status != _THROTTLED and (self.status != _UNAVAILABLE or named is None):
            return None
        return max(_PAUSE_S, float(named)) if named is not None and named.isdecimal() else _PAUSE_S

    @property
    def missing(self) -> str:
        """What the catalog has not got, such as `TABLE`; empty if it has, or if somebody else answered."""
        return str(self.body.get("resourceType") or "") if self.status == _NOT_FOUND else ""

    def __str__(self) -> str:
        """The catalog's words."""
        return f"HTTP {self.status}: {str(self.body.get('message') or '')[:500]}"


class RestClient:
    """One catalog, and one warehouse of it. `properties` are ours and the catalog's, as it wants them merged."""

    def __init__(self, uri: str, warehouse: str, properties: Mapping[str, str], timeout_s: float) -> None:
        """Ask the catalog for the configuration of the warehouse; `warehouse` is the name that it has there.

        Nothing is waited for longer than `timeout_s`: neither the first byte of an answer nor any after it.

        Raises:
            ConfigError: the address or the way to log in is none that is known here.
            LakeAwayError: the catalog does not answer.
            LakeError: it refuses.
        """
        place = urlsplit(uri)
        key, expected = "lake.uri", "the address of a REST catalog, such as https://host/path"
        if "@" in place.netloc:
            raise ConfigError(key, f"{expected}; a token is given in [lake.properties]", "one with a user or password")
        if place.query or place.fragment:
            raise ConfigError(key, f"{expected}; a token is given in [lake.properties]", "one with parameters")
        if place.scheme not in {"http", "https"} or not place.netloc:
            raise ConfigError(key, expected, uri or "nothing")
        self.uri = uri.rstrip("/")
        self._host, self._path, self._secure = place.netloc, place.path.rstrip("/"), place.scheme == "https"
        self._timeout_s = timeout_s
        self._left_alone: dict[str, float] = {}
        """Until when the catalog does not want to be asked for a path, where a call has no time left for that."""
        self._headers = _headers(properties)
        self._prefix = ""
        said = self.get("config", {"warehouse": warehouse} if warehouse else {})
        self.require(said, f"how warehouse {warehouse!r} is used")
        self.properties = {**_texts(said, "defaults"), **properties, **_texts(said, "overrides")}
        self._headers = _headers(self.properties)
        prefix = self.properties.get("prefix")
        self._prefix = f"{quote_plus(prefix)}/" if prefix else ""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """Ask for something.

        Raises:
            LakeAwayError: no answer came, or one of somebody between.
        """
        told = f"?{urlencode(query)}" if query else ""
        try:
            answer = self._send("GET", f"{path}{told}", None)
        except OSError as lost:
            message = f"{self.uri}: {_why(lost)}"
            raise LakeAwayError(message) from lost
        if answer.is_lost:
            message = f"{self.uri}: {answer}"
            raise LakeAwayError(message)
        return answer

    def post(self, path: str, body: object) -> Answer:
        """Have something done, once.

        Raises:
            OSError: no answer came; it may have been done, or be done yet.
        """
        return self._send("POST", path, msgspec.json.encode(body))

    def require(self, answer: Answer, what: str) -> None:
        """Raise `LakeError` if an answer is not good."""
        if not answer.is_good:
            message = f"{self.uri}: the catalog refused {what}: {answer}"
            raise LakeError(message)

    def table(self, path: TablePath, *rest: str) -> str:
        """Return the path of a table's calls."""
        return "/".join((self.tables(path.database), *map(quote_plus, (path.table, *rest))))

    def tables(self, database: str) -> str:
        """Return the path of a database's tables."""
        return f"databases/{quote_plus(database)}/tables"

    def _send(self, method: str, path: str, data: bytes | None) -> Answer:
        remaining_s = self._timeout_s * _PAUSES_SHARE
        pause_s: float | None = self._left_alone.pop(path, 0.0) - time.monotonic()
        answer = None
        while answer is None or pause_s is not None:
            waited_s = max(0.0, min(pause_s or 0.0, remaining_s))
            if waited_s:
                time.sleep(waited_s)
            remaining_s -= waited_s
            if answer is not None and remaining_s <= 0:
                self._left_alone[path] = time.monotonic() + (pause_s or 0.0) - waited_s
                return answer
            answer = self._send_once(method, path, data)
            pause_s = answer.pause_s
        return answer

    def _send_once(self, method: str, path: str, data: bytes | None) -> Answer:
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        headers = {**self._headers, "Content-Type": "application/json", "Accept": "application/json"}
        try:
            connection = make(self._host, timeout=self._timeout_s)
            try:
                connection.request(method, f"{self._path}/v1/{self._prefix}{path}", body=data, headers=headers)
                answer = connection.getresponse()
                text = answer.read()
            finally:
                connection.close()
        except http.client.HTTPException as broken:
            if isinstance(broken, OSError):
                raise  # the connection was closed before anything came
            message = f"the answer is none of HTTP: {broken!r}"
            raise OSError(message) from broken
        return Answer(answer.status, _json(text), answer.getheader("Retry-After"))


def _why(lost: OSError) -> str:
    """Return why no answer came, in words that are the same for every call."""
    if isinstance(lost, socket.gaierror):
        return "the host name does not resolve"
    if isinstance(lost, TimeoutError):
        return "no answer in time"
    return os.strerror(lost.errno).lower() if lost.errno else str(lost)


def _json(text: bytes) -> Mapping[str, Any]:
    """Return an answer's body; of one that is no JSON (a proxy's), its text as the message."""
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {"message": text.decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {"message": str(found)}


def _texts(said: Answer, key: str) -> dict[str, str]:
    """Return the properties that a catalog's configuration names; some have no value."""
    found = said.body.get(key) or {}
    return {name: str(value) for name, value in found.items() if value is not None} if isinstance(found, dict) else {}


def _headers(properties: Mapping[str, str]) -> dict[str, str]:
    provider = properties.get(_PROVIDER, _BEARER)
    if provider != _BEARER:
        key = f'lake.properties."{_PROVIDER}"'
        raise ConfigError(key, f"{_BEARER}, a token that the catalog knows", provider)
    headers = {key.removeprefix(_HEADER): value for key, value in properties.items() if key.startswith(_HEADER)}
    if token := properties.get(_TOKEN, "").strip():
        headers["Authorization"] = f"Bearer {token}"
    if not all(text.isascii() and text.isprintable() for pair in headers.items() for text in pair):
        # The library that sends them would show the whole value.
        key = "lake.properties"
        raise ConfigError(key, "a token and headers of printable ASCII characters", "others, which are not shown")
    return headers
