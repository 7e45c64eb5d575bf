"""A round that has ended, as it is kept: `lakeward rounds`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round. Times are milliseconds since 1970, durations seconds; None is unknown.

    `round` is its full name. `outcome` is as of `RoundReport`, `reason` and `code` say why it failed. `kind` is what it
    read: `log`, `snapshots`, `snapshots and log`, or empty where it had not begun. `timings_s` are as of `RoundReport`:
    `enumerate`, `lease`, `launch`, `job` and `commit` follow each other; read, decode, encode, upload and others are
    sums over all subtasks within `job`. `offsets` are those after the round, empty for a table of many buckets;
    `end_offset` is their sum. `launches` counts those of its Spark job, the first one included; `failovers` how often
    splits came back from a lost subtask or job. `checkpoints` completed, `aborted` did not; `resumed_from` is the
    checkpoint that it went on from. The lake has every row that the source had at `complete_ms`: the start of a round
    that committed and left nothing that it knew of, else None. `freshness_s` is what the table was promised then.
    """

    table: str
    table_id: int
    round: str
    outcome: str
    kind: str
    started_ms: int
    ended_ms: int
    rows: int
    splits: int
    splits_done: int
    files: int
    size_bytes: int
    snapshot_id: int | None = None
    timings_s: dict[str, float] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    end_offset: int | None = None
    launches: int = 0
    failovers: int = 0
    checkpoints: int = 0
    aborted: int = 0
    resumed_from: str = ""
    exchanged_bytes: int | None = None
    reason: str = ""
    code: str = ""
    complete_ms: int | None = None
    freshness_s: float | None = None

    @property
    def missed_by_s(self) -> float | None:
        """By how much the lake was older at the round's end than promised; 0 if it was not, None if unknown."""
        if self.complete_ms is None or self.freshness_s is None:
            return None
        return max(0.0, (self.ended_ms - self.complete_ms) / 1000 - self.freshness_s)
