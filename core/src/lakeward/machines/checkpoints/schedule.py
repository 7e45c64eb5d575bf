"""When the next checkpoint of a round is due, and how many in a row have failed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import UsageError

if TYPE_CHECKING:
    from lakeward.model.settings import CheckpointSettings


class Schedule:
    """The times of one round's checkpoints."""

    def __init__(self, settings: CheckpointSettings, now: float) -> None:
        """Make the first checkpoint due one interval from now.

        Args:
            settings: how often, how long, how many failures.
            now: seconds.

        Raises:
            UsageError: no checkpoint can be taken in these times.
        """
        if settings.timeout_s <= 0 or min(settings.interval_s, settings.pause_s, settings.tolerated) < 0:
            message = f"checkpoints: expected a timeout above 0 and nothing below 0, found {settings}"
            raise UsageError(message)
        self._settings = settings
        self._started = now
        self._due = now + settings.interval_s if settings.interval_s else None
        self._failures = 0

    def copy(self) -> Schedule:
        """Return a copy that can be changed without changing this."""
        copied = Schedule.__new__(Schedule)
        vars(copied).update(vars(self))
        return copied

    @property
    def due(self) -> float | None:
        """When the next one starts, in seconds; None: never."""
        return self._due

    @property
    def deadline(self) -> float:
        """When all parts of the newest checkpoint have to be stored, in seconds."""
        return self._started + self._settings.timeout_s

    @property
    def failures(self) -> int:
        """How many in a row have failed."""
        return self._failures

    def start(self, now: float) -> None:
        """A checkpoint starts."""
        self._started = now

    def end(self, now: float) -> None:
        """The checkpoint has completed or was aborted: the next one is due later."""
        interval = self._settings.interval_s
        self._due = max(self._started + interval, now + self._settings.pause_s) if interval else None

    def succeed(self) -> None:
        """The checkpoint is complete: reset the count of failures."""
        self._failures = 0

    def fail(self) -> bool:
        """Count a failure.

        Returns:
            True if that is one too many; then the count is reset.
        """
        self._failures += 1
        if self._failures <= self._settings.tolerated:
            return False
        self._failures = 0
        return True
