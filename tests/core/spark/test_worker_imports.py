"""What a new Python worker imports before it does anything: every task of a cold round waits for it."""

from __future__ import annotations

import subprocess
import sys

DRIVERS = ("structlog", "rich", "attr", "click", "pandas")
"""What only the driver needs: the logger, and what that imports, took a fifth of a worker's start."""


ARRAYS = """
import sys
import numpy as np
from lakeward.arrow_alone import use_arrow_alone
import pyarrow as pa

{prepare}
pa.array(np.arange(3)), pa.array(["a", None]), pa.array([1.5])
print("pandas" in sys.modules, len(pa.table({{"a": [1, 2]}}).to_pandas()))
import pandas as pd
print(pa.array(pd.Series([1.5, None])).null_count, pa.Table.from_pandas(pd.DataFrame({{"a": [1]}})).num_rows)
"""


def printed(code: str) -> str:
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    return answer.stdout


def test_arrays_are_made_without_pandas_and_whoever_asks_for_it_has_it() -> None:
    assert printed(ARRAYS.format(prepare="use_arrow_alone()")) == "False 2\n1 1\n"


def test_pandas_that_is_loaded_already_is_left_alone() -> None:
    assert printed(ARRAYS.format(prepare="import pandas; use_arrow_alone()")) == "True 2\n1 1\n"


def test_a_worker_imports_nothing_that_only_the_driver_needs() -> None:
    code = (
        "import sys, lakeward.spark.tasks, lakeward.subtask.run; "
        f"print([name for name in {DRIVERS!r} if name in sys.modules])"
    )
    assert printed(code).strip() == "[]"
