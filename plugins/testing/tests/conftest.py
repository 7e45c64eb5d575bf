"""Puts the kit of the core's tests on the path: it has writers that are wrong on purpose."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "core" / "kit"))
