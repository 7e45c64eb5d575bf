"""A round's job on a real Spark: its tasks, its tries, its cancellation, and what Spark's own pages say of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from lakeward.model.jobs import JobSpec, UpkeepJob, UpkeepJobEnd
from lakeward.model.settings import SparkSettings
from lakeward.spark.jobs import SparkJobs
from lakeward.spark.session import TASK_ATTEMPTS, start_session
from lakeward.spark.tasks import run_as_query, run_as_rdd
from lakeward_e2e import logged_session, tasks
from lakeward_testing.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.model.jobs import SubtaskPlace
    from lakeward.spark.session import SparkHandle

pytestmark = pytest.mark.spark
SUBTASKS = 2
TITLE = "lakeward: shop.orders, epoch 3, 2 subtasks"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    """A session as a service starts it; its workers find what the tests let them run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).with_name("kit")))
        settings = SparkSettings(master=f"local[{SUBTASKS}]", conf={"spark.ui.port": "0"})
        handle = start_session(settings, "test", 1, tmp_path_factory.mktemp("spark"))
        yield handle
        handle.stop()


def job_of(folder: Path) -> JobSpec:
    """A launch whose tasks leave their files in a folder."""
    return JobSpec(str(folder), 1, SUBTASKS, TITLE, "orders", "shop.orders", "127.0.0.1", 1, b"secret", 5.0)


def left_in(folder: Path) -> set[str]:
    """`subtask-attempt` of each task that ran."""
    return {file.name for file in folder.iterdir()}


def launch(spark: SparkHandle, folder: Path, work: Callable[[SubtaskPlace], str]) -> tuple[SparkJobs, SimpleQueue[Any]]:
    """Launch a job; the queue gets how it ended."""
    jobs, ends = SparkJobs(spark, work), SimpleQueue[Any]()
    jobs.launch(job_of(folder), ends.put)
    return jobs, ends


def page(spark: SparkHandle, name: str) -> list[dict[str, Any]]:
    """Ask Spark's own interface."""
    url = f"{spark.ui_url}/api/v1/applications/{spark.session.sparkContext.applicationId}/{name}"
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:  # noqa: S310 - http of this machine
        found: list[dict[str, Any]] = json.load(answer)
    return found


def test_each_subtask_runs_once(spark: SparkHandle, tmp_path: Path) -> None:
    _, ends = launch(spark, tmp_path, tasks.note)
    assert ends.get(timeout=120) is None
    assert left_in(tmp_path) == {"0-0", "1-0"}


def test_the_first_job_of_a_session_is_no_query_and_says_whose_it_is(spark: SparkHandle, tmp_path: Path) -> None:
    """A query would load Spark SQL first."""
    _, ends = launch(spark, tmp_path, tasks.note)
    assert ends.get(timeout=120) is None
    assert page(spark, "sql") == []
    [job] = [each for each in page(spark, "jobs") if each["jobGroup"] == job_of(tmp_path).group]
    assert (job["description"], job["jobTags"], job["numTasks"]) == (TITLE, ["orders"], SUBTASKS)


