"""The small messages of a channel, in the metadata of its streams. No IO.

Down a data stream go batches, each with its sequence and the number of marks before it; up go credits. Down a marks
stream go marks. A ping goes wherever nothing else does, so that a stream without one is a peer that is gone.
"""

from __future__ import annotations

import struct

import msgspec

from lakeward.errors import ProtocolError
from lakeward.model.exchange import ChannelMark

PING = b"p"
GOODBYE = b"b"
"""Up a data stream: the consumer takes nothing more. Down: the producer has sent everything."""
_NUMBER = struct.Struct(">Q")
_PLACE = struct.Struct(">QQ")
_MARKS = msgspec.msgpack.Decoder(ChannelMark)


def encode_number(number: int) -> bytes:
    """Encode a credit."""
    return _NUMBER.pack(number)


def decode_number(data: bytes) -> int:
    """Decode what `encode_number` gave.

    Raises:
        ProtocolError: it is none.
    """
    if len(data) != _NUMBER.size:
        message = f"exchange: expected a number of {_NUMBER.size} bytes, found {len(data)} bytes"
        raise ProtocolError(message)
    return int(_NUMBER.unpack(data)[0])


def encode_place(sequence: int, marks: int) -> bytes:
    """Encode where a batch stands in its channel: its sequence, and how many marks were sent before it."""
    return _PLACE.pack(sequence, marks)


def decode_place(data: bytes) -> tuple[int, int]:
    """Decode what `encode_place` gave.

    Raises:
        ProtocolError: it is none.
    """
    if len(data) != _PLACE.size:
        message = f"exchange: expected a batch's place of {_PLACE.size} bytes, found {len(data)} bytes"
        raise ProtocolError(message)
    sequence, marks = _PLACE.unpack(data)
    return int(sequence), int(marks)


def encode_mark(mark: ChannelMark) -> bytes:
    """Encode a mark."""
    return msgspec.msgpack.encode(mark)


def decode_mark(data: bytes) -> ChannelMark:
    """Decode a mark.

    Raises:
        ProtocolError: it is none.
    """
    try:
        mark: ChannelMark = _MARKS.decode(data)
    except msgspec.MsgspecError as error:
        message = f"exchange: expected a mark, found {len(data)} bytes that are none: {error}"
        raise ProtocolError(message) from error
    return mark
