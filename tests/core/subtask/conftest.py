"""Puts the mutants on the path, which lie with the tests of the machines."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "machines" / "kit"))
