"""The pause between two tries: it doubles with each failure."""

from __future__ import annotations

from dataclasses import dataclass, replace

_DOUBLINGS = 60
"""More of them would overflow in the end."""


def backoff_s(failures: int, first_s: float, most_s: float) -> float:
    """Return how many seconds to wait after so many failures in a row (>= 1): from `first_s` up to `most_s`."""
    return min(most_s, first_s * 2.0 ** min(failures - 1, _DOUBLINGS))


@dataclass(frozen=True, slots=True)
class RetryPauses:
    """Pauses before what failed inside a round is tried again: none after one failure, then growing ones.

    The usual cause of one failure is a lost executor; what fails twice may fail as long as its cause lasts.
    """

    first_s: float = 0.0
    """Seconds after two failures."""
    most_s: float = 0.0
    """The longest pause in seconds."""

    def after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures, >= 1."""
        return 0.0 if failures == 1 else backoff_s(failures - 1, self.first_s, self.most_s)

    def at_most(self, most_s: float) -> RetryPauses:
        """Return the same with a longest pause of so many seconds, if it is shorter."""
        return replace(self, most_s=min(self.most_s, most_s))


NO_PAUSES = RetryPauses()
"""Everything is tried again at once."""
