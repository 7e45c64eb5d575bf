"""`lakeward leases`: which snapshots are held."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward.cli.leases.listing", "listing", "Show the leases and whose they are (the default)."),
    "drop": Lazy("lakeward.cli.leases.dropping", "drop", "Drop a lease, or all of this service."),
}

leases = command_group("leases", "Show which snapshots are held; drop a lease.", COMMANDS, default="list")
