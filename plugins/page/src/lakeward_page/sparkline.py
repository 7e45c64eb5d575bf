"""A small chart of one figure over time, as the points of an SVG line; its words say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 240, 40
_MARGIN = 3.0
"""So that the line's own width is within the picture."""


@dataclass(frozen=True, slots=True)
class Sparkline:
    """One chart. `points` are those of an SVG polyline, within `WIDTH` and `HEIGHT`; `said` says it in words."""

    name: str
    last: str
    said: str
    points: str
    end: tuple[float, float]
    width: int = WIDTH
    height: int = HEIGHT


def sparkline(name: str, values: Sequence[tuple[int, float]], write: Callable[[float], str]) -> Sparkline | None:
    """Draw the values of moments (milliseconds since 1970, ascending), from 0 up; None if there are fewer than two."""
    if len(values) < 2:  # noqa: PLR2004 - one point is no line
        return None
    first_ms, last_ms = values[0][0], values[-1][0]
    most = max(value for _, value in values)
    across = (WIDTH - 2 * _MARGIN) / max(1, last_ms - first_ms)
    up = (HEIGHT - 2 * _MARGIN) / (most or 1.0)
    places = [
        (round(_MARGIN + (at_ms - first_ms) * across, 1), round(HEIGHT - _MARGIN - value * up, 1))
        for at_ms, value in values
    ]
    least, last = min(value for _, value in values), values[-1][1]
    said = f"{name}: last {write(last)}, least {write(least)}, most {write(most)}"
    return Sparkline(name, write(last), said, " ".join(f"{x:g},{y:g}" for x, y in places), places[-1])
