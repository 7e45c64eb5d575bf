"""Which Python executors run: the one that the user names in Spark's own ways, else the one of this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKER = "PYSPARK_PYTHON"
DRIVER = "PYSPARK_DRIVER_PYTHON"


def chosen_pythons(conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which PySpark knows its Pythons.

    The order is Spark's own: the properties `spark.pyspark.python` and `spark.pyspark.driver.python` come before the
    environment. PySpark reads only the environment once the driver runs, and falls back to any `python3` on the
    PATH; so the choice is put there.

    Args:
        conf: the Spark configuration of the file.
        environ: the environment of this process.

    Returns:
        A value for `PYSPARK_PYTHON` and one for `PYSPARK_DRIVER_PYTHON`.
    """
    worker = conf.get("spark.pyspark.python") or environ.get(WORKER) or sys.executable
    named = conf.get("spark.pyspark.driver.python") or environ.get(DRIVER)
    return {WORKER: worker, DRIVER: named or sys.executable}
