"""What is shown of a table while it has no round, and of its rounds so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.machines.rounds import Phase

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.facts import RoundFacts
    from lakeward.model.status import RoundReport

_SUCCEEDED = frozenset({"committed", "idle"})
_FAILED = frozenset({"failed", "fenced"})


@dataclass(slots=True)
class History:
    """What is shown of a table, across its rounds."""

    path: str
    ended: Counter[str] = field(default_factory=Counter)
    """Rounds by outcome."""
    rows: int = 0
    lag_rows: int | None = None
    waiting_since_ms: int | None = None
    """When the oldest row came that is known to wait."""
    caught_up: bool = False
    """Whether no row waited when that was looked at last."""
    complete_ms: int | None = None
    committed_ms: int | None = None
    freshness_s: float | None = None
    lake_files: int | None = None
    last: RoundReport | None = None
    status: str = "idle"
    message: str = ""
    failing_since_ms: int | None = None
    failure: str = ""
    code: str = ""
    never_tiered: bool = False
    deadline: float | None = None
    """Of the newest assignment."""
    due_ms: int | None = None
    """The earliest deadline since the last round that succeeded."""

    def round_ended(self, facts: RoundFacts, rows: int) -> None:
        """Note how a round ended that has read so many rows."""
        outcome = facts.outcome
        if facts.context is not None:
            self.lag_rows, self.never_tiered = facts.lag_rows(), facts.never_tiered
            self.lake_files = facts.lake_files()
        elif outcome in _FAILED:  # it did not get to look: what the last round left is of the past
            self.lag_rows, self.waiting_since_ms, self.caught_up = None, None, False
        if facts.lag_s == 0:  # it found nothing new
            self.note_waiting(None)
        if outcome == "committed":
            self.rows += rows
            self.committed_ms = facts.ended_ms
            complete_ms = facts.complete_ms()
            if complete_ms is not None:  # until the source has said which row is the oldest that waits now
                self.note_complete(complete_ms)
        elif facts.lag_s == 0:
            self.complete_ms = facts.started_ms
        self.ended[outcome] += 1
        # What is shown while it is not assigned: a service that stops gives a suspended table back before a report
        # would have its phase.
        self.status, self.message = outcome, facts.reason
        if facts.suspended:
            self.status, self.message = Phase.SUSPENDED.value, facts.suspended
        if outcome in _SUCCEEDED and not facts.reason:
            self.failing_since_ms, self.failure, self.code, self.due_ms = None, "", "", None
        elif outcome in _FAILED or outcome in _SUCCEEDED:  # in part
            self.failing_since_ms = self.failing_since_ms or facts.ended_ms
            self.failure, self.code = facts.reason, facts.code

    def note_lag(self, lag_s: float, now_ms: int) -> None:
        """Note how far behind the table was after a commit: seconds, at a time in milliseconds since 1970."""
        self.complete_ms = now_ms - round(lag_s * 1000)
        self.note_waiting(self.complete_ms if lag_s else None)

    def note_deadline(self, deadline: float, due_ms: int) -> None:
        """Note the deadline of an assignment, once; it does not put off one that was there before it.

        `deadline` is in seconds on the service's clock, `due_ms` the same in milliseconds since 1970.
        """
        if deadline != self.deadline:
            self.deadline, self.due_ms = deadline, min(due_ms, self.due_ms or due_ms)

    def note_waiting(self, since_ms: int | None) -> None:
        """Note since when the oldest row waits, None where none does."""
        self.waiting_since_ms, self.caught_up = since_ms, since_ms is None

    def note_complete(self, complete_ms: int) -> None:
        """Note a moment up to which a commit has completed the lake."""
        self.complete_ms = max(complete_ms, self.complete_ms or complete_ms)
        if self.waiting_since_ms is not None and self.waiting_since_ms < complete_ms:
            self.note_waiting(None)  # that row is in the lake now

    def lag_s(self, lag_rows: int | None, now_ms: int) -> float | None:
        """Return for how long the oldest row has waited; None where rows wait, and nobody has said since when.

        `lag_rows`: known to wait now; they came later if none waited when that was looked at last. `now_ms`:
        milliseconds since 1970.
        """
        if self.waiting_since_ms is not None:
            return max(0.0, (now_ms - self.waiting_since_ms) / 1000)
        return 0.0 if self.caught_up and not lag_rows else None
