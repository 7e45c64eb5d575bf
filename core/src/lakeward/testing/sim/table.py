"""The table of what was hit: kind of fault by step of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.testing.sim.faults import KINDS, STEPS

if TYPE_CHECKING:
    from collections import Counter


def show(hits: Counter[tuple[str, str]]) -> str:
    """Return the table as text."""
    width = max(len(kind) for kind in KINDS)
    lines = [" ".join([" " * width, *(f"{step:>8}" for step in STEPS)])]
    lines += [" ".join([f"{kind:<{width}}", *(f"{hits[kind, step]:>8}" for step in STEPS)]) for kind in KINDS]
    return "\n".join(lines)
