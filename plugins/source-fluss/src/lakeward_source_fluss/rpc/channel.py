"""One TCP connection as a pipeline of calls: bytes in, bytes out, answers matched by request id."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lakeward.errors import ProtocolError
from lakeward_source_fluss.wire.apis import API_VERSION, CHANGES, ApiKey
from lakeward_source_fluss.wire.errors import (
    ServerUnreachableError,
    UnansweredChangeError,
    UnansweredReadError,
    server_error,
)
from lakeward_source_fluss.wire.frames import FrameAssembler, ResponseFrame, ResponseKind, request_frame
from lakeward_source_fluss.wire.messages import ErrorResponse
from lakeward_source_fluss.wire.protobuf import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward_source_fluss.rpc.options import ConnectOptions, Endpoint

_IDS = 1 << 31
_MANY_ABANDONED = 10_000


class Channel(asyncio.Protocol):
    """Sends requests without waiting for earlier answers; fails all that is in flight when the stream breaks."""

    def __init__(self, endpoint: Endpoint, options: ConnectOptions, lost: Callable[[], None]) -> None:
        """Set up; the event loop connects it. `lost` is called once, when the connection is over."""
        self.server = ""
        """What is known of the server's release, in words; set once it is."""
        self._endpoint = endpoint
        self._silence_s = options.silence_s
        self._frames = FrameAssembler(options.limit_bytes)
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._next_id = 0
        self._waiting: dict[int, tuple[ApiKey, asyncio.Future[ResponseFrame]]] = {}
        # Ids whose callers have given up; their answers may still come.
        self._abandoned: set[int] = set()
        self._last_data_at = 0.0
        self._end: str | None = None
        self._closed = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        """Whether calls can be sent."""
        return self._end is None and self._transport is not None

    async def call(self, api: ApiKey, body: bytes, timeout_s: float) -> bytes:
        """Send an encoded request and wait `timeout_s` seconds for its encoded answer; the server must offer the API.

        Raises:
            FlussServerError: the server refused.
            ServerUnreachableError: the connection was over before anything was sent.
            UnansweredReadError: no answer, to a call that changes nothing.
            UnansweredChangeError: no answer, to a call that changes something.
        """
        if self._transport is None or self._end is not None:
            message = f"{api.name}: no connection to {self._endpoint}: {self._end}"
            raise ServerUnreachableError(message)
        if timeout_s <= 0:
            message = f"{api.name}: no time left to ask {self._endpoint}"
            raise ServerUnreachableError(message)
        loop = asyncio.get_running_loop()
        sent = loop.time()
        request_id = self._new_id()
        future: asyncio.Future[ResponseFrame] = loop.create_future()
        self._waiting[request_id] = (api, future)
        self._transport.write(request_frame(api, API_VERSION, request_id, body))
        try:
            async with asyncio.timeout(timeout_s):
                response = await future
        except TimeoutError as error:
            self._give_up_if_silent(sent)
            raise _unanswered(api, f"no answer from {self._endpoint} within {timeout_s:g} s") from error
        finally:
            if self._waiting.pop(request_id, None) is not None:
                self._abandon(request_id)
        return self._body(api, response)

    def end(self, why: str) -> None:
        """Close at once; whatever is in flight fails, with a few words why."""
        if self._end is None:
            self._end = why
        if self._transport is not None:
            self._transport.abort()

    async def ended(self) -> None:
        """Wait until the connection is really over."""
        if self._transport is not None:
            await asyncio.shield(self._closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # only ever used with streams
        self._transport = transport
        self._last_data_at = asyncio.get_running_loop().time()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._end is not None:
            return
        self._last_data_at = asyncio.get_running_loop().time()
        try:
            for response in self._frames.feed(data):
                self._deliver(response)
            if self._frames.fault is not None:
                raise self._frames.fault
        except ProtocolError as error:
            self.end(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._end is None:
            self._end = str(exc) if exc is not None else "the server closed the connection"
        for api, future in self._waiting.values():
            if not future.done():
                future.set_exception(_unanswered(api, f"the connection to {self._endpoint} broke: {self._end}"))
        self._waiting.clear()
        if not self._closed.done():
            self._closed.set_result(None)
        self._lost()

    def _new_id(self) -> int:
        request_id = self._next_id
        self._next_id = (request_id + 1) % _IDS
        return request_id

    def _abandon(self, request_id: int) -> None:
        self._abandoned.add(request_id)
        if len(self._abandoned) > _MANY_ABANDONED:
            self.end(f"{_MANY_ABANDONED} calls without an answer")

    def _give_up_if_silent(self, sent: float) -> None:
        silent_s = asyncio.get_running_loop().time() - max(sent, self._last_data_at)
        if silent_s >= self._silence_s:
            self.end(f"nothing came for {silent_s:.0f} s")

    def _deliver(self, response: ResponseFrame) -> None:
        if response.kind is ResponseKind.SERVER_FAILURE or response.request_id is None:
            failure = decode(ErrorResponse, response.body)
            message = f"the server gave the connection up: {failure.error_code} {failure.error_message or ''}"
            raise ProtocolError(message)
        waiting = self._waiting.pop(response.request_id, None)
        if waiting is None and response.request_id not in self._abandoned:
            message = f"expected the id of a request, found {response.request_id}"
            raise ProtocolError(message)
        self._abandoned.discard(response.request_id)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(response)

    def _body(self, api: ApiKey, response: ResponseFrame) -> bytes:
        if response.kind is ResponseKind.SUCCESS:
            return response.body
        error = decode(ErrorResponse, response.body)
        what = f"{api.name} at {self._endpoint}"
        raise server_error(what, error.error_code, error.error_message, self.server)


def _unanswered(api: ApiKey, why: str) -> UnansweredChangeError | UnansweredReadError:
    if api in CHANGES:
        message = f"{api.name}: {why}; it may have taken effect"
        return UnansweredChangeError(message)
    message = f"{api.name}: {why}"
    return UnansweredReadError(message)
