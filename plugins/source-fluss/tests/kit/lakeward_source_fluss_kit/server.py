"""A Fluss server for tests: real sockets, answers from a function or from recorded frames."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from lakeward_source_fluss.rpc.options import ConnectOptions, Endpoint
from lakeward_source_fluss.wire.apis import ApiKey, Request
from lakeward_source_fluss.wire.messages import (
    ApiVersionsResponse,
    DescribeClusterConfigsResponse,
    ErrorResponse,
    MetadataResponse,
    PbApiVersion,
    PbServerNode,
)
from lakeward_source_fluss.wire.protobuf import Message, decode, encode
from lakeward_source_fluss_kit.releases import OF_1_0
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

_HEADER: Final = struct.Struct(">hhi")
_LENGTH: Final = struct.Struct(">i")
R = TypeVar("R", bound=Request[Any])


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it arrived.

    Attributes:
        api: the key.
        version: the version.
        request_id: the client's id.
        body: the encoded request.
        connection: counts the server's connections from 0.
    """

    api: int
    version: int
    request_id: int
    body: bytes
    connection: int

    def read(self, request_class: type[R]) -> R:
        """Return the request."""
        return decode(request_class, self.body)


class HangUp(Exception):  # noqa: N818  # an order, no error
    """Raised by an answering function: close the connection without an answer."""


Answer = Message | bytes | None
"""A response, an ErrorResponse, a raw frame, or no answer at all."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Answers from recorded frames, matched by (key, body); of several the last. Other calls get no answer."""

    frames: Mapping[tuple[int, bytes], bytes]

    @staticmethod
    def read(path: Path, server: str | None = None) -> Recorded:
        """Read a file of frames.

        Args:
            path: JSON lines with key, request_hex and response_hex.
            server: take those of this server; None for those that name none.

        Returns:
            The answers.
        """
        lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
        return Recorded(
            {
                (one["key"], bytes.fromhex(one["request_hex"])[12:]): bytes.fromhex(one["response_hex"])
                for one in lines
                if one.get("server") == server
            }
        )

    def __call__(self, call: Call) -> Answer:
        """Return the recorded answer, with the request's id."""
        frame = self.frames.get((call.api, call.body))
        return None if frame is None else frame[:5] + struct.pack(">i", call.request_id) + frame[9:]


@dataclass
class FakeServer:
    """Listens on a free port of 127.0.0.1 and answers every call on a thread of its own.

    Attributes:
        answer: what to say; None says nothing, save that API_VERSIONS, GET_METADATA and DESCRIBE_CLUSTER_CONFIGS are
            answered then too.
        offers: its API_VERSIONS answer: keys with their oldest and newest version, or keys alone for version 0; see
            `releases` for those of a release.
        server_type: 1 coordinator, 2 tablet server.
        tls: a server context, None for plain TCP.
        metadata: what to answer to GET_METADATA; None for itself alone, in both roles.
        calls: what arrived, API_VERSIONS too.
    """

    answer: Callable[[Call], Answer]
    offers: Iterable[int] = field(default_factory=lambda: OF_1_0)
    server_type: int = 1
    tls: ssl.SSLContext | None = None
    metadata: Callable[[], MetadataResponse] | None = None
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._open: dict[int, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listener.getsockname()[1])
        self._start(self._accept)

    def node(self, node_id: int = 0) -> PbServerNode:
        """Return itself as GET_METADATA names it."""
        return PbServerNode(node_id=node_id, host=self.endpoint.host, port=self.endpoint.port)

    def asked(self, api: ApiKey) -> list[Call]:
        """Return the calls of one API."""
        return [call for call in self.calls if call.api == api]

    def hang_up(self) -> None:
        """Close all connections; new ones are accepted."""
        for one in tuple(self._open.values()):
            _shut(one)

    def close(self) -> None:
        """Stop listening and close all connections."""
        _shut(self._listener)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._open[number] = accepted
            self._start(self._serve, accepted, number)
            number += 1

    def _serve(self, accepted: socket.socket, number: int) -> None:
        lock = threading.Lock()
        with contextlib.suppress(OSError), accepted, self._wrapped(accepted) as stream:
            self._open[number] = stream
            while (call := _read(stream, number)) is not None:
                self.calls.append(call)
                self._start(self._reply, stream, lock, call)
        self._open.pop(number, None)

    def _wrapped(self, accepted: socket.socket) -> socket.socket:
        return self.tls.wrap_socket(accepted, server_side=True) if self.tls is not None else accepted

    def _reply(self, stream: socket.socket, lock: threading.Lock, call: Call) -> None:
        try:
            frame = _frame(call, self._choose(call))
        except HangUp:
            _shut(stream)
            return
        if frame is not None:
            with contextlib.suppress(OSError), lock:
                stream.sendall(frame)

    def _choose(self, call: Call) -> Answer:
        answer = self.answer(call)
        if answer is None and call.api == ApiKey.API_VERSIONS:
            return ApiVersionsResponse(api_versions=tuple(self._versions()), server_type=self.server_type)
        if answer is None and call.api == ApiKey.DESCRIBE_CLUSTER_CONFIGS:
            return DescribeClusterConfigsResponse()
        if answer is None and call.api == ApiKey.GET_METADATA:
            return self.metadata() if self.metadata is not None else self._alone()
        return answer

    def _versions(self) -> Iterator[PbApiVersion]:
        known = self.offers if isinstance(self.offers, dict) else dict.fromkeys(self.offers, (0, 0))
        for key, (oldest, newest) in known.items():
            yield PbApiVersion(api_key=key, min_version=oldest, max_version=newest)

    def _alone(self) -> MetadataResponse:
        return MetadataResponse(coordinator_server=self.node(), tablet_servers=(self.node(),))


def quick_options(
    *servers: FakeServer, timeout_s: float = 60.0, silence_s: float = 60.0, connect_timeout_s: float = 60.0
) -> ConnectOptions:
    """Return options with short pauses.

    Args:
        servers: for bootstrap.
        timeout_s: seconds for a call.
        silence_s: seconds after which a silent connection is given up.
        connect_timeout_s: seconds for a connection: less where a test waits for its end.

    Returns:
        The options.
    """
    return ConnectOptions(
        tuple(server.endpoint for server in servers),
        request_timeout_s=timeout_s,
        connect_timeout_s=connect_timeout_s,
        silence_s=silence_s,
        backoff_s=0.01,
        backoff_limit_s=0.05,
    )


def _read(stream: socket.socket, number: int) -> Call | None:
    length = _exactly(stream, _LENGTH.size)
    content = _exactly(stream, _LENGTH.unpack(length)[0]) if length else b""
    if not content:
        return None
    api, version, request_id = _HEADER.unpack_from(content)
    return Call(api, version, request_id, content[_HEADER.size :], number)


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            return b""
        data += piece
    return data


def _frame(call: Call, answer: Answer) -> bytes | None:
    if not isinstance(answer, Message):
        return answer
    kind = 1 if isinstance(answer, ErrorResponse) else 0
    content = struct.pack(">bi", kind, call.request_id) + encode(answer)
    return _LENGTH.pack(len(content)) + content


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
