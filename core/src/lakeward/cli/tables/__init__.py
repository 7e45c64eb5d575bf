"""`lakeward tables`: the status of each table."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward.cli.tables.list", "list_tables", "Show the status of each table (the default)."),
    "pause": Lazy("lakeward.cli.tables.pause", "pause", "Start no round on a table until it is resumed."),
    "resume": Lazy("lakeward.cli.tables.pause", "resume", "End a pause, or try a suspended table again."),
    "accept": Lazy(
        "lakeward.cli.tables.accept", "accept", "Accept what the lake has after commits were lost or came late."
    ),
    "unbind": Lazy("lakeward.cli.tables.unbind", "unbind", "Share the tables of a service that is gone for good."),
    "tier-now": Lazy("lakeward.cli.tables.tier_now", "tier_now", "Tier a table next."),
}

tables = command_group(
    "tables", "Show the status of each table; pause, resume, tier now.", COMMANDS, default="list", plugins=True
)
