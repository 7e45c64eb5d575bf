"""The client's thread ends in bounded time, whatever it is at."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from lakeward.errors import SourceError
from lakeward_source_fluss.rpc import loop
from lakeward_source_fluss.rpc.loop import LoopThread
from lakeward_source_fluss.wire.errors import ClientClosedError
from lakeward_testing.waiting import LIMIT_S

FORGOTTEN = """
from lakeward_source_fluss.rpc import loop

loop.CLOSE_S = 0.2

async def nothing():
    return

def holding(thread):
    try:
        yield
    finally:
        thread.close_after(nothing())

held = holding(loop.LoopThread("client"))
next(held)
"""


async def nothing() -> None:
    return


def test_what_never_ends_is_left_behind_when_the_thread_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CLOSE_S", 0.1)
    thread = LoopThread("client")

    async def for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SourceError, match="thread 'client': expected to end within 0 s"):
        thread.close_after(for_ever())
    thread._thread.join(LIMIT_S)
    assert not thread._thread.is_alive()
    thread.close_after(nothing())


def test_a_name_that_nobody_resolves_does_not_keep_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver without network can take minutes, and cannot be interrupted."""
    asked, go_on, answered = threading.Event(), threading.Event(), threading.Event()

    def hang(*_: Any, **__: Any) -> list[Any]:  # noqa: ANN401 - as socket's own
        asked.set()
        go_on.wait(LIMIT_S)
        answered.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    thread = LoopThread("client")
    errors: list[BaseException] = []

    async def dial() -> None:
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, "no-such-host.invalid", 1)

    def call() -> None:
        try:
            thread.run(dial())
        except ClientClosedError as error:
            errors.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    assert asked.wait(LIMIT_S)
    thread.close_after(nothing())
    calling.join(LIMIT_S)
    assert not thread._thread.is_alive()
    assert len(errors) == 1
    assert not answered.is_set()
    go_on.set()


def test_a_client_that_nobody_closed_does_not_keep_the_process_alive() -> None:
    """At the end of the interpreter the client's thread stands still: who waits for it waits for ever."""
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], timeout=LIMIT_S, capture_output=True, check=False)
    assert done.returncode == 0
