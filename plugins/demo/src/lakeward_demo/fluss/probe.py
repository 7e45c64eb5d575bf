"""Asks a coordinator whether it knows a tablet server yet: an open port is not enough (fluss.md, "The protocol")."""

from __future__ import annotations

import socket
import struct

from lakeward.errors import ProtocolError
from lakeward_source_fluss.wire.messages import MetadataResponse
from lakeward_source_fluss.wire.protobuf import decode

_GET_METADATA = struct.pack(">ihhi", 8, 1012, 0, 0)
_HEAD = struct.Struct(">ibi")


def knows_tablet_server(port: int, timeout_s: float = 2.0) -> bool:
    """Return whether the coordinator on a port of this machine lists a tablet server, within `timeout_s` seconds."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(_GET_METADATA)
            stream = connection.makefile("rb")
            length, kind, _ = _HEAD.unpack(stream.read(_HEAD.size))
            body = stream.read(length - _HEAD.size + 4)
        return kind == 0 and bool(decode(MetadataResponse, body).tablet_servers)
    except (OSError, struct.error, ProtocolError):
        return False
