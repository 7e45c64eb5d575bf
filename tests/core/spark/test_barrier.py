"""Which kind of stage a round's job is, and how long Spark waits for slots that a barrier stage needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from lakeward.model.settings import SparkSettings
from lakeward.spark.session import spark_options
from lakeward.spark.tasks import run_as_query, run_as_rdd

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_CHECK = "spark.scheduler.barrier.maxConcurrentTasksCheck"


class Stage:
    """Notes what was asked of an RDD, or of a data frame."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def parallelize(self, elements: object, slices: int) -> Stage:
        del elements, slices
        return self

    def range(self, *numbers: int) -> Stage:
        del numbers
        return self

    def barrier(self) -> Stage:
        self.asked.append("barrier")
        return self

    def mapPartitionsWithIndex(self, work: object) -> Stage:  # noqa: N802 - Spark's own name
        del work
        return self

    def mapInArrow(self, work: object, schema: str, *, barrier: bool) -> Stage:  # noqa: N802 - Spark's own name
        del work, schema
        self.asked += ["barrier"] if barrier else []
        return self

    def collect(self) -> list[Any]:
        return []


def _work(number: int, attempt: int, _given: bytes) -> str:
    return f"{number}-{attempt}"


@pytest.mark.parametrize("barrier", [True, False])
def test_subtasks_that_exchange_rows_are_a_barrier_stage_and_others_are_not(barrier: bool) -> None:
    rdd, query = Stage(), Stage()
    run_as_rdd(cast("SparkContext", rdd), 2, _work, barrier=barrier)
    run_as_query(cast("SparkSession", query), 2, _work, barrier=barrier)
    assert rdd.asked == query.asked == (["barrier"] if barrier else [])


def test_a_barrier_stage_without_slots_fails_within_seconds_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    options = spark_options(SparkSettings(), tmp_path)
    assert (options[f"{_CHECK}.interval"], options[f"{_CHECK}.maxFailures"]) == ("1s", "15")
    options = spark_options(SparkSettings(conf={f"{_CHECK}.maxFailures": "100"}), tmp_path)
    assert options[f"{_CHECK}.maxFailures"] == "100"
