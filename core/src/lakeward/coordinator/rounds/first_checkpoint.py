"""The first checkpoint of a launch: one that recovers takes it at once, and how long it took is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.checkpoints import CompletedCheckpoint, RoundCheckpoints
    from lakeward.coordinator.rounds.subtasks import Subtasks


class FirstCheckpoint:
    """The first checkpoint of one launch: when it may begin, and how long it took."""

    def __init__(self, before: CompletedCheckpoint | None) -> None:
        """Wait for a checkpoint that is newer than `before`, the round's newest one so far."""
        self._before = before
        self._ready_ms: int | None = None
        self._started = False
        self.seconds: float | None = None
        """From the moment in which checkpoints could be taken to its completion; None before that."""

    def begin(self, group: Subtasks, now_ms: int) -> bool:
        """Return whether one is to start now, without waiting for the interval.

        Args:
            group: of the launch.
            now_ms: milliseconds since 1970.
        """
        if not group.takes_checkpoints:
            return False
        if self._ready_ms is None:
            self._ready_ms = now_ms
        return group.recovers and not self._started

    def look(self, checkpoints: RoundCheckpoints) -> None:
        """Note what has become of it.

        Args:
            checkpoints: of the round.
        """
        if self._ready_ms is None:
            return
        self._started = self._started or checkpoints.running is not None
        newest = checkpoints.newest
        if self.seconds is None and newest is not None and newest is not self._before:
            self.seconds = (newest.completed_ms - self._ready_ms) / 1000
