"""Frames: an envelope as length-prefixed msgpack, and the proof of the shared secret. No IO.

A frame is a 4-byte big-endian length and that many bytes. A connection starts with a challenge: the server sends
`NONCE` random bytes, the client answers with a nonce of its own and a keyed hash over both, the server with its own
keyed hash; only then do envelopes flow. The frames before that have one fixed size each, and no other is accepted: a
peer that has not proved the secret cannot make the other end keep anything. Nothing from the network is unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

import msgspec

from lakeward.errors import ProtocolError
from lakeward.model.events import Envelope

NONCE = 32
"""Bytes of a nonce."""
PROOF = hashlib.sha256().digest_size
"""Bytes of a proof."""
LIMIT = 64 * 1024 * 1024
"""Largest frame, in bytes: a write result of a split with very many files stays far below."""
_LENGTH = struct.Struct(">I")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Envelope)


def frame(payload: bytes) -> bytes:
    """Prefix a payload with its length.

    Raises:
        ProtocolError: larger than `LIMIT`.
    """
    if len(payload) > LIMIT:
        message = f"frame: expected at most {LIMIT} bytes, found {len(payload)}"
        raise ProtocolError(message)
    return _LENGTH.pack(len(payload)) + payload


def length_of(header: bytes, exactly: int | None = None) -> int:
    """Return how many bytes follow a header of 4 bytes; `exactly`: the only right number, None: any up to `LIMIT`.

    Raises:
        ProtocolError: another length than `exactly`, or more than `LIMIT`.
    """
    (length,) = _LENGTH.unpack(header)
    if exactly is not None and length != exactly:
        message = f"frame: expected {exactly} bytes before the secret is proved, found {length}"
        raise ProtocolError(message)
    if length > LIMIT:
        message = f"frame: expected at most {LIMIT} bytes, found {length}"
        raise ProtocolError(message)
    return int(length)


def encode(envelope: Envelope) -> bytes:
    """Encode an envelope as a frame, header included."""
    return frame(_ENCODER.encode(envelope))


def decode(payload: bytes) -> Envelope:
    """Decode the payload of a frame.

    Raises:
        ProtocolError: not an envelope.
    """
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        message = f"frame: expected an envelope, found {len(payload)} bytes that are none: {error}"
        raise ProtocolError(message) from error


def proof(secret: bytes, role: str, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return the keyed hash that proves the secret; `role` (`client`, `server`) forbids replaying the other's."""
    return hmac.new(secret, role.encode() + server_nonce + client_nonce, hashlib.sha256).digest()


def proves(given: bytes, expected: bytes) -> bool:
    """Compare two proofs in constant time."""
    return hmac.compare_digest(given, expected)
