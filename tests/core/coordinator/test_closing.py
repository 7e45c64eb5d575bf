"""Each resource closes on its own, in bounded time."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from lakeward.coordinator.service.closing import CLOSE_S, OpenResources
from lakeward.errors import SourceError
from lakeward_service_kit.later_loop import LaterLoop
from lakeward_testing.waiting import LIMIT_S


class Closed:
    """Remembers what was closed, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def well(self, name: str) -> None:
        self.names.append(name)


def test_the_newest_is_closed_first_and_each_once() -> None:
    closed, resources = Closed(), OpenResources()
    resources.add("source", lambda: closed.well("source"))
    resources.add("spark", lambda: closed.well("spark"))
    assert asyncio.run(resources.close_all()) == ()
    assert asyncio.run(resources.close_all()) == ()
    assert closed.names == ["spark", "source"]


@pytest.mark.parametrize("error", [SourceError("gone"), ConnectionRefusedError(111, "refused"), AssertionError()])
def test_one_that_fails_keeps_none_of_the_others_open(error: Exception) -> None:
    def fail() -> None:
        raise error

    closed, resources = Closed(), OpenResources()
    resources.add("source", lambda: closed.well("source"))
    resources.add("spark", fail)
    resources.add("lake", lambda: closed.well("lake"))
    assert asyncio.run(resources.close_all()) == ("spark",)
    assert closed.names == ["lake", "source"]


def test_one_that_hangs_is_left_behind() -> None:
    for_ever = threading.Event()

    def hang() -> None:
        loop.call_soon_threadsafe(loop.advance, CLOSE_S)
        for_ever.wait(LIMIT_S)

    closed, resources = Closed(), OpenResources()
    resources.add("source", lambda: closed.well("source"))
    resources.add("lake", hang)
    with asyncio.Runner(loop_factory=LaterLoop) as runner:
        loop = cast("LaterLoop", runner.get_loop())
        assert runner.run(resources.close_all()) == ("lake",)
    assert closed.names == ["source"]
    for_ever.set()


def test_what_is_opened_after_the_end_is_closed_at_once() -> None:
    """A start that a signal ended goes on, on its thread, until its Spark is there."""
    closed, resources = Closed(), OpenResources()
    asyncio.run(resources.close_all())
    resources.add("spark", lambda: closed.well("spark"))
    assert closed.names == ["spark"]
