from __future__ import annotations

import socket
import socketserver
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from lakeward.spark.quiet import quiet_accumulators

if TYPE_CHECKING:
    from pyspark import SparkContext


def fails_with(error: Exception) -> str:
    """Serve one connection whose handler raises this."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            raise error

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        quiet_accumulators(cast("SparkContext", SimpleNamespace(_accumulatorServer=server)))
        with socket.create_connection(("127.0.0.1", int(server.server_address[1]))):
            server.handle_request()
    return type(error).__name__


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError()])
def test_a_java_that_dies_in_the_middle_of_a_connection_is_no_traceback(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_with(error)
    assert capsys.readouterr().err == ""


def test_any_other_error_of_the_accumulator_server_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    name = fails_with(ValueError("odd"))
    assert name in capsys.readouterr().err
