"""Decides whether a round may still commit: the event loop publishes renewals, workers check before each try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model.identity import RoundId
    from lakeward.model.settings import ServiceSettings
    from lakeward.model.tables import TablePath
    from lakeward.model.tiering import TableAssignment
    from lakeward.ports import Clock


class CommitFence:
    """Stops commits of rounds that ended or whose table was not renewed in time.

    Only the loop changes it. Workers read a mapping that is never changed after it was published.
    """

    def __init__(self, clock: Clock, settings: ServiceSettings) -> None:
        """Start with no round that may commit; `settings` say for how long a renewed table is certainly still ours."""
        self._clock = clock
        self._settings = settings
        self._rounds: dict[RoundId, TableAssignment] = {}
        self._renewed: Mapping[TableAssignment, float] = {}
        self.stopping = False
        """Whether the service stops: commits have no time for pauses then."""

    def begin(self, round_id: RoundId, assignment: TableAssignment) -> None:
        """Let a round commit as long as its table is renewed under this assignment."""
        self._rounds[round_id] = assignment

    def end(self, round_id: RoundId) -> None:
        """Let a round commit no longer."""
        self._rounds.pop(round_id, None)

    def publish(self, renewed: Mapping[TableAssignment, float], *, stopping: bool) -> None:
        """Replace what is known of the service.

        `renewed`: when each assigned table was last renewed, in seconds on the service's clock; never changed later.
        """
        self._renewed = renewed
        self.stopping = stopping

    def check(self, round_id: RoundId, path: TablePath) -> None:
        """Return normally if a round may commit now. Called by workers.

        Raises:
            FencedError: the round has ended, or its table was not renewed within the fence time.
        """
        silent = self._silent_s(round_id)
        if silent is None:
            message = f"table {path} is no longer in hand"
            raise FencedError(message)
        if silent >= self._settings.fence_s:
            message = f"table {path}: last renewal {silent:.0f} s ago, fence time is over"
            raise FencedError(message)

    def allows(self, round_id: RoundId) -> bool:
        """Return whether a round may commit now; for commits that can wait for the next renewal."""
        silent = self._silent_s(round_id)
        return silent is not None and silent < self._settings.fence_s

    def _silent_s(self, round_id: RoundId) -> float | None:
        """Return the age of the newest renewal in seconds, None where the round has ended."""
        assignment = self._rounds.get(round_id)
        renewed = None if assignment is None else self._renewed.get(assignment)
        return None if renewed is None else self._clock.now() - renewed
