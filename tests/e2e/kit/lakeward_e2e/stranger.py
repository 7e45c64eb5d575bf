"""What another user of the machine tries at the ports of a service: a program of its own, `stranger.py PORT...`.

It imports nothing of the project, becomes the user `nobody` where it was started by root, asks each port and prints one
JSON document: by port the names of the broadcasts that it was given.
"""

from __future__ import annotations

import codecs
import json
import os
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

NOBODY = 65534
_SILENT_S = 5.0
"""A port that has said nothing for so long is not asked again."""
_BROADCASTS = 40
_OPEN_BLOCKS, _FETCH, _FETCHED, _ASK, _ANSWERED, _REFUSED = 0, 0, 1, 3, 4, 5
_STREAM_HANDLE, _STREAM = 3, 21


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


class _Spark:
    """A connection that speaks the protocol of Spark's block manager, and proves nothing."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SILENT_S)

    def block(self, name: str) -> bytes:
        """Return a block, empty if there is none; raises OSError or ValueError where another protocol is spoken."""
        body = bytes([_OPEN_BLOCKS]) + _text("local-1") + _text("driver") + struct.pack(">i", 1) + _text(name)
        self._send(_ASK, struct.pack(">qi", 1, len(body)), body)
        kind, answer = self._receive()
        if kind == _REFUSED:
            return b""
        if kind != _ANSWERED or len(answer) < _STREAM or answer[12] != _STREAM_HANDLE:
            raise ValueError(kind)
        self._send(_FETCH, answer[13:_STREAM] + struct.pack(">i", 0), b"")
        kind, answer = self._receive()
        return answer[12:] if kind == _FETCHED else b""

    def close(self) -> None:
        self._socket.close()

    def _send(self, kind: int, head: bytes, body: bytes) -> None:
        length = 9 + len(head) + len(body)
        self._socket.sendall(struct.pack(">qb", length, kind) + head + body)

    def _receive(self) -> tuple[int, bytes]:
        length, kind = struct.unpack(">qb", self._read(9))
        if not 9 <= length < 1 << 26:
            raise ValueError(length)
        return kind, self._read(length - 9)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        return data


def blocks_of(port: int) -> list[str]:
    """Return the names of the broadcasts that a port gives away."""
    found = []
    try:
        spark = _Spark(port)
        for number in range(_BROADCASTS):
            name = f"broadcast_{number}_piece0"
            if spark.block(name):
                found.append(name)
        spark.close()
    except (OSError, ValueError):
        return found
    return found


def main(ports: list[int]) -> None:
    """Ask all ports at the same time; print what came of it."""
    codecs.lookup("idna")  # of each address; the other user may be unable to read Python's own files
    with ThreadPoolExecutor(len(ports)) as asking:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        found = dict(zip(ports, asking.map(blocks_of, ports), strict=True))
    sys.stdout.write(json.dumps({"uid": os.geteuid(), "ports": found}))


if __name__ == "__main__":
    main([int(port) for port in sys.argv[1:]])
