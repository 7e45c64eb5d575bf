from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from lakeward.model.jobs import JobSpec
from lakeward.spark.jobs import SparkJobs

if TYPE_CHECKING:
    from lakeward.spark.session import SparkHandle

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
    ends: list[str | None] = []
    jobs = SparkJobs(cast("SparkHandle", handle), lambda _place: "done")
    jobs._run(SPEC, ends.append)
    assert ends == ["JavaError, whose text the Java process could not give any more"]


class LateSession(DyingSession):
    """A session whose executors joined after it had started."""

    @property
    def sparkContext(self) -> object:  # noqa: N802 - Spark's own name
        return SimpleNamespace()


def test_the_next_round_is_planned_with_the_slots_that_there_are_when_a_job_starts() -> None:
    handle = SimpleNamespace(session=LateSession(), slots=2, count_slots=lambda: 6)
    jobs = SparkJobs(cast("SparkHandle", handle), lambda _place: "done")
    assert jobs.slots == 2
    jobs._run(SPEC, lambda _reason: None)
    assert jobs.slots == 6
