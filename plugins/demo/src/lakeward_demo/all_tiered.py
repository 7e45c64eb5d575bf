"""Whether everything that was fed has reached the lake, in whichever mode."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, cast

from lakeward.hooks.discovery import load
from lakeward.hooks.plugins import LAKE_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.config.loaded import Loaded
    from lakeward.hooks.plugins import LakePlugin
    from lakeward.model.tables import TableBucket
    from lakeward.ports import Clock
    from lakeward_demo.stage import Stage
    from lakeward_demo.store import DemoTable


def all_tiered(stage: Stage, loaded: Loaded, clock: Clock) -> bool:
    """Say whether every bucket's end is on record: at the source for a tiered table, in the lake for a mirrored one."""
    return all(
        _covers(stage.store.registered(table) if table.tiered else _in_lake(table, loaded, clock), ends)
        for table in stage.tables
        if (ends := stage.store.ends(table))
    )


def _covers(tiered: Mapping[TableBucket, int], ends: Mapping[TableBucket, int]) -> bool:
    return all(tiered.get(bucket, 0) >= end for bucket, end in ends.items())


def _in_lake(table: DemoTable, loaded: Loaded, clock: Clock) -> Mapping[TableBucket, int]:
    """Return the offsets of the newest commit to a lake table."""
    plugin = cast("LakePlugin", load(LAKE_GROUP, loaded.settings.lake.type))
    with closing(plugin.open(loaded.lake_options, clock)) as lake:
        head = lake.head(table.path)
    commit = None if head is None else head.commit
    return {} if commit is None or commit.offsets is None else commit.offsets
