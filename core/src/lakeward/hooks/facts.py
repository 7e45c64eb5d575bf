"""What an installed plugin says of itself: its hooks, and the level of conformance that it publishes."""

from __future__ import annotations

from typing import NamedTuple

from lakeward.errors import LakewardError
from lakeward.hooks.discovery import published
from lakeward.hooks.markers import PROJECT
from lakeward.hooks.plugins import LAKE_GROUP, LEASE_GROUP, SOURCE_GROUP, WRAPPER_GROUP

LEVEL = "conformance_level"
"""Attribute of a plugin's class; `lakeward_testing.levels` says what the levels are."""
_METHODS = {
    SOURCE_GROUP: ("open", "reader"),
    LAKE_GROUP: ("open", "writer", "partitioner", "partition_writer"),
}


class PluginFacts(NamedTuple):
    """`hooks` that it implements; `level` is empty where it publishes none, `problem` where it can be used."""

    hooks: tuple[str, ...]
    level: str
    problem: str


def facts_of(group: str, name: str) -> PluginFacts:
    """Load a plugin that is installed in a group, without making it, and look at what it offers.

    One that cannot be loaded has a problem.
    """
    try:
        found = published(group, name)
    except LakewardError as error:
        return PluginFacts((), "", str(error))
    level = getattr(found, LEVEL, "")
    return PluginFacts(_hooks(group, found), level if isinstance(level, str) else "", "")


def _hooks(group: str, found: object) -> tuple[str, ...]:
    if group in {LEASE_GROUP, WRAPPER_GROUP}:
        return tuple(name for name in dir(found) if hasattr(getattr(found, name, None), f"{PROJECT}_impl"))
    return tuple(name for name in _METHODS.get(group, ()) if callable(getattr(found, name, None)))
