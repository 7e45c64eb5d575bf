from __future__ import annotations

import threading
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from py4j.clientserver import ClientServer
from pyspark import SparkContext

from lakeward.model.jobs import JobSpec
from lakeward.spark.jobs import SparkJobs
from lakeward.spark.session import SparkHandle
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeward.owned_folder import OwnedFolder
    from lakeward.spark.java import JavaHome

SPEC = JobSpec("svc/1-1", 1, 2, "title", "tag", "pool", "127.0.0.1", 1, b"secret", 5.0)


class JavaError(Exception):
    """As py4j's error of a Java call: its text is asked of the Java process, which may be dying."""

    def __str__(self) -> str:
        message = "Error while sending or receiving"
        raise ConnectionError(message)


class DyingSession:
    """Each use raises the error of a Java process that dies meanwhile."""

    @property
    def sparkContext(self) -> object:  # noqa: N802 - Spark's own name
        raise JavaError


def test_a_job_whose_java_process_dies_while_its_error_is_read_is_over_all_the_same() -> None:
    handle = SimpleNamespace(session=DyingSession(), slots=2, gone=lambda: None)
    ends: SimpleQueue[str | None] = SimpleQueue()
    SparkJobs(cast("SparkHandle", handle), lambda _place: "done").launch(SPEC, ends.put)
    assert ends.get(timeout=LIMIT_S) == "JavaError, whose text the Java process could not give any more"


class LastAnswer:
    """A context, as pyspark keeps it, whose Java process answers the thread that launches a job, and dies then."""

    @property
    def _jsc(self) -> object:
        if threading.current_thread() is not threading.main_thread():
            raise JavaError
        properties = SimpleNamespace(clone=dict)
        return SimpleNamespace(sc=lambda: SimpleNamespace(getLocalProperties=lambda: properties))


def test_a_job_whose_java_process_dies_while_its_thread_starts_is_over_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object.__new__(ClientServer))
    monkeypatch.setattr(SparkContext, "_active_spark_context", LastAnswer())
    handle = SimpleNamespace(session=DyingSession(), slots=2, gone=lambda: None)
    ends: SimpleQueue[str | None] = SimpleQueue()
    SparkJobs(cast("SparkHandle", handle), lambda _place: "done").launch(SPEC, ends.put)
    assert ends.get(timeout=LIMIT_S) == "JavaError, whose text the Java process could not give any more"


def test_a_job_that_gets_no_thread_is_over_and_fails_its_round_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr(threading.Thread, "start", start)
    handle = SimpleNamespace(session=DyingSession(), slots=2, gone=lambda: None)
    ends: list[str | None] = []
    SparkJobs(cast("SparkHandle", handle), lambda _place: "done").launch(SPEC, ends.append)
    assert ends == ["can't start new thread"]


def test_a_round_is_planned_with_the_slots_that_there_are_then() -> None:
    offered = iter((2, 6))
    handle = SimpleNamespace(slots=1, gone=lambda: None, count_slots=lambda: next(offered))
    jobs = SparkJobs(cast("SparkHandle", handle), lambda _place: "done")
    assert (jobs.slots, jobs.slots) == (2, 6)


@pytest.mark.parametrize(("configured", "offered", "there"), [(8, 4, 4), (2, 4, 2), (0, 4, 4)])
def test_tasks_that_start_all_at_once_fit_the_executors_that_there_are(
    configured: int, offered: int, there: int
) -> None:
    session = cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=offered)))
    handle = SparkHandle(
        session=session,
        slots=offered,
        configured_slots=configured,
        local=False,
        driver_host="",
        ui_url=None,
        java=cast("JavaHome", None),
        launcher=cast("OwnedFolder", None),
    )
    assert handle.count_slots_there() == there


def test_slots_are_those_counted_last_where_the_java_process_dies() -> None:
    def die() -> int:
        raise JavaError

    handle = SimpleNamespace(slots=4, gone=lambda: None, count_slots=die)
    jobs = SparkJobs(cast("SparkHandle", handle), lambda _place: "done")
    assert jobs.slots == 4
    handle.gone = lambda: "Spark's Java process has ended"
    assert jobs.slots == 4
