"""`lakeward plugins list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.cli.output import Columns
from lakeward.errors import LakewardError
from lakeward.hooks.discovery import installed
from lakeward.hooks.plugins import COMMAND_GROUP, LAKE_GROUP, LEASE_GROUP, SOURCE_GROUP, WRAPPER_GROUP

if TYPE_CHECKING:
    from lakeward.model.settings import Settings

_KINDS = {
    "source": SOURCE_GROUP,
    "lake": LAKE_GROUP,
    "lease backend": LEASE_GROUP,
    "lease wrapper": WRAPPER_GROUP,
    "command": COMMAND_GROUP,
}


@dataclass(frozen=True, slots=True)
class PluginLine:
    """One installed plugin; `used` is None where no configuration could be read."""

    kind: str
    name: str
    distribution: str
    version: str
    used: bool | None


@click.command("list")
@with_common_options
@pass_invocation
def list_plugins(invocation: Invocation) -> None:
    """Show every installed source, lake, lease backend, wrapper and command, and whether the configuration uses it."""
    settings, problem = _settings(invocation)
    lines = [
        PluginLine(kind, name, distribution, version, None if settings is None else name in _used(kind, settings))
        for kind, group in _KINDS.items()
        for name, distribution, version, _ in installed(group)
    ]
    cells = {True: "yes", False: "", None: "?"}
    rows = [(line.kind, line.name, line.distribution, line.version, cells[line.used]) for line in lines]
    parts: list[str | Columns] = [Columns(("kind", "name", "distribution", "version", "used"), rows)]
    if problem:
        parts.append(f"\nUnknown which are used: {problem}")
    invocation.output.show({"plugins": lines, "problem": problem or None}, *parts)


def _settings(invocation: Invocation) -> tuple[Settings | None, str]:
    """Load the configuration if there is one; the list works without it."""
    try:
        return invocation.load().settings, ""
    except LakewardError as error:
        return None, str(error)


def _used(kind: str, settings: Settings) -> tuple[str, ...]:
    return {
        "source": (settings.source.type,),
        "lake": (settings.lake.type,),
        "lease backend": (settings.lease.backend,),
        "lease wrapper": settings.lease.wrappers,
        "command": (),
    }[kind]
