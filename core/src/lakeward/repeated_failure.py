"""A failure that comes again and again: it is logged once, and how often it came when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class RepeatedFailure:
    """How one thing goes that is done again and again. Used by one thread at a time."""

    def __init__(self, log: Callable[..., Any], failed: str, again: str) -> None:
        """Start without a failure; `log` gets the line `failed`, and the line `again` once it succeeds again."""
        self._log = log
        self._failed = failed
        self._again = again
        self._reason = ""
        self._failures = 0

    def failed(self, reason: str, **fields: object) -> None:
        """Log a failure, unless the last one had the same reason."""
        self._failures += 1
        if reason != self._reason:
            self._reason = reason
            self._log(self._failed, reason=reason, **fields)

    def succeeded(self) -> None:
        """Log how often it failed before, if it did."""
        if self._failures:
            self._log(self._again, failures=self._failures)
        self._reason, self._failures = "", 0
