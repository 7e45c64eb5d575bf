"""Each planted mistake of what lies around the machines names the test that finds it, and that test is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lakeward_mutants.killers import KILLERS

ROOT = Path(__file__).parents[2]


def test_each_test_that_is_to_find_a_planted_mistake_is_there() -> None:
    """One that was renamed, or has other parameters, would count as a mistake that nobody finds."""
    words = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted({*KILLERS.values()}))
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
