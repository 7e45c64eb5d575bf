"""What a new Python worker imports before it does anything: every task of a cold round waits for it."""

from __future__ import annotations

import subprocess
import sys

DRIVERS = ("structlog", "rich", "attr", "click", "pandas")
"""What only the driver needs: the logger, and what that imports, took a fifth of a worker's start."""


def test_a_worker_imports_nothing_that_only_the_driver_needs() -> None:
    code = (
        "import sys, lakeward.spark.tasks, lakeward.subtask.run; "
        f"print([name for name in {DRIVERS!r} if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert answer.stdout.strip() == "[]"
