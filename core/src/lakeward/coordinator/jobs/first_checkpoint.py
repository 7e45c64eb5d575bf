"""How long the first checkpoint of a launch takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.coordinator.checkpoints.round_checkpoints import CompletedCheckpoint, RoundCheckpoints


class FirstCheckpoint:
    """The first checkpoint of one launch."""

    def __init__(self, before: CompletedCheckpoint | None) -> None:
        """Wait for a checkpoint that is newer than `before`, the round's newest one so far."""
        self._before = before
        self._ready_ms: int | None = None
        self.seconds: float | None = None
        """From the moment in which checkpoints could be taken to its completion; None before that."""

    def may_be_taken(self, now_ms: int) -> None:
        """Count from now, in milliseconds since 1970, if that is not so yet."""
        if self._ready_ms is None:
            self._ready_ms = now_ms

    def look(self, checkpoints: RoundCheckpoints) -> None:
        """Note what has become of it.

        Args:
            checkpoints: of the round.
        """
        newest = checkpoints.newest
        if self.seconds is None and self._ready_ms is not None and newest is not None and newest is not self._before:
            self.seconds = (newest.completed_ms - self._ready_ms) / 1000
