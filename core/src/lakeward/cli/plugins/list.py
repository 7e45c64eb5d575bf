"""`lakeward plugins list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.output import Columns
from lakeward.errors import LakewardError
from lakeward.hooks.discovery import Installed, installed
from lakeward.hooks.facts import facts_of
from lakeward.hooks.plugins import (
    COMMAND_GROUP,
    LAKE_GROUP,
    LEASE_GROUP,
    OBSERVER_GROUP,
    SOURCE_GROUP,
    WRAPPER_GROUP,
)

if TYPE_CHECKING:
    from lakeward.model.settings import Settings

_KINDS = {
    "source": SOURCE_GROUP,
    "lake": LAKE_GROUP,
    "lease backend": LEASE_GROUP,
    "lease wrapper": WRAPPER_GROUP,
    "command": COMMAND_GROUP,
    "observer": OBSERVER_GROUP,
}
_HEAD = ("kind", "name", "distribution", "version", "level", "used", "hooks")


@dataclass(frozen=True, slots=True)
class PluginLine:
    """One installed plugin; `used` is None where no configuration could be read."""

    kind: str
    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...]
    level: str
    problem: str
    used: bool | None


@click.command("list")
@with_common_options
@pass_invocation
def list_plugins(invocation: Invocation) -> None:
    """Show every installed source, lake, lease backend, wrapper, command, and what observes a service.

    With its hooks, the level of conformance that it publishes (basic, upsert or chaos), and whether the configuration
    uses it. One that cannot be loaded is listed with the reason.
    """
    settings, problem = _settings(invocation)
    lines = [_line(kind, group, plugin, settings) for kind, group in _KINDS.items() for plugin in installed(group)]
    parts: list[str | Columns] = [Columns(_HEAD, [_cells(line) for line in lines])]
    # Two distributions that claim one name are two lines with one problem.
    parts += dict.fromkeys(f"\n{line.kind} {line.name}: {line.problem}" for line in lines if line.problem)
    if problem:
        parts.append(f"\nUnknown which are used: {problem}")
    invocation.output.show({"plugins": lines, "problem": problem or None}, *parts)


def _line(kind: str, group: str, plugin: Installed, settings: Settings | None) -> PluginLine:
    facts = facts_of(group, plugin.name)
    used = None if settings is None else plugin.name in _used(kind, settings)
    return PluginLine(
        kind, plugin.name, plugin.distribution, plugin.version, facts.hooks, facts.level, facts.problem, used
    )


def _cells(line: PluginLine) -> tuple[str, ...]:
    used = {True: "yes", False: "", None: "?"}[line.used]
    hooks = "cannot be loaded" if line.problem else " ".join(line.hooks)
    return (line.kind, line.name, line.distribution, line.version, line.level, used, hooks)


def _settings(invocation: Invocation) -> tuple[Settings | None, str]:
    """Load the configuration if there is one; the list works without it."""
    try:
        return invocation.load().settings, ""
    except LakewardError as error:
        return None, str(error)


def _used(kind: str, settings: Settings) -> tuple[str, ...]:
    wanted = {"page": settings.observe.status_port is not None, "telemetry": settings.observe.telemetry}
    return {
        "source": (settings.source.type,),
        "lake": (settings.lake.type,),
        "lease backend": (settings.lease.backend,),
        "lease wrapper": settings.lease.wrappers,
        "command": (),
        "observer": tuple(name for name, is_wanted in wanted.items() if is_wanted),
    }[kind]
