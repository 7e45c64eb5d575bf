"""`lakeward plugins`: sources, lakes, lease backends and wrappers."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward.cli.plugins.list", "list_plugins", "Show what is installed (the default)."),
}

plugins = command_group(
    "plugins", "Show what is installed; start a plugin of your own.", COMMANDS, default="list", plugins=True
)
