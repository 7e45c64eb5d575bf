"""The command line in this process."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "core" / "kit"))

from lakeward_service_kit.command_line import configured, flights, lakeward

__all__ = ["configured", "flights", "lakeward"]
