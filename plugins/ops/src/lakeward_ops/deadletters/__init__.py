"""`lakeward deadletters`: the rows that did not fit a lake table."""

from __future__ import annotations

from lakeward.cli.extend import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward_ops.deadletters.list", "list_letters", "Count the dead letters of tables, by cause."),
    "show": Lazy("lakeward_ops.deadletters.show", "show", "Show dead letters of a table, with their causes."),
}

deadletters = command_group("deadletters", "Look at rows that did not fit a lake table (`on_bad_row`).", COMMANDS)
