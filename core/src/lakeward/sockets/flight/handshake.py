"""Who opens a stream of a channel, and the proof that both ends know the secret. No IO.

The producer sends a `Hello` with the call's headers, and a keyed hash of it: a consumer refuses a wrong one before it
reads anything of the stream. The consumer's first message is its own keyed hash of the same hello. A hello that is
sent again by somebody else is of no use: each stream of a channel is opened once.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import TYPE_CHECKING, Literal

import msgspec

from lakeward.errors import ProtocolError
from lakeward.machines.transport.frames import NONCE, proof, proves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.ports import ExchangeKey

HELLO_HEADER = "lakeward-hello"
PROOF_HEADER = "lakeward-proof"
StreamKind = Literal["data", "marks"]
_PRODUCER = "exchange producer"
_CONSUMER = "exchange consumer"
_MOST = 4096
"""Characters of a hello that are looked at."""


class Hello(msgspec.Struct, frozen=True):
    """Which stream of which channel is opened."""

    round_name: str
    job_attempt: int
    producer: int
    consumer: int
    stream: StreamKind
    nonce: bytes

    @classmethod
    def of(cls, key: ExchangeKey, consumer: int, stream: StreamKind) -> Hello:
        """Return a fresh hello of a producer."""
        return cls(key.round_name, key.job_attempt, key.subtask, consumer, stream, secrets.token_bytes(NONCE))


_HELLOS = msgspec.msgpack.Decoder(Hello)
"""Made while this is imported: channels open side by side, and threads that learn a type at once crash the process."""


def headers_of(hello: Hello, secret: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers that open a stream."""
    data = msgspec.msgpack.encode(hello)
    given = proof(secret, _PRODUCER, data, b"")
    return [(HELLO_HEADER.encode(), base64.b64encode(data)), (PROOF_HEADER.encode(), base64.b64encode(given))]


def admit(headers: Mapping[str, Sequence[str | bytes]], key: ExchangeKey) -> Hello:
    """Read the headers of a stream to a consumer, `key`, and check them.

    Raises:
        ProtocolError: there is no hello, its proof is wrong, or it is of another round, launch or subtask.
    """
    data, given = _decoded(headers, HELLO_HEADER), _decoded(headers, PROOF_HEADER)
    if not proves(given, proof(key.secret, _PRODUCER, data, b"")):
        message = "the producer did not prove the secret of this service run"
        raise ProtocolError(message)
    try:
        hello = _HELLOS.decode(data)
    except msgspec.MsgspecError as error:
        message = f"exchange: expected a hello, found {len(data)} bytes that are none: {error}"
        raise ProtocolError(message) from error
    found = (hello.round_name, hello.job_attempt, hello.consumer)
    if found != (key.round_name, key.job_attempt, key.subtask):
        expected = f"round {key.round_name}, launch {key.job_attempt}, subtask {key.subtask}"
        shown = f"round {hello.round_name}, launch {hello.job_attempt}, subtask {hello.consumer}"
        message = f"exchange: expected a channel to {expected}, found one to {shown}"
        raise ProtocolError(message)
    return hello


def answer_to(hello: Hello, secret: bytes) -> bytes:
    """Return the consumer's proof, its first message on a stream."""
    return proof(secret, _CONSUMER, msgspec.msgpack.encode(hello), b"")


def check_answer(given: bytes, hello: Hello, secret: bytes) -> None:
    """Check a consumer's proof.

    Raises:
        ProtocolError: it is wrong.
    """
    if not proves(given, answer_to(hello, secret)):
        message = "the consumer did not prove the secret of this service run"
        raise ProtocolError(message)


def _decoded(headers: Mapping[str, Sequence[str | bytes]], name: str) -> bytes:
    found = headers.get(name, ())
    if len(found) != 1 or len(found[0]) > _MOST:
        message = f"exchange: expected one header {name}, found {len(found)}, or one that is too long"
        raise ProtocolError(message)
    try:
        return base64.b64decode(found[0], validate=True)
    except (binascii.Error, ValueError) as error:
        message = f"exchange: header {name} is not base64"
        raise ProtocolError(message) from error
