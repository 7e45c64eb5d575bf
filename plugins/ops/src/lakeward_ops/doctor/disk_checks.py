"""`lakeward doctor`: whether the disks of this machine have room."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakeward.cli.config.spill import spark_directories
from lakeward.local_files import is_local
from lakeward.observe.format import size
from lakeward.ports import CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.config.loaded import Loaded

LEAST_FREE = 1 << 30
"""Bytes that must be free for files that have no limit of their own."""
_SEEN = "look whether the disk is mounted, or name another directory"


def disk_checks(loaded: Loaded, places: Mapping[str, str]) -> Iterator[CheckResult]:
    """Look at each disk that a service of this configuration writes to.

    `places`: directories of the lake and the source, by name; those of other machines are left out.
    """
    checkpoint, spark = loaded.settings.checkpoint, loaded.settings.spark
    for name, place in {"state directory": checkpoint.root, **places}.items():
        if is_local(place):
            yield _disk(name, place, LEAST_FREE)
    for place in spark_directories(spark):
        yield _disk(f"temporary files in {place}", place, LEAST_FREE)
    for place in checkpoint.spill_dirs:
        yield _spill(place, checkpoint.spill_quota, there=spark.on_this_machine)


def _spill(place: str, quota: int, *, there: bool) -> CheckResult:
    what = f"disk of spilled rows in {place}"
    if not there:
        return CheckResult(what, ok=True, message="is on the executors' machines; not checked")
    if not Path(place).is_dir():
        action = "make it, or name another one in checkpoint.spill_dirs"
        return CheckResult(what, ok=False, message="expected a directory, found none", action=action)
    return _disk(f"spilled rows in {place}", place, quota)


def _disk(name: str, place: str, least: int) -> CheckResult:
    path = Path(unquote(urlsplit(place).path) if "://" in place else place).absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    what = f"disk of {name}"
    try:
        usage = shutil.disk_usage(existing)
    except OSError as error:
        return CheckResult(
            what, ok=False, message=f"{existing}: cannot be asked: {error.strerror or error}", action=_SEEN
        )
    message = f"{size(usage.free)} of {size(usage.total)} free"
    if usage.free >= least:
        return CheckResult(what, ok=True, message=message)
    action = "free space, or name a directory on a larger disk"
    return CheckResult(what, ok=False, message=f"{message}: expected at least {size(least)}", action=action)
