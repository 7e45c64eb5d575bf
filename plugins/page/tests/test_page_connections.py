"""Clients that ask nothing, ask slowly or take no answer: they are ended, and keep nobody out."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.request
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lakeward_page.app import PageApp, PageContent
from lakeward_page.connections import CONNECTIONS, PageConnection
from lakeward_page.server import PageServer
from lakeward_page_kit.page import Page
from lakeward_service_kit.example_reports import REPORT
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric
    from starlette.requests import Request


@contextmanager
def serving(app: Starlette) -> Iterator[PageServer]:
    server = PageServer(app, "127.0.0.1", 0)
    try:
        yield server
    finally:
        server.close()


def connected(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rstrip("/").rpartition(":")[2])), timeout=LIMIT_S)


def asked(server: PageServer, path: str) -> int:
    with urllib.request.urlopen(f"{server.url}{path}", timeout=LIMIT_S) as answer:  # noqa: S310 - our own address
        return int(answer.status)


async def never(_request: Request) -> Response:
    await asyncio.Event().wait()
    return PlainTextResponse("")


def small() -> Starlette:
    return Starlette(routes=[Route("/", lambda _request: PlainTextResponse("here")), Route("/never", never)])


def test_idle_connections_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest makes room for the next, long before its time is over."""
    monkeypatch.setattr(PageConnection, "request_s", LIMIT_S)
    with serving(small()) as server, ExitStack() as idle:
        connections = [idle.enter_context(connected(server)) for _ in range(2 * CONNECTIONS)]
        assert asked(server, "") == 200
        assert connections[0].recv(1) == b""


def test_a_connection_that_is_being_answered_outlives_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageConnection, "request_s", LIMIT_S)
    with serving(small()) as server, ExitStack() as idle:
        first = idle.enter_context(connected(server))
        first.sendall(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asked(server, "") == 200
        connections = [idle.enter_context(connected(server)) for _ in range(CONNECTIONS + 5)]
        assert connections[0].recv(1) == b""
        first.setblocking(False)
        with pytest.raises(BlockingIOError):
            first.recv(1)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: local"], ids=["nothing", "a part of a request"])
def test_a_client_that_does_not_ask_is_ended(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageConnection, "request_s", 0.05)
    with serving(small()) as server, connected(server) as client:
        client.sendall(said)
        assert client.recv(1) == b""


def test_a_client_that_asks_no_more_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageConnection, "request_s", LIMIT_S)
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(small()) as server, connected(server) as client:
        client.sendall(request)
        while not client.recv(4096).endswith(b"here"):
            pass
        monkeypatch.setattr(PageConnection, "request_s", 0.05)
        client.sendall(request)
        said = b""
        while piece := client.recv(4096):
            said += piece
        assert said.endswith(b"here")


def test_an_answer_that_does_not_go_out_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageConnection, "request_s", 0.05)
    monkeypatch.setattr(PageConnection, "answer_s", 0.05)
    with serving(small()) as server, connected(server) as client:
        client.sendall(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1) == b""


class SlowCollector:
    """Metrics that nobody gets before the test lets them go."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Semaphore(0), threading.Event()

    def collect(self) -> Iterator[Metric]:
        self.asked.release()
        self.go.wait(LIMIT_S)
        yield from ()


def test_the_service_says_that_it_lives_while_every_thread_of_the_page_is_busy(page: Page) -> None:
    page.show(REPORT)
    slow = SlowCollector()
    page.metrics.registry._collector_to_names[slow] = []
    app = PageApp(PageContent("tier", page.live, page.metrics.registry, page.problems)).asgi()
    with serving(app) as server, ExitStack() as clients:
        busy = [clients.enter_context(connected(server)) for _ in range(CONNECTIONS // 2)]
        for client in busy:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.asked.acquire(timeout=LIMIT_S)
        assert [asked(server, path) for path in ("healthz", "readyz")] == [200, 200]
        slow.go.set()
