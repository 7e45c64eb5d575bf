"""`lakeward doctor`: whether the lake can be used, and is the one that the source's server has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakeward.clock import SystemClock
from lakeward.config.tables import table_rules
from lakeward.errors import LakewardError
from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP
from lakeward.ports import CheckedLake, CheckResult, ComparedLake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.config.loaded import Loaded
    from lakeward.ports import Lake, ServerLake

_SAME = 'name the same lake on both sides, or set mode = "mirror" for these tables'


def lake_checks(loaded: Loaded, server_lakes: Sequence[ServerLake], *, write: bool) -> Iterator[CheckResult]:
    """Open the lake and let it check itself; with `write`, something may be written, and deleted again.

    `server_lakes` are those that the source's server has.
    """
    name = loaded.settings.lake.type
    try:
        plugin: Any = load(LAKE_GROUP, name)
        lake: Lake = plugin.open(loaded.lake_options, SystemClock())
    except LakewardError as error:
        yield CheckResult("lake", ok=False, message=str(error), action="correct the section [lake]")
        return
    try:
        yield CheckResult("lake", ok=True, message=f"plugin {name!r} is installed")
        if isinstance(lake, CheckedLake):
            for result in lake.check(write=write):
                yield replace(result, what=f"lake {result.what}")
        for theirs in server_lakes:
            yield from _compared(loaded, theirs, lake)
    except LakewardError as error:
        action = "start the lake's catalog if it does not run, or correct the section [lake]"
        yield CheckResult("lake", ok=False, message=f"[{error.code}] {error}", action=action)
    finally:
        lake.close()


def _compared(loaded: Loaded, theirs: ServerLake, lake: Lake) -> Iterator[CheckResult]:
    """Compare the server's lake with ours, if any of its tables is one whose clients read both as one."""
    rules = [(path, table_rules(loaded, path).settings) for path in theirs.tables]
    tiered = [path for path, one in rules if one.include and one.mode == "tier" and not one.lake_partition]
    if not tiered:
        return
    what, ours = "lake settings of the server", loaded.settings.lake.type
    if theirs.lake_format != ours:
        found = theirs.lake_format or "no format"
        message = f"{tiered[0]} and {len(tiered) - 1} more" if len(tiered) > 1 else str(tiered[0])
        yield CheckResult(what, ok=False, message=f"{message}: expected {ours} as here, found {found}", action=_SAME)
    elif isinstance(lake, ComparedLake):
        found_by_lake = lake.compare(theirs)
        action = found_by_lake.action or ("" if found_by_lake.ok else _SAME)
        yield replace(found_by_lake, what=what, action=action)
