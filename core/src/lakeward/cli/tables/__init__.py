"""`lakeward tables`: where each table stands."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward.cli.tables.listing", "listing", "Show where each table stands (the default)."),
    "pause": Lazy("lakeward.cli.tables.pausing", "pause", "Start no round on a table until it is resumed."),
    "resume": Lazy("lakeward.cli.tables.pausing", "resume", "Take a pause back."),
    "accept": Lazy("lakeward.cli.tables.accepting", "accept", "Go on from what the lake has now."),
    "tier-now": Lazy("lakeward.cli.tables.tier_now", "tier_now", "Hand a table out at once."),
}

tables = command_group("tables", "Show where each table stands; pause, resume, tier now.", COMMANDS, default="list")
