"""The pause between two tries: it doubles with each failure."""

from __future__ import annotations

_DOUBLINGS = 60
"""More of them would overflow in the end."""


def backoff_s(failures: int, first_s: float, most_s: float) -> float:
    """Return how long to wait before the next try.

    Args:
        failures: failures in a row so far, >= 1.
        first_s: seconds after the first one.
        most_s: the longest pause in seconds.

    Returns:
        Seconds.
    """
    return min(most_s, first_s * 2.0 ** min(failures - 1, _DOUBLINGS))
