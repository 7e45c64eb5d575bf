"""The tasks of a round's job: exactly P of them, one call in each; only metadata comes back, rows never enter the JVM.

Classic Spark runs them over an RDD: the first job of a session then loads neither the classes of Spark SQL in the JVM
nor pandas and Arrow's conversions in the workers. Spark Connect has no RDD: there they are a query (spark.md, "Where
rows go").

Tasks that exchange rows are a barrier stage: Spark starts all of them at once or none, and one that fails takes the
others with it (spark.md, "Tasks that exchange rows").

A new Python worker imports this module and what the subtask needs, before it does anything: so neither imports what
only the driver needs, such as the logger.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.utils import is_remote

from lakeward.model.jobs import SubtaskPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from lakeward.model.jobs import JobSpec

    Work = Callable[[int, int, bytes], str]
    """Takes a task's number, Spark's number of its attempt, and what it is given; returns the outcome in one word."""

_SCHEMA = "subtask int, outcome string"


class TaskOfJob:
    """The work of each task of a launch; pickled by Spark itself, without the secret, as Spark broadcasts it."""

    def __init__(self, spec: JobSpec, run_task: Callable[[SubtaskPlace], str]) -> None:
        """Keep what each task runs, importable by reference in the workers; it returns its outcome."""
        self._spec = replace(spec, secret=b"")
        self._run_task = run_task

    def __call__(self, number: int, attempt: int, secret: bytes) -> str:
        """Run one task, see `Work`."""
        return self._run_task(SubtaskPlace(replace(self._spec, secret=secret), number, attempt))


class TaskOfUpkeep:
    """The work of each task of a job of upkeep; pickled by Spark itself, without what each task is given."""

    def __init__(self, run_order: Callable[[bytes, int], str]) -> None:
        """Keep what each task runs, importable by reference in the workers; it returns what it has done."""
        self._run_order = run_order

    def __call__(self, number: int, attempt: int, order: bytes) -> str:
        """Run one task, see `Work`."""
        del number
        return self._run_order(order, attempt)


def run_tasks(
    session: SparkSession, count: int, work: Work, given: bytes = b"", *, barrier: bool = False
) -> tuple[str, ...]:
    """Run a job the quickest way that its session has; return the outcome of each task that ended well.

    There are `count` (> 0) tasks. `work` is what each runs; pickled and broadcast by Spark, so it holds no secret.
    `given` is what each task is given as its partition's data, which goes to it alone, in the message that starts it
    (spark.md, "Who may ask Spark"); a query has no such data, and gives nothing. With `barrier`, all of them have to
    run at the same time.

    Raises:
        Exception: pyspark's or py4j's own, where the job failed or was cancelled.
    """
    if is_remote():
        return run_as_query(session, count, work, barrier=barrier)
    return run_as_rdd(session.sparkContext, count, work, given, barrier=barrier)


def run_as_rdd(
    context: SparkContext, count: int, work: Work, given: bytes = b"", *, barrier: bool = False
) -> tuple[str, ...]:
    """Run a job over an RDD, see `run_tasks`."""
    return run_each(context, (given,) * count, work, barrier=barrier)


def run_each(context: SparkContext, given: Sequence[bytes], work: Work, *, barrier: bool = False) -> tuple[str, ...]:
    """Run a job over an RDD with a task for each of `given` (at least one), which goes to that task alone."""
    rdd = context.parallelize(given, len(given))
    stage = rdd.barrier() if barrier else rdd
    return tuple(stage.mapPartitionsWithIndex(partial(_of_partition, work)).collect())


def run_as_query(session: SparkSession, count: int, work: Work, *, barrier: bool = False) -> tuple[str, ...]:
    """Run a job as a query, see `run_tasks`."""
    numbers = session.range(0, count, 1, count)
    rows = numbers.mapInArrow(partial(_of_batches, work), _SCHEMA, barrier=barrier).collect()
    return tuple(str(row["outcome"]) for row in rows)


def _of_partition(work: Work, number: int, elements: Iterable[bytes]) -> Iterator[str]:
    given = b"".join(elements)
    yield work(number, _attempt(), given)


def _of_batches(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - a task over an RDD needs no Arrow of Spark's

    number = int(next(iter(batches)).column(0)[0].as_py())
    outcome = work(number, _attempt(), b"")
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"subtask": pa.array([number], pa.int32()), "outcome": [outcome]})


def _attempt() -> int:
    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0
