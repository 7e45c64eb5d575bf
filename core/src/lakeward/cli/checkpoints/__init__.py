"""`lakeward checkpoints`: the checkpoints of unfinished rounds."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy(
        "lakeward.cli.checkpoints.list", "list_checkpoints", "Show the checkpoints of the service (the default)."
    ),
    "show": Lazy("lakeward.cli.checkpoints.show", "show", "Show what a checkpoint contains, and check its files."),
    "delete": Lazy("lakeward.cli.checkpoints.delete", "delete", "Delete checkpoints."),
}

checkpoints = command_group(
    "checkpoints", "Show the checkpoints of unfinished rounds; delete a checkpoint.", COMMANDS, default="list"
)
