"""The table of what was hit: kind of fault by step of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward_simulator.cells import CELLS
from lakeward_simulator.faults import KINDS, STEPS

if TYPE_CHECKING:
    from collections import Counter

_POSSIBLE = frozenset(CELLS)


def show(hits: Counter[tuple[str, str]]) -> str:
    """Return the table as text; a dot stands where a fault cannot occur (`cells.IMPOSSIBLE` says why)."""
    width = max(len(kind) for kind in KINDS)
    lines = [" ".join([" " * width, *(f"{step:>8}" for step in STEPS)])]
    lines += [" ".join([f"{kind:<{width}}", *(f"{_cell(hits, kind, step):>8}" for step in STEPS)]) for kind in KINDS]
    return "\n".join(lines)


def empty(hits: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the cells that can be hit and were not."""
    return [cell for cell in CELLS if not hits[cell]]


def _cell(hits: Counter[tuple[str, str]], kind: str, step: str) -> str:
    return str(hits[kind, step]) if (kind, step) in _POSSIBLE else "."
