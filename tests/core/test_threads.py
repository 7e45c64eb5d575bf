"""Blocking work on threads: in order, waited for, and left behind where it hangs."""

from __future__ import annotations

import threading

from lakeward.threads import ThreadExecutor
from lakeward_testing.waiting import LIMIT_S


def test_a_worker_does_its_work_in_order_on_one_thread() -> None:
    done: list[tuple[int, str]] = []
    over = threading.Event()
    worker = ThreadExecutor().worker(name="worker")
    for number in range(3):
        worker.submit(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc] # its default
    worker.submit(over.set)
    assert over.wait(LIMIT_S)
    assert worker.stop(LIMIT_S)
    assert done == [(number, "worker") for number in range(3)]


def test_a_worker_that_is_stopped_drops_what_is_queued_and_takes_nothing_more() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[int]()
    worker = ThreadExecutor().worker(name="worker")

    def hang() -> None:
        begun.set()
        go_on.wait(LIMIT_S)

    worker.submit(hang)
    assert begun.wait(LIMIT_S)
    worker.submit(lambda: done.append(1))
    assert not worker.stop(0)
    worker.submit(lambda: done.append(2))
    go_on.set()
    assert worker.stop(LIMIT_S)
    assert done == []


def test_a_worker_without_work_has_no_thread_to_wait_for() -> None:
    assert ThreadExecutor().worker(name="worker").stop(0.0)


def test_work_that_was_started_is_waited_for_only_so_long() -> None:
    go_on = threading.Event()

    def hang() -> None:
        go_on.wait(LIMIT_S)

    running = ThreadExecutor().start(hang, name="work")
    assert not running.join(0)
    go_on.set()
    assert running.join(LIMIT_S)
