"""A catalog that does not answer: every table of the lake waits for it, so it is said once, and not of each table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakeward.errors import LakeAwayError
from lakeward.model.status import LakeAway

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.coordinator.rounds.facts import RoundFacts

_log = structlog.get_logger("lakeward.service")


class LakeOutage:
    """Since when the catalog has not answered, by the rounds that asked it. Used on the event loop only."""

    def __init__(self) -> None:
        self.since_ms: int | None = None
        """When the first round began that got no answer, in milliseconds since 1970; None while the catalog answers."""
        self._asked_ms = 0
        """When the newest of them had none."""
        self._reason = ""

    def round_ended(self, facts: RoundFacts, tables: int) -> None:
        """Note how a round ended; `tables`: how many wait now, for the log."""
        ended_ms = facts.ended_ms or facts.started_ms
        if facts.code != LakeAwayError.code:
            self.look((facts,), ended_ms)  # one that found nothing new may be over before anybody looks
            return
        if self.since_ms is None:
            self.since_ms = facts.started_ms if facts.context is None else ended_ms
            waiting_s = (ended_ms - self.since_ms) / 1000
            _log.warning("catalog does not answer", seconds=round(waiting_s, 3), tables=tables, reason=facts.reason)
        self._asked_ms, self._reason = ended_ms, facts.reason

    def look(self, rounds: Iterable[RoundFacts], now_ms: int) -> None:
        """End the outage if the catalog has answered a round in progress since. `now_ms`: milliseconds since 1970."""
        if self.since_ms is None or all((one.opened_ms or 0) <= self._asked_ms for one in rounds):
            return
        _log.info("catalog answers again", seconds=round((now_ms - self.since_ms) / 1000, 3))
        self.since_ms = None

    def report(self, tables: int) -> LakeAway | None:
        """Return the outage, None while there is none. `tables`: how many wait now."""
        return None if self.since_ms is None else LakeAway(self.since_ms, tables, self._reason)
