"""What is shown of a table while it has no round, and of its rounds so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import structs

from lakeward.machines.rounds import Phase

if TYPE_CHECKING:
    from lakeward.coordinator.rounds.facts import RoundFacts
    from lakeward.model.status import RoundReport, TableReport

_SUCCEEDED = frozenset({"committed", "idle"})
_FAILED = frozenset({"failed", "fenced"})


@dataclass(slots=True)
class History:
    """What is known of a table, across its rounds."""

    report: TableReport
    """What is shown while it is not assigned and has no round; its `round` is the last one that did something."""
    waiting_since_ms: int | None = None
    """When the oldest row came that is known to wait."""
    caught_up: bool = False
    """Whether no row waited when that was looked at last."""
    deadline: float | None = None
    """Of the newest assignment; `due_ms` of the report is the earliest one since the last round that succeeded."""

    def note(self, **found: object) -> None:
        """Change what the report says, by the names of its fields."""
        self.report = structs.replace(self.report, **found)

    def round_ended(self, facts: RoundFacts, ended: RoundReport) -> None:
        """Note how a round ended; `ended` is its report."""
        outcome, before = facts.outcome, self.report
        if facts.context is not None:
            lag_rows, never_tiered = facts.lag_rows(), facts.never_tiered
            self.note(lag_rows=lag_rows, never_tiered=never_tiered, lake_files=facts.lake_files())
            table = facts.context.table
            self.note(layout=facts.context.layout.message, unread_kept_s=table.unread_kept_s)
            self.note(lake_table="" if table.lake_path is None else str(table.lake_path))
            if facts.context.replay is not None:
                self.note(replay=structs.replace(facts.context.replay, at_ms=facts.started_ms))
        elif outcome in _FAILED:  # it did not get to look: what the last round left is of the past
            self.note(lag_rows=None)
            self.waiting_since_ms, self.caught_up = None, False
        if facts.lag_s == 0:  # it found nothing new
            self.note_waiting(None)
        if outcome == "committed":
            self.note(rows=before.rows + ended.rows, rounds=before.rounds + 1, committed_ms=facts.ended_ms)
            letters = before.dead_letters + ended.dead_letters
            self.note(dropped=before.dropped + ended.dropped, dead_letters=letters)
            if ended.complete_ms is not None:  # until the source has said which row is the oldest that waits now
                self.note_complete(ended.complete_ms)
        elif facts.lag_s == 0:
            self.note(complete_ms=facts.started_ms)
        # What is shown while it is not assigned: a service that stops gives a suspended table back before a report
        # would have its phase.
        status, message = (Phase.SUSPENDED.value, facts.suspended) if facts.suspended else (outcome, facts.reason)
        self.note(status=status, message=message, ended={**before.ended, outcome: before.ended.get(outcome, 0) + 1})
        if outcome in _SUCCEEDED and not facts.reason:
            self.note(failing_since_ms=None, failure="", code="", due_ms=None)
        elif outcome in _FAILED or outcome in _SUCCEEDED:  # in part
            since_ms = before.failing_since_ms or facts.ended_ms
            self.note(failing_since_ms=since_ms, failure=facts.reason, code=facts.code)

    def note_lag(self, lag_s: float | None, now_ms: int) -> None:
        """Note how far behind the table was after a commit: seconds, at a time in milliseconds since 1970.

        None: rows wait, and nobody knows since when.
        """
        if lag_s is None:
            self.waiting_since_ms, self.caught_up = None, False
            return
        complete_ms = now_ms - round(lag_s * 1000)
        self.note(complete_ms=complete_ms)
        self.note_waiting(complete_ms if lag_s else None)

    def note_deadline(self, deadline: float, due_ms: int) -> None:
        """Note the deadline of an assignment, once; it does not put off one that was there before it.

        `deadline` is in seconds on the service's clock, `due_ms` the same in milliseconds since 1970.
        """
        if deadline != self.deadline:
            self.deadline = deadline
            self.note(due_ms=min(due_ms, self.report.due_ms or due_ms))

    def note_waiting(self, since_ms: int | None) -> None:
        """Note since when the oldest row waits, None where none does."""
        self.waiting_since_ms, self.caught_up = since_ms, since_ms is None

    def note_complete(self, complete_ms: int) -> None:
        """Note a moment up to which a commit has completed the lake."""
        self.note(complete_ms=max(complete_ms, self.report.complete_ms or complete_ms))
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
