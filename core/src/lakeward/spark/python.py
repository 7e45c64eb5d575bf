"""Which Python executors run: the one that the user names in Spark's own ways, else the one of this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKER = "PYSPARK_PYTHON"
DRIVER = "PYSPARK_DRIVER_PYTHON"


def chosen_pythons(conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return a value for `PYSPARK_PYTHON` and one for `PYSPARK_DRIVER_PYTHON`, by which PySpark knows its Pythons.

    `conf` is the Spark configuration of the file, `environ` the environment of this process. The order is Spark's own:
    the properties `spark.pyspark.python` and `spark.pyspark.driver.python` come before the environment. PySpark reads
    only the environment once the driver runs, and falls back to any `python3` on the PATH; so the choice is put there.
    """
    worker = conf.get("spark.pyspark.python") or environ.get(WORKER) or sys.executable
    named = conf.get("spark.pyspark.driver.python") or environ.get(DRIVER)
    return {WORKER: worker, DRIVER: named or sys.executable}
