"""`lakeward leases`: which KV snapshots are leased."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward.cli.leases.list", "list_leases", "Show the leases and their owners (the default)."),
    "drop": Lazy("lakeward.cli.leases.drop", "drop", "Drop a lease, or all of this service."),
}

leases = command_group("leases", "Show which KV snapshots are leased; drop a lease.", COMMANDS, default="list")
