"""Tables of rules with other rules before their own: the first rule that applies is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lakeward.machines.machine import Rule, Rules

if TYPE_CHECKING:
    Held = TypeVar("Held")
    Command = TypeVar("Command")


def with_rules(rules: Rules[Held, Command], *rows: Rule[Any, Command]) -> Rules[Held, Command]:
    """Return a table in which these rules come first."""
    return Rules(rules.name, rules.states, *rows, *rules.rows)
