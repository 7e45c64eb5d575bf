"""Draw the transition tables of all machines for the docs.

Pages of `docs/explanation` contain the output of `render` between two marks. A test checks that it is current, and
`python -m lakeward.cli.reference docs/reference` writes it again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakeward.machines import checkpoints, exchange, gang, launches, leases, link, recovery, rounds, splits, upkeep
from lakeward.machines.checkpoints import gateway

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from enum import Enum

    from lakeward.machines.machine import Rules

_RULES: tuple[Rules[Any, Any], ...] = (
    checkpoints.RULES,
    checkpoints.ATTEMPT_RULES,
    exchange.ALIGNMENT,
    exchange.OUTPUT,
    gang.RULES,
    gateway.RULES,
    launches.RULES,
    leases.RULES,
    leases.BUCKET_RULES,
    link.RULES,
    recovery.RULES,
    rounds.RULES,
    rounds.HEARTBEAT_RULES,
    rounds.TABLE_RULES,
    splits.SPLITS,
    splits.ATTEMPTS,
    splits.CONNECTIONS,
    splits.ROUND,
    upkeep.RULES,
)
TABLES: Mapping[str, Rules[Any, Any]] = {rules.name: rules for rules in _RULES}
"""All tables of rules, by the name under which the docs show them."""
NAMES = tuple(TABLES)
"""The tables that can be drawn."""
_BLOCK = re.compile(r"<!-- drawn: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def states(name: str) -> type[Enum]:
    """Return the states of a table, one of `NAMES`."""
    return TABLES[name].states


def diagram(name: str) -> str:
    """Draw a table, one of `NAMES`, in Mermaid: every move to another state, with the events that may cause it."""
    phases = states(name)
    causes: dict[tuple[Enum, Enum], set[str]] = {}
    for before, event, after in _moves(name):
        if isinstance(before, phases) and isinstance(after, phases) and after is not before:
            causes.setdefault((before, after), set()).add(event.__name__)
    first = next(iter(phases))
    lines = ["stateDiagram-v2", f"  [*] --> {first.value}"]
    order = {phase: rank for rank, phase in enumerate(phases)}
    for before, after in sorted(causes, key=lambda move: (order[move[0]], order[move[1]])):
        lines.append(f"  {before.value} --> {after.value}: {', '.join(sorted(causes[before, after]))}")
    return "\n".join(lines)


def _moves(name: str) -> Iterator[tuple[Enum, type, Enum]]:
    for rule in TABLES[name].rows:
        yield from ((state, event, rule.to) for state, event in rule.cells if rule.to is not None)


def render(page: str) -> str:
    """Return a page with current diagrams in its blocks from `<!-- drawn: NAME -->` to `<!-- end -->`."""
    return _BLOCK.sub(lambda match: _drawn(match[1]), page)


def _drawn(name: str) -> str:
    return f"<!-- drawn: {name} -->\n```mermaid\n{diagram(name)}\n```\n<!-- end -->"
