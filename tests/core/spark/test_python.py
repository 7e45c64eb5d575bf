from __future__ import annotations

import sys

import pytest

from lakeward.spark.python import chosen_pythons

OURS = sys.executable


@pytest.mark.parametrize(
    ("conf", "environ", "worker", "driver"),
    [
        ({}, {}, OURS, OURS),
        ({"spark.pyspark.python": "/conf"}, {}, "/conf", OURS),
        ({"spark.pyspark.driver.python": "/driver"}, {}, OURS, "/driver"),
        ({}, {"PYSPARK_PYTHON": "/env"}, "/env", OURS),
        ({}, {"PYSPARK_PYTHON": "/env", "PYSPARK_DRIVER_PYTHON": "/driver"}, "/env", "/driver"),
        ({"spark.pyspark.python": "./env/bin/python"}, {"PYSPARK_PYTHON": "/env"}, "./env/bin/python", OURS),
        ({}, {"PYSPARK_PYTHON": ""}, OURS, OURS),
    ],
)
def test_executors_run_the_python_that_the_user_names_else_ours(
    conf: dict[str, str], environ: dict[str, str], worker: str, driver: str
) -> None:
    assert chosen_pythons(conf, environ) == {"PYSPARK_PYTHON": worker, "PYSPARK_DRIVER_PYTHON": driver}
