"""Request and response frames: length, header, body. Pure; a connection feeds it bytes.

All numbers are big-endian. A frame of type SERVER_FAILURE has no request id: it concerns the whole connection, which
the server closes after it. Source: fluss.md, "The protocol".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lakeward.errors import ProtocolError

if TYPE_CHECKING:
    from lakeward_source_fluss.wire.apis import ApiKey

DEFAULT_LIMIT_BYTES: Final = 256 << 20
"""Longest response accepted; a server sends 16 MB at most for a fetch of ours, unless one batch alone is longer."""

_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">ihhi")
_ID: Final = struct.Struct(">i")
_SHORTEST: Final = 1


class ResponseKind(IntEnum):
    """The type byte of a response."""

    SUCCESS = 0
    ERROR = 1
    SERVER_FAILURE = 2


@dataclass(frozen=True, slots=True)
class ResponseFrame:
    """One response.

    Attributes:
        kind: what the body is: the API's response, or an `ErrorResponse`.
        request_id: the request it answers; None for SERVER_FAILURE.
        body: a message.
    """

    kind: ResponseKind
    request_id: int | None
    body: bytes


def request_frame(api: ApiKey, version: int, request_id: int, body: bytes) -> bytes:
    """Return the frame of a whole request, with its length in front.

    We choose the request's id, 0 to 2**31 - 1; `body` is an encoded message.
    """
    return _REQUEST.pack(_REQUEST.size - _LENGTH.size + len(body), api, version, request_id) + body


class FrameAssembler:
    """Cuts a stream of bytes into responses. After an error it stays unusable: the stream has lost its rhythm."""

    __slots__ = ("_buffer", "_fault", "_limit_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """Set the limit of the longest frame accepted; memory grows with what arrives, never with what is announced."""
        self._buffer = bytearray()
        self._limit_bytes = limit_bytes
        self._fault: ProtocolError | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> list[ResponseFrame]:
        """Take the next bytes of the stream; return the responses that are complete now, in order.

        Raises:
            ProtocolError: this is no stream of responses.
        """
        if self._fault is not None:
            raise self._fault
        self._buffer += data
        frames = []
        try:
            while (length := self._complete()) is not None:
                frames.append(self._take(length))
        except ProtocolError as fault:
            self._fault = fault
            self._buffer.clear()
            if not frames:
                raise
        return frames

    @property
    def pending_bytes(self) -> int:
        """Bytes of a response that is not complete yet."""
        return len(self._buffer)

    @property
    def fault(self) -> ProtocolError | None:
        """What was wrong with the stream; responses before it were still given out."""
        return self._fault

    def _complete(self) -> int | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        length: int = _LENGTH.unpack_from(self._buffer)[0]
        if not _SHORTEST <= length <= self._limit_bytes:
            message = f"response frame: expected a length of 1 to {self._limit_bytes} bytes, found {length}"
            raise ProtocolError(message)
        return length if len(self._buffer) >= _LENGTH.size + length else None

    def _take(self, length: int) -> ResponseFrame:
        end = _LENGTH.size + length
        with memoryview(self._buffer) as view, view[_LENGTH.size : end] as content:
            frame = _response(content)
        del self._buffer[:end]
        return frame


def _response(content: memoryview) -> ResponseFrame:
    try:
        kind = ResponseKind(content[0])
    except ValueError as error:
        message = f"response frame: expected type 0, 1 or 2, found {content[0]}"
        raise ProtocolError(message) from error
    if kind is ResponseKind.SERVER_FAILURE:
        return ResponseFrame(kind, None, bytes(content[1:]))
    if len(content) < 1 + _ID.size:
        message = f"response frame: expected a request id, found {len(content)} bytes in all"
        raise ProtocolError(message)
    return ResponseFrame(kind, _ID.unpack_from(content, 1)[0], bytes(content[1 + _ID.size :]))
