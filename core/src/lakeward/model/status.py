"""The report of a running service: written to a status file, shown as progress, read by `lakeward tables`."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakeward.model.tables import TableBucket


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A round's checkpoints: the newest that completed, and how many were aborted.

    `name` is as `lakeward checkpoints` shows it, empty where none has completed; `completed_ms` is milliseconds since
    1970, `seconds` from its start to its end. `aborted` counts the aborted ones of this round, `reason` says
    why the last of them was.
    """

    name: str = ""
    completed_ms: int = 0
    seconds: float = 0.0
    size_bytes: int = 0
    aborted: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round, running or over.

    `outcome` is `running`, `committed`, `idle`, `failed`, `dropped`, `fenced`, `stopped` or `stale`. Times are
    milliseconds since 1970. `timings_s` says where the time went: enumerate, lease, job, read, decode, encode, upload,
    keys, commit, source, wait.
    """

    round_name: str
    outcome: str
    started_ms: int
    ended_ms: int | None
    rows: int
    splits: int
    splits_done: int
    files: int
    size_bytes: int
    rows_per_s: float
    snapshot_id: int | None
    reason: str = ""
    timings_s: dict[str, float] = field(default_factory=dict)
    checkpoint: CheckpointReport | None = None
    slots: int = 0
    """Of a running round: subtasks that Spark gave it a slot for, out of `slots_asked`."""
    slots_asked: int = 0


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table as the service sees it. `status` is its phase, `message` says what is wrong, if anything."""

    path: str
    table_id: int
    status: str
    message: str
    lag_rows: int | None
    lag_s: float | None
    rounds: int
    rows: int
    round: RoundReport | None


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """The whole service at one moment."""

    service: str
    incarnation: str
    pid: int
    state: str
    """`starting`, `serving`, `stopping`, `stopped`."""
    written_ms: int
    spark_ui: str | None
    tables: tuple[TableReport, ...]
    lease_id: str | None
    leased: int
    releasing: int
    lease_message: str = ""
    held_for_checkpoints: int = 0
    """Those of `leased` that a checkpoint has still to read, with or without a round."""
    snapshots_gone: int = 0
    """Snapshots that were needed and found to be gone, since the start."""
    host: str = ""
    """The machine that the service runs on; `pid` is a process of it."""


@dataclass(frozen=True, slots=True)
class TableOffsets:
    """`lakeward tables`: one bucket's offsets."""

    bucket: TableBucket
    tiered: int | None
    end: int
