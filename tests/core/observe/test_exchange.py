from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from lakeward.errors import StorageError
from lakeward.model.status import ServiceReport
from lakeward.observe.control import Control
from lakeward.observe.exchange import BackgroundExchange
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

REPORT = ServiceReport("nyc", "nyc-1-0123456789abcdef", 1, "serving", 5000, None, (), None, 0, 0)
NEVER_S = 3600.0


class Store:
    """Takes reports; a report can be waited for."""

    def __init__(self) -> None:
        self.reports: list[ServiceReport] = []
        self.came = threading.Semaphore(0)
        self.looked = threading.Semaphore(0)
        self.failing = ""
        self.requests = Control()

    def write(self, report: ServiceReport) -> None:
        self.reports.append(report)
        failing = self.failing  # the test goes on, and sets another one, as soon as the report came
        self.came.release()
        if failing:
            raise StorageError(failing)

    def read(self) -> Control:
        self.looked.release()
        return self.requests


@pytest.fixture
def store() -> Store:
    return Store()


def test_requests_are_known_before_the_first_look(store: Store) -> None:
    store.requests = Control(frozenset({"nyc.flights"}))
    exchange = BackgroundExchange(store.write, store.read, NEVER_S)
    assert exchange.control() == store.requests
    exchange.close()


def test_a_new_state_is_written_at_once_and_the_newest_report_at_the_end(store: Store) -> None:
    exchange = BackgroundExchange(store.write, store.read, NEVER_S)
    exchange.publish(REPORT)
    assert store.came.acquire(timeout=LIMIT_S)
    for written_ms in (6000, 7000):
        exchange.publish(replace(REPORT, written_ms=written_ms))
    exchange.close()
    assert [report.written_ms for report in store.reports] == [5000, 7000]


def test_what_is_written_is_not_written_again(store: Store) -> None:
    exchange = BackgroundExchange(store.write, store.read, 0.001)
    exchange.publish(REPORT)
    for _ in range(5):
        assert store.looked.acquire(timeout=LIMIT_S)
    exchange.close()
    assert store.reports == [REPORT]


def test_a_store_that_hangs_keeps_nobody_who_publishes(store: Store) -> None:
    go_on = threading.Event()

    def hang(_report: ServiceReport) -> None:
        store.came.release()
        go_on.wait(LIMIT_S)

    exchange = BackgroundExchange(hang, store.read, NEVER_S)
    exchange.publish(REPORT)
    assert store.came.acquire(timeout=LIMIT_S)
    exchange.publish(replace(REPORT, state="stopping"))
    assert exchange.control() == Control()
    assert not go_on.is_set()
    go_on.set()
    exchange.close()


def test_each_trouble_is_warned_of_once(store: Store) -> None:
    def publish(state: str) -> None:
        exchange.publish(replace(REPORT, state=state))
        assert store.came.acquire(timeout=LIMIT_S)

    with capture_logs() as said:
        exchange = BackgroundExchange(store.write, store.read, NEVER_S)
        for number, trouble in enumerate(("away", "away", "", "away")):
            store.failing = trouble
            publish(str(number))
        exchange.close()
    assert [one.get("reason") or one["failures"] for one in said] == ["away", 2, "away"]


def test_requests_are_read_again(store: Store) -> None:
    exchange = BackgroundExchange(store.write, store.read, 0.001)
    store.requests = Control(frozenset({"nyc.flights"}))
    _until(lambda: exchange.control() == store.requests, store)
    exchange.close()


def _until(true: Callable[[], bool], store: Store) -> None:
    for _ in range(1000):
        if true():
            return
        assert store.looked.acquire(timeout=LIMIT_S)
    assert true()
