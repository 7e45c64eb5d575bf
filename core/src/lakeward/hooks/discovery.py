"""Installed plugins: what the entry points of a group offer, and loading one by name.

The metadata of installed distributions is read once per process. `LAKEWARD_PLUGINS=a,b` leaves only these names (of
plugins or distributions) and what Lakeward itself ships: the core, and packages of its extras that are neither source,
lake nor lease backend. Each name must be installed. An empty variable is one that
is not set; commas without a name are an error.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from lakeward.errors import ConfigError, MissingPluginError, PluginError
from lakeward.hooks.compatibility import CORE_DISTRIBUTION, incompatibility
from lakeward.hooks.extras import extra_distributions
from lakeward.hooks.plugins import COMMAND_GROUP, LAKE_GROUP, LEASE_GROUP, OBSERVER_GROUP, SOURCE_GROUP, WRAPPER_GROUP
from lakeward.model.near_names import did_you_mean, nearest_name

RESTRICT_VARIABLE = "LAKEWARD_PLUGINS"

_KEYS = {
    SOURCE_GROUP: "source.type",
    LAKE_GROUP: "lake.type",
    LEASE_GROUP: "lease.backend",
    WRAPPER_GROUP: "lease.wrappers",
    COMMAND_GROUP: "command",
}
KINDS = {
    SOURCE_GROUP: "source",
    LAKE_GROUP: "lake",
    LEASE_GROUP: "lease backend",
    WRAPPER_GROUP: "lease wrapper",
    COMMAND_GROUP: "command",
    OBSERVER_GROUP: "observer",
}
"""What a message calls a plugin of each group."""
_FOLDERS = {SOURCE_GROUP: "source", LAKE_GROUP: "lake", LEASE_GROUP: "lease"}
"""A distribution of this project is named after what it is and what it is called: `lakeward-lake-NAME`."""


class Installed(NamedTuple):
    """One plugin that an installed distribution offers; `value` is `module:attribute`."""

    name: str
    distribution: str
    version: str
    value: str


@cache  # metadata does not change while a process runs, and reading it costs a scan of site-packages
def _scan(group: str) -> tuple[tuple[Installed, EntryPoint], ...]:
    found: dict[Installed, EntryPoint] = {}
    for entry in entry_points(group=group):
        owner = entry.dist
        distribution = "" if owner is None else owner.name
        version = "" if owner is None else owner.version
        # An editable and a built copy of one distribution may both be on the path: the first one wins.
        if not any((i.name, i.distribution) == (entry.name, distribution) for i in found):
            found[Installed(entry.name, distribution, version, entry.value)] = entry
    return tuple(sorted(found.items(), key=lambda item: item[0]))


def forget() -> None:
    """Read the metadata again at the next call (after an installation, and in tests)."""
    _scan.cache_clear()


def installed(group: str) -> list[Installed]:
    """Return what is installed in a group of `lakeward.hooks.plugins`, ordered by name; nothing is imported.

    Raises:
        ConfigError: `LAKEWARD_PLUGINS` names something that is not installed, or has commas and no name.
    """
    allowed = _allowed()
    return [plugin for plugin, _ in _scan(group) if _is_allowed(plugin, allowed)]


def installed_as(group: str, name: str) -> list[Installed]:
    """Return each installed plugin of that name: two where two distributions claim it. Raises as `installed`."""
    return [plugin for plugin in installed(group) if plugin.name == name]


def extra_plugins(group: str) -> dict[str, str]:
    """Return the plugins of this project in a group, installed or not, with the distribution of each.

    They are those of the core's extras: no message names another distribution, which could be anybody's.
    """
    if group not in _FOLDERS:
        return {}
    prefix = f"{CORE_DISTRIBUTION}-{_FOLDERS[group]}-"
    return {name.removeprefix(prefix): name for name in sorted(extra_distributions()) if name.startswith(prefix)}


def owner(group: str, name: str, distribution: str) -> str:
    """Return who has the name of a plugin that is still to be written, or the name of its distribution.

    It is told as a message shows it, empty where both names are free. `group` is one of `lakeward.hooks.plugins`.
    `LAKEWARD_PLUGINS` hides none of them: what it leaves out is installed nevertheless.
    """
    ours = [(each, *one) for each in _FOLDERS for one in extra_plugins(each).items()]
    theirs = [(each, plugin.name, plugin.distribution) for each in KINDS for plugin, _ in _scan(each)]
    for taken_group, taken, holder in [*ours, *theirs]:
        if (taken_group, taken) == (group, name) or _normal(holder) == _normal(distribution):
            return f"{KINDS[taken_group]} {taken!r} of {holder}"
    return ""


def _normal(distribution: str) -> str:
    """Return a distribution's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def load(group: str, name: str) -> Any:  # noqa: ANN401 - each group has objects of a shape of its own
    """Import the one plugin of that name in a group of `lakeward.hooks.plugins`.

    Of a class, an instance made without arguments is returned.

    Raises:
        MissingPluginError: no installed distribution offers it; says which package to install.
        ConfigError: as `installed`.
        PluginError: two distributions claim the name, its distribution is built for another core, or it cannot be
            imported or made.
    """
    return _load(group, name, make=True)


