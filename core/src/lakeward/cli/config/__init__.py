"""`lakeward config`: the configuration."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "show": Lazy("lakeward.cli.config.show", "show", "Show each key, its value and where it came from."),
    "check": Lazy("lakeward.cli.config.check", "check", "Build everything without starting it."),
    "init": Lazy("lakeward.cli.config.init", "init", "Write a configuration to start from."),
}

config = command_group("config", "Show, check or write a configuration.", COMMANDS)
