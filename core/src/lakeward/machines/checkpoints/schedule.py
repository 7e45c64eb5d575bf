"""When the next checkpoint of a round is due, and how many in a row have failed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.errors import UsageError
from lakeward.model.settings import CheckpointSettings

_DEFAULTS = CheckpointSettings()


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How often checkpoints are taken, how long one may take, and how many may fail in a row. Times in seconds."""

    interval_s: float = _DEFAULTS.interval_s
    """From start to start; 0: none is taken."""
    timeout_s: float = _DEFAULTS.timeout_s
    """From the start until all parts are stored."""
    pause_s: float = _DEFAULTS.pause_s
    """From the end of one to the start of the next, at the least."""
    tolerated: int = _DEFAULTS.tolerated
    """One more in a row fails the round."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.timeout_s <= 0 or min(self.interval_s, self.pause_s, self.tolerated) < 0:
            message = f"checkpoint policy: expected a timeout above 0 and nothing below 0, found {self}"
            raise UsageError(message)


class Schedule:
    """The times of one round's checkpoints."""

    def __init__(self, policy: CheckpointPolicy, now: float) -> None:
        """Let the first one be due an interval from now.

        Args:
            policy: how often, how long, how many failures.
            now: seconds.
        """
        self._policy = policy
        self._started = now
        self._due = now + policy.interval_s if policy.interval_s else None
        self._failures = 0

    @property
    def due(self) -> float | None:
        """When the next one starts, in seconds; None: never."""
        return self._due

    @property
    def deadline(self) -> float:
        """When all parts of the newest checkpoint have to be stored, in seconds."""
        return self._started + self._policy.timeout_s

    @property
    def failures(self) -> int:
        """How many in a row have failed."""
        return self._failures

    def start(self, now: float) -> None:
        """A checkpoint starts."""
        self._started = now

    def end(self, now: float) -> None:
        """The checkpoint is over, completed or not: the next one is due later."""
        interval = self._policy.interval_s
        self._due = max(self._started + interval, now + self._policy.pause_s) if interval else None

    def succeed(self) -> None:
        """The checkpoint is complete: failures are counted anew."""
        self._failures = 0

    def fail(self) -> bool:
        """Count a failure.

        Returns:
            True where that is one too many; counting starts anew then.
        """
        self._failures += 1
        if self._failures <= self._policy.tolerated:
            return False
        self._failures = 0
        return True
