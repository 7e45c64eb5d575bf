"""`lakeward upkeep`: what upkeep of lake tables is due, and the request to do it."""

from __future__ import annotations

from lakeward.cli.extend import Lazy, command_group

COMMANDS = {
    "orphans": Lazy("lakeward_ops.upkeep.orphans", "orphans", "Find files of a lake table that nothing names."),
    "plan": Lazy("lakeward_ops.upkeep.plan", "plan", "Show what upkeep is due, and change nothing."),
    "run": Lazy("lakeward_ops.upkeep.run", "run", "Ask the running service to do what is due."),
}

upkeep = command_group("upkeep", "Show or ask for upkeep of lake tables, such as a compaction.", COMMANDS)
