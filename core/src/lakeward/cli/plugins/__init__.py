"""`lakeward plugins`: sources, lakes, lease backends and wrappers."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward.cli.plugins.list", "list_plugins", "Show what is installed (the default)."),
    "new": Lazy("lakeward.cli.plugins.new", "new", "Write a plugin to start from: lease, wrapper, lake or source."),
}

plugins = command_group("plugins", "Show what is installed; start a plugin of your own.", COMMANDS, default="list")
