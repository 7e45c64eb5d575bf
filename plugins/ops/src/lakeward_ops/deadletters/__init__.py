"""`lakeward deadletters`: the rows that did not fit a lake table."""

from __future__ import annotations

from lakeward.cli.extend import Lazy, command_group

COMMANDS = {
    "delete": Lazy("lakeward_ops.deadletters.delete", "delete", "Delete dead letters of a table."),
    "list": Lazy("lakeward_ops.deadletters.list", "list_letters", "Count the dead letters of tables, by cause."),
    "replay": Lazy("lakeward_ops.deadletters.replay", "replay", "Ask the service to put rows in that fit by now."),
    "show": Lazy("lakeward_ops.deadletters.show", "show", "Show dead letters of a table, with their causes."),
}

deadletters = command_group(
    "deadletters", "See, replay or delete rows that did not fit a lake table (`on_bad_row`).", COMMANDS
)
