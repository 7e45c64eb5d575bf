"""The tasks of a round's job: exactly P of them, one call in each; only metadata comes back, rows never enter the JVM.

Classic Spark runs them over an RDD: the first job of a session then loads neither the classes of Spark SQL in the JVM
nor pandas and Arrow's conversions in the workers. Spark Connect has no RDD: there they are a query (spark.md, "Where
rows go").
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    Work = Callable[[int, int], str]
    """Takes a task's number and Spark's number of its attempt; returns the outcome in one word."""

_SCHEMA = "subtask int, outcome string"


def run_tasks(session: SparkSession, count: int, work: Work) -> tuple[str, ...]:
    """Run a job the quickest way that its session has.

    Args:
        session: a running one.
        count: how many tasks, > 0.
        work: what each task runs; pickled by Spark.

    Returns:
        The outcome of each task that ended well.

    Raises:
        Exception: pyspark's or py4j's own, where the job failed or was cancelled.
    """
    if is_remote():
        return run_as_query(session, count, work)
    return run_as_rdd(session.sparkContext, count, work)


def run_as_rdd(context: SparkContext, count: int, work: Work) -> tuple[str, ...]:
    """Run a job over an RDD, see `run_tasks`."""
    rdd = context.parallelize(range(count), count)
    return tuple(rdd.mapPartitionsWithIndex(partial(_of_partition, work)).collect())


def run_as_query(session: SparkSession, count: int, work: Work) -> tuple[str, ...]:
    """Run a job as a query, see `run_tasks`."""
    rows = session.range(0, count, 1, count).mapInArrow(partial(_of_batches, work), _SCHEMA).collect()
    return tuple(str(row["outcome"]) for row in rows)


def _of_partition(work: Work, number: int, elements: Iterable[Any]) -> Iterator[str]:
    outcome = work(number, _attempt())
    for _ in elements:
        pass
    yield outcome


def _of_batches(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - a task over an RDD needs no Arrow of Spark's

    number = int(next(iter(batches)).column(0)[0].as_py())
    outcome = work(number, _attempt())
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"subtask": pa.array([number], pa.int32()), "outcome": [outcome]})


def _attempt() -> int:
    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0
