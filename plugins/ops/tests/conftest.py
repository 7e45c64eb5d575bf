"""The command line in this process, and an S3 server."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "core" / "kit"))

from lakeward_service_kit.command_line import configured, flights, lakeward
from lakeward_service_kit.s3_fixtures import s3, s3_server

__all__ = ["configured", "flights", "lakeward", "s3", "s3_server"]
