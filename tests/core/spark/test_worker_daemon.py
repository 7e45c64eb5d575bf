"""The process that Spark forks Python workers from: whose PySpark they have, and what is imported before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from lakeward.spark.worker_daemon import daemon_options, without_zips

HOME = Path(pyspark.__path__[0])
OPTION = {"spark.python.daemon.module": "lakeward.spark.worker_daemon"}


def test_workers_of_the_drivers_own_python_are_forked_from_it() -> None:
    assert daemon_options(sys.executable, {}) == OPTION
    assert daemon_options(sys.executable, {"SPARK_HOME": str(HOME)}) == OPTION


def test_workers_of_another_python_or_another_spark_are_sparks_own() -> None:
    assert daemon_options("/opt/other/bin/python", {}) == {}
    assert daemon_options(sys.executable, {"SPARK_HOME": "/opt/spark"}) == {}


def test_sparks_own_zips_leave_the_search_path_where_pyspark_is_installed() -> None:
    zips = [f"{HOME}/python/lib/pyspark.zip", f"{HOME}/python/lib/py4j-0.10.9.9-src.zip"]
    installed = [str(HOME.parent), "/job/files.zip"]
    assert without_zips([*zips, *installed]) == installed
    assert without_zips([*zips, "/job/files.zip"]) == [*zips, "/job/files.zip"]


def test_what_is_imported_before_workers_are_forked_starts_no_thread() -> None:
    code = (
        "import os, sys; from lakeward.spark.worker_daemon import prepare; prepare(); "
        "print(len(os.listdir('/proc/self/task')), 'pyspark.worker' in sys.modules, 'pyarrow' in sys.modules)"
    )
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    told = subprocess.run([sys.executable, "-c", code], env=environ, check=True, capture_output=True, encoding="utf-8")
    assert told.stdout.split() == ["1", "True", "False"]
