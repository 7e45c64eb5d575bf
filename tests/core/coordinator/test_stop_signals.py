"""SIGINT and SIGTERM as a service hears them, and what happens meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lakeward.coordinator.service import stop_signals
from lakeward.coordinator.service.stop_signals import StopSignals, unless_stopped
from lakeward.errors import SparkError
from lakeward_testing.waiting import LIMIT_S

AT_ONCE = "os._exit was called"
LAST = signal.SIGURG
"""A signal that is not listened to otherwise: once it is heard, nothing sent before it is still to come."""


@contextmanager
def handlers_given_back() -> Iterator[None]:
    """Leave the handlers of the process as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def heard(
    send: Callable[[], object], most: int, monkeypatch: pytest.MonkeyPatch, first: threading.Event | None = None
) -> list[str]:
    """Return what a process hears that is sent signals; "no more" says that it was less than it might have been.

    Args:
        send: sends them, on a thread.
        most: words that are expected at the most.
        monkeypatch: keeps the process from ending.
        first: set once one was heard.
    """
    words: list[str] = []
    last = asyncio.Event()

    def hear(word: str) -> None:
        words.append(word)
        if first is not None:
            first.set()

    async def listen() -> None:
        monkeypatch.setattr(os, "_exit", lambda code: hear(f"{AT_ONCE}: {code}"))
        StopSignals(asyncio.get_running_loop(), hear)
        asyncio.get_running_loop().add_signal_handler(LAST, last.set)
        await asyncio.to_thread(send)
        await asyncio.to_thread(kill, LAST)
        await last.wait()
        if len(words) < most:
            words.append("no more")

    with handlers_given_back():
        asyncio.run(listen())
    return words


def kill(number: signal.Signals) -> None:
    """Send this process a signal, which it has received when this returns: in the order in which they are sent."""
    signal.raise_signal(number)


def test_the_first_signal_asks_for_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert heard(lambda: kill(signal.SIGTERM), 1, monkeypatch) == ["SIGTERM"]


def test_a_second_signal_of_another_kind_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def send() -> None:
        kill(signal.SIGTERM)
        kill(signal.SIGINT)

    words = heard(send, 2, monkeypatch)
    assert words in (["SIGTERM", f"{AT_ONCE}: 130"], ["SIGINT", f"{AT_ONCE}: 143"])


def test_the_same_signal_later_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_signals, "SAME_S", 0.0)
    first = threading.Event()

    def send() -> None:
        kill(signal.SIGTERM)
        assert first.wait(LIMIT_S)
        kill(signal.SIGTERM)

    assert heard(send, 2, monkeypatch, first) == ["SIGTERM", f"{AT_ONCE}: 143"]


def test_one_signal_that_is_sent_to_the_process_and_to_its_group_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `timeout` sends it."""
    monkeypatch.setattr(stop_signals, "SAME_S", 60.0)  # a busy machine may need more than the few milliseconds
    first = threading.Event()

    def send() -> None:
        kill(signal.SIGTERM)
        assert first.wait(LIMIT_S)
        kill(signal.SIGTERM)

    assert heard(send, 2, monkeypatch, first) == ["SIGTERM", "no more"]


def test_a_signal_that_a_forked_child_gets_before_it_is_another_program_is_not_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark forks Spark's launcher with a `preexec_fn`: that child still has its parent's handlers and pipe."""

    def send() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a process that has threads
            subprocess.run(["true"], preexec_fn=lambda: kill(signal.SIGTERM), check=True)

    assert heard(send, 1, monkeypatch) == ["no more"]


def made(make: Callable[[], str]) -> str | None:
    """Make something while signals are listened to."""

    async def listen() -> str | None:
        signals = StopSignals(asyncio.get_running_loop(), lambda _: None)
        return await unless_stopped(make, signals, what="make it")

    with handlers_given_back():
        return asyncio.run(listen())


def test_a_failure_right_before_the_signal_that_caused_it_counts_as_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the group kills the Java that is being started, too; its death may be heard first."""
    monkeypatch.setattr(stop_signals, "DEATH_AHEAD_S", 20.0)  # a busy machine may be late with the timer

    def make() -> str:
        threading.Timer(0.05, kill, [signal.SIGTERM]).start()
        message = "spark.master: expected a Spark that starts, found none"
        raise SparkError(message)

    assert made(make) is None


def test_a_signal_in_the_moment_in_which_a_service_is_made_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was heard before anybody had said what it is to stop; the next one would end the process."""
    wait = asyncio.wait

    async def listen() -> str | None:
        signals = StopSignals(asyncio.get_running_loop(), lambda _: None)

        async def heard_right_after(*what: Any, **more: Any) -> Any:  # noqa: ANN401 - as asyncio's
            result = await wait(*what, **more)
            signals._on_signal(signal.SIGTERM)
            return result

        monkeypatch.setattr(asyncio, "wait", heard_right_after)
        return await unless_stopped(lambda: "a service", signals, what="make it")

    with handlers_given_back():
        assert asyncio.run(listen()) is None


def test_a_failure_without_a_signal_is_raised() -> None:
    def make() -> str:
        message = "spark.master: expected a Spark that starts, found none"
        raise SparkError(message)

    with pytest.raises(SparkError):
        made(make)