def test_the_stage_of_a_job_is_named_after_its_table_and_round_also_beside_another_job(
    spark: SparkHandle, tmp_path: Path
) -> None:
    """PySpark would name it after a line of this program, and a second one at the same time after a line of py4j."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    ends = [launch(spark, folder, tasks.note)[1] for folder in folders]
    assert [end.get(timeout=120) for end in ends] == [None, None]
    names = {stage["name"] for stage in page(spark, "stages")}
    assert {f"tier shop.orders: round {folder}, launch 1" for folder in folders} <= names


def test_spark_counts_no_input_or_output_of_a_task_that_reads_and_writes_in_python(
    spark: SparkHandle, tmp_path: Path
) -> None:
    """So its page cannot show rows and bytes: this test is to fail where a new Spark can (spark.md)."""
    _, ends = launch(spark, tmp_path, tasks.note)
    assert ends.get(timeout=120) is None
    [stage] = [each for each in page(spark, "stages") if each["name"].endswith(f"round {tmp_path}, launch 1")]
    assert {stage[key] for key in ("inputBytes", "inputRecords", "outputBytes", "outputRecords")} == {0}


def test_a_task_that_fails_is_tried_again_and_the_job_ends_with_its_error(spark: SparkHandle, tmp_path: Path) -> None:
    _, ends = launch(spark, tmp_path, tasks.fail)
    assert ends.get(timeout=120) == "OSError: the disk is full"
    tries = [left_in(tmp_path) & {f"{subtask}-{n}" for n in range(TASK_ATTEMPTS)} for subtask in range(SUBTASKS)]
    assert TASK_ATTEMPTS in {len(each) for each in tries}


def test_a_job_that_is_cancelled_ends_and_its_workers_with_it(spark: SparkHandle, tmp_path: Path) -> None:
    jobs, ends = launch(spark, tmp_path, tasks.hang)
    wait_until(lambda: len(left_in(tmp_path)) == SUBTASKS, "both tasks to run")
    jobs.cancel(job_of(tmp_path))
    assert "cancelled" in ends.get(timeout=LIMIT_S)
    assert left_in(tmp_path) == {"0-0", "1-0"}


def upkeep_of(*orders: bytes) -> UpkeepJob:
    """A job of upkeep, with a task for each order."""
    return UpkeepJob("shop.orders", "7-upkeep-1", "compaction", "lakeward: compaction of shop.orders", orders)


def test_each_task_of_upkeep_is_given_its_own_order_and_the_job_says_what_it_does(spark: SparkHandle) -> None:
    job, ends = upkeep_of(b"first", b"second", b"third"), SimpleQueue[Any]()
    SparkJobs(spark, tasks.note, tasks.keep_order).launch_upkeep(job, ends.put)
    assert ends.get(timeout=120) == UpkeepJobEnd(("first, attempt 0", "second, attempt 0", "third, attempt 0"))
    [shown] = [each for each in page(spark, "jobs") if each["jobGroup"] == job.group]
    assert (shown["description"], shown["jobTags"], shown["numTasks"]) == (job.title, [job.tag], 3)
    assert "compaction of shop.orders: 7-upkeep-1" in {stage["name"] for stage in page(spark, "stages")}


def test_a_job_of_upkeep_that_is_cancelled_ends_and_its_worker_with_it(spark: SparkHandle, tmp_path: Path) -> None:
    jobs, ends = SparkJobs(spark, tasks.note, tasks.hang_on_order), SimpleQueue[Any]()
    job = upkeep_of(str(tmp_path).encode())
    jobs.launch_upkeep(job, ends.put)
    wait_until(lambda: left_in(tmp_path) == {"upkeep-0"}, "the task to run")
    jobs.cancel(job)
    end = ends.get(timeout=LIMIT_S)
    assert end.outcomes == ()
    assert "cancelled" in end.reason
    assert left_in(tmp_path) == {"upkeep-0"}


def launch_gang(
    spark: SparkHandle, folder: Path, work: Callable[[SubtaskPlace], str], subtasks: int = SUBTASKS
) -> tuple[SparkJobs, SimpleQueue[Any]]:
    """Launch a job whose subtasks exchange rows."""
    folder.mkdir(exist_ok=True)
    jobs, ends = SparkJobs(spark, work), SimpleQueue[Any]()
    jobs.launch(replace(job_of(folder), subtasks=subtasks, exchange=True), ends.put)
    return jobs, ends


def test_two_jobs_whose_subtasks_need_one_another_do_not_take_each_others_slots(
    spark: SparkHandle, tmp_path: Path
) -> None:
    ends = [launch_gang(spark, tmp_path / name, tasks.meet)[1] for name in ("first", "second", "third")]
    assert [end.get(timeout=60) for end in ends] == [None, None, None]


def test_a_job_that_needs_more_slots_than_there_are_ends_with_that_reason_within_seconds(
    spark: SparkHandle, tmp_path: Path
) -> None:
    started = time.monotonic()
    _, ends = launch_gang(spark, tmp_path / "large", tasks.meet, SUBTASKS + 1)
    assert "more slots than the total number of slots" in ends.get(timeout=60)
    assert time.monotonic() - started < 30
    assert left_in(tmp_path / "large") == set()


def test_one_subtask_that_fails_ends_a_job_whose_subtasks_need_one_another_at_once(
    spark: SparkHandle, tmp_path: Path
) -> None:
    _, ends = launch_gang(spark, tmp_path / "failing", tasks.fail)
    assert ends.get(timeout=LIMIT_S) is not None
    assert not left_in(tmp_path / "failing") & {"0-1", "1-1"}


def test_a_job_whose_subtasks_need_one_another_is_cancelled_as_others_are(spark: SparkHandle, tmp_path: Path) -> None:
    jobs, ends = launch_gang(spark, tmp_path / "hanging", tasks.hang)
    wait_until(lambda: len(left_in(tmp_path / "hanging")) == SUBTASKS, "both tasks to run")
    jobs.cancel(job_of(tmp_path / "hanging"))
    assert "cancelled" in ends.get(timeout=LIMIT_S)


def test_the_worker_of_a_job_imports_no_pandas(spark: SparkHandle) -> None:
    """It costs a new worker up to half a second."""

    def work(_number: int, _attempt: int, _given: bytes) -> str:
        return str("pandas" in sys.modules)

    assert run_as_rdd(spark.session.sparkContext, 1, work) == ("False",)


def test_a_secret_reaches_each_task_and_neither_a_page_nor_the_event_log(tmp_path: Path) -> None:
    """The log is not masked where an application's own properties are: so it is not one."""
    conf = {"spark.ui.port": "0", "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    conf |= {"spark.eventLog.dir": tmp_path.as_uri()}
    words = [sys.executable, logged_session.__file__, json.dumps(conf)]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    assert done.stdout.split() == ["told", "told", "[]"], done.stderr
    logged = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert sum(b"SparkListenerJobStart" in one for one in logged) == 1
    secret = logged_session.SECRET
    assert [one for one in logged if secret in one or secret.hex().encode() in one] == []


def test_arrow_allocates_from_the_system_in_a_worker(spark: SparkHandle) -> None:
    def work(_number: int, _attempt: int, _given: bytes) -> str:
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        return str(pa.default_memory_pool().backend_name)

    assert run_as_rdd(spark.session.sparkContext, 1, work) == ("system",)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("way", ["rdd", "query"])
def test_both_ways_to_run_a_job_give_each_task_its_number(spark: SparkHandle, way: str) -> None:
    """Spark Connect has the query alone; this one runs last, as it loads Spark SQL."""

    def work(number: int, attempt: int, _given: bytes) -> str:
        return f"{number}-{attempt}"

    session = spark.session
    found = run_as_rdd(session.sparkContext, 3, work) if way == "rdd" else run_as_query(session, 3, work)
    assert sorted(found) == ["0-0", "1-0", "2-0"]
    together = partial(run_as_rdd, session.sparkContext) if way == "rdd" else partial(run_as_query, session)
    assert sorted(together(SUBTASKS, work, barrier=True)) == ["0-0", "1-0"]


def test_workers_have_the_drivers_pyspark_and_not_the_one_of_a_zip(spark: SparkHandle) -> None:
    found = spark.session.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()
    assert found == [pyspark.__file__]
