"""Where a recovery of an exchange spills rows."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from lakeward.observe.format import size
from lakeward.ports import CheckResult

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded
    from lakeward.model.settings import SparkSettings


def spill_check(loaded: Loaded) -> CheckResult:
    """Say where a recovery of an exchange spills rows, and how many bytes at most."""
    checkpoint, spark = loaded.settings.checkpoint, loaded.settings.spark
    what = "spilled rows of a recovery"
    if not checkpoint.spill_places:
        message = "none: checkpoints wait until a recovery is over"
        return CheckResult(what, ok=True, message=message)
    named = ", ".join(checkpoint.spill_places)
    if not checkpoint.spill_dirs and spark.on_this_machine:
        named = f"{', '.join(spark_directories(spark))} ({named})"
    message = f"in {named}, at most {size(checkpoint.spill_quota)} a subtask (checkpoint.spill_dirs, spill_quota)"
    return CheckResult(what, ok=True, message=message)


def spark_directories(spark: SparkSettings) -> tuple[str, ...]:
    """Return Spark's local directories on this machine."""
    named = os.environ.get("SPARK_LOCAL_DIRS") or spark.conf.get("spark.local.dir") or tempfile.gettempdir()
    return tuple(dict.fromkeys(one.strip() for one in named.split(",") if one.strip()))