def published(group: str, name: str) -> Any:  # noqa: ANN401 - as above
    """Import the one plugin of that name as its entry point names it: a class is not made. Raises as `load`."""
    return _load(group, name, make=False)


def _load(group: str, name: str, *, make: bool) -> Any:  # noqa: ANN401 - as above
    matches = installed_as(group, name)
    if not matches:
        raise _missing(group, name)
    if len(matches) > 1:
        owners = " and ".join(f"{plugin.distribution} {plugin.version}" for plugin in matches)
        message = f"{KINDS.get(group, group)} {name!r} is claimed by {owners}; uninstall all but one"
        raise PluginError(message)
    entry = next(entry for plugin, entry in _scan(group) if plugin == matches[0])
    _check_version(group, matches[0], entry)
    try:
        found = entry.load()
        return found() if make and isinstance(found, type) else found
    except Exception as error:
        message = (
            f"{KINDS.get(group, group)} {name!r} of {matches[0].distribution} {matches[0].version} cannot be loaded "
            f"from {entry.value}: {type(error).__name__}: {error}"
        )
        raise PluginError(message) from error


def _check_version(group: str, plugin: Installed, entry: EntryPoint) -> None:
    """Refuse a plugin that is built for another core before any of its code runs."""
    reason = "" if entry.dist is None else incompatibility(entry.dist)
    if reason:
        message = (
            f"{KINDS.get(group, group)} {plugin.name!r} of {plugin.distribution} {plugin.version} {reason}; "
            f"install a release of {plugin.distribution} for this one"
        )
        raise PluginError(message)


def _allowed() -> frozenset[str] | None:
    text = os.environ.get(RESTRICT_VARIABLE, "").strip()
    if not text:
        return None
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ConfigError(RESTRICT_VARIABLE, "names of plugins or distributions, separated by commas", text)
    others = [plugin for group in KINDS for plugin, _ in _scan(group) if not _is_tool(plugin.distribution)]
    known = {name for plugin in others for name in plugin[:2]} - {CORE_DISTRIBUTION}
    for name in names:
        if name not in known and name != CORE_DISTRIBUTION and not _is_tool(name):
            expected = f"installed plugins: {', '.join(sorted(known))}"
            raise ConfigError(RESTRICT_VARIABLE, expected, name, did_you_mean(name, known))
    return frozenset(names)


def _is_allowed(plugin: Installed, allowed: frozenset[str] | None) -> bool:
    ships = plugin.distribution == CORE_DISTRIBUTION or _is_tool(plugin.distribution)
    return allowed is None or ships or not allowed.isdisjoint(plugin[:2])


def _is_tool(distribution: str) -> bool:
    """Return whether a distribution is one of this project's that is neither source, lake nor lease backend."""
    name = _normal(distribution)
    is_backend = name.startswith(tuple(f"{CORE_DISTRIBUTION}-{folder}-" for folder in _FOLDERS.values()))
    return name in extra_distributions() and not is_backend


def _missing(group: str, name: str) -> MissingPluginError:
    names = [plugin.name for plugin in installed(group)]
    expected = "one of " + ", ".join(names) if names else f"an installed {KINDS.get(group, group)}"
    return MissingPluginError(_KEYS.get(group, group), expected, name, _hint(group, name))


def _hint(group: str, name: str) -> str:
    if any(plugin.name == name for plugin, _ in _scan(group)):
        return f"It is installed, but {RESTRICT_VARIABLE}={os.environ[RESTRICT_VARIABLE]} leaves it out."
    ours = extra_plugins(group)
    known = {plugin.name for plugin, _ in _scan(group)} | set(ours)
    near = None if name in known else nearest_name(name, known)
    wanted = near or name
    question = f"Did you mean {wanted!r}? " if near else ""
    if any(plugin.name == wanted for plugin, _ in _scan(group)):
        return question.strip()
    if wanted in ours:
        return f"{question}Install it with: pip install {ours[wanted]}"
    return "Lakeward has none of this name; install the package that offers it"
