"""Write an archive of the classes that Spark's Java loads, which the tests of an environment start Spark with.

    python class_archive.py FILE

A start of Java takes half of the processor time with it. It is written anew if PySpark is newer; where there is
no Java, none is written. Java itself ignores an archive that does not fit, and one that is not there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from lakeward.errors import JavaError
from lakeward.model.settings import SparkSettings
from lakeward.spark.session import start_session
from lakeward.spark.tasks import run_as_rdd

WRITTEN_S = 300


def is_fresh(archive: Path) -> bool:
    """Say whether there is an archive of this PySpark, by the times of both."""
    installed = Path(str(distribution("pyspark").locate_file("pyspark/version.py")))
    return archive.exists() and archive.stat().st_mtime > installed.stat().st_ctime


def first_word(number: int, attempt: int, given: bytes) -> str:
    """Do nothing, as the work of a task."""
    return f"{number}{attempt}{given!r}"


def write(archive: Path, folder: Path) -> None:
    """Start Spark, run a job, and let its Java write the archive as it ends."""
    handle = start_session(SparkSettings(master="local[2]", class_archive=str(folder)), "archive", 1, folder)
    context = handle.session.sparkContext
    run_as_rdd(context, 2, first_word, barrier=True)
    gateway: Any = context._gateway
    handle.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(WRITTEN_S)
    (part,) = folder.glob("*.part")
    part.replace(archive)


def main(archive: Path) -> None:
    """Write the archive, unless it is there."""
    if is_fresh(archive):
        return
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
        option for option in os.environ.get("SPARK_SUBMIT_OPTS", "").split() if "SharedArchiveFile" not in option
    )
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            write(archive, Path(folder))
    except JavaError as error:
        print(f"no archive of classes: {error}")  # noqa: T201 - what a script says


if __name__ == "__main__":
    main(Path(sys.argv[1]))
