"""Makes the spans of one round: the round, its phases, its commits and their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model.spans import ROUND, RoundSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.coordinator.commits.round_committer import CommittedRound, RoundCommit
    from lakeward.model.identity import RoundId
    from lakeward.model.status import RoundReport
    from lakeward.model.tables import TablePath
    from lakeward.ports import Clock

_WELL = frozenset({"committed", "idle", "stopped", "returned", "dropped"})
_IDLE = "idle"
_MS = 1000.0


class RoundTrace:
    """Passes each span on when it has ended. The spans of a round that finds nothing new are left out."""

    def __init__(
        self, round_id: RoundId, path: TablePath, started_ms: int, on_span: Callable[[RoundSpan], None]
    ) -> None:
        """Start with the first phase at `started_ms`, in milliseconds since 1970; `on_span` returns at once."""
        self._on_span = on_span
        self._name = str(round_id)
        self._facts: Mapping[str, str | int | float] = {
            "lakeward.round": self._name,
            "lakeward.table": str(path),
            "lakeward.table_id": round_id.table_id,
            "lakeward.epoch": round_id.epoch,
        }
        self._started_ms = self._since_ms = started_ms
        self._waiting: list[RoundSpan] | None = []
        """Spans that are passed on once the round is known to have something to do."""
        self._number = 0

    def phase_ended(self, phase: str, now_ms: int) -> None:
        """Note the end of a phase, in milliseconds since 1970; it began when the one before ended."""
        self._pass_on(self._span(phase, self._next_key(phase), ROUND, (self._since_ms, now_ms), {}))
        self._since_ms = now_ms
        if phase != "enumerate":
            self._let_go()

    def commit_ended(
        self,
        name: str,
        times_ms: tuple[int, int],
        *,
        step: int,
        files: int = 0,
        snapshot_id: int | None = None,
        parts_ms: Mapping[str, tuple[int, int]] | None = None,
        error: str = "",
    ) -> None:
        """Note the end of a commit.

        `name`: `commit` for the round's last one, `step` for one while the round continues. `times_ms`: its start and
        its end. `step`: its number within the round, from 1. `files`: how many it added. `snapshot_id`: the lake's,
        None where none is known. `parts_ms`: start and end of each part, by name. `error`: why it failed, empty where
        it did not.
        """
        self._let_go()
        facts: dict[str, str | int | float] = {"lakeward.step": step, "lakeward.files": files}
        if snapshot_id is not None:
            facts["lakeward.snapshot_id"] = snapshot_id
        key = self._next_key(name)
        for part, times in (parts_ms or {}).items():
            self._pass_on(self._span(part, f"{key} {part}", key, times, {}))
        self._pass_on(self._span(name, key, ROUND, times_ms, facts, error=error))
        if name == "commit":
            self._since_ms = times_ms[1]

    def ended(self, report: RoundReport, *, running: str, attempt: int) -> None:
        """Note the end of the round.

        `running`: the phase that it was in, which failed if the round did; empty if it was between two. `attempt`: 1
        for the first one since the table's last successful round.
        """
        if report.outcome == _IDLE:
            return
        self._let_go()
        ended_ms = report.ended_ms or self._since_ms
        error = "" if report.outcome in _WELL else report.reason or report.outcome
        failed = {"error.type": report.code} if error and report.code else {}
        if running and error:
            self._pass_on(
                self._span(running, self._next_key(running), ROUND, (self._since_ms, ended_ms), failed, error=error)
            )
        figures: dict[str, str | int | float] = {
            "lakeward.outcome": report.outcome,
            "lakeward.rows": report.rows,
            "lakeward.bytes": report.size_bytes,
            "lakeward.files": report.files,
            "lakeward.splits": report.splits,
            "lakeward.attempt": attempt,
            "lakeward.checkpoints": report.checkpoints,
            "lakeward.failovers": report.failovers,
            **failed,
        }
        if report.snapshot_id is not None:
            figures["lakeward.snapshot_id"] = report.snapshot_id
        if report.reason:
            figures["lakeward.reason"] = report.reason
        self._pass_on(self._span("round", ROUND, None, (self._started_ms, ended_ms), figures, error=error))

    def _next_key(self, name: str) -> str:
        self._number += 1
        return f"{self._number} {name}"

    def _span(
        self,
        name: str,
        key: str,
        parent: str | None,
        times_ms: tuple[int, int],
        facts: Mapping[str, str | int | float],
        *,
        error: str = "",
    ) -> RoundSpan:
        started, ended = times_ms
        return RoundSpan(self._name, key, parent, name, started, max(started, ended), {**self._facts, **facts}, error)

    def _pass_on(self, span: RoundSpan) -> None:
        if self._waiting is not None:
            self._waiting.append(span)
        else:
            self._on_span(span)

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for span in waiting:
            self._on_span(span)


def trace_commit(
    trace: RoundTrace | None,
    clock: Clock,
    commit: RoundCommit,
    name: str,
    began: float,
    *,
    done: CommittedRound | None = None,
    error: str = "",
) -> None:
    """Note the end of a commit, which is now, if somebody wants the spans of its round.

    `name`: as of `RoundTrace.commit_ended`. `began`: in seconds on the clock. `done`: what has landed, None where it
    failed. `error`: why it failed, empty where it did not.
    """
    if trace is None:
        return
    now, wall_ms = clock.now(), clock.wall_ms()

    def in_ms(start: float, end: float) -> tuple[int, int]:
        return wall_ms - round((now - start) * _MS), wall_ms - round((now - end) * _MS)

    trace.commit_ended(
        name,
        in_ms(began, now),
        step=commit.step,
        files=len(commit.files),
        snapshot_id=None if done is None else done.snapshot_id,
        parts_ms={} if done is None else {part: in_ms(*times) for part, times in done.parts_s.items()},
        error=error,
    )
