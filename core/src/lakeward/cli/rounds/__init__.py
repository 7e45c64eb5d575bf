"""`lakeward rounds`: the rounds that have ended."""

from __future__ import annotations

from lakeward.cli.groups import Lazy, command_group

COMMANDS = {
    "list": Lazy("lakeward.cli.rounds.list", "list_rounds", "List the rounds that have ended (the default)."),
    "show": Lazy("lakeward.cli.rounds.show", "show_round", "Show one round: where its time went, and what it did."),
}

rounds = command_group("rounds", "Show the rounds that have ended.", COMMANDS, default="list")
