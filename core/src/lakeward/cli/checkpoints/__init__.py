"""`lakeward checkpoints`: where unfinished rounds would go on."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward.cli.checkpoints.listing", "listing", "Show the checkpoints of the service (the default)."),
    "show": Lazy("lakeward.cli.checkpoints.showing", "show", "Show what a checkpoint holds, and check every byte."),
    "delete": Lazy("lakeward.cli.checkpoints.deleting", "delete", "Delete checkpoints."),
}

checkpoints = command_group(
    "checkpoints", "Show where unfinished rounds would go on; delete a checkpoint.", COMMANDS, default="list"
)
