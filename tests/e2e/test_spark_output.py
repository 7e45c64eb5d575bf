"""What Spark's Java writes to the terminal, which a process of its own shows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
JOB = """
import sys
from pathlib import Path
from lakeward.model.settings import SparkSettings
from lakeward.spark.session import start_session
handle = start_session(SparkSettings(master="local[2]", ui=False), "test", 1, Path(sys.argv[1]))
context = handle.session.sparkContext
context._accumulatorServer.shutdown()
print(context.parallelize([20, 22], 2).sum())
log = context._jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.scheduler.TaskSchedulerImpl")
log.error("Exception in statusUpdate")
log.error("Lost executor 7")
handle.stop()
"""


def test_a_task_that_ends_while_spark_is_stopped_is_no_page_of_java(tmp_path: Path) -> None:
    """Java gets a signal to the group as well; other errors are shown."""
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path)], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout == "42\n"
    assert [line.partition(" ")[2] for line in done.stderr.splitlines()] == ["ERROR TaskSchedulerImpl: Lost executor 7"]


STOPPED = """
import os
import sys
import threading
from pathlib import Path
from lakeward.model.settings import SparkSettings
from lakeward.spark.session import start_session
from lakeward_testing.waiting import wait_until
pipe = Path(sys.argv[1]) / "pipe"
os.mkfifo(pipe)
context = start_session(SparkSettings(master="local[1]", ui=False), "test", 1, pipe.parent).session.sparkContext
java, numbers = context._jvm, context._jvm.java.util.ArrayList()
numbers.add("42")


def job():
    try:
        context._jsc.parallelize(numbers).pipe(f"cat {pipe}").count()
    except Exception as error:
        print("cancelled because SparkContext was shut down" in str(error))


def ended():
    return not any("task launch" in thread.getName() for thread in java.Thread.getAllStackTraces().keySet())


thread = threading.Thread(target=job)
thread.start()
with pipe.open("w", encoding="utf-8") as task:
    print(ended())
    context._jsc.stop()
thread.join()
wait_until(ended, "the task to end")
"""


def test_a_task_that_ends_after_spark_was_stopped_is_no_page_of_java(tmp_path: Path) -> None:
    """The blocks that it read are gone by then. A process in a pipe holds the task until that."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, str(tmp_path)], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")
