from __future__ import annotations

import io
import socket
import struct
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.accumulators import _start_update_server

from lakeward.spark.quiet import quiet_accumulators
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from pyspark import SparkContext

SHARED = "0123456789abcdef"
SENT = {
    "nothing": b"",
    "half of the secret": SHARED[:5].encode(),
    "the secret": SHARED.encode(),
    "half of a number": SHARED.encode() + b"\0\0",
    "an update too few": SHARED.encode() + struct.pack("!i", 1),
}
"""What Spark's Java had sent when it ended; an interrupt closes its channel right after it is connected."""


def printed(sent: bytes, monkeypatch: pytest.MonkeyPatch, *, reset: bool = False, closes: bool = True) -> str:
    """Send this to pyspark's own server, end as Java does, and return what the server prints once it is through."""
    served = threading.Event()
    server = _start_update_server(SHARED, is_unix_domain_sock=False)
    quiet_accumulators(cast("SparkContext", SimpleNamespace(_accumulatorServer=server)))
    shut = server.shutdown_request

    def shutdown_request(request: socket.socket) -> None:
        shut(request)
        served.set()

    monkeypatch.setattr(server, "shutdown_request", shutdown_request)
    monkeypatch.setattr(sys, "stderr", words := io.StringIO())
    try:
        with socket.create_connection(cast("tuple[str, int]", server.server_address)) as java:
            if reset:
                java.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            java.sendall(sent)
            if closes:
                java.close()
            assert served.wait(LIMIT_S)
    finally:
        server.shutdown()
    return words.getvalue()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_a_java_that_ends_at_any_point_of_a_connection_is_no_traceback(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, *, reset: bool
) -> None:
    assert printed(sent, monkeypatch, reset=reset) == ""


def test_a_wrong_secret_of_somebody_who_is_still_there_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ValueError" in printed(b"x" * len(SHARED), monkeypatch, closes=False)


def test_an_update_that_is_no_pickle_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    update = struct.pack("!ii", 1, 3) + b"odd"
    assert "UnpicklingError" in printed(SHARED.encode() + update, monkeypatch, closes=False)
