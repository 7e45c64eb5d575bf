"""Arguments of calls of Spark's Java: none is looked at for NumPy, which would load pandas."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from py4j import protocol
from lakeward.spark.arguments import forget_numpy
before = len(protocol.INPUT_CONVERTER)
forget_numpy()
print([converter.can_convert(object()) for converter in protocol.INPUT_CONVERTER].count(True))
print(before - len(protocol.INPUT_CONVERTER), "pandas" in sys.modules)
"""


def test_no_argument_is_looked_at_for_numpy() -> None:
    told = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, encoding="utf-8")
    assert told.stdout.splitlines() == ["0", "2 False"]
