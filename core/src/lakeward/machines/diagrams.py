"""Draw the transition tables of all machines for the docs.

Pages of `docs/explanation` contain the output of `render` between two marks. A test checks that it is current, and
`python -m lakeward.cli.reference docs/reference` writes it again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakeward.machines.exchange import output_queue
from lakeward.machines.exchange import transitions as alignment
from lakeward.machines.exchange.output_queue import OutputPhase
from lakeward.machines.exchange.transitions import AlignmentPhase
from lakeward.machines.link import transitions as link
from lakeward.machines.link.transitions import LinkPhase
from lakeward.machines.recovery import transitions as recovery
from lakeward.machines.recovery.transitions import RecoveryPhase
from lakeward.machines.registry import TABLES
from lakeward.machines.splits import transitions as splits
from lakeward.machines.splits.transitions import AttemptPhase, ConnectionPhase, SplitPhase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from enum import Enum

_TABLES: dict[str, tuple[type[Enum], Mapping[Any, Mapping[Any, Enum]]]] = {
    "splits": (SplitPhase, splits.TRANSITIONS),
    "split_attempts": (AttemptPhase, splits.TRANSITIONS),
    "split_connections": (ConnectionPhase, splits.TRANSITIONS),
    "link": (LinkPhase, link.TRANSITIONS),
    "alignment": (AlignmentPhase, alignment.TRANSITIONS),
    "output": (OutputPhase, output_queue.TRANSITIONS),
    "recovery": (RecoveryPhase, recovery.TRANSITIONS),
}
NAMES = (*_TABLES, *TABLES)
"""The tables that can be drawn."""
_BLOCK = re.compile(r"<!-- drawn: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def states(name: str) -> type[Enum]:
    """Return the states of a table that can be drawn.

    Args:
        name: one of `NAMES`.

    Returns:
        The class of its states.
    """
    return TABLES[name].states if name in TABLES else _TABLES[name][0]


def diagram(name: str) -> str:
    """Draw one table.

    Args:
        name: one of `NAMES`.

    Returns:
        A Mermaid state diagram: every move to another state, with the events that may cause it.
    """
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
    if name in TABLES:
        for rule in TABLES[name].rows:
            yield from ((state, event, rule.to) for state, event in rule.cells if rule.to is not None)
        return
    for (state, event), row in _TABLES[name][1].items():
        yield from ((state, event, after) for after in row.values())


def render(page: str) -> str:
    """Draw every table for which a page has a block.

    Args:
        page: text with blocks from `<!-- drawn: NAME -->` to `<!-- end -->`.

    Returns:
        The same page with current diagrams.
    """
    return _BLOCK.sub(lambda match: _drawn(match[1]), page)


def _drawn(name: str) -> str:
    return f"<!-- drawn: {name} -->\n```mermaid\n{diagram(name)}\n```\n<!-- end -->"
