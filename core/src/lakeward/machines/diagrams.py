"""Draw the transition tables of the checkpoint protocol for the docs.

`docs/explanation/checkpoints.md` holds what `render` gives between two marks; a test keeps it so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakeward.machines import checkpoint_phases, gateway
from lakeward.machines.checkpoint_phases import AttemptPhase, CheckpointPhase
from lakeward.machines.gateway import GatewayPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from enum import Enum

_TABLES: dict[str, tuple[type[Enum], Mapping[Any, Iterable[Enum]]]] = {
    "gateway": (GatewayPhase, gateway.TRANSITIONS),
    "checkpoints": (CheckpointPhase, checkpoint_phases.TRANSITIONS),
    "attempts": (AttemptPhase, checkpoint_phases.TRANSITIONS),
}
NAMES = tuple(_TABLES)
"""The tables that can be drawn."""
_BLOCK = re.compile(r"<!-- drawn: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def diagram(name: str) -> str:
    """Draw one table.

    Args:
        name: one of `NAMES`.

    Returns:
        A Mermaid state diagram: every move to another state, with the events that may cause it.
    """
    phases, table = _TABLES[name]
    causes: dict[tuple[Enum, Enum], list[str]] = {}
    for (state, event), following in table.items():
        for after in phases:
            if isinstance(state, phases) and after is not state and after in following:
                causes.setdefault((state, after), []).append(event.__name__)
    first = next(iter(phases))
    lines = ["stateDiagram-v2", f"  [*] --> {first.value}"]
    order = {phase: rank for rank, phase in enumerate(phases)}
    for before, after in sorted(causes, key=lambda move: (order[move[0]], order[move[1]])):
        lines.append(f"  {before.value} --> {after.value}: {', '.join(sorted(causes[before, after]))}")
    return "\n".join(lines)


def render(page: str) -> str:
    """Draw every table that a page asks for.

    Args:
        page: text with blocks from `<!-- drawn: NAME -->` to `<!-- end -->`.

    Returns:
        The same page with current diagrams.
    """
    return _BLOCK.sub(lambda match: _drawn(match[1]), page)


def _drawn(name: str) -> str:
    return f"<!-- drawn: {name} -->\n```mermaid\n{diagram(name)}\n```\n<!-- end -->"
