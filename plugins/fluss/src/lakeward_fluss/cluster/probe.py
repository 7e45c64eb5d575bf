"""Asks a coordinator whether it knows a tablet server yet: an open port is not enough (facts: Fluss live 1).

A frame by hand, so that a cluster can be started without the client that is tested on it.
"""

from __future__ import annotations

import socket
import struct

_GET_METADATA = struct.pack(">ihhi", 8, 1012, 0, 0)
_HEAD = struct.Struct(">ibi")
_TABLET_SERVERS = 2
_LENGTH_DELIMITED = 2


def knows_tablet_server(port: int, timeout_s: float = 2.0) -> bool:
    """Say whether the server on a port of this machine lists a tablet server.

    Args:
        port: the coordinator's.
        timeout_s: seconds to wait for the answer.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(_GET_METADATA)
            stream = connection.makefile("rb")
            length, kind, _ = _HEAD.unpack(stream.read(_HEAD.size))
            body = stream.read(length - _HEAD.size + 4)
    except (OSError, struct.error):
        return False
    return kind == 0 and _TABLET_SERVERS in _fields(body)


def _fields(body: bytes) -> set[int]:
    """Return the numbers of a message's fields, all of which are length-delimited."""
    found, place = set(), 0
    while place < len(body):
        tag, place = _varint(body, place)
        if tag & 7 != _LENGTH_DELIMITED:
            break
        length, place = _varint(body, place)
        place += length
        found.add(tag >> 3)
    return found


def _varint(body: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(body):
        byte = body[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that more bytes follow
            break
        shift += 7
    return value, place
