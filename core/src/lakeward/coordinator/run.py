"""One try of a round, from its opening to its end: what the service keeps about it, and how it is reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.model.status import RoundReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.checkpoint.journal import RoundJournal
    from lakeward.coordinator.job import RoundJob
    from lakeward.coordinator.opening import Opening
    from lakeward.model.identity import RoundId
    from lakeward.model.results import LakeFile
    from lakeward.model.tables import TableBucket
    from lakeward.model.tiering import Offer

_MS = 1000.0


@dataclass(slots=True)
class RoundRun:
    """One try. Everything below `started_ms` is filled in as the round goes on."""

    offer: Offer
    round_id: RoundId
    started_ms: int
    opening: Opening | None = None
    journal: RoundJournal | None = None
    job: RoundJob | None = None
    outcome: str = "running"
    reason: str = ""
    ended_ms: int | None = None
    snapshot_id: int | None = None
    committed: Mapping[TableBucket, int] | None = None
    lag_s: float | None = None
    timings_s: dict[str, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """True once its end was commanded."""
        return self.outcome != "running"

    def files(self) -> tuple[LakeFile, ...]:
        """Return the files of finished splits that may be committed."""
        if self.job is None:
            return ()
        whole = self.job.splits.committable()
        return tuple(file for split, result in self.job.results.items() if split in whole for file in result.files)

    def offsets(self) -> Mapping[TableBucket, int]:
        """Return the offsets of all buckets after the round, as far as it is whole."""
        if self.job is not None:
            return self.job.splits.offsets()
        return self.opening.enumeration.offsets if self.opening is not None else {}

    def lag_rows(self) -> int | None:
        """Return how many known records are not in the lake."""
        if self.opening is None:
            return None
        return self.opening.waiting_rows(self.opening.tiered if self.committed is None else self.committed)

    def report(self, now_ms: int) -> RoundReport:
        """Describe the round for people.

        Args:
            now_ms: milliseconds since 1970.
        """
        rows, size, done = self.job.progress() if self.job is not None else (0, 0, 0)
        seconds = max(((self.ended_ms or now_ms) - self.started_ms) / _MS, 0.001)
        files = self.files()
        return RoundReport(
            round_name=str(self.round_id),
            outcome=self.outcome,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            rows=rows,
            splits=len(self.opening.enumeration.splits) if self.opening is not None else 0,
            splits_done=done,
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files) or size,
            rows_per_s=rows / seconds,
            snapshot_id=self.snapshot_id,
            reason=self.reason,
            timings_s=self._timings(),
        )

    def _timings(self) -> dict[str, float]:
        total = dict(self.timings_s)
        for result in self.job.results.values() if self.job is not None else ():
            for phase, seconds in result.timings_s.items():
                total[phase] = total.get(phase, 0.0) + seconds
        return {phase: round(seconds, 4) for phase, seconds in total.items()}
