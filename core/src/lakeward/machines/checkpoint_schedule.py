"""When the next checkpoint of a round is due, and how many in a row have failed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.errors import UsageError


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How often, how long, how patient. Seconds; `tolerated` is failures in a row."""

    interval_s: float = 30.0
    """From start to start; 0: only those that are asked for."""
    timeout_s: float = 120.0
    """From the start until all parts are stored."""
    pause_s: float = 1.0
    """From the end of one to the start of the next, at the least."""
    tolerated: int = 5
    """One more in a row fails the round."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.timeout_s <= 0 or min(self.interval_s, self.pause_s, self.tolerated) < 0:
            message = f"checkpoint policy: expected a timeout above 0 and nothing below 0, found {self}"
            raise UsageError(message)


class Schedule:
    """The times of one round's checkpoints."""

    def __init__(self, policy: CheckpointPolicy, now: float) -> None:
        """Let the first one be due an interval from now.

        Args:
            policy: how often, how long, how patient.
            now: seconds.
        """
        self._policy = policy
        self._started = now
        self._due = now + policy.interval_s if policy.interval_s else None
        self._failures = 0

    @property
    def due(self) -> float | None:
        """When the next one may start; None: only when it is asked for."""
        return self._due

    @property
    def deadline(self) -> float:
        """When the one that was started last has to be stored everywhere."""
        return self._started + self._policy.timeout_s

    @property
    def failures(self) -> int:
        """How many in a row have failed."""
        return self._failures

    def ask(self, now: float) -> None:
        """Let the next one be due now."""
        self._due = now if self._due is None else min(self._due, now)

    def start(self, now: float) -> None:
        """One starts."""
        self._started = now

    def end(self, now: float) -> None:
        """It is over, whatever became of it."""
        interval = self._policy.interval_s
        self._due = max(self._started + interval, now + self._policy.pause_s) if interval else None

    def succeed(self) -> None:
        """It is whole."""
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
